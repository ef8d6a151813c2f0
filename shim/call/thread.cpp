// SPDX-License-Identifier: Apache-2.0
//
// Per-thread state: made on a thread's first MPI call, given back when it ends. Maps memory once a thread; never on
// the steady call path.

#include "shim/call/thread.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "shim/base/spinlock.h"
#include "shim/call/attach.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/messages.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"

namespace resil {

constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));

namespace {

Thread disabled_thread;  // what a thread points to once it is cut off: depth 1, so every call takes the slow exit
pthread_key_t thread_key;
bool thread_key_made;
SpinLock thread_key_lock;

constexpr uint32_t kPrivateTraces = 24;
static_assert(kPrivateTraces + 1 <= kMostTraces / 2);  // the ring file has eight
ring::TraceBuffer* private_traces[kPrivateTraces + 1];  // filled from the front, the shared one last
ring::TraceBuffer shared_trace;  // of threads beyond all others: their counts may be lost to races, and a note says so

bool claim(ring::TraceBuffer& trace, ring::TraceState wanted) {
  auto expected = static_cast<uint32_t>(wanted);
  return __atomic_compare_exchange_n(&trace.state, &expected, static_cast<uint32_t>(ring::TraceState::kLive), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/// Puts a trace buffer in the next place of private memory, or finds it there. False: all `places` are taken.
bool add_private(ring::TraceBuffer* trace, uint32_t places, uint32_t* index) {
  __atomic_store_n(&trace->state, static_cast<uint32_t>(ring::TraceState::kLive), __ATOMIC_RELAXED);
  for (uint32_t place = 0; place < places; ++place) {
    ring::TraceBuffer* there = nullptr;
    if (__atomic_compare_exchange_n(&private_traces[place], &there, trace, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
        there == trace) {
      *index = runtime.trace_count + place;
      return true;
    }
  }
  return false;
}

/// A free trace buffer, else one whose thread has ended (its counters go on, its records are history), else a private
/// one, which the dump and a reader of the ring file do not see.
ring::TraceBuffer* claim_trace(uint32_t* index) {
  for (auto wanted : {ring::TraceState::kFree, ring::TraceState::kEnded})
    for (*index = 0; *index < trace_total(); ++*index)
      if (claim(trace_at(*index), wanted)) return &trace_at(*index);
  auto* trace = memory::map_array<ring::TraceBuffer>();
  if (trace != nullptr) {
    if (add_private(trace, kPrivateTraces, index)) return trace;
    memory::unmap_array(trace);
  }
  add_note(messages::core::many_threads);
  add_private(&shared_trace, kPrivateTraces + 1, index);
  return &shared_trace;
}

/// Behind each piece of scratch memory: whose it is and where it begins.
struct ScratchEnd {
  uint64_t frame, start;
};

ScratchEnd& scratch_newest(Thread& thread) {
  return *reinterpret_cast<ScratchEnd*>(thread.scratch + thread.scratch_top - sizeof(ScratchEnd));
}

/// Thread-exit context of the application's thread: no MPI, no allocation.
void thread_exit(void* data) {
  auto* thread = static_cast<Thread*>(data);
  if (getpid() != runtime.pid) return;
  run_hooks_reverse(&Module::thread_end, *thread);
  unattributed_ticks.fetch_add(thread->unattributed);
  if (thread->trace != &shared_trace)
    __atomic_store_n(&thread->trace->state, static_cast<uint32_t>(ring::TraceState::kEnded), __ATOMIC_RELEASE);
  current_thread = nullptr;  // a later destructor may call MPI again and then gets a new state
  memory::unmap(thread->scratch, thread->scratch_bytes);
  memory::unmap_array(thread);
}

}  // namespace

Thread* thread_register() {
  if (current_thread != nullptr && !current_thread->disabled) return current_thread;
  if (!runtime_attached()) return nullptr;
  if (getpid() != runtime.pid) {  // forked: MPI may not be used there, and this memory is the parent's story
    thread_disable();
    return nullptr;
  }
  {
    SpinGuard guard(thread_key_lock);  // nobody may use the key before it is made: number 0 is some other library's
    if (!thread_key_made) thread_key_made = pthread_key_create(&thread_key, thread_exit) == 0;
    if (!thread_key_made) return nullptr;
  }
  // Cut off at the end of the last session and back with the next one.
  if (auto* known = static_cast<Thread*>(pthread_getspecific(thread_key)); known != nullptr)
    return current_thread = known;
  auto* thread = memory::map_array<Thread>();
  if (thread == nullptr) return nullptr;
  // An empty cache entry must not look like a hit for handle 0 or address 0.
  thread->outer_frame = 0;
  thread->comm_generation = thread->type_generation = ~0u;
  thread->host_ranges = {&HostRangeCache::kNever, HostRangeCache::kNever + 1, 0, 0};
  thread->trace = claim_trace(&thread->trace_index);
  if (thread->trace->last_place == 0) {
    const bool all = thread->trace_index == 0 || thread->trace == &shared_trace;
    __atomic_store_n(&thread->trace->last_place, (all ? ring::kRecordsPerTrace : ring::kRecordsOfFurther) - 1,
                     __ATOMIC_RELAXED);
  }
  __atomic_store_n(&thread->trace->tid, static_cast<int32_t>(syscall(SYS_gettid)), __ATOMIC_RELAXED);
  pthread_getname_np(pthread_self(), thread->trace->name, sizeof(thread->trace->name));
  if (thread->trace->head == 0) {
    for (ring::PeerCounter& peer : thread->trace->peers) peer.rank = -1;
    thread->trace->peers[ring::kPeerEntries - 1].rank = -2;
  }
  thread->last_time = ticks();
  pthread_setspecific(thread_key, thread);
  threads_made.fetch_add(1, std::memory_order_relaxed);
  current_thread = thread;
  run_hooks(&Module::thread_start, *thread);
  return thread;
}

std::atomic<uint64_t> unattributed_ticks;
std::atomic<uint32_t> threads_made;

uint32_t trace_total() {
  uint32_t count = 0;
  while (count <= kPrivateTraces && __atomic_load_n(&private_traces[count], __ATOMIC_ACQUIRE) != nullptr) ++count;
  return runtime.trace_count + count;
}

ring::TraceBuffer& trace_at(uint32_t index) {
  return index < runtime.trace_count ? runtime.traces[index]
                                     : *__atomic_load_n(&private_traces[index - runtime.trace_count], __ATOMIC_ACQUIRE);
}

unsigned thread_slot() {
  static unsigned next;
  return next < kMaxModules - 1 ? next++ : next;
}

void thread_disable() {
  disabled_thread.depth = 1;
  disabled_thread.disabled = true;
  current_thread = &disabled_thread;
}

void* scratch_acquire(Thread& thread, size_t bytes, uint64_t frame) {
  while (thread.scratch_top != 0 && scratch_newest(thread).frame <= frame)
    thread.scratch_top = scratch_newest(thread).start;
  bytes = ((bytes + 15) & ~size_t{15}) + sizeof(ScratchEnd);
  if (thread.scratch_top + bytes > thread.scratch_bytes) {
    if (thread.scratch_top != 0)
      return nullptr;  // a nested call needs more than is left; the outer one's copy may not move
    size_t wanted = 64 << 10;
    while (wanted < bytes) wanted *= 2;
    memory::unmap(thread.scratch, thread.scratch_bytes);
    thread.scratch = memory::map_array<char>(wanted);
    thread.scratch_bytes = thread.scratch != nullptr ? wanted : 0;
    if (thread.scratch == nullptr) return nullptr;
  }
  void* memory = thread.scratch + thread.scratch_top;
  const size_t start = thread.scratch_top;
  thread.scratch_top += bytes;
  scratch_newest(thread) = {frame, start};
  return memory;
}

void scratch_release(Thread& thread, void* memory) {
  thread.scratch_top = static_cast<size_t>(static_cast<char*>(memory) - thread.scratch);
}

}  // namespace resil
