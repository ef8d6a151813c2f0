// SPDX-License-Identifier: Apache-2.0
//
// The request table's second level: requests that found no place among those of the ring file, for the modules that
// must see every completion. Private memory, mapped in three steps as it fills; no reader of the ring file sees it.
// Lock-free, any thread, no signal handlers. Used by request_table.cpp alone.
#pragma once

#include <cstdint>

#include "shim/call/module.h"
#include "shim/tables/request_serial.h"

namespace resil {

/// One request, as few bytes as its completion needs. Its key lies beside it, in `OverflowBucket`.
struct OverflowEntry {
  uint64_t cookies[kRequestWords];  ///< the modules' words, 0: none
  uint64_t state;  ///< OverflowState in one word, to be read and changed at once; 0: not filled in yet, or given back
};

/// Bits of OverflowEntry::state.
struct OverflowState {
  uint32_t serial;  ///< as ring::Request::serial
  uint32_t trace;  ///< the low 15 bits of the posting thread's
  uint8_t flags;  ///< ring::RequestFlag
  uint8_t duplicate;  ///< as ring::Request::cleanup

  static constexpr uint32_t kTraces = 0x7fff;
  uint64_t word() const {
    return uint64_t{serial} << 32 | uint64_t{1} << 31 | (trace & kTraces) << 16 | uint32_t{duplicate} << 8 | flags;
  }
  static OverflowState of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 16) & kTraces, static_cast<uint8_t>(word),
            static_cast<uint8_t>(word >> 8)};
  }
};

constexpr uint32_t kMaxOverflow = 1u << 20;

/// Requests in the second level now. Whoever may ask for a request sees those that he may ask for counted.
extern constinit uint32_t overflow_in_use;

/// Forgets everything (start of a process, next unit test).
void overflow_reset();

/// A place for a request, not yet visible: its state is to be stored last (release). Null: full, or memory was refused.
OverflowEntry* overflow_claim(uint64_t key, bool concurrent);

/// Of two entries of one key, is `a` the one that is meant by who asks?
bool overflow_preferred(const OverflowState& a, const OverflowState& b, RequestAsker asker);

/// The entry of a key that is meant by who asks, null: none. The state is the one that made the choice.
OverflowEntry* overflow_find(uint64_t key, RequestAsker asker, bool concurrent, OverflowState* state);

/// Changes its flags; false: its state is no longer `state`, the entry is another request's or nobody's.
bool overflow_set_flags(OverflowEntry* entry, OverflowState state, uint8_t flags);

/// Gives the entry back, with its cookies; false: its state is no longer `state`, another thread was faster.
bool overflow_release(OverflowEntry* entry, uint64_t key, OverflowState state, bool concurrent, uint64_t* cookies);

}  // namespace resil
