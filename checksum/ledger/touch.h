// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: stores of the program into buffers of pending receives, and into send buffers. What can be proved
// and what cannot: docs/CHECKSUM.md, "Buffers touched while pending".
#pragma once

#include <cstdint>

#include "shim/model/view.h"

namespace resil {
struct Event;
}

namespace resil::touch {

/// What was seen of one receive's buffer.
struct Touch {
  uint64_t first, bytes;  ///< bytes that held what neither was there before nor came: the first one, how many
  uint64_t behind_first, behind;  ///< the same of bytes behind the message, where no message could write
  uint64_t landed;  ///< digest of what the buffer held before a change outside MPI that stayed; with `stayed`
  bool stayed;
  uint64_t posted_site, after_site, before_site;  ///< of the receive; the calls around the change
  uint16_t posted_call, after_call, before_call;
};

/// A finding to be made.
struct Told {
  Touch touch;
  uint64_t bytes;
  bool receive;
};

// --- for touch_module.cpp ---
void prepare();
void entered(const Event& event);  ///< a call of the program's
void left(const Event& event);
bool next_told(Told* told);  ///< false: none is left

extern bool enabled;  ///< RESIL_BLAME=full, and no faults are made on purpose

/// A receive begins, in the `enter` hook of its call. 0: not watched.
uint64_t watch(const View& view, const Event& event);
/// It is complete with `bytes`, and the program has not been told yet. Ends the watch. False: nothing was seen.
bool end(uint64_t watched, const View& view, uint64_t bytes, Touch* touch);
void drop(uint64_t watched);

/// A receive that was touched, and whose message was right. Told by the next call of MPI: may be called under locks.
void tell_receive(const Touch& touch);
/// A send buffer was another one when the send was complete.
void tell_send(uint64_t site, uint16_t call, uint64_t bytes);

}  // namespace resil::touch
