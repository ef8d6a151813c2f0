// SPDX-License-Identifier: Apache-2.0
//
// Messages whose buffers are on a device and whose data goes through pinned host memory (pipeline/staging/): there the
// ledger reads it. This part does not know that one, which registers itself here.
#pragma once

#include <cstdint>

#include "shim/model/view.h"

namespace resil {
struct Event;
struct Thread;
}

namespace resil::p2p {

/// The data as the host may read it until the call has returned, and its D.
struct StagedView {
  View view;
  uint64_t digest;
};

enum class Sent : uint8_t {
  kElsewhere,  ///< the data did not go through pinned memory
  kPosted,  ///< the library has it
  kLater,  ///< it will, in its turn
};

struct StagedCopies {
  /// Of a receive into `buffer` that this call completed, `bytes` came.
  bool (*received)(Thread& thread, const void* buffer, uint64_t bytes, StagedView* copy);
  /// Of the send of this call, which is about to return. kPosted: `copy` is filled. kLater: send_posted or send_dropped
  /// will be called with the word that is stored in `*word`, by any thread, inside a call.
  Sent (*sent)(const Event& event, StagedView* copy, void*** word);
  /// Of a send from `buffer` whose request this call completed.
  bool (*ended)(Thread& thread, const void* buffer, StagedView* copy);
};

/// Null: nothing is staged in this run. Set before MPI_Init returns.
inline constinit const StagedCopies* staged_copies = nullptr;

/// The data of a staged receive, if it is one.
inline bool staged_receive(Thread& thread, const View& view, uint64_t bytes, StagedView* copy) {
  return view.reason == Reason::kDeviceBuffer && staged_copies != nullptr &&
         staged_copies->received(thread, view.buffer, bytes, copy);
}

/// The data as a row of bytes.
inline constexpr Run kByteRun = {0, 1, 1, 1};
inline constexpr TypeMap kByteMap = {1, 1, 0, 1, true, false, true, 1, &kByteRun, {}, 0};

// --- receives.cpp: called by staging -----------------------------------------------------------------------------
/// `copy` is about to be posted in place of the event's buffer.
void receive_posting(Event& event, const View& copy);

// --- sends.cpp: called by staging --------------------------------------------------------------------------------
/// An exchange that blocks is about to give `copy` to the library: the partner's receive may wait for what is said of
/// it.
void send_announcing(Event& event, const StagedView& copy);
/// The library has taken the send; sends of one lane in the order of the calls.
void send_posted(Thread& thread, void* word, const StagedView& copy);
/// It never will.
void send_dropped(void* word);

}  // namespace resil::p2p
