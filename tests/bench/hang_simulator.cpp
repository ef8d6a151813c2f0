// SPDX-License-Identifier: Apache-2.0
//
// Feeds the judge of computation hangs (detectors/hang/stats/watch.h) with what programs of any size would show it, and
// reports false alarms an hour and, with injected hangs, how many are found and after how long.
//
//   hang_simulator --ranks N --hours H [--hangs N] [--seed S] [--shape PART-OF-NAME] [--interval I] [--alpha A]
//   [--calm]
//                  [--blind]
//   hang_simulator --trace FILE [--repeat N]     a recorded trace (format: watch.h); --repeat: end to end
//
// One tab-separated line a shape: name, in the total or not, hours, suspicions an hour, verified false alarms; hangs,
// suspected, verified; median and 95 % of the delays of suspicion and of verified finding, medians of the longest quiet
// interval before, and of the verified delay over the larger of 15 s and 3 x that.
// --calm: no disturbances; --blind: the kernel is not asked (Look::excused is 0) and calls are not counted
// (Look::familiar is unknown).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bench/hang_trace.h"

namespace {

using namespace resil::hang::stats;

struct Options {
  uint32_t ranks = 64, hangs = 0, repeat = 1;
  double hours = 0, interval = .4, alpha = .001;
  uint64_t seed = 1;
  std::string shape, trace;
  bool calm = false, blind = false;
} options;

struct Healthy {
  double hours = 0;
  uint64_t suspicions = 0, alarms = 0;
};

/// Counts findings once a quiet interval.
class Counter {
 public:
  explicit Counter(Healthy& into) : into_(into) {}
  void note(const Verdict& verdict) {
    into_.suspicions += verdict.finding >= Finding::kSuspected && last_ < Finding::kSuspected;
    into_.alarms += verdict.finding == Finding::kVerified && last_ != Finding::kVerified;
    last_ = verdict.quiet == 0 ? Finding::kHealthy : std::max(last_, verdict.finding);
  }

 private:
  Healthy& into_;
  Finding last_ = Finding::kHealthy;
};

sim::Weather weather(bool start) { return options.calm ? sim::Weather{0, 0, 0, start} : sim::Weather{1, 1, .1, start}; }

Verdict look(Watch& watch, sim::Trace& trace, double now) {
  Look seen = trace.look(now);
  if (options.blind) {
    seen.excused = seen.starved = 0;
    seen.familiar = kFamiliarUnknown;
  } else if (watch.quiet() < Watch::kAskAfter) {
    seen.excused = seen.starved = watch.quiet() == 0 ? 0 : seen.starved;
  }
  return watch.look(seen);
}

/// Jobs of a quarter of an hour to half a day, one after the other.
Healthy healthy(const sim::Shape& shape, Random& random) {
  Healthy result;
  while (result.hours < options.hours) {
    const double most = std::min(12., options.hours - result.hours);
    const double hours = std::min(most, .25 * std::exp(random.uniform() * std::log(48)));
    sim::Trace trace(shape, options.ranks, weather(true), random.next());
    Watch watch;
    watch.start(options.ranks, options.interval, options.alpha, random.next());
    Counter counter(result);
    double now = 0;
    while (now < hours * 3600) {
      now += watch.next_step();
      const Verdict verdict = look(watch, trace, now);
      const uint64_t before = result.alarms;
      counter.note(verdict);
      if (result.alarms != before && getenv("HANG_SIMULATOR_ALARMS") != nullptr)
        fprintf(stderr, "%s: t %.1f quiet %.1f limit %.1f longest %.1f n %llu I %.1f phase %u\n", shape.name, now,
                verdict.quiet, verdict.verified_at, watch.record().longest(),
                static_cast<unsigned long long>(watch.record().intervals()), watch.model().interval(),
                static_cast<unsigned>(verdict.phase));
    }
    result.hours += hours;
  }
  return result;
}

struct Hangs {
  std::vector<double> suspected, verified, longest, ratio;
};

/// A hang after 60 s of learning at least; looked for during an hour.
Hangs hangs(const sim::Shape& shape, Random& random) {
  Hangs result;
  for (uint32_t i = 0; i < options.hangs; ++i) {
    sim::Trace trace(shape, options.ranks, weather(false), random.next());
    Watch watch;
    watch.start(options.ranks, options.interval, options.alpha, random.next());
    double now = 0;
    const double injected = 60 + 540 * random.uniform();
    while (now < injected) {
      now += watch.next_step();
      look(watch, trace, now);
    }
    const double begin = trace.hang(1), longest = watch.record().longest();
    double suspected = 0, verified = 0;
    while (verified == 0 && now < begin + 2 * 3600) {
      now += watch.next_step();
      const Verdict verdict = look(watch, trace, now);
      if (now < begin) continue;
      if (suspected == 0 && verdict.finding >= Finding::kSuspected) suspected = now - begin;
      if (verdict.finding == Finding::kVerified) verified = now - begin;
    }
    result.longest.push_back(longest);
    if (suspected != 0) result.suspected.push_back(suspected);
    if (verified != 0) {
      result.verified.push_back(verified);
      result.ratio.push_back(verified / std::max(15., 3 * longest));
    }
  }
  return result;
}

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

int recorded() {
  FILE* file = fopen(options.trace.c_str(), "r");
  if (file == nullptr) {
    perror(options.trace.c_str());
    return 1;
  }
  std::vector<Look> looks;
  char line[256];
  uint32_t most = 1;
  while (fgets(line, sizeof(line), file) != nullptr) {
    unsigned long long moves = 0, familiar = kFamiliarUnknown;
    Look seen{};
    if (line[0] == '#' || sscanf(line, "%lf %u %u %llu %llu %lf %lf", &seen.now, &seen.out, &seen.total, &moves,
                                 &familiar, &seen.excused, &seen.starved) < 4)
      continue;
    seen.moves = moves;
    seen.familiar = familiar;
    most = std::max(most, seen.total);
    looks.push_back(seen);
  }
  fclose(file);
  Watch watch;
  watch.start(most, options.interval, options.alpha, options.seed);
  Healthy result;
  Counter counter(result);
  double offset = 0;
  uint64_t moved = 0;
  for (uint32_t i = 0; i < options.repeat && !looks.empty(); ++i) {
    for (Look seen : looks) {
      seen.now += offset;
      seen.moves += moved;
      counter.note(watch.look(seen));
    }
    offset += looks.back().now - looks.front().now;
    moved += looks.back().moves + 1;
  }
  printf("%s\t%zu looks\t%.3f h\t%llu suspicions\t%llu alarms\tlongest quiet %.2f s\tlimit %.2f s\tI %.2f s\tq %.2f\n",
         options.trace.c_str(), looks.size(), offset / 3600, static_cast<unsigned long long>(result.suspicions),
         static_cast<unsigned long long>(result.alarms), watch.record().longest(), watch.record().limit(),
         watch.model().interval(), watch.model().q());
  return 0;
}

bool parse(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--calm" || name == "--blind") {
      (name == "--calm" ? options.calm : options.blind) = true;
      continue;
    }
    if (++i == count) return false;
    const char* value = arguments[i];
    if (name == "--ranks") options.ranks = static_cast<uint32_t>(atoll(value));
    else if (name == "--hangs") options.hangs = static_cast<uint32_t>(atoll(value));
    else if (name == "--repeat") options.repeat = static_cast<uint32_t>(atoll(value));
    else if (name == "--hours") options.hours = atof(value);
    else if (name == "--interval") options.interval = atof(value);
    else if (name == "--alpha") options.alpha = atof(value);
    else if (name == "--seed") options.seed = static_cast<uint64_t>(atoll(value));
    else if (name == "--shape") options.shape = value;
    else if (name == "--trace") options.trace = value;
    else return false;
  }
  return options.ranks > 0 && options.interval > 0 && options.alpha > 0 && options.alpha < 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (!parse(count, arguments)) {
    fprintf(stderr, "hang_simulator: see the head of tests/bench/hang_simulator.cpp\n");
    return 2;
  }
  if (!options.trace.empty()) return recorded();
  Random random;
  random.start(options.seed * 1000003 + options.ranks);
  for (uint32_t i = 0; i < sim::kShapeCount; ++i) {
    const sim::Shape& shape = sim::kShapes[i];
    const uint64_t seed = random.next();
    if (strstr(shape.name, options.shape.c_str()) == nullptr) continue;
    Random own;
    own.start(seed);
    const Healthy quiet = healthy(shape, own);
    Hangs hung = hangs(shape, own);
    printf("%s\t%d\t%.0f\t%.3f\t%llu\t%u\t%zu\t%zu\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\n", shape.name, shape.in_total,
           quiet.hours, quiet.hours > 0 ? static_cast<double>(quiet.suspicions) / quiet.hours : 0,
           static_cast<unsigned long long>(quiet.alarms), options.hangs, hung.suspected.size(), hung.verified.size(),
           quantile(hung.suspected, .5), quantile(hung.suspected, .95), quantile(hung.verified, .5),
           quantile(hung.verified, .95), quantile(hung.longest, .5), quantile(hung.ratio, .5));
    fflush(stdout);
  }
  return 0;
}
