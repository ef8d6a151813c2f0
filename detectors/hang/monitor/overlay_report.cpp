// SPDX-License-Identifier: Apache-2.0
//
// Single words, each as new as the last turn of the helper thread.
#include "detectors/hang/monitor/overlay_report.h"

namespace resil::hang {

namespace {

struct Row {
  const char* name;
  uint64_t OverlayCounters::*counter;
};

constexpr Row kRows[] = {
    {"refused_address", &OverlayCounters::refused_address},
    {"refused_full", &OverlayCounters::refused_full},
    {"refused_key", &OverlayCounters::refused_key},
    {"refused_silent", &OverlayCounters::refused_silent},
    {"bad_frames", &OverlayCounters::bad_frames},
    {"accept_errors", &OverlayCounters::accept_errors},
    {"connect_errors", &OverlayCounters::connect_errors},
    {"probes", &OverlayCounters::probes},
    {"probes_answered", &OverlayCounters::probes_answered},
    {"parents", &OverlayCounters::parents},
    {"children_lost", &OverlayCounters::children_lost},
    {"silences", &OverlayCounters::silences},
    {"overflows", &OverlayCounters::overflows},
    {"rounds", &OverlayCounters::rounds},
    {"rounds_partial", &OverlayCounters::rounds_partial},
    {"bytes_in", &OverlayCounters::bytes_in},
    {"bytes_out", &OverlayCounters::bytes_out},
};

OverlayCounters kept;
bool exists;

}  // namespace

void overlay_keep_counters(const Overlay* overlay) {
  const OverlayCounters& now = overlay_counters(overlay);
  for (const Row& row : kRows) __atomic_store_n(&(kept.*row.counter), now.*row.counter, __ATOMIC_RELAXED);
  __atomic_store_n(&exists, true, __ATOMIC_RELEASE);
}

void overlay_report(JsonWriter& json) {
  if (!__atomic_load_n(&exists, __ATOMIC_ACQUIRE)) return;
  json.begin_object("overlay");
  for (const Row& row : kRows) json.integer(row.name, __atomic_load_n(&(kept.*row.counter), __ATOMIC_RELAXED));
  json.end_object();
}

}  // namespace resil::hang
