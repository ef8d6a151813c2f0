// SPDX-License-Identifier: Apache-2.0
//
// See counts.h.

#include "pipeline/reduction/counts.h"

#include "pipeline/reduction/notes.h"
#include "shim/base/spinlock.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil::reduction {

namespace {

PerThread* threads;  // that live
WayCounts ended;  // of those that do not
SpinLock lock;

constexpr bool is_native(Algorithm algorithm) { return algorithm >= Algorithm::kNativeRanks; }

const char* why(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kNativeRanks: return messages::reduction::some_without;
    case Algorithm::kNativeWorld: return messages::reduction::other_world;
    case Algorithm::kNativeSize: return messages::reduction::too_large;
    case Algorithm::kNativePersistent: return messages::reduction::no_persistent;
    default: return nullptr;
  }
}

void add(WayCounts& to, const WayCounts& from) {
  for (unsigned i = 0; i < kAlgorithms; ++i) {
    to.calls[i] += __atomic_load_n(&from.calls[i], __ATOMIC_RELAXED);
    to.bytes[i] += __atomic_load_n(&from.bytes[i], __ATOMIC_RELAXED);
  }
  to.by_node += __atomic_load_n(&from.by_node, __ATOMIC_RELAXED);
  to.by_groups += __atomic_load_n(&from.by_groups, __ATOMIC_RELAXED);
}

}  // namespace

void count_algorithm(PerThread& mine, Algorithm algorithm, uint64_t bytes) {
  const unsigned index = static_cast<unsigned>(algorithm);
  if (mine.counts.calls[index] == 0 && is_native(algorithm)) [[unlikely]]
    if (const char* reason = why(algorithm); reason != nullptr) add_note_format(messages::reduction::native, reason);
  count_more(mine.counts.calls[index], 1);
  count_more(mine.counts.bytes[index], bytes);
}

void counts_enter(PerThread& mine) {
  SpinGuard guard(lock);
  mine.next = threads;
  threads = &mine;
}

void counts_leave(PerThread& mine) {
  SpinGuard guard(lock);
  add(ended, mine.counts);
  for (PerThread** place = &threads; *place != nullptr; place = &(*place)->next)
    if (*place == &mine) {
      *place = mine.next;
      break;
    }
}

void report_ways(JsonWriter& json, const char* mode, bool p2p) {
  json.begin_object("reductions");
  json.text("mode", mode);
  json.text("schedule", p2p ? "messages" : "collectives");
  WayCounts all;
  {
    SpinGuard guard(lock);
    all = ended;
    for (const PerThread* thread = threads; thread != nullptr; thread = thread->next) add(all, thread->counts);
  }
  int64_t calls = 0, bytes = 0, native = 0;
  for (unsigned i = 0; i < static_cast<unsigned>(Algorithm::kCount); ++i) {
    calls += static_cast<int64_t>(all.calls[i]);
    bytes += static_cast<int64_t>(all.bytes[i]);
    native += is_native(static_cast<Algorithm>(i)) ? static_cast<int64_t>(all.calls[i]) : 0;
  }
  json.integer("calls", calls);
  json.integer("bytes", bytes);
  json.integer("through_node_memory", all.by_node);
  json.integer("by_groups", all.by_groups);
  constexpr Algorithm kOwn[] = {Algorithm::kOrder, Algorithm::kExact, Algorithm::kP2p, Algorithm::kNativeSafe};
  for (Algorithm algorithm : kOwn) {
    json.begin_object(algorithm_name(algorithm));
    json.integer("calls", all.calls[static_cast<unsigned>(algorithm)]);
    json.integer("bytes", all.bytes[static_cast<unsigned>(algorithm)]);
    json.end_object();
  }
  json.begin_object("native");
  json.integer("calls", native);
  json.begin_object("reasons");
  for (unsigned i = static_cast<unsigned>(Algorithm::kNativeRanks); i < static_cast<unsigned>(Algorithm::kCount); ++i)
    if (all.calls[i] != 0) json.integer(algorithm_name(static_cast<Algorithm>(i)), all.calls[i]);
  json.end_object();
  json.end_object();
  json.end_object();
}

}  // namespace resil::reduction
