// SPDX-License-Identifier: Apache-2.0
//
// What is known of the collectives of one communicator over many ranks, read at different instants: a tree of claims.
//
// A claim (n, hash) says: there are ranks whose first n collectives have this hash. Its parent is a claim with a
// smaller n that is proved to be the same history's beginning, since one rank has held both. Every rank stands at the
// highest claim that is known of it, and so has passed all ancestors of that. Ranks of equal history thus share one
// path, and each is listed once. Two claims of equal n and different hashes are a disagreement; whoever stands at or
// above one of them is on its side. Claims may be forgotten and ranks set back to an ancestor at any time: that only
// weakens what is known, so a tree never says more than what was read.
//
// One tree is worked on at a time, in memory of its own. Helper thread only.
#pragma once

#include <cstdint>

#include "detectors/hang/mismatch/read.h"

namespace resil::hang {

constexpr uint32_t kMaxClaims = 1024;  ///< of the tree that is worked on
constexpr uint16_t kNoClaim = 0xffff;

struct Claim {
  uint64_t n;
  uint64_t rolling;
  uint64_t signature;  ///< of call n; 0: not known
  uint64_t site;  ///< address of the call in rank `site_rank`; 0: not known
  int32_t site_rank;
  uint16_t parent;
  uint16_t sorted;  ///< scratch: this claim's place in `order`, see tree_sort
  // Basic types are no part of the hash: MPI_BYTE goes with any. 0: not known, or no other one.
  uint32_t type, other_type;  ///< of call n in these two ranks
  int32_t type_rank, other_rank;
};

/// Bits of Tree::flags.
enum TreeFlag : uint32_t {
  kTreeBroken = 1,  ///< a rank contradicts itself (an id given twice): never judged
};

struct Tree {
  uint64_t comm;
  uint32_t members;  ///< ranks that belong to it; kHistoryMembers: that many or more
  uint32_t flags;
  uint32_t count;
  Claim claims[kMaxClaims];
  uint16_t slots[2 * kMaxClaims];  ///< hash of (n, rolling): index + 1
  uint16_t order[kMaxClaims];  ///< after tree_sort: indices by ascending n
  int32_t low, high;  ///< all ranks placed lie in low..high; none: low > high
  uint32_t world;
  uint16_t* position;  ///< by world rank; kNoClaim: nothing known
};

/// Bytes of a tree for a world of that size, and its making in zeroed memory.
uint64_t tree_bytes(uint32_t world);
void tree_create(Tree& tree, uint32_t world);

void tree_reset(Tree& tree, uint64_t comm, uint32_t members);
/// The claim, made when it is new. There must be room: tree_make_room.
uint16_t tree_claim(Tree& tree, uint64_t n, uint64_t rolling);
void tree_make_room(Tree& tree, uint32_t claims);
/// `lower` is the beginning of `upper` (lower.n < upper.n).
void tree_link(Tree& tree, uint16_t lower, uint16_t upper);
/// That rank has passed `claim`; where it stood before is a beginning of the same history, or the other way round.
void tree_place(Tree& tree, int32_t rank, uint16_t claim);
/// One rank's reading.
void tree_add(Tree& tree, int32_t rank, const HistoryRead& read);

/// That rank's call n has data of that type.
void tree_note_type(Tree& tree, uint16_t claim, uint32_t type, int32_t rank);
/// The first call in which two ranks have different types; kNoClaim: none.
uint16_t tree_types_differ(const Tree& tree);
/// Fills `order`.
void tree_sort(Tree& tree);
/// Are there two claims of equal n and different hashes? (tree_sort first.)
bool tree_disagrees(const Tree& tree);
/// Forgets what matters least until `keep` claims are left.
void tree_thin(Tree& tree, uint32_t keep);
/// Forgets what all members are known to have behind them. Returns that number of calls.
uint64_t tree_prune(Tree& tree);
/// How many ranks stand at it or above, for each claim. Needs `order`; `counts` has kMaxClaims places.
void tree_counts(const Tree& tree, uint32_t* counts);

}  // namespace resil::hang
