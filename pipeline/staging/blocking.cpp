// SPDX-License-Identifier: Apache-2.0
//
// See blocking.h. A thread counts itself, then looks for sends in send queues; another puts its send into a send queue,
// then looks at the count: one of them sees the other. Threads whose call began before this module woke up have not
// counted themselves: until they have left it, they show in the flight recorder's send queues.

#include "pipeline/staging/blocking.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "pipeline/staging/message.h"
#include "pipeline/staging/staging.h"
#include "shim/base/spinlock.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"

namespace resil::staging {

namespace {

constinit std::atomic<uint32_t> blocking;
/// Of the call that counts for this thread; calls of its callbacks lie below it. 0: none.
constinit thread_local uint64_t counted_frame __attribute__((tls_model("initial-exec")));

/// Calls that were open when the module woke up.
constexpr unsigned kEarlier = 64;
struct Earlier {
  uint32_t send_queue;
  uint64_t call;
};
enum class Known : uint8_t { kNotYet, kSome, kNone, kNever };
constinit std::atomic<Known> known{Known::kNotYet};
constinit Earlier earlier[kEarlier] = {};
constinit unsigned earlier_count;
constinit SpinLock lock;

uint64_t open_call(uint32_t send_queue) { return __atomic_load_n(&trace_at(send_queue).current, __ATOMIC_ACQUIRE); }

/// All stores of other threads from before they could see that the module is awake are seen now. A system call, once.
bool fence_all_threads() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

Known find_earlier() {
  if (!fence_all_threads()) return Known::kNever;
  for (uint32_t send_queue = 0; send_queue < trace_total(); ++send_queue) {
    const uint64_t call = open_call(send_queue);
    if (call == 0 || &trace_at(send_queue) == current_thread->trace) continue;
    if (earlier_count == kEarlier) return Known::kNever;
    earlier[earlier_count++] = {send_queue, call};
  }
  return Known::kSome;
}

/// Forgets those that have ended.
Known look_again() {
  for (unsigned i = 0; i < earlier_count;)
    if (open_call(earlier[i].send_queue) != earlier[i].call) earlier[i] = earlier[--earlier_count];
    else ++i;
  return earlier_count == 0 ? Known::kNone : Known::kSome;
}

bool earlier_call_open() {
  Known is = known.load(std::memory_order_acquire);
  if (is == Known::kNone) [[likely]]
    return false;
  if (is == Known::kNever) return true;
  static constinit std::atomic<bool> looking;  // a system call: others do not wait for it
  if (is == Known::kNotYet) {
    if (looking.exchange(true, std::memory_order_relaxed)) return true;
    known.store(is = find_earlier(), std::memory_order_release);
  }
  if (is == Known::kSome) {
    SpinGuard guard(lock);
    known.store(is = look_again(), std::memory_order_release);
  }
  return is != Known::kNone;
}

void count(const Event& e) {
  if (counted_frame == 0) blocking.fetch_add(1, std::memory_order_seq_cst);
  if (counted_frame < e.frame)  // at once, or of a call that an exception or longjmp has left
    counted_frame = e.frame;
}

}  // namespace

void begin_blocking(Event& e) {
  if (several_threads()) count(e);
  flush(*e.thread);
}

void end_blocking(const Event& e) {
  if (counted_frame == 0 || e.frame < counted_frame) return;
  end_blocking_thread();
}

void end_blocking_thread() {
  if (counted_frame == 0) return;
  counted_frame = 0;
  blocking.fetch_sub(1, std::memory_order_release);
}

bool somebody_blocks() { return blocking.load(std::memory_order_seq_cst) != 0 || earlier_call_open(); }

}  // namespace resil::staging
