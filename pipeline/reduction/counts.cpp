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

constexpr bool is_native(Way way) { return way >= Way::kNativeRanks; }

const char* why(Way way) {
  switch (way) {
    case Way::kNativeRanks: return messages::reduction::some_without;
    case Way::kNativeWorld: return messages::reduction::other_world;
    case Way::kNativeSize: return messages::reduction::too_large;
    case Way::kNativePersistent: return messages::reduction::no_persistent;
    default: return nullptr;
  }
}

void add(WayCounts& to, const WayCounts& from) {
  for (unsigned i = 0; i < kWays; ++i) {
    to.calls[i] += __atomic_load_n(&from.calls[i], __ATOMIC_RELAXED);
    to.bytes[i] += __atomic_load_n(&from.bytes[i], __ATOMIC_RELAXED);
  }
  to.by_node += __atomic_load_n(&from.by_node, __ATOMIC_RELAXED);
}

}  // namespace

void count_way(PerThread& mine, Way way, uint64_t bytes) {
  const unsigned index = static_cast<unsigned>(way);
  if (mine.counts.calls[index] == 0 && is_native(way)) [[unlikely]]
    if (const char* reason = why(way); reason != nullptr) add_note_format(messages::reduction::native, reason);
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
  for (unsigned i = 0; i < static_cast<unsigned>(Way::kCount); ++i) {
    calls += static_cast<int64_t>(all.calls[i]);
    bytes += static_cast<int64_t>(all.bytes[i]);
    native += is_native(static_cast<Way>(i)) ? static_cast<int64_t>(all.calls[i]) : 0;
  }
  json.integer("calls", calls);
  json.integer("bytes", bytes);
  json.integer("through_node_memory", static_cast<int64_t>(all.by_node));
  constexpr Way kOwn[] = {Way::kOrder, Way::kExact, Way::kP2p, Way::kNativeSafe};
  for (Way way : kOwn) {
    json.begin_object(way_name(way));
    json.integer("calls", static_cast<int64_t>(all.calls[static_cast<unsigned>(way)]));
    json.integer("bytes", static_cast<int64_t>(all.bytes[static_cast<unsigned>(way)]));
    json.end_object();
  }
  json.begin_object("native");
  json.integer("calls", native);
  json.begin_object("reasons");
  for (unsigned i = static_cast<unsigned>(Way::kNativeRanks); i < static_cast<unsigned>(Way::kCount); ++i)
    if (all.calls[i] != 0) json.integer(way_name(static_cast<Way>(i)), static_cast<int64_t>(all.calls[i]));
  json.end_object();
  json.end_object();
  json.end_object();
}

}  // namespace resil::reduction
