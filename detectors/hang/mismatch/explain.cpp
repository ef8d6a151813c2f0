// SPDX-License-Identifier: Apache-2.0
//
// The verdict about a mismatch, as ids.

#include "detectors/hang/mismatch/judge.h"
#include "detectors/hang/slots/signature.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

/// Ranks on the side whose claims are marked: at or above the call that tells the sides apart. `with(rank)` for each.
template <class With>
RankSet side_of(const Tree& tree, const Parting& parting, const bool* marks, With with) {
  RankSet set = {};
  for (int32_t rank = tree.low; rank <= tree.high; ++rank) {
    const uint16_t claim = tree.position[rank];
    if (claim == kNoClaim || !marks[claim] || tree.claims[claim].n < parting.at) continue;
    set.add(rank);
    with(rank);
  }
  return set;
}

/// What two calls differ in, most telling first.
Message differing(uint64_t usual, uint64_t odd) {
  const Signature a = signature_unpack(usual), b = signature_unpack(odd);
  return a.call != b.call   ? Message::kOtherOperation
         : a.op != b.op     ? Message::kOtherOperator
         : a.root != b.root ? Message::kOtherRoot
                            : Message::kOtherAmount;
}

Statement& add_number(Verdict& verdict, Message id, uint64_t number) {
  Statement& made = verdict.add(id);
  made.n[0] = number;
  return made;
}

void add_site(Verdict& verdict, Message id, uint64_t site, int32_t rank) {
  if (site == 0 || rank < 0) return;
  Statement& made = verdict.add(id);
  made.rank = rank;
  made.wait.site = site;
}

}  // namespace

void explain_types(const Tree& tree, const Claim& claim, Verdict& verdict) {
  // A violation of MPI that harms nobody where the bytes are what was meant: no reason to end a job.
  verdict.begin(HangClass::kCollectiveMismatch, Confidence::kSuspected);
  verdict.comm = tree.comm;
  verdict.sequence = claim.n;
  if (claim.signature != 0) verdict.call = signature_unpack(claim.signature).call;
  verdict.add_victim(claim.type_rank < claim.other_rank ? claim.type_rank : claim.other_rank);
  verdict.add_victim(claim.type_rank < claim.other_rank ? claim.other_rank : claim.type_rank);
  verdict.signature = hash_combine(hash_combine(tree.comm, claim.type), claim.other_type);
  verdict.add(Message::kMismatchTypes).comm = tree.comm;
  Statement& sides = verdict.add(Message::kOtherTypes);
  sides.n[0] = claim.n;
  sides.n[1] = claim.signature;
  sides.n[2] = claim.type;
  sides.n[3] = claim.other_type;
  sides.ranks.add(claim.type_rank);
  sides.others.add(claim.other_rank);
  verdict.add(Message::kDoCompareSites);
  add_number(verdict, Message::kCommunicator, tree.members).comm = tree.comm;
  add_site(verdict, Message::kUsualSite, claim.site, claim.site_rank);
}

void explain_parting(const Tree& tree, const Parting& parting, uint32_t odd_side, Verdict& verdict) {
  bool usual[kMaxClaims], odd[kMaxClaims];
  mark_side(tree, parting, 0, usual);
  mark_side(tree, parting, odd_side, odd);
  const Difference found = find_difference(tree, parting, usual, odd);
  const bool bytes = parting.signature_part == SignaturePart::kBytes;
  // MPI wants equal type signatures; equal sizes are what can be seen of them, and libraries let many differences pass.
  // Nor does one call too many or too few before MPI_Finalize harm anybody by itself: who waits for it is found
  // waiting.
  verdict.begin(HangClass::kCollectiveMismatch, bytes || found.at_end ? Confidence::kSuspected : Confidence::kProved);
  verdict.comm = tree.comm;
  verdict.sequence = found.shown != 0 ? found.shown : found.differs;
  if (found.shown != 0) verdict.call = signature_unpack(found.usual).call;
  const bool majority = parting.majority;
  const RankSet odd_ranks = side_of(tree, parting, odd, [&](int32_t rank) {
    if (majority) verdict.add_culprit(rank);
  });
  const RankSet usual_ranks = side_of(tree, parting, usual, [&](int32_t rank) {
    if (majority) verdict.add_victim(rank);
  });
  for (int32_t rank = tree.low; rank <= tree.high && !majority; ++rank) {
    const uint16_t claim = tree.position[rank];
    if (claim != kNoClaim && tree.claims[claim].n >= parting.at) verdict.add_victim(rank);
  }
  verdict.signature = hash_combine(hash_combine(tree.comm, static_cast<uint64_t>(parting.signature_part) + 1),
                                   parting.known - parting.sides[0].ranks);
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i)
    verdict.signature = hash_combine(verdict.signature, static_cast<uint64_t>(verdict.culprits[i]));

  verdict.add(bytes ? Message::kMismatchBytes : Message::kMismatch).comm = tree.comm;
  Statement& sides = verdict.add(found.shown != 0 ? differing(found.usual, found.odd)
                                 : bytes       ? found.exact ? Message::kAmountsDifferAt : Message::kAmountsDifferFrom
                                 : found.exact ? Message::kDifferAt
                                               : Message::kDifferFrom);
  sides.ranks = odd_ranks;
  sides.others = usual_ranks;
  if (found.shown != 0) {
    sides.n[0] = found.shown;
    sides.n[1] = found.odd;
    sides.n[2] = found.usual;
    if (found.at_end) verdict.add(Message::kAtFinalize);
    if (!found.exact) add_number(verdict, Message::kBetween, found.agreed + 1);
    if (found.shift != 0) verdict.add(found.shift < 0 ? Message::kLeftOut : Message::kOneTooMany, odd_ranks);
  } else {
    sides.n[0] = found.exact ? found.differs : found.agreed + 1;
    sides.n[1] = found.differs;
  }
  if (!majority && 2 * parting.sides[0].ranks > parting.known)
    add_number(verdict, Message::kFewHaveCome, tree.members - parting.known);
  else if (!majority) add_number(verdict, Message::kNoMajority, parting.known);
  verdict.add(Message::kDoCompareSites);

  add_number(verdict, Message::kCommunicator, tree.members).comm = tree.comm;
  if (found.agreed != 0) add_number(verdict, Message::kCallsAgree, found.agreed);
  add_number(verdict, found.agreed + 1 == found.differs ? Message::kCallDiffers : Message::kCallsDiffer, found.differs);
  if (found.shown != 0) {
    add_number(verdict, Message::kOddCall, found.shown).n[1] = found.odd;
    add_number(verdict, Message::kUsualCall, found.shown).n[1] = found.usual;
    add_site(verdict, Message::kOddSite, found.odd_site, found.odd_site_rank);
    add_site(verdict, Message::kUsualSite, found.usual_site, found.usual_site_rank);
  }
  constexpr uint32_t kMostSides = 8;
  for (uint32_t side = 0; side < parting.argument_count && side < kMostSides; ++side) {
    bool marks[kMaxClaims];
    mark_side(tree, parting, side, marks);
    Statement& made = add_number(verdict, Message::kSide, side + 1);
    made.n[1] = parting.sides[side].ranks;
    made.ranks = side_of(tree, parting, marks, [](int32_t) {});
  }
  if (parting.argument_count > kMostSides)
    add_number(verdict, Message::kMoreSides, parting.argument_count - kMostSides);
  if (parting.known < tree.members) add_number(verdict, Message::kNotShown, tree.members - parting.known);
}

}  // namespace resil::hang
