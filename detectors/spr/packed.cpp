// SPDX-License-Identifier: Apache-2.0
//
// See packed.h.

#include "detectors/spr/packed.h"

#include <climits>
#include <cstring>

namespace resil::spr {

namespace {

/// Calls `copy` with the size as a constant where it is a usual one, so that the compiler makes it a few moves.
template <class Copy>
void by_size(size_t bytes, Copy copy) {
  switch (bytes) {
    case 4: return copy([] { return size_t{4}; });
    case 8: return copy([] { return size_t{8}; });
    case 24: return copy([] { return size_t{24}; });
    default: return copy([bytes] { return bytes; });
  }
}

template <class Word>
Word load(const char* from) {
  Word word;
  memcpy(&word, from, sizeof(word));
  return word;
}

/// The number's place in the order of all numbers of its type: neighbours differ by 1, through 0 as well.
template <class Word, class Signed>
Word place_in_order(Word bits) {
  constexpr Word kSign = Word{1} << (sizeof(Word) * 8 - 1);
  return static_cast<Signed>(bits) < 0 ? static_cast<Word>(~bits) : bits | kSign;
}

template <class Word, class Signed>
bool differs(const char* a, const char* b, int low_bits) {
  const Word first = load<Word>(a), second = load<Word>(b);
  if (first == second) return false;
  if (low_bits == 0) return true;
  const Word one = place_in_order<Word, Signed>(first), other = place_in_order<Word, Signed>(second);
  return ((one > other ? one - other : other - one) >> low_bits) != 0;
}

bool element_differs(const char* a, const char* b, size_t bytes, int low_bits) {
  if (bytes == 8) return differs<uint64_t, int64_t>(a, b, low_bits);
  if (bytes == 4) return differs<uint32_t, int32_t>(a, b, low_bits);
  return memcmp(a, b, bytes) != 0;
}

}  // namespace

int first_element(const char* own, const char* other, size_t bytes, const Comparison& how) {
  const size_t step = how.element_bytes == 8 || how.element_bytes == 4 ? how.element_bytes : bytes;
  for (size_t at = 0; at + step <= bytes; at += step)
    if (element_differs(own + at, other + at, step, how.low_bits)) return static_cast<int>(at / step);
  return -1;
}

void Packed::release() {
  index.release();
  offset.release();
  neighbour.release();
  id.release();
  number.release();
  replicas = particles = 0;
  entries = 0;
}

bool pack_lists(const Lists& lists, const int* selected, int64_t selected_count, const int64_t* ids, Packed& packed) {
  packed.replicas = packed.particles = 0;
  packed.entries = 0;
  for (int64_t i = 0; i < selected_count; ++i) packed.entries += lists.size(selected[i]);
  const auto total = static_cast<size_t>(lists.total), replicas = static_cast<size_t>(selected_count);
  if (packed.entries >= INT_MAX || !packed.number.reserve(total) || !packed.index.reserve(total) ||
      !packed.offset.reserve(replicas + 1) || !packed.neighbour.reserve(static_cast<size_t>(packed.entries)))
    return false;
  int* const number = packed.number.data();
  int* const index = packed.index.data();
  for (size_t i = 0; i < total; ++i) number[i] = -1;
  int particles = 0;
  for (int64_t i = 0; i < selected_count; ++i) {
    number[selected[i]] = particles;
    index[particles++] = selected[i];
  }
  int entry = 0;
  for (int64_t i = 0; i < selected_count; ++i)
    lists.neighbours(selected[i], [&](int64_t at) {
      if (number[at] == -1) number[at] = -2;  // wanted, numbered below in the order of memory
    });
  for (size_t i = 0; i < total; ++i) {
    // Of this rank's own all: one whose replica is another rank's is compared with what was sent like the others.
    if (number[i] != -2 && (number[i] != -1 || static_cast<int64_t>(i) >= lists.local)) continue;
    number[i] = particles;
    index[particles++] = static_cast<int>(i);
  }
  for (int64_t i = 0; i < selected_count; ++i) {
    packed.offset[static_cast<size_t>(i)] = entry;
    lists.neighbours(selected[i], [&](int64_t at) { packed.neighbour[static_cast<size_t>(entry++)] = number[at]; });
  }
  packed.offset[replicas] = entry;
  if (!packed.id.reserve(static_cast<size_t>(particles))) return false;
  for (int i = 0; i < particles; ++i) packed.id[static_cast<size_t>(i)] = ids != nullptr ? ids[index[i]] : index[i];
  packed.replicas = static_cast<int>(selected_count);
  packed.particles = particles;
  return true;
}

bool packed_is_sound(const Packed& packed) {
  if (packed.replicas < 0 || packed.particles < packed.replicas || packed.offset[0] != 0) return false;
  for (int i = 0; i < packed.replicas; ++i)
    if (packed.offset[static_cast<size_t>(i) + 1] < packed.offset[static_cast<size_t>(i)]) return false;
  if (packed.offset[static_cast<size_t>(packed.replicas)] != packed.entries) return false;
  for (int64_t i = 0; i < packed.entries; ++i)
    if (packed.neighbour[static_cast<size_t>(i)] < 0 || packed.neighbour[static_cast<size_t>(i)] >= packed.particles)
      return false;
  return true;
}

void pack_field(const Packed& packed, const char* data, size_t bytes, size_t stride, char* to) {
  const int* const index = packed.index.data();
  by_size(bytes, [&](auto size) {
    char* at = to;
    for (int i = 0; i < packed.particles; ++i, at += size())
      memcpy(at, data + static_cast<size_t>(index[i]) * stride, size());
  });
}

Difference compare_field(const Packed& packed, int particles, const char* data, size_t bytes, size_t stride,
                         const char* with, const Comparison& how) {
  Difference seen = {0, -1, -1};
  const int* const index = packed.index.data();
  by_size(bytes, [&](auto size) {
    const char* other = with;
    for (int i = 0; i < particles; ++i, other += size()) {
      const char* const own = data + static_cast<size_t>(index[i]) * stride;
      if (memcmp(own, other, size()) == 0) [[likely]]
        continue;
      const int element = first_element(own, other, bytes, how);
      if (element < 0) continue;
      if (seen.count++ != 0) continue;
      seen.first = i;
      seen.element = element;
    }
  });
  return seen;
}

}  // namespace resil::spr
