// SPDX-License-Identifier: Apache-2.0
//
// See tree.h.

#include "detectors/hang/mismatch/tree.h"

#include <cstring>
#include <initializer_list>

#include "shim/base/hash.h"

namespace resil::hang {

namespace {

constexpr uint32_t kSlots = 2 * kMaxClaims;

uint32_t slot_of(uint64_t n, uint64_t rolling) {
  return static_cast<uint32_t>(hash_combine(n, rolling)) & (kSlots - 1);
}

void enter_slot(Tree& tree, uint16_t index) {
  const Claim& claim = tree.claims[index];
  uint32_t slot = slot_of(claim.n, claim.rolling);
  while (tree.slots[slot] != 0) slot = (slot + 1) & (kSlots - 1);
  tree.slots[slot] = static_cast<uint16_t>(index + 1);
}

/// Drops the marked claims; their ranks and children go to the nearest ancestor that stays.
void remove_marked(Tree& tree, const bool* gone) {
  uint16_t moved[kMaxClaims];  // old index -> new index of itself or of that ancestor
  uint32_t left = 0;
  for (uint32_t i = 0; i < tree.count; ++i) moved[i] = gone[i] ? kNoClaim : static_cast<uint16_t>(left++);
  uint16_t heir[kMaxClaims];
  for (uint32_t i = 0; i < tree.count; ++i) {
    uint16_t at = static_cast<uint16_t>(i);
    while (at != kNoClaim && gone[at]) at = tree.claims[at].parent;  // n falls with each step
    heir[i] = at == kNoClaim ? kNoClaim : moved[at];
  }
  for (uint32_t i = 0; i < tree.count; ++i)
    if (!gone[i]) {
      Claim claim = tree.claims[i];
      claim.parent = claim.parent == kNoClaim ? kNoClaim : heir[claim.parent];
      tree.claims[moved[i]] = claim;  // moved[i] <= i
    }
  for (int32_t rank = tree.low; rank <= tree.high; ++rank)
    if (tree.position[rank] != kNoClaim) tree.position[rank] = heir[tree.position[rank]];
  tree.count = left;
  memset(tree.slots, 0, sizeof(tree.slots));
  for (uint32_t i = 0; i < left; ++i) enter_slot(tree, static_cast<uint16_t>(i));
}

}  // namespace

uint64_t tree_bytes(uint32_t world) { return sizeof(Tree) + uint64_t{world} * sizeof(uint16_t); }

void tree_create(Tree& tree, uint32_t world) {
  tree.world = world;
  tree.position = reinterpret_cast<uint16_t*>(&tree + 1);
  memset(tree.position, 0xff, size_t{world} * sizeof(uint16_t));
  tree.low = 0;
  tree.high = -1;
}

void tree_reset(Tree& tree, uint64_t comm, uint32_t members) {
  if (tree.low <= tree.high)
    memset(tree.position + tree.low, 0xff, static_cast<size_t>(tree.high - tree.low + 1) * sizeof(uint16_t));
  tree.low = static_cast<int32_t>(tree.world);
  tree.high = -1;
  tree.comm = comm;
  tree.members = members;
  tree.flags = 0;
  tree.count = 0;
  memset(tree.slots, 0, sizeof(tree.slots));
}

uint16_t tree_claim(Tree& tree, uint64_t n, uint64_t rolling) {
  uint32_t slot = slot_of(n, rolling);
  for (; tree.slots[slot] != 0; slot = (slot + 1) & (kSlots - 1)) {
    const auto index = static_cast<uint16_t>(tree.slots[slot] - 1);
    if (tree.claims[index].n == n && tree.claims[index].rolling == rolling) return index;
  }
  const auto index = static_cast<uint16_t>(tree.count++);
  tree.claims[index] = {n, rolling, 0, 0, -1, kNoClaim, 0, 0, 0, -1, -1};
  tree.slots[slot] = static_cast<uint16_t>(index + 1);
  return index;
}

void tree_make_room(Tree& tree, uint32_t claims) {
  if (tree.count + claims > kMaxClaims) tree_thin(tree, kMaxClaims / 2);
}

void tree_link(Tree& tree, uint16_t lower, uint16_t upper) {
  while (lower != kNoClaim) {
    if (tree.claims[lower].n >= tree.claims[upper].n) {
      tree.flags |= kTreeBroken;
      return;
    }
    // The lowest ancestor of `upper` that is still above `lower`.
    while (tree.claims[upper].parent != kNoClaim && tree.claims[tree.claims[upper].parent].n > tree.claims[lower].n)
      upper = tree.claims[upper].parent;
    const uint16_t old = tree.claims[upper].parent;
    if (old == lower) return;
    if (old != kNoClaim && tree.claims[old].n == tree.claims[lower].n) {
      tree.flags |= kTreeBroken;  // one history with two hashes after the same call
      return;
    }
    tree.claims[upper].parent = lower;
    upper = lower;  // what was below `upper` is now to be below `lower`
    lower = old;
  }
}

void tree_place(Tree& tree, int32_t rank, uint16_t claim) {
  if (rank < 0 || static_cast<uint32_t>(rank) >= tree.world) return;
  uint16_t& position = tree.position[rank];
  if (position == claim || claim == kNoClaim) return;
  if (rank < tree.low) tree.low = rank;
  if (rank > tree.high) tree.high = rank;
  if (position == kNoClaim) {
    position = claim;
    return;
  }
  const uint64_t before = tree.claims[position].n, now = tree.claims[claim].n;
  if (before == now) {
    tree.flags |= kTreeBroken;
  } else if (before < now) {
    tree_link(tree, position, claim);
    position = claim;
  } else {
    tree_link(tree, claim, position);
  }
}

void tree_add(Tree& tree, int32_t rank, const HistoryRead& read) {
  uint16_t last = kNoClaim;
  for (uint32_t i = 0; i < read.count; ++i) {
    const PathPoint& point = read.points[i];
    const uint16_t claim = tree_claim(tree, point.n, point.rolling);
    if (tree.claims[claim].signature == 0) tree.claims[claim].signature = point.signature;
    tree_note_type(tree, claim, point.type, rank);
    if (last != kNoClaim) tree_link(tree, last, claim);
    last = claim;
  }
  tree_place(tree, rank, last);
}

void tree_note_type(Tree& tree, uint16_t index, uint32_t type, int32_t rank) {
  if (type == 0) return;
  Claim& claim = tree.claims[index];
  if (claim.type == 0) {
    claim.type = type;
    claim.type_rank = rank;
  } else if (claim.type != type && claim.other_type == 0) {
    claim.other_type = type;
    claim.other_rank = rank;
  }
}

uint16_t tree_types_differ(const Tree& tree) {
  uint16_t first = kNoClaim;
  for (uint32_t i = 0; i < tree.count; ++i)
    if (tree.claims[i].other_type != 0 && (first == kNoClaim || tree.claims[i].n < tree.claims[first].n))
      first = static_cast<uint16_t>(i);
  return first;
}

void tree_sort(Tree& tree) {
  // Shell sort: at most a thousand, nearly sorted.
  for (uint32_t i = 0; i < tree.count; ++i) tree.order[i] = static_cast<uint16_t>(i);
  for (uint32_t gap : {701u, 301u, 132u, 57u, 23u, 10u, 4u, 1u})
    for (uint32_t i = gap; i < tree.count; ++i) {
      const uint16_t item = tree.order[i];
      uint32_t at = i;
      for (; at >= gap && tree.claims[tree.order[at - gap]].n > tree.claims[item].n; at -= gap)
        tree.order[at] = tree.order[at - gap];
      tree.order[at] = item;
    }
  for (uint32_t i = 0; i < tree.count; ++i) tree.claims[tree.order[i]].sorted = static_cast<uint16_t>(i);
}

bool tree_disagrees(const Tree& tree) {
  for (uint32_t i = 1; i < tree.count; ++i)
    if (tree.claims[tree.order[i]].n == tree.claims[tree.order[i - 1]].n)
      return true;  // equal n and equal hash are one claim
  return false;
}

void tree_thin(Tree& tree, uint32_t keep) {
  if (tree.count <= keep) return;
  tree_sort(tree);
  // Where histories part, and what holds ranks, says most; then multiples of high powers of two, which slower and
  // faster ranks have in common, and the powers themselves; then what names a call; and of equals the younger.
  uint8_t score[kMaxClaims] = {};
  for (int32_t rank = tree.low; rank <= tree.high; ++rank)
    if (tree.position[rank] != kNoClaim) score[tree.position[rank]] |= 8;
  uint8_t children[kMaxClaims] = {};
  for (uint32_t i = 0; i < tree.count; ++i)
    if (const uint16_t parent = tree.claims[i].parent; parent != kNoClaim && children[parent] < 2) ++children[parent];
  uint32_t parted = 0;  // the first disagreements say where; all later ones follow from them
  for (uint32_t i = 0; i < tree.count; ++i) {
    const Claim& claim = tree.claims[tree.order[i]];
    const bool same_as_before = i > 0 && tree.claims[tree.order[i - 1]].n == claim.n;
    const bool same_as_next = i + 1 < tree.count && tree.claims[tree.order[i + 1]].n == claim.n;
    uint8_t& points = score[tree.order[i]];
    if ((same_as_before || same_as_next) && parted < 16) {
      points = static_cast<uint8_t>(points + 24);
      ++parted;
    }
    if (children[tree.order[i]] >= 2) points = static_cast<uint8_t>(points + 16);
    const auto level = static_cast<uint32_t>(__builtin_ctzll(claim.n | uint64_t{1} << 16));
    if (claim.other_type != 0) points = static_cast<uint8_t>(points + 24);
    points = static_cast<uint8_t>(points + level + (claim.signature != 0 ? 3 : 0) +
                                  ((claim.n & (claim.n - 1)) == 0 ? 4 : 0));
  }
  bool gone[kMaxClaims] = {};
  uint32_t left = tree.count;
  for (uint32_t limit = 0; left > keep; ++limit)
    for (uint32_t i = 0; i < tree.count && left > keep; ++i)
      if (score[tree.order[i]] == limit) {
        gone[tree.order[i]] = true;
        --left;
      }
  remove_marked(tree, gone);
}

void tree_counts(const Tree& tree, uint32_t* counts) {
  memset(counts, 0, kMaxClaims * sizeof(uint32_t));
  for (int32_t rank = tree.low; rank <= tree.high; ++rank)
    if (tree.position[rank] != kNoClaim) ++counts[tree.position[rank]];
  for (uint32_t i = tree.count; i-- > 0;) {
    const uint16_t index = tree.order[i];
    if (tree.claims[index].parent != kNoClaim) counts[tree.claims[index].parent] += counts[index];
  }
}

uint64_t tree_prune(Tree& tree) {
  tree_sort(tree);
  uint32_t counts[kMaxClaims];
  tree_counts(tree, counts);
  uint64_t agreed = 0;
  for (uint32_t i = 0; i < tree.count; ++i)
    if (const Claim& claim = tree.claims[tree.order[i]]; counts[tree.order[i]] >= tree.members) agreed = claim.n;
  if (agreed == 0) return 0;
  bool gone[kMaxClaims] = {};
  for (uint32_t i = 0; i < tree.count; ++i) gone[i] = tree.claims[i].n < agreed;
  remove_marked(tree, gone);
  return agreed;
}

}  // namespace resil::hang
