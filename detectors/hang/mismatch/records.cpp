// SPDX-License-Identifier: Apache-2.0
//
// See records.h. Records are overwritten while they are read. A site is checked against the signature, and is a hint to
// the user, never a ground of a finding; an earlier call is proved by the hashes on both sides of it.

#include "detectors/hang/mismatch/records.h"

#include "detectors/hang/slots/calls.h"
#include "detectors/hang/slots/signature.h"

namespace resil::hang {

namespace {

constexpr uint32_t kLookBack = 256;  ///< records of each trace buffer
constexpr uint16_t kOther = 0xffff;

/// Call of a collective on that communicator, as its signature has it; kOther: anything else.
uint16_t collective(const ring::Record& record, uint32_t index) {
  const uint16_t call = __atomic_load_n(&record.call, __ATOMIC_RELAXED);
  const bool counts = __atomic_load_n(&record.comm, __ATOMIC_RELAXED) == index && call < kCallCount &&
                      kCallMeanings.of[call].pattern != Pattern::kNone;
  return counts ? static_cast<uint16_t>(kCallInfo[call].plain) : kOther;
}

bool is_finalize(const PathPoint& point) {
  return (point.signature & 0x3ff) == static_cast<uint64_t>(CallId::kMPI_Finalize);
}

struct Place {
  const ring::TraceBuffer* trace;  ///< null: none
  uint64_t at;  ///< number of the record, from 0
  uint64_t held() const { return ring::records_of(*trace) - 1; }  ///< but for the one that is being written over
  const ring::Record& back(uint64_t by) const { return ring::record_at(*trace, at - by); }
};

/// The rank's last collective on that communicator. They follow each other in one trace buffer, but for programs with
/// threads: there the trace buffer that made the last one tells what it can.
Place newest_collective(const Watched& rank, uint32_t index) {
  Place found = {};
  uint64_t newest = 0;
  for (uint32_t i = 0; i < rank.trace_count; ++i) {
    const uint64_t head = __atomic_load_n(&rank.traces[i].head, __ATOMIC_ACQUIRE);
    for (uint64_t back = 1; back <= kLookBack && back < ring::records_of(rank.traces[i]) && back <= head; ++back) {
      const Place place = {&rank.traces[i], head - back};
      if (collective(place.back(0), index) == kOther) continue;
      if (const uint64_t time = __atomic_load_n(&place.back(0).time, __ATOMIC_RELAXED);
          found.trace == nullptr || time > newest) {
        found = place;
        newest = time;
      }
      break;
    }
  }
  return found;
}

}  // namespace

void add_sites(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read) {
  const CollectiveHistory& history = rank.section->histories[index];
  if (rank.traces == nullptr || read.count == 0) return;
  const Place newest = newest_collective(rank, index);
  // A rank that goes on has younger records than what was read of it: those of another call of the same function.
  if (newest.trace == nullptr || __atomic_load_n(&history.sequence, __ATOMIC_ACQUIRE) != read.sequence) return;
  // A record is written before the history: the newest one may be one call ahead of what was read.
  bool aligned = false;
  uint32_t point = read.count - 1;
  if (is_finalize(read.points[point])) --point;  // names no communicator in its record; past 0: greater than count
  for (uint64_t back = 0, steps = 0;
       back < kLookBack && back < newest.held() && back <= newest.at && point < read.count; ++back) {
    const ring::Record& record = newest.back(back);
    const uint16_t call = collective(record, index);
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

namespace {

/// A call of the rank's that its history does not know one by one any more.
struct EarlierCall {
  uint64_t n, rolling, signature, site;
};

/// Gives `take` the rank's calls down from the last one that its history has forgotten to one that is at or below
/// `from`, as its flight records have them. False: they do not carry the hash from one check point to the other
/// (overwritten, nonblocking, or by several threads), and nothing that was given is to be believed. `base`: the check
/// point below them.
template <class Take>
bool walk_earlier(const Watched& rank, uint32_t index, const HistoryRead& read, uint64_t from, PathPoint* base,
                  Take take) {
  if (rank.traces == nullptr || from == 0) return false;
  uint32_t first = 0;  // of the calls that the history knows one by one
  while (first < read.count && read.points[first].signature == 0) ++first;
  if (first == 0 || first == read.count) return false;
  const PathPoint& anchor = read.points[first - 1];  // the hash before the first of them
  if (anchor.n + 1 != read.points[first].n || from > anchor.n) return false;
  *base = {0, 0, 0, 0};
  for (uint32_t i = 0; i < first && read.points[i].n < from; ++i) *base = read.points[i];
  if (anchor.n - base->n > ring::kRecordsPerTrace) return false;

  const Place newest = newest_collective(rank, index);
  if (newest.trace == nullptr) return false;
  uint32_t known = read.count - 1;
  if (is_finalize(read.points[known])) --known;
  uint64_t n = anchor.n, rolling = anchor.rolling;
  bool aligned = false;
  for (uint64_t back = 0; back <= newest.held() && back <= newest.at && n > base->n; ++back) {
    const ring::Record& record = newest.back(back);
    const uint16_t call = collective(record, index);
    if (call == kOther) continue;
    if (call_info(static_cast<CallId>(call)).has(kCallStarts)) return false;  // its record has the request instead
    const uint64_t signature = __atomic_load_n(&record.aux, __ATOMIC_RELAXED);
    if (known >= first && known < read.count) {  // the newest records must be those calls
      if (signature == read.points[known].signature) {
        aligned = true;
        --known;
      } else if (aligned) {
        return false;
      }
      continue;
    }
    take(EarlierCall{n, rolling, signature, __atomic_load_n(&record.site, __ATOMIC_RELAXED)});
    rolling = unroll(rolling, signature);
    --n;
  }
  return n == base->n && rolling == base->rolling;
}

}  // namespace

void add_earlier(Tree& tree, const Watched& rank, uint32_t index, const HistoryRead& read, uint64_t from) {
  uint32_t first = 0;
  while (first < read.count && read.points[first].signature == 0) ++first;
  if (first == 0 || first == read.count) return;
  // Another rank may have told the same already.
  const PathPoint& anchor = read.points[first - 1];
  for (uint16_t claim = tree_claim(tree, anchor.n, anchor.rolling); claim != kNoClaim && tree.claims[claim].n >= from;
       claim = tree.claims[claim].parent)
    if (tree.claims[claim].n == from && tree.claims[claim].signature != 0) return;
  HistoryRead earlier;
  earlier.count = 0;
  uint64_t sites[kMaxEarlier];  // as `earlier` at first: descending
  PathPoint base;
  const bool proved = walk_earlier(rank, index, read, from, &base, [&](const EarlierCall& call) {
    if (call.n < from || call.n >= from + kMaxEarlier - 1) return;
    sites[earlier.count] = call.site;
    earlier.points[earlier.count++] = {call.n, call.rolling, call.signature, 0};
    if (call.n != from || call.n == base.n + 1) return;
    sites[earlier.count] = 0;
    earlier.points[earlier.count++] = {call.n - 1, unroll(call.rolling, call.signature), 0, 0};
  });
  if (!proved) return;
  for (uint32_t i = 0; i < earlier.count / 2; ++i) {
    const PathPoint point = earlier.points[i];
    earlier.points[i] = earlier.points[earlier.count - 1 - i];
    earlier.points[earlier.count - 1 - i] = point;
  }
  tree_add(tree, rank.rank, earlier);
  for (uint32_t i = 0; i < earlier.count; ++i) {
    Claim& claim = tree.claims[tree_claim(tree, earlier.points[i].n, earlier.points[i].rolling)];
    if (claim.site == 0 && sites[earlier.count - 1 - i] != 0) {
      claim.site = sites[earlier.count - 1 - i];
      claim.site_rank = rank.rank;
    }
  }
}

uint64_t first_difference(const Side& one, const Side& other, uint64_t after, uint64_t before, uint64_t* room) {
  PathPoint base;
  const auto of = [&](const EarlierCall& call) -> uint64_t* {
    return call.n > after && call.n < before ? &room[call.n - after - 1] : nullptr;
  };
  if (before - after > ring::kRecordsPerTrace ||
      !walk_earlier(*one.rank, one.index, *one.read, after + 1, &base, [&](const EarlierCall& call) {
        if (uint64_t* place = of(call); place != nullptr) *place = call.rolling;
      }))
    return 0;
  uint64_t first = before;
  const bool proved =
      walk_earlier(*other.rank, other.index, *other.read, after + 1, &base, [&](const EarlierCall& call) {
        if (const uint64_t* place = of(call); place != nullptr && *place != call.rolling) first = call.n;
      });
  return proved ? first : 0;
}

}  // namespace resil::hang
