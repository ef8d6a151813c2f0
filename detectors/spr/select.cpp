// SPDX-License-Identifier: Apache-2.0
//
// See select.h.

#include "detectors/spr/select.h"

namespace resil::spr {

namespace {

constexpr uint8_t kCovered = 1, kSelected = 2;

void take(const Lists& lists, uint8_t* covered, int64_t particle) {
  covered[particle] = kCovered | kSelected;
  lists.neighbours(particle, [&](int64_t index) {
    if (index < lists.local) covered[index] |= kCovered;
  });
}

bool collect(const Lists& lists, const uint8_t* covered, int64_t chosen, Buffer<int>& selected, int64_t* count) {
  *count = 0;
  if (!selected.reserve(static_cast<size_t>(chosen))) return false;
  for (int64_t i = 0; i < lists.local; ++i)
    if ((covered[i] & kSelected) != 0) selected[static_cast<size_t>((*count)++)] = static_cast<int>(i);
  return true;
}

/// Particles in order of what each would cover at most: one list for each number, of indices.
class Buckets {
 public:
  Buckets(int* head, int* next, int64_t most) : head_(head), next_(next) {
    for (int64_t i = 0; i <= most; ++i) head_[i] = -1;
  }
  void put(int64_t gain, int particle) {
    next_[particle] = head_[gain];
    head_[gain] = particle;
  }
  /// -1: there is none.
  int take(int64_t gain) {
    const int particle = head_[gain];
    if (particle >= 0) head_[gain] = next_[particle];
    return particle;
  }

 private:
  int* head_;
  int* next_;
};

}  // namespace

bool select_greedy(const Lists& lists, Scratch& scratch, Buffer<int>& selected, int64_t* count) {
  if (!scratch.covered.reserve_zeroed(static_cast<size_t>(lists.local))) return false;
  uint8_t* const covered = scratch.covered.data();
  int64_t chosen = 0;
  for (int64_t i = 0; i < lists.local; ++i) {
    if (covered[i] != 0) continue;
    take(lists, covered, i);
    ++chosen;
  }
  return collect(lists, covered, chosen, selected, count);
}

// What a particle covers only becomes less, so its number is looked at when it is at the head of the list of the
// largest one, and it goes down to where it belongs by then. Most are covered by others before that: fewer than one
// list a particle is read (0.8 at 100 neighbours).
bool select_cover(const Lists& lists, Scratch& scratch, Buffer<int>& selected, int64_t* count) {
  int64_t most = 0;
  for (int64_t i = 0; i < lists.local; ++i)
    if (lists.size(i) + 1 > most) most = lists.size(i) + 1;
  const auto room = static_cast<size_t>(lists.local);
  if (!scratch.covered.reserve_zeroed(room) || !scratch.head.reserve(static_cast<size_t>(most) + 1) ||
      !scratch.next.reserve(room))
    return false;
  uint8_t* const covered = scratch.covered.data();
  Buckets buckets(scratch.head.data(), scratch.next.data(), most);
  for (int64_t i = lists.local; i-- > 0;) buckets.put(lists.size(i) + 1, static_cast<int>(i));
  int64_t chosen = 0;
  for (int64_t level = most; level > 0;) {
    const int particle = buckets.take(level);
    if (particle < 0) {
      --level;
      continue;
    }
    if (covered[particle] != 0) continue;
    int64_t gain = 1;
    lists.neighbours(particle, [&](int64_t index) { gain += index < lists.local && covered[index] == 0; });
    if (gain < level) {
      buckets.put(gain, particle);
      continue;
    }
    take(lists, covered, particle);
    ++chosen;
  }
  return collect(lists, covered, chosen, selected, count);
}

}  // namespace resil::spr
