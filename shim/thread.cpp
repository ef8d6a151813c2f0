// SPDX-License-Identifier: Apache-2.0
//
// Per-thread state: made on a thread's first MPI call, given back when it ends. Maps memory once a thread; never on
// the steady call path.

#include "shim/thread.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "shim/attach.h"
#include "shim/registry.h"
#include "shim/runtime.h"

namespace resil {

constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));

namespace {

Thread disabled_thread;  // what a thread points to once it is cut off: depth 1, so every call takes the slow exit
pthread_key_t thread_key;
std::atomic<bool> thread_key_made;

/// Takes a free lane, else one whose thread has ended (its counters go on, its records are history).
uint32_t claim_lane() {
  for (auto wanted : {ring::LaneState::kFree, ring::LaneState::kEnded}) {
    for (uint32_t i = 0; i < runtime.lane_count; ++i) {
      auto* state = &runtime.lanes[i].state;
      uint32_t expected = static_cast<uint32_t>(wanted);
      if (__atomic_compare_exchange_n(state, &expected, static_cast<uint32_t>(ring::LaneState::kLive), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return i;
    }
  }
  return runtime.lane_count;
}

/// Thread-exit context of the application's thread: no MPI, no allocation.
void thread_exit(void* data) {
  auto* thread = static_cast<Thread*>(data);
  if (getpid() != runtime.pid)
    return;
  run_hooks_reverse(&Module::thread_end, *thread);
  if (thread->lane != nullptr)
    __atomic_store_n(&thread->lane->state, static_cast<uint32_t>(ring::LaneState::kEnded), __ATOMIC_RELEASE);
  current_thread = nullptr;  // a later destructor may call MPI again and then gets a new state
  if (thread->scratch != nullptr)
    munmap(thread->scratch, thread->scratch_bytes);
  munmap(thread, sizeof(Thread));
}

void* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

Thread* thread_register() {
  if (current_thread != nullptr && !current_thread->disabled)
    return current_thread;
  if (!runtime_attached())
    return nullptr;
  if (getpid() != runtime.pid) {  // forked: MPI may not be used there, and this memory is the parent's story
    thread_disable();
    return nullptr;
  }
  if (!thread_key_made.exchange(true))
    pthread_key_create(&thread_key, thread_exit);
  auto* thread = static_cast<Thread*>(map(sizeof(Thread)));
  if (thread == nullptr)
    return nullptr;
  // An empty cache entry must not look like a hit for handle 0 or address 0.
  thread->outer_frame = 0;
  thread->comm_generation = thread->type_generation = ~0u;
  thread->lane_index = claim_lane();
  if (thread->lane_index < runtime.lane_count) {
    thread->lane = &runtime.lanes[thread->lane_index];
    thread->lane->tid = static_cast<int32_t>(syscall(SYS_gettid));
    pthread_getname_np(pthread_self(), thread->lane->name, sizeof(thread->lane->name));
  }
  pthread_setspecific(thread_key, thread);
  current_thread = thread;
  run_hooks(&Module::thread_start, *thread);
  return thread;
}

void thread_disable() {
  disabled_thread.depth = 1;
  disabled_thread.disabled = true;
  current_thread = &disabled_thread;
}

void* scratch_acquire(Thread& thread, size_t bytes) {
  bytes = (bytes + 15) & ~size_t{15};
  if (thread.scratch_top + bytes > thread.scratch_bytes) {
    if (thread.scratch_top != 0)
      return nullptr;  // a nested call needs more than is left; the outer one's copy may not move
    size_t wanted = 64 << 10;
    while (wanted < bytes)
      wanted *= 2;
    if (thread.scratch != nullptr)
      munmap(thread.scratch, thread.scratch_bytes);
    thread.scratch = static_cast<char*>(map(wanted));
    thread.scratch_bytes = thread.scratch != nullptr ? wanted : 0;
    if (thread.scratch == nullptr)
      return nullptr;
  }
  void* memory = thread.scratch + thread.scratch_top;
  thread.scratch_top += bytes;
  return memory;
}

void scratch_release(Thread& thread, size_t bytes) { thread.scratch_top -= (bytes + 15) & ~size_t{15}; }

}  // namespace resil
