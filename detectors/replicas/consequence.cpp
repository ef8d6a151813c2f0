// SPDX-License-Identifier: Apache-2.0
//
// See consequence.h.

#include "detectors/replicas/consequence.h"

#include "shim/base/hash.h"

namespace resil::replicas {

Consequences::Place* Consequences::find(uint64_t kind) {
  for (uint64_t at = mix64(kind);; ++at) {
    Place& place = places_[at % kPlaces];
    if (place.kind == kind) return &place;
    if (place.kind == 0) return nullptr;
  }
}

/// Null: there is no room.
Consequences::Place* Consequences::make(uint64_t kind) {
  if (used_ == kMost) forget_agreeing();  // then there is room for all that are kept
  if (used_ == kMost) return nullptr;
  uint64_t at = mix64(kind);
  while (places_[at % kPlaces].kind != 0) ++at;
  ++used_;
  places_[at % kPlaces] = {kind, 0, 0};
  return &places_[at % kPlaces];
}

void Consequences::forget_agreeing() {
  uint32_t count = 0;
  for (Place& place : places_) {
    if (place.kind != 0 && place.differs != 0) kept_[count++] = place;
    place = {};
  }
  used_ = 0;
  for (uint32_t i = 0; i < count; ++i) *make(kept_[i].kind) = kept_[i];
}

uint64_t Consequences::differs_since(const Kind& kind) {
  const Place* amount = find(kind.amount);
  if (amount != nullptr && amount->differs != 0) return amount->differs;
  const Place* call = find(kind.call);
  return call != nullptr && call->data >= kAmounts ? call->differs : 0;
}

Consequences::Verdict Consequences::differs(const Kind& kind, bool certain) {
  const uint64_t since = differs_since(kind);
  const bool first = !open_ && (certain || since == 0);
  if (!counting_) differing_ = agreeing_ = in_a_row_ = 0;
  counting_ = true;
  if (first) {
    open_ = true;
    ++number_;
    all_differing_ = all_agreeing_ = 0;
  }
  ++(open_ ? all_differing_ : known_);
  ++in_a_row_;
  if (since == 0 && !certain) {
    differing_ = agreeing_ = 0;
    Place* amount = find(kind.amount);
    if (amount == nullptr) amount = make(kind.amount);
    if (amount != nullptr) amount->differs = number_;
    Place* call = find(kind.call);
    if (call == nullptr) call = make(kind.call);
    if (call != nullptr) {
      if (call->differs == 0) call->differs = number_;
      ++call->data;
    }
  }
  ++differing_;
  if (certain || in_a_row_ >= kReal || (differing_ >= kReal && agreeing_ * kFew < differing_)) {
    close();
    return Verdict::kReal;
  }
  return first ? Verdict::kOpened : since != 0 && (!open_ || since != number_) ? Verdict::kKnown : Verdict::kNothing;
}

Consequences::Verdict Consequences::agrees(const Kind& kind, uint64_t data) {
  Place* place = find(kind.amount);
  if (place == nullptr) {
    if (place = make(kind.amount); place != nullptr) place->data = data;
    return Verdict::kNothing;
  }
  if (place->data == data || differs_since(kind) != 0) return Verdict::kNothing;
  place->data = data;
  in_a_row_ = 0;
  ++all_agreeing_;
  if (++agreeing_ < kNone) return Verdict::kNothing;
  const bool was_open = open_;
  close();
  if (!was_open) return Verdict::kNothing;
  known_ += all_differing_;
  return Verdict::kNone;
}

Consequences::Verdict Consequences::end() {
  if (!open_) return Verdict::kNothing;
  close();
  if (agreeing_ < kNoneAtEnd || agreeing_ * kFew < differing_) return Verdict::kUndecided;
  known_ += all_differing_;
  return Verdict::kNone;
}

}  // namespace resil::replicas
