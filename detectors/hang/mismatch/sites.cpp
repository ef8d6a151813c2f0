// SPDX-License-Identifier: Apache-2.0
//
// See sites.h. Records are overwritten while they are read; what is taken is checked against the signature, and a site
// is a hint to the user, never a ground of a finding.

#include "detectors/hang/mismatch/sites.h"

#include "detectors/hang/slots/calls.h"
#include "detectors/hang/slots/signature.h"

namespace resil::hang {

namespace {

constexpr uint32_t kLookBack = 256;  ///< records of each trace buffer

}  // namespace

void add_sites(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read) {
  const CollectiveHistory& history = rank.section->histories[index];
  if (rank.traces == nullptr || read.count == 0) return;
  // Collectives of one communicator follow each other in one trace buffer, but for programs with threads: there the
  // trace buffer that made the last one tells what it can.
  const ring::TraceBuffer* trace = nullptr;
  uint64_t newest = 0, at = 0;
  constexpr uint16_t kOther = 0xffff;
  auto collective = [&](const ring::Record& record) {  // as the signature has it
    const uint16_t call = __atomic_load_n(&record.call, __ATOMIC_RELAXED);
    const bool counts = __atomic_load_n(&record.comm, __ATOMIC_RELAXED) == index && call < kCallCount &&
                        kCallMeanings.of[call].pattern != Pattern::kNone;
    return counts ? static_cast<uint16_t>(kCallInfo[call].plain) : kOther;
  };
  for (uint32_t i = 0; i < rank.trace_count; ++i) {
    const uint64_t head = __atomic_load_n(&rank.traces[i].head, __ATOMIC_ACQUIRE);
    for (uint64_t back = 1; back <= kLookBack && back <= head; ++back) {
      const ring::Record& record = rank.traces[i].records[(head - back) % ring::kRecordsPerTrace];
      if (collective(record) == kOther) continue;
      if (const uint64_t time = __atomic_load_n(&record.time, __ATOMIC_RELAXED); trace == nullptr || time > newest) {
        trace = &rank.traces[i];
        newest = time;
        at = head - back;
      }
      break;
    }
  }
  // A rank that goes on has younger records than what was read of it: those of another call of the same function.
  if (trace == nullptr || __atomic_load_n(&history.sequence, __ATOMIC_ACQUIRE) != read.sequence) return;
  // A record is written before the history: the newest one may be one call ahead of what was read.
  bool aligned = false;
  uint32_t point = read.count - 1;
  if ((read.points[point].signature & 0x3ff) == static_cast<uint64_t>(CallId::kMPI_Finalize))
    --point;  // names no communicator in its record; past 0: greater than count
  for (uint64_t back = 0, steps = 0; back < kLookBack && back <= at && point < read.count; ++back) {
    const ring::Record& record = trace->records[(at - back) % ring::kRecordsPerTrace];
    const uint16_t call = collective(record);
    if (call == kOther) continue;
    const PathPoint& now = read.points[point];
    if (now.signature == 0 || (now.signature & 0x3ff) != call) {
      if (aligned || ++steps > 1 || now.signature == 0) return;
      continue;
    }
    aligned = true;
    const uint16_t claim = tree_claim(tree, now.n, now.rolling);
    if (tree.claims[claim].site == 0) {
      tree.claims[claim].site = __atomic_load_n(&record.site, __ATOMIC_RELAXED);
      tree.claims[claim].site_rank = rank.rank;
    }
    --point;  // past 0: greater than count
  }
}

}  // namespace resil::hang
