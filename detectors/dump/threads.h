// SPDX-License-Identifier: Apache-2.0
//
// Stacks of all threads: one thread, the dumper, asks every other one by the dump signal; each writes its own stack
// into its slot from within its handler; who does not answer is described from /proc. Lock-free; all memory is mapped
// beforehand. May touch: other threads by one signal each, /proc.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "detectors/dump/proc.h"
#include "shim/runtime/stacks/unwind.h"

namespace resil::dump {

using namespace stacks;

/// Threads with a stack in one dump; the rest is counted. As many as fit into half a MiB (registers differ in number).
#if defined(__x86_64__)
constexpr uint32_t kSlots = 192;
#else
constexpr uint32_t kSlots = 160;
#endif
constexpr int kWaitMs = 200;  ///< longest wait for all answers together

/// Why a thread has no stack of its own making.
enum class Answer : uint8_t {
  kOwn,  ///< the dumping thread itself
  kGiven,  ///< wrote its stack
  kNotGiven,  ///< did not answer in time
  kBlocks,  ///< blocks the signal, so it was not asked
  kSigwait,  ///< waits in sigwait: would mistake the question for a signal to the program
  kStopped,  ///< stopped or traced
  kGone,  ///< ended meanwhile
  kUnsent,  ///< the kernel refused the signal
};

/// One thread of a dump. Written by the dumper but for `stack` and `work`, which the asked thread writes while the
/// slot's phase is kWriting.
struct Slot {
  std::atomic<uint64_t> phase;  ///< number of the dump * 4 + SlotPhase
  int32_t tid;
  Answer answer;
  bool from_kernel;  ///< `stack` was walked from the kernel's SP and PC of a sleeping thread: may end early
  bool has_stack;
  ThreadState state;
  Stack stack;
  UnwindWork work;
};

/// All threads of one dump.
struct Threads {
  std::atomic<uint64_t> number;  ///< of the dump that is collecting; 0: none
  uint32_t used;  ///< slots in use, in the kernel's order; the main thread comes first
  int32_t total;  ///< threads of the process, -1 when /proc cannot be read
  uint64_t last_number;
  int32_t tids[kSlots];
  char scratch[4096];
  Slot slots[kSlots];
};

/// The question's mark in si_value.
void* question();

/// Dumper: fills all slots. `context`: registers of the dumping thread. At most kWaitMs of waiting. Async-signal-safe.
/// `signal` 0 (no handler installed): asks nobody, describes everybody.
void collect(Threads* threads, int signal, const ucontext_t& context);

/// Asked thread, in its handler: writes its stack if somebody still waits for it. Async-signal-safe.
void answer(Threads* threads, const ucontext_t& context);

}  // namespace resil::dump
