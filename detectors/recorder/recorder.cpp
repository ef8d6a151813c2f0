// SPDX-License-Identifier: Apache-2.0
//
// The reading side of the flight recorder: the report's counters. Records are written in the call path
// (shim/call/flight.h), the program's own by shim/call/user_records.h.

#include "shim/call/flight.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"
#include "shim/report/json.h"

namespace resil {

namespace {

void before_init() {
  flight::short_ticks = static_cast<uint64_t>(runtime.header->ticks_per_second * 1e-6);
  flight::tight_ticks = static_cast<uint64_t>(runtime.header->ticks_per_second * 8e-6);
  flight::gap_ticks = static_cast<uint64_t>(runtime.header->ticks_per_second * 50e-6);
}

void report(JsonWriter& json);

constexpr Module kRecorder = {
    .name = "recorder",
    .description = "flight recorder: the last calls of every thread, counters per function and peer",
    .stage = Stage::kWatch,
    .before_init = before_init,
    .report = report,
};
RESIL_MODULE(kRecorder);

/// The trace buffers that threads have written to. The pages of all others nobody has touched.
struct Used {
  const ring::TraceBuffer* traces[64];
  uint32_t count = 0;
  Used() {
    const uint32_t total = trace_total();
    static_assert(kMostTraces <= sizeof(traces) / sizeof(traces[0]));
    for (uint32_t i = 0; i < total; ++i)
      if (const ring::TraceBuffer& trace = trace_at(i); trace.calls != 0 || trace.head != 0) traces[count++] = &trace;
  }
  const ring::TraceBuffer* const* begin() const { return traces; }
  const ring::TraceBuffer* const* end() const { return traces + count; }
};

void report(JsonWriter& json) {
  const Used used;
  const double seconds = 1 / runtime.header->ticks_per_second;
  json.begin_object("calls");
  for (unsigned id = 0; id < kCallCount; ++id) {
    ring::CallCounter total = {};
    for (const ring::TraceBuffer* trace : used) {
      const ring::CallCounter& counter = trace->counters[id];
      total.count += counter.count;
      total.ticks += counter.ticks;
      total.bytes += counter.bytes;
    }
    if (total.count == 0) continue;
    json.begin_object(kCallInfo[id].name);
    json.integer("count", total.count);
    json.number("seconds", total.ticks * seconds);
    json.integer("bytes", total.bytes);
    json.end_object();
  }
  json.end_object();
  uint64_t unattributed = unattributed_ticks.load() + (current_thread != nullptr ? current_thread->unattributed : 0);
  json.number("seconds_unattributed", static_cast<double>(unattributed) * seconds);
  json.begin_array("peers");
  for (uint32_t first = 0; first < used.count; ++first) {
    for (const ring::PeerCounter& peer : used.traces[first]->peers) {
      if (used.traces[first]->head == 0 || peer.rank == -1 ||
          (peer.rank == -2 && peer.sent_messages + peer.received_messages == 0))
        continue;
      ring::PeerCounter total = {peer.rank, 0, 0, 0, 0, 0};
      bool earlier = false;
      for (uint32_t trace = 0; trace < used.count; ++trace) {
        for (const ring::PeerCounter& same : used.traces[trace]->peers) {
          if (used.traces[trace]->head == 0 || same.rank != peer.rank) continue;
          earlier = earlier || trace < first;
          total.sent_messages += same.sent_messages;
          total.sent_bytes += same.sent_bytes;
          total.received_messages += same.received_messages;
          total.received_bytes += same.received_bytes;
        }
      }
      if (earlier) continue;
      json.begin_object();
      json.integer("rank", total.rank);
      json.integer("sent_messages", total.sent_messages);
      json.integer("sent_bytes", total.sent_bytes);
      json.integer("received_messages", total.received_messages);
      json.integer("received_bytes", total.received_bytes);
      json.end_object();
    }
  }
  json.end_array();
}

}  // namespace

}  // namespace resil
