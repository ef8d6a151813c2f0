// SPDX-License-Identifier: Apache-2.0
//
// Device buffers through pinned memory: what the parts of the module know of each other. See docs/STAGING.md.
#pragma once

#include <cstdint>

#include "pipeline/staging/packet.h"
#include "shim/call/local_data.h"
#include "shim/model/event.h"

namespace resil {
class JsonWriter;
}

namespace resil::staging {

enum class Setting : uint8_t { kAuto, kOn, kOff };

struct Mode {
  Setting setting;  ///< RESIL_STAGE
  bool mpi_takes_device;  ///< the MPI says that it takes device buffers (staging then only with kOn)
  uint64_t memory;  ///< RESIL_STAGE_MEMORY, bytes
};
extern constinit Mode mode;

/// Is this run one in which device buffers are rerouted, should there be any?
inline bool active() {
  return mode.setting == Setting::kOn || (mode.setting == Setting::kAuto && !mode.mpi_takes_device);
}

/// Is work of resil's own under way (copies down whose send is not posted, receives, copies up)? One load.
bool under_way();

/// Looks after everything under way, without blocking: posts the sends whose data is down, starts copies up of what has
/// arrived, completes requests. Application's thread, inside an MPI call; one thread at a time does it, others return.
/// `more_to_come`: the program is starting messages; what is deferred behind them (chunked_peer.h) stays so.
void progress(Thread& thread, bool more_to_come = false);
/// Likewise, in a wait of another module's: which may be waiting while staging tells it of a message.
void progress_besides(Thread& thread);

/// Before a call that blocks inside MPI and that staging does not carry out itself: everything that other ranks may
/// wait for is handed to MPI. Waits for copies down (a local matter of microseconds), never for a rank.
void flush(Thread& thread);

// --- Point-to-point (pipeline/staging/p2p*.cpp)
// -----------------------------------------------------------------------
bool p2p_handles(CallId id);
bool p2p_replace(Event& event);  ///< Module::execute_instead
// --- Completion calls (pipeline/staging/wait*.cpp): as tests that let the pipeline progress
// ---------------------------
bool completes(CallId id);
bool wait_replace(Event& event);
// --- Collectives and persistent requests (pipeline/staging/collective*.cpp)
// -------------------------------------------
bool collective_handles(CallId id);
void collective_before(Event& event);  ///< Module::before_call
void collective_after(Event& event);  ///< Module::after_call
void collective_activating(Event& event, uint64_t* cookie);
void collective_completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
// --- Local calls (pipeline/staging/local.cpp)
// -------------------------------------------------------------------------
LocalWay local_begin(Thread& thread, LocalData& data);  ///< Module::local_enter
int local_end(Thread& thread, LocalData& data, int result, int64_t packed);

// --- Counts for the report (pipeline/staging/counts.cpp)
// --------------------------------------------------------------
enum class Path : uint8_t { kMessage, kCollective, kPersistent, kLocal };
void count_staged(Path path, uint64_t bytes);
/// A call with a device buffer that went to the library as it was: one-sided, refusals, other runtimes.
enum class Uncovered : uint8_t { kForeign, kDatatype, kPinnedMemory, kDevice, kOneSided, kReduction, kOther };
void count_uncovered(Uncovered reason, uint64_t bytes);
void count_refused(Refusal refusal, uint64_t bytes);  ///< nothing for host memory
/// A packet for which there was no pinned memory.
void count_pageable(uint64_t bytes);
void report_counts(JsonWriter& json);

}  // namespace resil::staging
