// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking and persistent operations that the injector must meet again when they complete, by request handle: its
// own table, since the cookies of the shim's request table belong to the checksums.
#pragma once

#include <cstdint>

#include "checksum/fault/engine.h"

namespace resil::fault {

struct Operation {
  uint64_t key;  ///< request handle
  bool receives, persistent, active, collective;
  bool second;  ///< the other half of the operation entered before it: collectives send and receive
  CallId id;
  int32_t tag;
  uint64_t sequence;
  Layout layout;  ///< of the side that matters; its type is held
  char* kept;  ///< receives: what the buffer held when it was posted
  char *shadow, *shadow_buffer;  ///< sends: private copy that the library reads
  bool changes;  ///< modify, in this activation
  uint64_t change_at, change_bytes;
  int64_t change_offset, change_count;  ///< the packet in which: bytes from the layout's buffer, elements
  Operation* next;
};

/// Enters it; null: no memory (then nothing is known of its completion).
Operation* operation_add(const Operation& operation);
/// The oldest one with that handle that is still there (a handle may be reused by another thread before its completion
/// has been looked at here).
Operation* operation_find(uint64_t key);
/// Takes it out and gives back what it holds, but for a copy that the library may still read (`in_use`).
void operation_drop(Operation* operation, bool in_use);

/// A handle that operations share which were complete at once.
bool is_shared_handle(uint64_t key);
/// Calls `visit` for each request that this call has completed; `place`: its status's number. `failed`: the call did,
/// and the request is gone without a word on its data.
void for_each_completed(Event& event, void (*visit)(Event&, uint64_t key, int64_t place, bool failed));

}  // namespace resil::fault
