// SPDX-License-Identifier: Apache-2.0
//
// The stream of a thread: made at its first call, told from others by that call's site.

#include <sys/mman.h>

#include "checksum/record/state.h"
#include "shim/log.h"
#include "shim/thread.h"

namespace resil::record {

namespace {

unsigned slot;
PerThread nobody;  // a thread without a stream: asked once

}  // namespace

void prepare_threads() { slot = thread_slot(); }

PerThread* per_thread(Thread& thread) {
  auto* t = static_cast<PerThread*>(thread.module_data[slot]);
  return t != &nobody ? t : nullptr;
}

void forget_thread(Thread& thread) { thread.module_data[slot] = nullptr; }

PerThread* open_thread(Thread& thread, uint64_t site) {
  if (thread.module_data[slot] == &nobody)
    return nullptr;
  thread.module_data[slot] = &nobody;
  static_assert(sizeof(PerThread) < 4096);
  void* memory = mmap(nullptr, sizeof(PerThread), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  auto* t = static_cast<PerThread*>(memory);
  t->thread = &thread;
  if (mode.recording) {
    t->stream = stream_open(site);
    t->stream_id = t->stream != nullptr ? t->stream->id() : 0;
  } else {
    Problem problem;
    t->cursor = recording.next_stream(site, &problem);
    t->stream_id = t->cursor != nullptr ? t->cursor->id() : 0;
    if (t->cursor == nullptr)
      add_note_format("verify: %s", problem.text);
  }
  if (t->stream_id == 0) {
    munmap(memory, sizeof(PerThread));
    return nullptr;
  }
  thread.module_data[slot] = t;
  return t;
}

}  // namespace resil::record
