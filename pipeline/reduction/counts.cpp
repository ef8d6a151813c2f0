// SPDX-License-Identifier: Apache-2.0
//
// See counts.h.

#include "pipeline/reduction/counts.h"

#include "pipeline/reduction/notes.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil::reduction {

namespace {

struct Counter {
  uint64_t calls, bytes;
};
Counter counters[static_cast<unsigned>(Way::kCount)];

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

}  // namespace

void count_way(Way way, uint64_t bytes) {
  Counter& counter = counters[static_cast<unsigned>(way)];
  if (__atomic_fetch_add(&counter.calls, 1, __ATOMIC_RELAXED) == 0 && is_native(way)) [[unlikely]]
    if (const char* reason = why(way); reason != nullptr) add_note_format(messages::reduction::native, reason);
  __atomic_fetch_add(&counter.bytes, bytes, __ATOMIC_RELAXED);
}

void report_ways(JsonWriter& json, const char* mode, bool p2p) {
  json.begin_object("reductions");
  json.text("mode", mode);
  json.text("schedule", p2p ? "messages" : "collectives");
  int64_t calls = 0, bytes = 0, native = 0;
  for (unsigned i = 0; i < static_cast<unsigned>(Way::kCount); ++i) {
    calls += static_cast<int64_t>(counters[i].calls);
    bytes += static_cast<int64_t>(counters[i].bytes);
    native += is_native(static_cast<Way>(i)) ? static_cast<int64_t>(counters[i].calls) : 0;
  }
  json.integer("calls", calls);
  json.integer("bytes", bytes);
  constexpr Way kOwn[] = {Way::kOrder, Way::kExact, Way::kP2p, Way::kNativeSafe};
  for (Way way : kOwn) {
    json.begin_object(way_name(way));
    json.integer("calls", static_cast<int64_t>(counters[static_cast<unsigned>(way)].calls));
    json.integer("bytes", static_cast<int64_t>(counters[static_cast<unsigned>(way)].bytes));
    json.end_object();
  }
  json.begin_object("native");
  json.integer("calls", native);
  json.begin_object("reasons");
  for (unsigned i = static_cast<unsigned>(Way::kNativeRanks); i < static_cast<unsigned>(Way::kCount); ++i)
    if (counters[i].calls != 0) json.integer(way_name(static_cast<Way>(i)), static_cast<int64_t>(counters[i].calls));
  json.end_object();
  json.end_object();
  json.end_object();
}

}  // namespace resil::reduction
