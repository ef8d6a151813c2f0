// SPDX-License-Identifier: Apache-2.0
//
// What each thread waits for in an accelerator runtime at this moment. Written by the thread itself, read by the
// watcher and by the dump's signal handler: words and this table are all that they need, no call into the runtime.
#pragma once

#include <atomic>
#include <cstdint>

#include "detectors/gpu_runtime/counts.h"

namespace resil {
class SafeText;
}

namespace resil::gpu_runtime {

constexpr unsigned kThreads = 256;  ///< that use the runtime at the same time; those beyond are not watched
constexpr unsigned kMarks = 32;  ///< words of one wait for a device

/// `version` is odd while the owner writes the members, and even when they hold: 0 at first.
struct OpenWait {
  std::atomic<uint64_t> version;
  std::atomic<int32_t> tid;  ///< owner; 0: free
  bool open;
  bool returned;  ///< the runtime's wait has returned, resil waits for the word
  bool judged;  ///< when all words are written, the wait must return (no work that resil does not know of)
  Kind kind;
  Api api;
  const char* call;  ///< "cudaStreamSynchronize"
  void* handle;  ///< stream or event; null: default stream, or a device
  uint64_t site;
  double since;  ///< seconds, CLOCK_MONOTONIC
  uint32_t words;
  Word word[kMarks];
  alignas(16) char aside[2560];  ///< the owner's, for a call that it is in (cupti.cpp); zero at first
};

/// Around all that the owner writes. Odd: being written. The fence: who sees any of what comes sees the odd version,
/// too.
inline void wait_write_begins(OpenWait& wait) {
  wait.version.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}
inline void wait_write_ends(OpenWait& wait) { wait.version.fetch_add(1, std::memory_order_release); }

/// Another thread's, while it may be writing. False: it is, or nothing is open.
__attribute__((no_sanitize("thread"))) inline bool open_wait_copy(const OpenWait& from, OpenWait* copy) {
  const uint64_t version = from.version.load(std::memory_order_acquire);
  if (version % 2 != 0 || from.tid.load(std::memory_order_relaxed) == 0 || !from.open) return false;
  copy->tid.store(from.tid.load());  // members are torn when the version changes, and then not used
  copy->open = from.open, copy->returned = from.returned, copy->judged = from.judged, copy->kind = from.kind;
  copy->api = from.api, copy->call = from.call, copy->handle = from.handle, copy->site = from.site;
  copy->since = from.since, copy->words = from.words < kMarks ? from.words : kMarks;
  for (unsigned i = 0; i < copy->words; ++i) copy->word[i] = from.word[i];
  copy->version.store(version);
  std::atomic_thread_fence(std::memory_order_acquire);
  return from.version.load(std::memory_order_relaxed) == version && copy->open;
}

/// A consistent copy; false: it is being written, or nothing is open.
bool open_wait_read(unsigned thread, OpenWait* copy);

/// The calling thread's own; null: more than kThreads. Any thread.
OpenWait* own_wait();

/// Place of a thread's entry in the table.
unsigned wait_number(const OpenWait& wait);

/// One line for each open wait, at most 16. Async-signal-safe.
void open_waits_dump(SafeText& text, const char* prefix);

}  // namespace resil::gpu_runtime
