// SPDX-License-Identifier: Apache-2.0
//
// See open_waits.h.

#include "detectors/gpu_runtime/open_waits.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/safe_text.h"
#include "shim/runtime/memory.h"

namespace resil::gpu_runtime {

namespace {

constinit OpenWait* table;
constinit pthread_key_t key;
constinit std::atomic<int> key_state;  // 0 none, 1 being made, 2 there
constinit thread_local OpenWait* own __attribute__((tls_model("initial-exec"))) = nullptr;

OpenWait* room() {
  if (OpenWait* there = __atomic_load_n(&table, __ATOMIC_ACQUIRE); there != nullptr) return there;
  auto* made = memory::map_array<OpenWait>(kThreads);
  if (made == nullptr) return nullptr;
  OpenWait* expected = nullptr;
  if (!__atomic_compare_exchange_n(&table, &expected, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    memory::unmap_array(made, kThreads);
  return __atomic_load_n(&table, __ATOMIC_ACQUIRE);
}

void release(void* wait) {
  own = nullptr;
  static_cast<OpenWait*>(wait)->tid.store(0, std::memory_order_release);
}

}  // namespace

OpenWait* own_wait() {
  if (own != nullptr) [[likely]]
    return own;
  OpenWait* waits = room();
  if (waits == nullptr) return nullptr;
  int expected = 0;
  if (key_state.compare_exchange_strong(expected, 1)) key_state.store(pthread_key_create(&key, release) == 0 ? 2 : 0);
  if (key_state.load(std::memory_order_acquire) != 2) return nullptr;  // this call goes unwatched
  const auto tid = static_cast<int32_t>(syscall(SYS_gettid));
  for (unsigned i = 0; i < kThreads; ++i) {
    int32_t free = 0;
    if (waits[i].tid.load(std::memory_order_relaxed) == 0 && waits[i].tid.compare_exchange_strong(free, tid)) {
      own = &waits[i];
      pthread_setspecific(key, own);
      return own;
    }
  }
  return nullptr;
}

unsigned wait_number(const OpenWait& wait) {
  return static_cast<unsigned>(&wait - __atomic_load_n(&table, __ATOMIC_RELAXED));
}

bool open_wait_read(unsigned thread, OpenWait* copy) {
  const OpenWait* waits = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
  if (waits == nullptr || thread >= kThreads) return false;
  const OpenWait& from = waits[thread];
  return open_wait_copy(from, copy);
}

void open_waits_dump(SafeText& text, const char* prefix) {
  constexpr unsigned kLines = 16;
  OpenWait wait;
  unsigned lines = 0, more = 0;
  for (unsigned i = 0; i < kThreads; ++i) {
    if (!open_wait_read(i, &wait)) continue;
    if (++lines > kLines) {
      ++more;
      continue;
    }
    text.str(prefix).str("thread ").i64(wait.tid.load()).str(" is in ").str(wait.call);
    if (wait.kind == Kind::kEventWait) text.str(" on event ").hex(reinterpret_cast<uint64_t>(wait.handle));
    else if (wait.kind == Kind::kStreamWait && !is_legacy(wait.handle))
      text.str(" on stream ").hex(reinterpret_cast<uint64_t>(wait.handle));
    else if (wait.kind == Kind::kStreamWait) text.str(" on the default stream");
    text.str(" for ").seconds(monotonic_seconds() - wait.since);
    uint32_t written = 0;
    for (uint32_t k = 0; k < wait.words; ++k) written += wait.word[k].written() ? 1 : 0;
    if (wait.words == 0) text.str(": whether the device is done is not known (RESIL_GPU=check tells)\n");
    else if (written < wait.words)
      text.str(wait.returned ? ": it returned too early, resil waits for the device\n" : ": the device is not done\n");
    else
      text.str(wait.judged ? ": the device is done, the wait has not returned\n"
                           : ": the device has done what resil knows of, the wait has not returned\n");
  }
  if (more != 0) text.str(prefix).str("and ").u64(more).str(" more threads in such waits\n");
}

}  // namespace resil::gpu_runtime
