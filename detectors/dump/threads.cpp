// SPDX-License-Identifier: Apache-2.0
//
// Asking and answering. The phase of a slot decides who may write it: kAsked -> kWriting is taken by the asked thread,
// kAsked -> kDone by the dumper that gives up; whoever loses that exchange leaves the slot alone. A thread that is late
// within its walk keeps its slot in kWriting, and later dumps pass it by. May touch: other threads by one signal each.
#include "detectors/dump/threads.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/task_list.h"
#include "shim/call/runtime.h"

namespace resil::dump {
namespace {

enum SlotPhase : uint64_t { kDone = 0, kAsked = 1, kWriting = 2, kWritten = 3 };

char question_mark;  // its address is the mark: nobody else sends it

void nap(long ns) {
  timespec wait{0, ns};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &wait, nullptr);
}

bool ask(int32_t tid, int signal) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = runtime.pid;
  info.si_uid = getuid();
  info.si_value.sival_ptr = question();
  return syscall(SYS_rt_tgsigqueueinfo, runtime.pid, tid, signal, &info) == 0;
}

/// A free slot for the next thread, or null. Slots whose thread is still writing for an earlier dump are left out.
Slot* next_slot(Threads* threads) {
  while (threads->used < kSlots) {
    Slot* slot = &threads->slots[threads->used++];
    if ((slot->phase.load(std::memory_order_acquire) & 3) != kWriting) return slot;
    slot->tid = 0;
  }
  return nullptr;
}

/// The stack of a thread that sleeps in the kernel and cannot be asked. Its other registers are unknown, so a function
/// that addresses its frame by one of them ends the walk.
void walk_from_kernel(Slot* slot) {
  if (!slot->state.sleeping || slot->state.pc == 0) return;
  slot->work.registers = Registers{};
  slot->work.registers.pc = slot->state.pc;
  slot->work.registers.r[kStackRegister] = slot->state.sp;
  unwind(&slot->work, &slot->stack);
  slot->from_kernel = slot->has_stack = true;
}

/// Decides whether the thread can be asked, and asks it. False: it will not answer.
bool begin(Threads* threads, Slot* slot, int signal) {
  const ThreadState& state = slot->state;
  if (state.gone || state.letter == 'Z' || state.letter == 'X') {
    slot->answer = Answer::kGone;
  } else if (signal == 0) {
    slot->answer = Answer::kUnsent;
  } else if (state.letter == 'T' || state.letter == 't') {
    slot->answer = Answer::kStopped;
  } else if (state.call == SYS_rt_sigtimedwait) {
    // While it waits, the kernel shows the signals it waits for as not blocked.
    slot->answer = Answer::kSigwait;
  } else if (state.blocks) {
    slot->answer = Answer::kBlocks;
  } else {
    slot->answer = Answer::kNotGiven;
    const uint64_t number = threads->number.load(std::memory_order_relaxed);
    slot->phase.store(number * 4 + kAsked, std::memory_order_release);
    if (ask(slot->tid, signal)) return true;
    slot->phase.store(number * 4 + kDone, std::memory_order_release);
    slot->answer = errno == ESRCH ? Answer::kGone : Answer::kUnsent;
  }
  return false;
}

void list(Threads* threads, int32_t own) {
  threads->total = list_threads(0, threads->tids, kSlots, threads->scratch, sizeof threads->scratch);
  int32_t listed = threads->total < static_cast<int32_t>(kSlots) ? threads->total : static_cast<int32_t>(kSlots);
  if (listed < 1) {
    threads->tids[0] = own;
    listed = 1;
  }
  threads->used = 0;
  bool own_listed = false;
  for (int32_t i = 0; i < listed; ++i) {
    // More threads than slots: the dumping one must not be the one that is left out.
    if (i + 1 == listed && !own_listed) threads->tids[i] = own;
    own_listed = own_listed || threads->tids[i] == own;
    Slot* slot = next_slot(threads);
    if (slot == nullptr) break;
    slot->tid = threads->tids[i];
    slot->has_stack = slot->from_kernel = false;
  }
}

}  // namespace

void* question() { return &question_mark; }

void collect(Threads* threads, int signal, const ucontext_t& context) {
  const auto own = static_cast<int32_t>(syscall(SYS_gettid));
  const uint64_t number = ++threads->last_number;
  threads->number.store(number, std::memory_order_release);
  list(threads, own);
  uint32_t asked = 0;
  for (uint32_t i = 0; i < threads->used; ++i) {
    Slot& slot = threads->slots[i];
    if (slot.tid == 0) continue;
    read_thread(slot.tid, signal == 0 ? 1 : signal, &slot.state, threads->scratch, sizeof threads->scratch);
    if (slot.tid == own) {
      slot.answer = Answer::kOwn;
      slot.work.registers = registers_of(context);
      unwind(&slot.work, &slot.stack);
      slot.has_stack = true;
    } else if (begin(threads, &slot, signal)) {
      ++asked;
    }
  }
  const uint64_t deadline = monotonic_ns() + uint64_t{kWaitMs} * 1000000;
  for (long pause = 50000; asked > 0 && monotonic_ns() < deadline; pause = pause < 2000000 ? pause * 2 : pause) {
    nap(pause);
    asked = 0;
    for (uint32_t i = 0; i < threads->used; ++i) {
      const uint64_t phase = threads->slots[i].phase.load(std::memory_order_acquire);
      if (phase == number * 4 + kAsked || phase == number * 4 + kWriting) ++asked;
    }
  }
  for (uint32_t i = 0; i < threads->used; ++i) {
    Slot& slot = threads->slots[i];
    if (slot.tid == 0 || slot.answer == Answer::kOwn) continue;
    uint64_t expected = number * 4 + kAsked;
    if (slot.phase.compare_exchange_strong(expected, number * 4 + kDone, std::memory_order_acq_rel)) {
      expected = number * 4 + kDone;
      read_thread(slot.tid, signal, &slot.state, threads->scratch, sizeof threads->scratch);
      if (slot.state.gone || slot.state.letter == 'Z' || slot.state.letter == 'X') slot.answer = Answer::kGone;
    }
    if (expected == number * 4 + kWritten) {
      slot.answer = Answer::kGiven;
      slot.has_stack = true;
    } else if (expected != number * 4 + kWriting && slot.answer != Answer::kGone) {
      walk_from_kernel(&slot);
    }
  }
  threads->number.store(0, std::memory_order_release);
}

void answer(Threads* threads, const ucontext_t& context) {
  const uint64_t number = threads->number.load(std::memory_order_acquire);
  if (number == 0) return;  // too late
  const auto own = static_cast<int32_t>(syscall(SYS_gettid));
  for (Slot& slot : threads->slots) {
    uint64_t expected = number * 4 + kAsked;
    if (slot.phase.load(std::memory_order_acquire) != expected || slot.tid != own) continue;
    if (!slot.phase.compare_exchange_strong(expected, number * 4 + kWriting, std::memory_order_acq_rel)) return;
    slot.work.registers = registers_of(context);
    unwind(&slot.work, &slot.stack);
    slot.phase.store(number * 4 + kWritten, std::memory_order_release);
    return;
  }
}

}  // namespace resil::dump
