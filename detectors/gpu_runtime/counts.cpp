// SPDX-License-Identifier: Apache-2.0
//
// See counts.h.

#include "detectors/gpu_runtime/counts.h"

#include "detectors/gpu_runtime/messages.h"
#include "shim/report/json.h"

namespace resil::gpu_runtime {

namespace {

constexpr auto kKinds = static_cast<unsigned>(Kind::kCount);
constexpr auto kReasonCount = static_cast<unsigned>(Uncovered::kCount);
constexpr const char* kNames[kKinds] = {"stream_waits", "device_waits", "event_waits", "stream_queries",
                                        "event_queries"};
namespace why = messages::gpu_runtime::uncovered;
constexpr const char* kReasons[kReasonCount] = {
    "",           why::no_driver, why::no_context,  why::capture,      why::memory,
    why::refused, why::too_many,  why::unseen_work, why::changed_while};

/// A word that is this late is counted and not claimed: two writes of a device may be seen in another order for an
/// instant, and a wrong claim costs more than a miss of less than an instruction's worth of a kernel.
constexpr double kClaim = 2e-6;

struct Counter {
  std::atomic<uint64_t> calls, checked, premature, barely;
  std::atomic<uint64_t> uncovered[kReasonCount];
};
constinit Counter counters[kKinds];
constinit std::atomic<uint64_t> lost;
constinit std::atomic<uint64_t> longest_ns;

Counter& of(Kind kind) { return counters[static_cast<unsigned>(kind)]; }
void add(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

void count_call(Kind kind) { add(of(kind).calls); }

void count_checked(Kind kind, double late_seconds) {
  add(of(kind).checked);
  if (late_seconds <= 0) return;
  add(late_seconds < kClaim ? of(kind).barely : of(kind).premature);
  const auto ns = static_cast<uint64_t>(late_seconds * 1e9);
  uint64_t most = longest_ns.load();
  while (ns > most && !longest_ns.compare_exchange_weak(most, ns)) {}
}

bool worth_claiming(double late_seconds) { return late_seconds >= kClaim; }

void count_uncovered(Kind kind, Uncovered why) { add(of(kind).uncovered[static_cast<unsigned>(why)]); }
void count_lost() { add(lost); }

uint64_t calls_so_far() {
  uint64_t n = 0;
  for (const Counter& counter : counters) n += counter.calls.load();
  return n;
}

void counts_report(JsonWriter& json) {
  for (unsigned i = 0; i < kKinds; ++i) {
    const Counter& counter = counters[i];
    if (counter.calls.load() == 0) continue;
    json.begin_object(kNames[i]);
    json.integer("calls", counter.calls.load());
    json.integer("checked", counter.checked.load());
    json.integer("premature", counter.premature.load());
    json.integer("late_below_2_us", counter.barely.load());
    json.begin_object("uncovered");
    for (unsigned k = 1; k < kReasonCount; ++k)
      if (counter.uncovered[k].load() != 0) json.integer(kReasons[k], counter.uncovered[k].load());
    json.end_object();
    json.end_object();
  }
  json.integer("lost_completions", lost.load());
  json.integer("fence_words", words_written());
  json.integer("contexts", arenas_made());
  json.integer("contexts_with_fills", arenas_filling());
  json.number("longest_late_seconds", static_cast<double>(longest_ns.load()) * 1e-9);
}

}  // namespace resil::gpu_runtime
