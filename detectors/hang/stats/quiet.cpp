// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/stats/quiet.h"

#include "detectors/hang/stats/numbers.h"

namespace resil::hang::stats {

void Quiet::look(double now, double excused, uint64_t moves) {
  double step = started_ && now > last_ ? now - last_ : 0;  // a clock that went back: no time passed that we know of
  step = excused > step ? 0 : step - (excused > 0 ? excused : 0);
  last_ = now;
  watched_ += step;
  if (!started_ || moves != moves_) {
    if (current_ > 0)
      ended(current_ + step);
    current_ = 0;
  } else {
    current_ += step;
  }
  moves_ = moves;
  started_ = true;
}

void Quiet::ended(double seconds) {
  ++intervals_;
  if (in_tail_ == kTail && seconds <= tail_[kTail - 1])
    return;
  uint32_t place = in_tail_ < kTail ? in_tail_++ : kTail - 1;
  for (; place != 0 && tail_[place - 1] < seconds; --place)
    tail_[place] = tail_[place - 1];
  tail_[place] = seconds;
  limit_ = 0;
}

double Quiet::limit() const {
  if (limit_ == 0 && in_tail_ != 0)
    limit_ = computed_limit();
  return limit_;
}

double Quiet::computed_limit() const {
  const double usual = kFactor * tail_[0];
  const double heavy = tail_limit();
  return heavy > usual ? heavy : usual;
}

/// Extrapolates the logarithms of the longest intervals along their normal quantiles, as a log-normal distribution
/// would go on, to a probability of kRare an interval.
double Quiet::tail_limit() const {
  if (in_tail_ < kFewest)
    return 0;
  const double all = static_cast<double>(intervals_);
  double sum_z = 0, sum_y = 0, sum_zz = 0, sum_zy = 0, weight = 0;
  for (uint32_t i = 0; i < in_tail_; ++i) {
    const double share = (i + .625) / (all + .25);
    if (share > .5)
      break;
    const double z = normal_quantile_above(share), y = ln(tail_[i]);
    weight += 1;
    sum_z += z;
    sum_y += y;
    sum_zz += z * z;
    sum_zy += z * y;
  }
  const double spread = weight * sum_zz - sum_z * sum_z;
  if (weight < kFewest / 2 || spread <= 0)
    return 0;
  const double slope = (weight * sum_zy - sum_z * sum_y) / spread;
  return exponential((sum_y - slope * sum_z) / weight + slope * kRareQuantile);
}

}  // namespace resil::hang::stats
