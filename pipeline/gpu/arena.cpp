// SPDX-License-Identifier: Apache-2.0
//
// See arena.h: two-level segregated fit.

#include "pipeline/gpu/arena.h"

namespace resil::gpu {

namespace {

constexpr uint32_t kExact = 8;  ///< sizes below have a list each
constexpr unsigned kLooked = 64;  ///< blocks looked at in a list whose blocks need not be large enough

unsigned log2_of(uint32_t size) { return 31 - static_cast<unsigned>(__builtin_clz(size)); }

}  // namespace

/// 0..7: one size each; then eight lists for each power of two.
unsigned Arena::list_of(uint32_t size) {
  if (size < kExact) return size;
  const unsigned power = log2_of(size);
  return (power - 2) * 8 + ((size >> (power - 3)) & 7);
}

void Arena::open(void* nodes, uint32_t granules) {
  nodes_ = static_cast<Node*>(nodes);
  granules_ = granules;
  for (uint32_t& head : heads_) head = kNone;
  for (uint64_t& word : filled_) word = 0;
  put(0, granules);
}

void Arena::put(uint32_t first, uint32_t size) {
  const unsigned list = list_of(size);
  Node& node = nodes_[first];
  node.size = size;
  node.prev = kNone;
  node.next = heads_[list];
  nodes_[first + size - 1].first = first;
  if (node.next != kNone) nodes_[node.next].prev = first;
  heads_[list] = first;
  filled_[list / 64] |= uint64_t{1} << list % 64;
}

void Arena::take(uint32_t first) {
  Node& node = nodes_[first];
  if (node.prev != kNone) {
    nodes_[node.prev].next = node.next;
  } else {
    const unsigned list = list_of(node.size);
    heads_[list] = node.next;
    if (node.next == kNone) filled_[list / 64] &= ~(uint64_t{1} << list % 64);
  }
  if (node.next != kNone) nodes_[node.next].prev = node.prev;
  node.prev = kUsed;
}

uint32_t Arena::find(uint32_t size) const {
  // Any block of the list that holds the next rounder size, or of a later one, is large enough.
  const unsigned own = list_of(size);
  const uint32_t rounder = size < kExact ? size : size + (uint32_t{1} << (log2_of(size) - 3)) - 1;
  const unsigned from = list_of(rounder);
  for (unsigned word = from / 64; word < sizeof(filled_) / sizeof(filled_[0]); ++word) {
    uint64_t lists = filled_[word];
    if (word == from / 64) lists &= ~uint64_t{0} << from % 64;
    if (lists != 0) return heads_[word * 64 + static_cast<unsigned>(__builtin_ctzll(lists))];
  }
  uint32_t at = heads_[own];
  for (unsigned looked = 0; at != kNone && looked < kLooked; ++looked, at = nodes_[at].next)
    if (nodes_[at].size >= size) return at;
  return kNone;
}

uint32_t Arena::acquire(uint32_t size) {
  if (size > granules_) return kNone;
  const uint32_t first = find(size);
  if (first == kNone) return kNone;
  take(first);
  const uint32_t rest = nodes_[first].size - size;
  if (rest != 0) {
    put(first + size, rest);
    nodes_[first].size = size;
    nodes_[first + size - 1].first = first;
  }
  return first;
}

uint32_t Arena::release(uint32_t first) {
  if (first >= granules_ || nodes_[first].size == 0 || nodes_[first].prev != kUsed) return 0;
  const uint32_t freed = nodes_[first].size;
  uint32_t size = freed;
  const uint32_t after = first + size;
  if (after < granules_ && nodes_[after].prev != kUsed) {
    take(after);
    size += nodes_[after].size;
    nodes_[after].size = 0;
  }
  if (first != 0) {
    const uint32_t before = nodes_[first - 1].first;
    if (nodes_[before].prev != kUsed) {
      take(before);
      size += nodes_[before].size;
      nodes_[first].size = 0;
      first = before;
    }
  }
  put(first, size);
  return freed;
}

uint32_t Arena::largest() const {
  for (unsigned word = sizeof(filled_) / sizeof(filled_[0]); word-- > 0;)
    if (filled_[word] != 0)
      return nodes_[heads_[word * 64 + 63 - static_cast<unsigned>(__builtin_clzll(filled_[word]))]].size;
  return 0;
}

}  // namespace resil::gpu
