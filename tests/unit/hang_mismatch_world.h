// SPDX-License-Identifier: Apache-2.0
//
// Simulated ranks that call collectives on several communicators, and simulated nodes that look at them at different
// instants: what the mismatch detector sees of a job. Every rank writes its histories with the writer's own code.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/slots/signature.h"
#include "detectors/hang/verdict/format.h"
#include "shim/model/calls.h"

namespace mismatch_test {

using namespace resil;
using namespace resil::hang;

enum class Fault { kNone, kCall, kRoot, kOperator, kBytes, kSkip, kExtra, kSwap };

struct Plan {
  int ranks, nodes, comms;
  int calls;  ///< of the whole program
  int lag;  ///< most calls by which a rank may be behind another
  int looks;  ///< rounds while the program runs
  Fault fault = Fault::kNone;
  int odd = 1;  ///< ranks that err
  bool stops = false;  ///< nobody makes more than a few calls on that communicator after the fault: a hang
  bool ends = true;  ///< in MPI_Finalize, else ranks stay after their last call
  uint32_t room = kMismatchFrame;
};

struct Outcome {
  std::vector<Verdict> verdicts;
  int comm;  ///< where the fault is, -1 none
  uint64_t call;  ///< its number
  std::vector<int> odd;  ///< who errs
  std::vector<int> members;  ///< of that communicator
  uint64_t comm_id;
  uint32_t broken;
};

inline uint64_t random_signature(std::mt19937_64& random, int members) {
  static const CallId kinds[] = {CallId::kMPI_Barrier,   CallId::kMPI_Bcast,   CallId::kMPI_Reduce,
                                 CallId::kMPI_Allreduce, CallId::kMPI_Gatherv, CallId::kMPI_Iallreduce,
                                 CallId::kMPI_Scan,      CallId::kMPI_Comm_dup};
  const auto kind = kinds[random() % 8];
  Signature made = {static_cast<uint16_t>(kind), OpKind::kNone, kNoRoot, kBytesNotCompared};
  if (kind == CallId::kMPI_Reduce || kind == CallId::kMPI_Allreduce || kind == CallId::kMPI_Iallreduce ||
      kind == CallId::kMPI_Scan)
    made.op = static_cast<OpKind>(1 + random() % 4);
  if (kind == CallId::kMPI_Bcast || kind == CallId::kMPI_Reduce || kind == CallId::kMPI_Gatherv)
    made.root = 1 + static_cast<uint32_t>(random() % static_cast<unsigned>(members));
  if (kind != CallId::kMPI_Barrier && kind != CallId::kMPI_Gatherv && kind != CallId::kMPI_Comm_dup)
    made.bytes = signature_bytes(8 << random() % 20);
  return signature_pack(made);
}

/// Another call in the place of `from`.
inline uint64_t spoil(uint64_t from, Fault fault, std::mt19937_64& random) {
  Signature call = signature_unpack(from);
  if (fault == Fault::kCall)
    call.call = static_cast<uint16_t>(
        call.call == static_cast<unsigned>(CallId::kMPI_Ibarrier) ? CallId::kMPI_Ibcast : CallId::kMPI_Ibarrier);
  if (fault == Fault::kRoot) call.root = call.root + 1 + static_cast<uint32_t>(random() % 3);
  if (fault == Fault::kOperator) call.op = call.op == OpKind::kUser ? OpKind::kBxor : OpKind::kUser;
  if (fault == Fault::kBytes) call.bytes = signature_bytes(call.bytes == 24 ? 40 : 24);
  return signature_pack(call);
}

/// A verdict in words; names as far as tests need them.
inline Explanation words_of(const Verdict& verdict) {
  Explanation words;
  explain(
      verdict,
      {nullptr,
       [](void*, NameKind kind, int32_t, uint64_t) { return kind == NameKind::kComm ? "MPI_COMM_TEST" : "a.out+0x10"; },
       [](void*, uint16_t id) { return id < kCallCount ? kCallInfo[id].name : "?"; }},
      &words);
  return words;
}

struct FreeSection {
  void operator()(Section* section) const { free(section); }
};
struct Destroy {
  void operator()(Mismatch* mismatch) const { mismatch_destroy(mismatch); }
};
using Owned = std::unique_ptr<Mismatch, Destroy>;

struct World {
  struct Call {
    int comm;
    uint64_t signature;
  };
  std::vector<std::unique_ptr<Section, FreeSection>> sections;
  std::vector<ring::Header> headers;
  std::vector<std::vector<int>> members;  ///< by communicator
  std::vector<uint64_t> ids;
  std::vector<std::vector<Call>> programs;  ///< by rank
  std::vector<size_t> done;  ///< by rank
  std::vector<std::vector<uint64_t>> sequences;
  std::vector<std::vector<Watched>> nodes;
  std::vector<Owned> helpers;
  Owned root;

  /// The next call of that rank's program, MPI_Finalize behind the last.
  void step(int rank) {
    if (done[rank] == programs[rank].size()) {
      headers[rank].phase = static_cast<uint32_t>(ring::Phase::kFinalizing);
      return;
    }
    const Call call = programs[rank][done[rank]++];
    CollectiveHistory& history = sections[rank]->histories[2 + call.comm];
    if (sequences[rank][call.comm] == 0)
      history_begin(history, ids[call.comm], static_cast<uint32_t>(members[call.comm].size()), 0);
    history_add(history, ++sequences[rank][call.comm], call.signature);
  }
};

Outcome play(const Plan& plan, uint64_t seed);

}  // namespace mismatch_test
