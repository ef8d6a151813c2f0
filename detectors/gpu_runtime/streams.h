// SPDX-License-Identifier: Apache-2.0
//
// The streams that the program made, as far as their making was seen, and the word of each that answers queries.
//
// Threads: any of the program. The lock is held for a look-up only; an entry that is in use keeps its stream from being
// destroyed until its user is done, as a word must not go to a stream that is gone.
#pragma once

#include <atomic>
#include <cstdint>

#include "detectors/gpu_runtime/words.h"

namespace resil::gpu_runtime {

struct StreamEntry {
  void* handle;
  void* context;
  Api api;
  bool made;  ///< its making was seen; else it is only known from queries
  bool blocking;  ///< waits for the legacy stream, and that one for it
  std::atomic<uint32_t> users;
  std::atomic<bool> querying;  ///< a thread is at the members below
  Slot slot;
  Word word;  ///< appended for a query
  bool consumed;  ///< an answer has been given on the word
};

/// Notes a new stream. `flags` bit 0: does not wait for the legacy stream.
void stream_made(Api api, void* context, void* handle, unsigned flags);
/// Before it is destroyed.
void stream_gone(Api api, void* handle);

/// The entry of a stream, made if need be; in use until stream_release. Null: no room.
StreamEntry* stream_hold(Api api, void* context, void* handle);
void stream_release(StreamEntry* entry);

/// The streams made in a context, in use until released. Returns how many; `*more`: there are others that did not fit.
unsigned streams_hold(Api api, void* context, StreamEntry** entries, unsigned capacity, bool* more);

/// May a word go to the default stream of this context? It waits for all blocking streams, and they for it: a wait for
/// the default stream would wait for more than the program asked, and streams of other threads for each other. So only
/// while all blocking streams are known and idle.
bool default_stream_safe(const Driver& driver, void* context);
/// A per-thread default stream is in use: a blocking stream that is in no table.
void stream_per_thread_seen(Api api);

/// From here on every stream of this runtime's is seen when it is made: a wait for the device has no unknown part.
void streams_all_seen(Api api);
bool streams_known(Api api);

}  // namespace resil::gpu_runtime
