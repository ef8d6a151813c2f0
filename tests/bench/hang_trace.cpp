// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/hang_trace.h"

#include <algorithm>
#include <cmath>

#include "detectors/hang/stats/numbers.h"

namespace sim {

using resil::hang::stats::Look;

namespace {

constexpr double kNever = 1e300;
constexpr uint32_t kIoSite = 60, kSerialSite = 61, kStartSite = 62, kLoopSites = 60;

/// x with P(X > x) = p for a standard normal X.
double normal_above(double p) {
  using resil::hang::stats::normal_quantile_above;
  return p <= .5 ? normal_quantile_above(std::max(p, 1e-300)) : -normal_quantile_above(std::max(1 - p, 1e-300));
}

}  // namespace

Trace::Trace(const Shape& shape, uint32_t ranks, const Weather& weather, uint64_t seed)
    : shape_(shape), weather_(weather), ranks_(ranks) {
  random_.start(seed);
  io_visible_ = random_.uniform() < .9;  // the rest of the file systems sleeps interruptibly and counts nothing
  start_pending_ = weather.start;
  next_io_ = once(shape.io.per_hour);
  next_serial_ = once(shape.serial.per_hour);
  next_inline_ = once(shape.inline_serial.per_hour);
  next_change_ = once(shape.changes_per_hour);
  next_stop_ = once(weather.stops_per_hour);
  next_slow_ = once(weather.slow_per_hour);
  next_stall_ = once(weather.stalls_per_hour);
  compute_ = shape.compute;
  communicate_ = shape.communicate;
  scale_ = 1;
  schedule();
}

/// Mean and deviation of the length of an iteration, for skipping many: from a sample.
void Trace::schedule() {
  double sum = 0, squares = 0;
  constexpr int kSample = 64;
  for (int i = 0; i < kSample; ++i) {
    const double length = last_of(ranks_, 1) + communicate_;
    sum += length;
    squares += length * length;
  }
  mean_length_ = sum / kSample;
  length_deviation_ = std::sqrt(std::max(0., squares / kSample - mean_length_ * mean_length_));
}

double Trace::ln_uniform() { return std::log(1 - random_.uniform()); }

double Trace::normal() { return normal_above(random_.uniform()); }

double Trace::length(const Rare& rare) {
  double result;
  do result = rare.median * std::exp(rare.sigma * normal());
  while (result > rare.most);
  return result;
}

/// P(a rank still computes after x seconds).
double Trace::survival(double x) const {
  const double share = x / compute_;
  switch (shape_.noise) {
    case Noise::kUniform: return std::clamp((1 + shape_.spread - share) / (2 * shape_.spread), 0., 1.);
    case Noise::kLogNormal: return share <= 0 ? 1 : .5 * std::erfc(std::log(share) / shape_.spread * M_SQRT1_2);
    default: return share <= 1 ? 1 : std::pow(share, -shape_.spread);
  }
}

/// When the last of n ranks ends, all of which end after the time whose survival is `above`.
double Trace::last_of(uint64_t n, double above) {
  // P(all end before t) = (1 - s(t) / above)^n
  const double s = -std::expm1(ln_uniform() / static_cast<double>(n)) * above;
  survival_end_ = s;
  switch (shape_.noise) {
    case Noise::kUniform: return compute_ * (1 + shape_.spread - 2 * shape_.spread * s);
    case Noise::kLogNormal: return compute_ * std::exp(shape_.spread * normal_above(s));
    default: return compute_ * std::pow(s, -1 / shape_.spread);
  }
}

uint64_t Trace::binomial(uint64_t n, double p) {
  if (n == 0 || p <= 0) return 0;
  if (p >= 1) return n;
  if (p > .5) return n - binomial(n, 1 - p);
  const double mean = static_cast<double>(n) * p;
  if (mean > 30) {
    const double value = std::floor(mean + std::sqrt(mean * (1 - p)) * normal() + .5);
    return static_cast<uint64_t>(std::clamp(value, 0., static_cast<double>(n)));
  }
  double term = std::exp(static_cast<double>(n) * std::log1p(-p)), u = random_.uniform();
  uint64_t k = 0;
  const double odds = p / (1 - p);
  for (; u > term && k < n; ++k) {
    u -= term;
    term *= odds * static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return k;
}

void Trace::begin_serial(double length, double hidden, uint32_t site) {
  stage_ = Stage::kSerial;
  end_ = begin_ + length;
  straggler_end_ = end_;
  hidden_share_ = hidden;
  site_ = site;
}

void Trace::begin_compute() {
  stage_ = Stage::kCompute;
  site_ = loop_site_;
  others_ = ranks_ - 1;
  survival_ = 1;
  const double last = last_of(ranks_, 1);  // the last one is the special rank, whatever it suffers
  others_end_ = begin_ + last;
  double own = last;
  hidden_share_ = 1;
  if (begin_ < slow_until_) {  // any rank: a usual one's time, multiplied
    const double slowed = compute_ * slow_hidden_ * slow_visible_;
    if (slowed > own) {
      own = slowed;
      hidden_share_ = 1 / slow_visible_;
    }
  }
  if (begin_ >= next_slow_) {
    slow_until_ = begin_ + 5 + 55 * random_.uniform();
    slow_hidden_ = 1 + 2 * random_.uniform();
    slow_visible_ = std::exp(random_.uniform() * std::log(30));
    next_slow_ = slow_until_ - 3600 / weather_.slow_per_hour * ln_uniform();
  }
  if (begin_ >= next_inline_) {
    own += length(shape_.inline_serial);
    next_inline_ = begin_ + own - 3600 / shape_.inline_serial.per_hour * ln_uniform();
  }
  if (begin_ + own >= next_stop_) {
    const double stopped = std::exp(random_.uniform() * std::log(60));
    stop_begin_ = std::max(begin_, next_stop_);
    stop_end_ = stop_begin_ + stopped;
    own += stopped;
    next_stop_ = stop_end_ - 3600 / weather_.stops_per_hour * ln_uniform();
  }
  if (hung_ != 0) {
    others_ = ranks_ - hung_;
    own = kNever;
  }
  straggler_end_ = end_ = begin_ + own;
}

/// Another part of the program: iterations up to 4 times as long or as short, at the same call sites or at others.
void Trace::change() {
  scale_ = std::clamp(scale_ * std::exp((2 * random_.uniform() - 1) * std::log(4)), .05, 40.);
  compute_ = shape_.compute * scale_;
  communicate_ = shape_.communicate * scale_;
  if (random_.uniform() < .5) loop_site_ = static_cast<uint32_t>(random_.next() % kLoopSites);
  next_change_ = once(shape_.changes_per_hour);
  schedule();
}

void Trace::next_stage() {
  begin_ = now_ = end_;
  ++moves_;
  ++visits_[site_];
  if (stage_ == Stage::kCompute) {
    stage_ = Stage::kCommunicate;
    end_ = begin_ + communicate_;
    if (begin_ >= next_stall_) {
      end_ += std::exp(random_.uniform() * std::log(120));
      next_stall_ = end_ - 3600 / weather_.stalls_per_hour * ln_uniform();
    }
    return;
  }
  if (hung_ == 0) {
    if (start_pending_) {  // input: half of it shows as I/O, in half of the programs
      start_pending_ = false;
      return begin_serial(20 * std::exp(1.2 * normal()), random_.uniform() < .5 ? .5 : 1, kStartSite);
    }
    if (begin_ >= next_change_) change();
    if (begin_ >= next_io_) {
      const double length_now = length(shape_.io);
      next_io_ = begin_ + length_now - 3600 / shape_.io.per_hour * ln_uniform();
      return begin_serial(length_now, io_visible_ ? .1 * random_.uniform() : 1, kIoSite);
    }
    if (begin_ >= next_serial_) {
      const double length_now = length(shape_.serial);
      next_serial_ = begin_ + length_now - 3600 / shape_.serial.per_hour * ln_uniform();
      return begin_serial(length_now, 1, kSerialSite);
    }
  }
  begin_compute();
}

/// Nothing but usual iterations until the next event: their number in a given time is nearly normal.
void Trace::skip_iterations(double now) {
  double until =
      std::min({now, next_io_, next_serial_, next_inline_, next_change_, next_stop_, next_slow_, next_stall_});
  if (hung_ != 0 || start_pending_ || slow_until_ > end_) return;
  const double count = std::floor((until - end_ - 4 * length_deviation_) / mean_length_) - 2;
  if (count < 4) return;
  const double deviation = std::sqrt(count) * length_deviation_;
  double advance = count * mean_length_ + std::clamp(deviation * normal(), -3 * deviation, 3 * deviation);
  advance = std::min(advance, until - end_ - mean_length_);
  if (advance <= 0) return;
  end_ += advance;
  moves_ += static_cast<uint64_t>(count);
  visits_[loop_site_] += static_cast<uint64_t>(count);
}

double Trace::hang(uint32_t ranks) {
  hung_ = ranks;
  while (stage_ != Stage::kCompute || end_ < kNever) next_stage();
  return begin_;
}

Look Trace::look(double now) {
  while (end_ <= now) {
    if (stage_ == Stage::kCommunicate) skip_iterations(now);
    next_stage();
  }
  now_ = now;
  uint64_t out = 0, inner = 0;
  double excused = 0, starved = 0;
  const double step = now - last_look_;
  if (stage_ == Stage::kSerial) {
    out = 1;
    excused = std::min(step, now - begin_) * (1 - hidden_share_);
  } else if (stage_ == Stage::kCompute) {
    if (others_ != 0) {
      const double s = survival(now - begin_);
      // In a hang the others are not bounded by the last one's time.
      const double end = hung_ != 0 ? 0 : survival_end_;
      others_ = now >= others_end_ && hung_ == 0 ? 0 : binomial(others_, (s - end) / (survival_ - end));
      survival_ = s;
    }
    out = others_ + (hung_ != 0 ? hung_ : 1);
    excused = starved = std::min(step, now - begin_) * (1 - hidden_share_);
    const double stopped = std::min(now, stop_end_) - std::max(last_look_, stop_begin_);
    excused = std::max(excused, std::max(0., stopped));
    inner = ranks_ - out;
  } else {
    const double part = communicate_ / shape_.calls;
    inner = static_cast<uint64_t>(std::min(now - begin_, communicate_ - part / 2) / part);
  }
  excused = std::min(excused, step);
  last_look_ = now;
  last_out_ = out;
  // Looks between stages differ by moves_, within a stage by `inner`, which only rises.
  return {now,     static_cast<uint32_t>(out), static_cast<uint32_t>(ranks_), moves_ * 1000003 + inner, visits_[site_],
          excused, std::min(starved, excused)};
}

}  // namespace sim
