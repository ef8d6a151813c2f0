// SPDX-License-Identifier: Apache-2.0
//
// One wait or query of the program's in its accelerator runtime, from before the real function to after it.
//
// Application's threads, not inside MPI. The real function is called between begin() and end(); by whom differs: hooks
// by name (names_*.cpp) call it, CUPTI's callbacks (cupti.cpp) stand on both sides of it.
#pragma once

#include <cstdint>

#include "detectors/gpu_runtime/counts.h"
#include "detectors/gpu_runtime/events.h"
#include "detectors/gpu_runtime/open_waits.h"
#include "detectors/gpu_runtime/streams.h"

namespace resil::gpu_runtime {

enum class Sync : uint8_t { kNative, kDouble, kKernel, kPoll };

struct Settings {
  bool watch;  ///< waits are noted and counted
  bool check;  ///< fence words
  bool inject;  ///< RESIL_GPU_INJECT
  Sync sync;  ///< RESIL_GPU_SYNC
  double lost_seconds;  ///< RESIL_GPU_LOST
};
extern constinit Settings settings;
extern constinit std::atomic<bool> running;  ///< between MPI_Init and MPI_Finalize of this process

/// Depth of hooks on this thread: what a runtime calls inside itself, and what resil calls, is nobody's wait.
extern constinit thread_local uint32_t inside __attribute__((tls_model("initial-exec")));

struct Call {
  Kind kind;
  Api api;
  const char* name;  ///< of the function, for reports
  void* handle;  ///< stream or event
  uint64_t site;  ///< return address in the program; 0: not known
  const void* function;  ///< the real one; null under CUPTI
  bool alters;  ///< the result that the program gets can still be changed (not under CUPTI)

  const Driver* driver;
  void* context;
  Slot slots[kMarks];
  Word words[kMarks];
  void* streams[kMarks];
  uint32_t count;  ///< words
  bool complete;  ///< nothing but these words' streams is waited for
  bool held;  ///< the slots are this call's own
  Uncovered why;
  EventWords event;
  StreamEntry* entry;
  OpenWait* wait;
};

/// Before the real function. Appends the words, notes that the thread waits.
void call_begin(Call& call);
/// RESIL_GPU_SYNC=poll: waits for the words. True: no need of the runtime's own wait; `*result` is the wait's.
bool call_poll(Call& call, int* result);
/// After it: judges, waits for words that are not there, and gives back what the program is to get.
int call_end(Call& call, int result);

/// Queries; `again` asks the runtime once more (null under CUPTI). Around the real function as above.
void query_begin(Call& call);
int query_end(Call& call, int result, int (*again)(void*));

/// Waits until the word is there, the runtime says that the stream has failed, or `limit` seconds are over.
enum class Arrival : uint8_t { kArrived, kFailed, kTimeout };
Arrival await(const Driver& driver, const Word& word, void* stream, double limit, int* error);

/// The word was not there when the runtime said so.
void premature(const Call& call, const Slot& slot, const Word& word, void* stream, double late_seconds,
               bool still_missing);

/// Where the program's code is that called the runtime, by unwinding; 0: not found. Only for findings.
uint64_t program_site();

/// Starts the thread that looks for lost completions, once.
void watcher_start();
void watcher_stop();

}  // namespace resil::gpu_runtime
