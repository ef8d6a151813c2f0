// SPDX-License-Identifier: Apache-2.0
//
// The words around each event's last record: one appended before it, one after it. The event is not complete before the
// first is written, and is complete when the second is.
//
// Threads: any of the program; the lock is held for a look-up only. An event that two threads use at the same time is
// not judged: `generation` tells.
#pragma once

#include <cstdint>

#include "detectors/gpu_runtime/words.h"

namespace resil::gpu_runtime {

struct EventWords {
  Word before, after;  ///< not armed: nothing is known about this event
  void* stream = nullptr;
  uint64_t generation = 0;
};

/// Around the real record.
void event_recording(const Driver& driver, void* event, void* stream);
void event_recorded(const Driver& driver, void* event, void* stream, bool recorded);
/// The event is destroyed, or (`exported`) is handed to another process that may record it.
void event_forget(Api api, void* event, bool exported);
/// From now on graphs may record events when they are launched: nothing is claimed about events any more.
void events_in_graphs();

EventWords event_words(Api api, void* event);
/// Nothing has happened to the event since `words` was had.
bool event_unchanged(Api api, void* event, const EventWords& words);

}  // namespace resil::gpu_runtime
