// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/quiet.h"

#include "detectors/hang/stats/numbers.h"

namespace resil::hang::stats {

void Quiet::look(double now, double excused, double starved, uint64_t moves, bool out) {
  double step = started_ && now > last_ ? now - last_ : 0;  // a clock that went back: no time passed that we know of
  starved = starved > step ? step : starved;
  step = excused > step ? 0 : step - (excused > 0 ? excused : 0);
  last_ = now;
  watched_ += step + starved;
  if (!started_ || moves != moves_) {
    if (current_ > 0) ended(current_ + step, starved_ + starved);
    current_ = starved_ = 0;
    out_ = false;
  } else {
    current_ += step;
    starved_ += starved;
    out_ = out_ || out;
  }
  moves_ = moves;
  started_ = true;
}

void Quiet::ended(double seconds, double starved) {
  longest_ = seconds > longest_ ? seconds : longest_;
  if (!out_) return;
  longest_crowded_ = seconds + starved > longest_crowded_ ? seconds + starved : longest_crowded_;
  ++intervals_;
  if (in_tail_ == kTail && seconds <= tail_[kTail - 1]) return;
  uint32_t place = in_tail_ < kTail ? in_tail_++ : kTail - 1;
  for (; place != 0 && tail_[place - 1] < seconds; --place) tail_[place] = tail_[place - 1];
  tail_[place] = seconds;
  limit_ = 0;
}

double Quiet::limit() const {
  if (limit_ == 0 && in_tail_ != 0) limit_ = computed_limit();
  return limit_;
}

double Quiet::computed_limit() const {
  const double usual = kFactor * tail_[0], heavy = tail_limit();
  const double most = usual > kMost ? usual : kMost;
  return heavy < usual ? usual : heavy < most ? heavy : most;
}

/// Two extrapolations of the longest intervals to one that happens once in 10^9, the larger of which holds: along
/// normal quantiles of the logarithms, as a log-normal distribution goes on, which few intervals suffice for; and, from
/// kManyForPareto on, as a generalised Pareto distribution does, if its index says that the tail is that heavy.
double Quiet::tail_limit() const {
  const double longest = tail_[0];
  if (longest < kShort) return 0;
  uint32_t count = kFewestApart;
  while (count < in_tail_ && tail_[count - 1] < kApart * tail_[count]) ++count;
  // Long phases of one kind among short pauses of another are judged by themselves.
  const double all = count < in_tail_ ? count : static_cast<double>(intervals_);
  count = count < in_tail_ ? count : in_tail_;
  const bool material = longest >= kMaterial;
  if (count < kManyForPareto) {
    const double limit = count < kFewest ? kFactorOfFew * longest : log_normal_limit(count, all);
    const double most = material ? kMostOfFew * longest : kMostOfShort;
    return limit < most ? limit : most;
  }
  const double pareto = pareto_limit(count, all, material ? kHeavy : kHeavyForCertain);
  if (!material) return pareto;
  const double normal = log_normal_limit(count, all);
  return normal > pareto ? normal : pareto;
}

double Quiet::log_normal_limit(uint32_t count, double all) const {
  double sum_z = 0, sum_y = 0, sum_zz = 0, sum_zy = 0, weight = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const double share = (i + .625) / (all + .25);  // Blom's plotting positions
    if (share > .5) break;
    const double z = normal_quantile_above(share), y = ln(tail_[i]);
    weight += 1;
    sum_z += z;
    sum_y += y;
    sum_zz += z * z;
    sum_zy += z * y;
  }
  const double spread = weight * sum_zz - sum_z * sum_z;
  if (spread <= 0) return 0;
  const double slope = (weight * sum_zy - sum_z * sum_y) / spread;
  const double most = slope * (1 + kDoubt / square_root(weight));  // few intervals say little about others
  return exponential(sum_y / weight + most * (kRareQuantile - sum_z / weight));
}

/// Index by the moment estimator (Dekkers, Einmahl, de Haan 1989) from the intervals above the shortest one kept.
/// `least`: the index from which on the tail is taken for heavy.
double Quiet::pareto_limit(uint32_t count, double all, double least) const {
  const uint32_t above = count - 1;
  double first = 0, second = 0;
  for (uint32_t i = 0; i < above; ++i) {
    const double excess = ln(tail_[i] / tail_[above]);
    first += excess / above;
    second += excess * excess / above;
  }
  if (second <= 0) return 0;
  const double negative_part = 1 - .5 / (1 - first * first / second);  // of a light tail; about 0 of a heavy one
  const double index = first + negative_part;
  if (!(index > least))  // a light tail, or a heavy one with these few intervals' luck
    return index > kLightForCertain && first > kWide && tail_[0] >= kMaterial ? kFactorOfFew * tail_[0] : 0;
  const double scale = tail_[above] * first * (1 - (negative_part < 0 ? negative_part : 0));
  const double beyond = above / (all * kRare);
  const double most = index + kDoubt / square_root(above);
  return tail_[above] + scale * (exponential(most * ln(beyond)) - 1) / most;
}

}  // namespace resil::hang::stats
