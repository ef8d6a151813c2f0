// SPDX-License-Identifier: Apache-2.0
//
// The sentences about a mismatch.

#include <cinttypes>
#include <cstring>

#include "detectors/hang/mismatch/judge.h"
#include "detectors/hang/mismatch/text.h"
#include "detectors/hang/slots/signature.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

/// On the side whose claims are marked: at or above the call that tells the sides apart.
bool stands_on(const Tree& tree, const Parting& parting, const bool* marks, int32_t rank) {
  const uint16_t claim = tree.position[rank];
  return claim != kNoClaim && marks[claim] && tree.claims[claim].n >= parting.at;
}

/// "0-3, 7" of a side's ranks.
void add_ranks(Text& text, const Tree& tree, const Parting& parting, const bool* marks) {
  constexpr uint32_t kMostRuns = 12;
  uint32_t runs = 0;
  for (int32_t rank = tree.low; rank <= tree.high; ++rank) {
    if (!stands_on(tree, parting, marks, rank)) continue;
    int32_t last = rank;
    while (last < tree.high && stands_on(tree, parting, marks, last + 1)) ++last;
    if (runs++ == kMostRuns) {
      text.add(", ...");
      return;
    }
    text.add(last > rank ? "%s%d-%d" : "%s%d", runs > 1 ? ", " : "", rank, last);
    rank = last;
  }
}

constexpr const char* kOperators[] = {"no operator", "MPI_MAX",    "MPI_MIN",    "MPI_SUM",     "MPI_PROD",
                                      "MPI_LAND",    "MPI_BAND",   "MPI_LOR",    "MPI_BOR",     "MPI_LXOR",
                                      "MPI_BXOR",    "MPI_MAXLOC", "MPI_MINLOC", "MPI_REPLACE", "MPI_NO_OP"};

const char* operator_name(OpKind op) {
  return op < OpKind::kUser ? kOperators[static_cast<unsigned>(op)] : "an operator of the program";
}

/// "MPI_Reduce, MPI_SUM, root 0, 8 bytes".
void add_call(Text& text, uint64_t word, const Names& names) {
  const Signature call = signature_unpack(word);
  text.add("%s", names.call(names.self, call.call));
  if (call.op != OpKind::kNone) text.add(", %s", operator_name(call.op));
  if (call.root != kNoRoot) text.add(", root %u", call.root - 1);
  if (call.bytes >= kExactBytes && call.bytes != kBytesNotCompared) text.add(", 128 MiB or more");
  else if (call.bytes != kBytesNotCompared && call.bytes != 0) text.add(", %" PRIu64 " bytes", call.bytes);
}

/// What two calls differ in, most telling first.
const char* differing(uint64_t usual, uint64_t odd) {
  const Signature a = signature_unpack(usual), b = signature_unpack(odd);
  return a.call != b.call   ? "another operation"
         : a.op != b.op     ? "another operator"
         : a.root != b.root ? "another root"
                            : "another amount";
}

void keep_ranks(const Tree& tree, const Parting& parting, const bool* marks, int32_t* ranks, uint32_t room,
                uint32_t* count) {
  for (int32_t rank = tree.low; rank <= tree.high; ++rank)
    if (stands_on(tree, parting, marks, rank)) {
      if (*count < room) ranks[*count] = rank;
      ++*count;
    }
}

void add_site(Text& text, const char* what, uint64_t site, int32_t rank, const Names& names) {
  if (site == 0 || rank < 0) return;
  char name[256] = "";
  names.site(names.self, rank, site, name, sizeof(name));
  text.add("%s: %s (rank %d)\n", what, name, rank);
}

}  // namespace

void say_parting(const Tree& tree, const Parting& parting, uint32_t odd_side, const Names& names, Verdict* verdict) {
  bool usual[kMaxClaims], odd[kMaxClaims];
  mark_side(tree, parting, 0, usual);
  mark_side(tree, parting, odd_side, odd);
  const Difference found = find_difference(tree, parting, usual, odd);
  const bool bytes = parting.lane == Lane::kBytes;
  *verdict = {};
  verdict->type = HangClass::kCollectiveMismatch;
  // MPI wants equal type signatures; equal sizes are what can be seen of them, and libraries let many differences pass.
  // Nor does one call too many or too few before MPI_Finalize harm anybody by itself: who waits for it is found
  // waiting.
  verdict->confidence = bytes || found.at_end ? Confidence::kSuspected : Confidence::kProved;
  verdict->comm = tree.comm;
  verdict->sequence = found.shown != 0 ? found.shown : found.differs;
  verdict->call = found.shown != 0 ? signature_unpack(found.usual).call : static_cast<uint16_t>(~0u);
  if (parting.majority) {
    keep_ranks(tree, parting, odd, verdict->culprits, kMaxCulprits, &verdict->culprit_count);
    keep_ranks(tree, parting, usual, verdict->victims, kMaxVictims, &verdict->victim_count);
  } else {
    for (int32_t rank = tree.low; rank <= tree.high; ++rank) {
      const uint16_t claim = tree.position[rank];
      if (claim == kNoClaim || tree.claims[claim].n < parting.at) continue;
      if (verdict->victim_count < kMaxVictims) verdict->victims[verdict->victim_count] = rank;
      ++verdict->victim_count;
    }
  }
  verdict->signature = hash_combine(hash_combine(tree.comm, static_cast<uint64_t>(parting.lane) + 1),
                                    parting.known - parting.sides[0].ranks);
  for (uint32_t i = 0; i < verdict->culprit_count && i < kMaxCulprits; ++i)
    verdict->signature = hash_combine(verdict->signature, static_cast<uint64_t>(verdict->culprits[i]));

  const char* comm = names.comm(names.self, tree.comm);
  Text text = {verdict->message, sizeof(verdict->message), 0};
  text.add(bytes ? "Collective calls on %s name different amounts of data. " : "Collective calls on %s do not match. ",
           comm);
  const uint32_t odd_count = parting.sides[odd_side].ranks, usual_count = parting.sides[0].ranks;
  const char* ranks = odd_count == 1 ? "rank" : "ranks";
  const char* other_ranks = usual_count == 1 ? "rank" : "ranks";
  if (found.shown != 0) {
    text.add("In call %" PRIu64 " there %s ", found.shown, ranks);
    add_ranks(text, tree, parting, odd);
    text.add(odd_count == 1 ? " has %s: " : " have %s: ", differing(found.usual, found.odd));
    add_call(text, found.odd, names);
    text.add("; %s ", other_ranks);
    add_ranks(text, tree, parting, usual);
    text.add(usual_count == 1 ? " has " : " have ");
    add_call(text, found.usual, names);
    text.add(".");
    if (found.at_end) text.add(" Who is in MPI_Finalize will call nothing else.");
    if (!found.exact) text.add(" The first difference lies between call %" PRIu64 " and this one.", found.agreed + 1);
    if (found.shift != 0)
      text.add(" The calls that follow fit if %s %s has %s.", odd_count == 1 ? "this" : "each of these", ranks,
               found.shift < 0 ? "left one out here" : "made one too many here");
  } else {
    text.add("The calls of %s ", ranks);
    add_ranks(text, tree, parting, odd);
    text.add(" differ from those of %s ", other_ranks);
    add_ranks(text, tree, parting, usual);
    text.add(bytes ? " in amounts" : " in operation, operator or root");
    if (found.exact) text.add(" at call %" PRIu64 ".", found.differs);
    else
      text.add(" somewhere from call %" PRIu64 " to call %" PRIu64 "; what it was is no longer known.",
               found.agreed + 1, found.differs);
  }
  if (!parting.majority)
    text.add(" There is no majority among the %u ranks that can be told apart: which side is wrong is undecided.",
             parting.known);

  Text evidence = {verdict->evidence, sizeof(verdict->evidence), 0};
  evidence.add("communicator: %s, id %016" PRIx64 ", %u ranks\n", comm, tree.comm, tree.members);
  evidence.add("calls that agree: 1-%" PRIu64 "\n", found.agreed);
  evidence.add("calls that do not: 1-%" PRIu64 "\n", found.differs);
  if (found.shown != 0) {
    evidence.add("call %" PRIu64 " of the odd side: ", found.shown);
    add_call(evidence, found.odd, names);
    evidence.add("\ncall %" PRIu64 " of the others: ", found.shown);
    add_call(evidence, found.usual, names);
    evidence.add("\n");
    add_site(evidence, "call site on the odd side", found.odd_site, found.odd_site_rank, names);
    add_site(evidence, "call site of the others", found.usual_site, found.usual_site_rank, names);
  }
  for (uint32_t side = 0; side < parting.side_count && side < 8; ++side) {
    bool marks[kMaxClaims];
    mark_side(tree, parting, side, marks);
    evidence.add("side %u: %u ranks: ", side + 1, parting.sides[side].ranks);
    add_ranks(evidence, tree, parting, marks);
    evidence.add("\n");
  }
  if (parting.side_count > 8) evidence.add("further sides: %u\n", parting.side_count - 8);
  if (parting.known < tree.members)
    evidence.add("ranks that have not shown their side: %u\n", tree.members - parting.known);
}

}  // namespace resil::hang
