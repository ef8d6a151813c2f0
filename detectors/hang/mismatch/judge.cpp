// SPDX-License-Identifier: Apache-2.0
//
// Who disagrees, since when, and in what. Everything here follows from claims that are true; what is not known is not
// guessed.

#include "detectors/hang/mismatch/judge.h"

#include <cstring>
#include <initializer_list>

#include "detectors/hang/slots/signature.h"
#include "shim/model/calls.h"

namespace resil::hang {

namespace {

constexpr uint64_t kWhatBits = (uint64_t{1} << 36) - 1;

uint64_t part_of(uint64_t signature, SignaturePart signature_part) {
  return signature_part == SignaturePart::kWhat ? signature & kWhatBits : signature >> 36;
}

void add_side(Parting& parting, uint32_t key, uint32_t ranks) {
  for (uint32_t i = 0; i < parting.argument_count && i < kMaxSides; ++i)
    if (parting.sides[i].key == key) {
      parting.sides[i].ranks += ranks;
      return;
    }
  if (parting.argument_count < kMaxSides) parting.sides[parting.argument_count] = {key, ranks};
  ++parting.argument_count;
}

/// First call below which nobody disagrees in that part; ~0: nobody disagrees at all.
uint64_t first_parting(const Tree& tree, SignaturePart signature_part) {
  for (uint32_t i = 1; i < tree.count; ++i) {
    const Claim &claim = tree.claims[tree.order[i]], &before = tree.claims[tree.order[i - 1]];
    if (claim.n == before.n && key_of(claim, signature_part) != key_of(before, signature_part)) return claim.n;
  }
  return ~uint64_t{0};
}

/// Signature of the side's call n; 0: not known. The place in the order of that call.
uint64_t signature_at(const Tree& tree, uint32_t& place, uint64_t n, const bool* marks, uint64_t* site, int32_t* rank) {
  uint64_t found = 0;
  while (place < tree.count && tree.claims[tree.order[place]].n < n) ++place;
  for (uint32_t i = place; i < tree.count && tree.claims[tree.order[i]].n == n; ++i) {
    const Claim& claim = tree.claims[tree.order[i]];
    if (!marks[tree.order[i]] || claim.signature == 0) continue;
    found = claim.signature;
    if (site != nullptr && (*site == 0 || claim.site != 0)) {
      *site = claim.site;
      *rank = claim.site_rank;
    }
  }
  return found;
}

/// Does call n + a of one side equal call n + b of the other, wherever both are known? At least once, and never not.
bool equal_when_shifted(const Tree& tree, uint64_t from, const bool* usual, const bool* odd, uint64_t a, uint64_t b) {
  uint32_t equal = 0;
  bool telling = false;  // a row of equal calls fits any shift
  uint64_t last = 0;
  for (uint64_t k = 0; k < kRecent; ++k) {
    uint32_t place = 0, other = 0;
    const uint64_t one = signature_at(tree, place, from + k + a, usual, nullptr, nullptr);
    const uint64_t two = signature_at(tree, other, from + k + b, odd, nullptr, nullptr);
    if (one == 0 || two == 0) continue;
    if (one != two) return false;
    telling = telling || (last != 0 && last != one) || k == 0;
    last = one;
    ++equal;
  }
  return equal >= 1 && telling;
}

}  // namespace

bool find_parting(const Tree& tree, const uint32_t* counts, SignaturePart signature_part, uint64_t below,
                  Parting* parting) {
  *parting = {};
  parting->signature_part = signature_part;
  uint32_t most = 0;
  for (uint32_t i = 0, end; i < tree.count; i = end) {
    const uint64_t n = tree.claims[tree.order[i]].n;
    uint32_t total = 0;
    bool differs = false;
    for (end = i; end < tree.count && tree.claims[tree.order[end]].n == n; ++end) {
      total += counts[tree.order[end]];
      differs = differs || key_of(tree.claims[tree.order[end]], signature_part) !=
                               key_of(tree.claims[tree.order[i]], signature_part);
    }
    if (!differs || total <= most || n >= below) continue;
    most = total;
    parting->at = n;
    parting->argument_count = 0;
    for (uint32_t k = i; k < end; ++k)
      if (counts[tree.order[k]] != 0)
        add_side(*parting, key_of(tree.claims[tree.order[k]], signature_part), counts[tree.order[k]]);
  }
  parting->known = most;
  if (parting->argument_count < 2) return false;
  const uint32_t kept = parting->argument_count < kMaxSides ? parting->argument_count : kMaxSides;
  for (uint32_t i = 1; i < kept; ++i)
    for (uint32_t k = i; k > 0 && parting->sides[k].ranks > parting->sides[k - 1].ranks; --k) {
      const DataArgument swapped = parting->sides[k];
      parting->sides[k] = parting->sides[k - 1];
      parting->sides[k - 1] = swapped;
    }
  parting->majority = uint64_t{parting->sides[0].ranks} * 2 > most;
  return true;
}

void mark_side(const Tree& tree, const Parting& parting, uint32_t side, bool* marks) {
  memset(marks, 0, kMaxClaims * sizeof(bool));
  for (uint32_t i = 0; i < tree.count; ++i) {
    const uint16_t index = tree.order[i];
    const Claim& claim = tree.claims[index];
    if (claim.n == parting.at) marks[index] = key_of(claim, parting.signature_part) == parting.sides[side].key;
    else if (claim.n > parting.at && claim.parent != kNoClaim && tree.claims[claim.parent].n >= parting.at)
      marks[index] = marks[claim.parent];
  }
  for (uint32_t i = tree.count; i-- > 0;) {
    const uint16_t index = tree.order[i];
    if (tree.claims[index].n <= parting.at && marks[index] && tree.claims[index].parent != kNoClaim)
      marks[tree.claims[index].parent] = true;
  }
}

Difference find_difference(const Tree& tree, const Parting& parting, const bool* usual, const bool* odd) {
  Difference found = {};
  found.usual_site_rank = found.odd_site_rank = -1;
  found.differs = parting.at;
  for (uint32_t i = 0, end; i < tree.count; i = end) {
    const uint64_t n = tree.claims[tree.order[i]].n;
    const Claim *one = nullptr, *two = nullptr;
    for (end = i; end < tree.count && tree.claims[tree.order[end]].n == n; ++end) {
      if (usual[tree.order[end]]) one = &tree.claims[tree.order[end]];
      if (odd[tree.order[end]]) two = &tree.claims[tree.order[end]];
    }
    if (one == nullptr || two == nullptr) continue;
    if (key_of(*one, parting.signature_part) != key_of(*two, parting.signature_part)) {
      found.differs = n;
      break;
    }
    found.agreed = n;
  }
  uint32_t place = 0, other = 0;
  for (uint32_t i = 0; i < tree.count && found.shown == 0; ++i) {
    const uint64_t n = tree.claims[tree.order[i]].n;
    if (n <= found.agreed || (i > 0 && tree.claims[tree.order[i - 1]].n == n)) continue;
    found.usual_site = found.odd_site = 0;
    const uint64_t one = signature_at(tree, place, n, usual, &found.usual_site, &found.usual_site_rank);
    const uint64_t two = signature_at(tree, other, n, odd, &found.odd_site, &found.odd_site_rank);
    if (one != 0 && two != 0 && part_of(one, parting.signature_part) != part_of(two, parting.signature_part)) {
      found.shown = n;
      found.usual = one;
      found.odd = two;
    }
  }
  for (uint32_t i = 0; i < tree.count; ++i) {
    const Claim& claim = tree.claims[i];
    found.at_end = found.at_end || ((usual[i] || odd[i]) && claim.n > found.agreed && claim.n <= found.differs &&
                                    (claim.signature & 0x3ff) == static_cast<uint64_t>(CallId::kMPI_Finalize));
  }
  found.exact = (found.shown != 0 ? found.shown : found.differs) == found.agreed + 1;
  if (found.shown != 0 && found.exact && !equal_when_shifted(tree, found.shown, usual, odd, 1, 1)) {
    if (equal_when_shifted(tree, found.shown, usual, odd, 1, 0)) found.shift = -1;
    else if (equal_when_shifted(tree, found.shown, usual, odd, 0, 1)) found.shift = 1;
  }
  return found;
}

void judge_types(Mismatch& mismatch, const Tree& tree, Block& memory) {
  if (memory.said_types != 0 || (tree.flags & kTreeBroken) != 0 || mismatch.queued == kQueue) return;
  const uint16_t claim = tree_types_differ(tree);
  if (claim == kNoClaim) return;
  explain_types(tree, tree.claims[claim], mismatch.verdicts[mismatch.queued++]);
  memory.said_types = 1;
}

void judge_tree(Mismatch& mismatch, Tree& tree, Block& memory) {
  tree_sort(tree);
  if (!tree_disagrees(tree)) {
    memory.waited = 0;
    return;
  }
  ++memory.waited;
  uint32_t counts[kMaxClaims];
  tree_counts(tree, counts);
  uint64_t below = ~uint64_t{0};
  for (const SignaturePart signature_part : {SignaturePart::kWhat, SignaturePart::kBytes}) {
    Parting parting;
    // After calls that differ, amounts at equal numbers say nothing more.
    const bool parted = find_parting(tree, counts, signature_part, below, &parting);
    if (signature_part == SignaturePart::kWhat) below = first_parting(tree, signature_part);
    if (!parted) continue;
    const bool settled = parting.known >= tree.members, certain = uint64_t{parting.sides[0].ranks} * 2 > tree.members;
    if (!settled && mismatch.closing) parting.majority = certain;
    else if (!settled && memory.waited < (certain ? kWaitRounds : kLongWaitRounds)) continue;
    const uint32_t odd_ranks = parting.known - parting.sides[0].ranks;
    uint32_t& said = memory.said[static_cast<uint32_t>(signature_part)];
    const uint32_t news = 2 * odd_ranks + (parting.majority ? 1 : 0);
    if (news <= said) continue;
    const uint32_t kept = parting.argument_count < kMaxSides ? parting.argument_count : kMaxSides;
    const uint32_t sides = parting.majority ? kept : 2;
    constexpr uint32_t kMostOfOne = 4;  // of one communicator: the next is likely to say the same
    bool all = true;
    for (uint32_t side = 1; side < sides && side <= kMostOfOne; ++side) {
      if (mismatch.queued == kQueue) {
        all = false;
        break;
      }
      explain_parting(tree, parting, side, mismatch.verdicts[mismatch.queued++]);
    }
    if (all) said = news;
  }
}

}  // namespace resil::hang
