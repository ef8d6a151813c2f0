// SPDX-License-Identifier: Apache-2.0
//
// Fence words: 64-bit words in pinned host memory that the device itself writes when it has done everything that stood
// before them in a stream. They do not depend on how the runtime learns of completion.
//
// A word is written with a ticket that is used once, and has at most one write outstanding: it is given out again only
// after its last ticket has been seen. So a late write is never taken for a later one, whatever streams they were in.
//
// The memory is the process's own, registered with the driver once for each context. It stays mapped when the context
// dies, so that looking at a word is always allowed: also for helper threads and signal handlers.
#pragma once

#include <atomic>
#include <cstdint>

#include "detectors/gpu_runtime/driver.h"

namespace resil::gpu_runtime {

/// What is looked at. Tickets are written whole by stream memory operations; by the fallback, a fill, in their low
/// half. Those of one word only grow, so that a word of an event that has been recorded again since counts as written.
struct Word {
  const uint64_t* at = nullptr;
  uint64_t ticket = 0;
  bool low = false;  ///< low half only

  bool armed() const { return at != nullptr; }
  bool written() const {
    const uint64_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return low ? static_cast<int32_t>(static_cast<uint32_t>(value) - static_cast<uint32_t>(ticket)) >= 0
               : value >= ticket;
  }
};

struct Arena;

/// One line of memory with two words of the same owner.
struct Slot {
  Arena* arena = nullptr;
  uint32_t index = 0;
};

/// Why there is no word. In the order of kReasons (counts.cpp).
enum class Uncovered : uint8_t { kNone, kDriver, kContext, kCapture, kMemory, kRefused, kMany, kUnseen, kRace, kCount };

/// Of the context that is current (`context`, Current's). False: `why`.
bool slot_acquire(const Driver& driver, void* context, Slot* slot, Uncovered* why);
/// Words that are still to be written make it wait for them before it is given out again.
void slot_release(Slot& slot);
/// Has every ticket of this slot been seen?
bool slot_idle(const Slot& slot);

/// Is it one of this context's?
bool slot_of(const Slot& slot, const void* context);

/// Appends word `which` (0, 1) of the slot to the stream, whose context is current. Skips streams in capture, which it
/// would change. False: `why`, and nothing was enqueued.
bool word_append(const Driver& driver, const Slot& slot, unsigned which, void* stream, Word* word, Uncovered* why);

/// Has any word of this context arrived yet? Until then a word that does not come proves nothing.
bool words_proved(const Slot& slot);
void word_seen(const Slot& slot);

/// What the pinned memory came to, for the report.
uint64_t words_written();
uint64_t arenas_made();
/// Contexts whose words are written by a fill, because it has no 64-bit stream memory operations.
uint64_t arenas_filling();

/// Enqueues a fill of memory on the device: a kernel without effect. False: refused.
bool enqueue_kernel(const Driver& driver, void* context, void* stream);

}  // namespace resil::gpu_runtime
