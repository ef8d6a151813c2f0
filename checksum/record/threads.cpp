// SPDX-License-Identifier: Apache-2.0
//
// The stream of a thread: made at its first call, told from others by that call's site.

#include "checksum/record/divergence.h"
#include "checksum/record/messages.h"
#include "checksum/record/state.h"
#include "shim/base/spinlock.h"
#include "shim/call/thread.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::record {

namespace {

unsigned slot;
uint32_t seen;
PerThread nobody;  // a thread without a stream: asked once

// Verify: streams that begin at the site of a thread's first call, but with another call than that thread's. Threads
// come in any order; what they begin with tells most of them apart.
constexpr unsigned kSpare = 256;
struct Spare {
  Cursor* cursor;
  uint64_t site;
  bool unsure;  // another stream that began in the same way has been taken
};
Spare spares[kSpare];
unsigned spare_count;
SpinLock lock;

bool begins_with(Cursor& cursor, const CallRecord& first) {
  const Item* item;
  return cursor.peek(&item) == Reading::kItem && item->kind == ItemKind::kCall && item->call.call == first.call &&
         item->call.comm == first.comm && item->call.peer == first.peer && item->call.tag == first.tag &&
         item->call.bytes == first.bytes;
}

/// The stream that this thread is most likely to continue. `unsure`: others begin in the same way.
Cursor* choose_stream(uint64_t site, const CallRecord* first, bool* unsure, Problem* problem) {
  SpinGuard guard(lock);
  for (;;) {  // one read-ahead each: in the first call of a thread only
    Cursor* next = spare_count < kSpare ? recording.next_stream(site, problem) : nullptr;
    if (next == nullptr) break;
    spares[spare_count++] = {next, site, false};
    if (!mode.multiple || first == nullptr) break;
  }
  int best = -1, fitting = 0;
  for (unsigned i = 0; i < spare_count; ++i) {
    if (spares[i].site != site) continue;
    const bool fits = first == nullptr || begins_with(*spares[i].cursor, *first);
    const bool best_fits = best >= 0 && (first == nullptr || begins_with(*spares[best].cursor, *first));
    fitting += fits;
    if (best < 0 || (fits && !best_fits)) best = static_cast<int>(i);
  }
  if (best < 0) return nullptr;
  Cursor* chosen = spares[best].cursor;
  for (unsigned i = 0; fitting > 1 && i < spare_count; ++i)
    if (spares[i].site == site && (first == nullptr || begins_with(*spares[i].cursor, *first))) spares[i].unsure = true;
  *unsure = spares[best].unsure;
  for (unsigned i = static_cast<unsigned>(best) + 1; i < spare_count; ++i) spares[i - 1] = spares[i];
  --spare_count;
  return chosen;
}

}  // namespace

uint32_t threads_seen() { return __atomic_load_n(&seen, __ATOMIC_RELAXED); }

void prepare_threads() { slot = thread_slot(); }

PerThread* per_thread(Thread& thread) {
  auto* t = static_cast<PerThread*>(thread.module_data[slot]);
  return t != &nobody ? t : nullptr;
}

void set_thread(Thread& thread, PerThread* t) { thread.module_data[slot] = t; }

void forget_thread(Thread& thread) { thread.module_data[slot] = nullptr; }

PerThread* open_thread(Thread& thread, uint64_t site, const Event* first) {
  if (thread.module_data[slot] == &nobody) return nullptr;
  thread.module_data[slot] = &nobody;
  prepare_addresses(thread);
  static_assert(sizeof(PerThread) < 4096);
  auto* t = memory::map_array<PerThread>();
  if (t == nullptr) return nullptr;
  t->thread = &thread;
  if (mode.recording) {
    t->stream = stream_open(site);
    t->stream_id = t->stream != nullptr ? t->stream->id() : 0;
  } else {
    Problem problem;
    Call call = {};
    if (first != nullptr) {
      call.event = const_cast<Event*>(first);
      call.comm = first->comm != nullptr ? first->comm->ring->id : 0;
      describe(*first, call);
    }
    t->cursor = choose_stream(site, first != nullptr ? &call.now : nullptr, &t->unsure, &problem);
    t->stream_id = t->cursor != nullptr ? t->cursor->id() : 0;
    if (t->cursor == nullptr) {
      add_note_format(messages::record::no_stream, problem.text);
      recording_ended();  // nothing holds this thread to the recorded run
      went_on();
    }
  }
  if (t->stream_id == 0) {
    memory::unmap_array(t);
    return nullptr;
  }
  __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
  thread.module_data[slot] = t;
  return t;
}

}  // namespace resil::record
