// SPDX-License-Identifier: Apache-2.0
//
// ******************************************************************************************************************
// * SIGNAL HANDLER. Runs on any thread, at any instruction: inside malloc, inside the loader, inside MPI, in a lock. *
// * May call: system calls (raw), clock_gettime, string functions on its own memory, the guarded reader.             *
// * Must never: allocate, lock, wait without a bound, use stdio, dl*, anything that is a cancellation point, or      *
// * leave errno or the signal mask changed. Stack use below 3 KiB: the program's alternate stack may be small.       *
// ******************************************************************************************************************
// May touch: the disposition of one signal.
#include "detectors/dump/handler.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "detectors/dump/dump.h"
#include "shim/base/clock.h"
#include "shim/call/runtime.h"
#include "shim/runtime/stacks/objects.h"

namespace resil::dump {
namespace {

// Written in normal context before the handler can run, constant afterwards.
int dump_signal = 0;
Workspace* workspace = nullptr;
struct sigaction previous;

std::atomic<uint32_t> requests{0};  // dumps asked for and not yet begun
std::atomic<bool> dumping{false};  // the workspace is in use
std::atomic<uint64_t> dumping_since{0};  // CLOCK_MONOTONIC seconds
std::atomic<bool> die_afterwards{false};  // lost terminal while another thread was dumping
std::atomic<bool> chain_used_up{false};  // the program's handler had SA_RESETHAND
std::atomic<bool> loud{false};  // somebody asked who does not read the files: the short form goes to standard error

constexpr uint64_t kLongDumpSeconds = 10;

bool own_process() { return syscall(SYS_getpid) == runtime.pid; }

bool is_question(const siginfo_t& info) {
  return info.si_code == SI_QUEUE && info.si_value.sival_ptr == question() && info.si_pid == runtime.pid;
}

/// `resil dump`, which reads the files: a job of many ranks would fill its log (scripts/resil_tool/signalling.py).
bool from_tool(const siginfo_t& info) {
  return info.si_code == SI_QUEUE && reinterpret_cast<uintptr_t>(info.si_value.sival_ptr) == kToolMark;
}

/// From the kernel itself: the terminal is gone.
bool from_kernel(const siginfo_t& info) { return info.si_code > 0; }

/// The default action takes place as soon as this handler returns and the signal is unblocked.
void default_action() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(dump_signal, &action, nullptr);
  syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), dump_signal);
}

bool previous_is(void (*handler)(int)) {
  return (previous.sa_flags & SA_SIGINFO) == 0 && previous.sa_handler == handler;
}

/// Calls the program's own handler with the signal mask that it asked for.
void chain(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_RESETHAND) != 0 && chain_used_up.exchange(true)) return;
  sigset_t mask = static_cast<ucontext_t*>(context)->uc_sigmask;
  sigset_t ours;
  for (int number = 1; number < NSIG; ++number) {
    if (sigismember(&previous.sa_mask, number) == 1) sigaddset(&mask, number);
  }
  if ((previous.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, signal);
  pthread_sigmask(SIG_SETMASK, &mask, &ours);
  if ((previous.sa_flags & SA_SIGINFO) != 0) previous.sa_sigaction(signal, info, context);
  else previous.sa_handler(signal);
  pthread_sigmask(SIG_SETMASK, &ours, nullptr);
}

/// What the process would have done with the signal. `always`: also where resil lets it live on.
void act_as_before(int signal, siginfo_t* info, void* context, bool always) {
  if (previous_is(SIG_IGN)) return;
  if (!previous_is(SIG_DFL)) {
    chain(signal, info, context);
  } else if (always || from_kernel(*info)) {
    if (dumping.load(std::memory_order_acquire) && own_process()) die_afterwards.store(true);
    else default_action();
  }
}

void describe(char* reason, size_t capacity, const siginfo_t* info, const char* text, uint32_t count) {
  SafeText out(reason, capacity - 1, -1);
  if (info != nullptr) {
    put_signal(out, info->si_signo);
    if (from_kernel(*info)) out.str(" from the kernel (terminal lost)");
    else out.str(" from pid ").i64(info->si_pid).str(" of user ").u64(info->si_uid);
  } else {
    out.safe(text, capacity);
  }
  if (count > 1) out.str(" and ").u64(count - 1).str(" more requests");
  reason[out.size()] = 0;
}

void complain_about_long_dump() {
  const uint64_t since = dumping_since.load(std::memory_order_relaxed);
  const uint64_t now = monotonic_ns() / 1000000000;
  if (since == 0 || now - since < kLongDumpSeconds) return;
  char line[160];
  SafeText text(line, sizeof line, -1);
  text.str("resil: rank ").i64(runtime.rank).str(": an earlier state dump has been under way for ").u64(now - since);
  text.str(" s (is its directory reachable?); this request waits for it\n");
  write_patiently(2, line, text.size(), 0);
}

/// Makes the dumps that are asked for, unless another thread is at it: then that one sees the request when it is done.
void request_dump(const siginfo_t* info, const char* text, const ucontext_t& context) {
  if (info == nullptr || !from_tool(*info)) loud.store(true, std::memory_order_release);
  requests.fetch_add(1, std::memory_order_acq_rel);
  for (bool first = true;; first = false) {
    bool expected = false;
    if (!dumping.compare_exchange_strong(expected, true, std::memory_order_acq_rel)) {
      complain_about_long_dump();
      return;
    }
    const uint32_t count = requests.exchange(0, std::memory_order_acq_rel);
    if (count != 0) {
      dumping_since.store(monotonic_ns() / 1000000000, std::memory_order_relaxed);
      describe(workspace->reason, sizeof workspace->reason, first ? info : nullptr,
               first ? text : "requests during the dump before", count);
      // One more dump for what came during the first; what comes during that one is answered by it, or a storm of
      // signals would keep this thread here for ever.
      workspace->quiet = !loud.exchange(false, std::memory_order_acq_rel);
      write_dump(workspace, dump_signal, context, first ? nullptr : &requests);
      dumping_since.store(0, std::memory_order_relaxed);
    }
    dumping.store(false, std::memory_order_release);
    if (requests.load(std::memory_order_acquire) == 0) break;
  }
  if (die_afterwards.exchange(false)) default_action();
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto& registers = *static_cast<const ucontext_t*>(context);
  if (!own_process()) {
    act_as_before(signal, info, context, true);
  } else if (is_question(*info)) {
    answer(&workspace->threads, registers);
  } else {
    request_dump(info, nullptr, registers);
    act_as_before(signal, info, context, false);
  }
  errno = saved_errno;
}

bool install() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  // A program whose handler interrupts system calls goes on seeing them interrupted.
  const bool chained = !previous_is(SIG_DFL) && !previous_is(SIG_IGN);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (chained ? previous.sa_flags & SA_RESTART : SA_RESTART);
  // Another handler must not leave ours by longjmp: the dump would stay locked for ever. Faults stay deliverable.
  sigfillset(&action.sa_mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&action.sa_mask, fault);
  return sigaction(dump_signal, &action, nullptr) == 0;
}

bool object_of(uint64_t address, char* path, size_t capacity) {
  Object object;
  path[0] = 0;
  if (!find_object(address, &object)) return false;
  Reader reader;
  reader.reset();
  object_path(object, reader, path, capacity);
  return true;
}

Disposition classify(const struct sigaction& action, char* path, size_t capacity) {
  path[0] = 0;
  if ((action.sa_flags & SA_SIGINFO) == 0) {
    if (action.sa_handler == SIG_DFL) return Disposition::kDefault;
    if (action.sa_handler == SIG_IGN) return Disposition::kIgnored;
  } else if (action.sa_sigaction == on_signal) {
    return Disposition::kOurs;
  }
  object_of(reinterpret_cast<uint64_t>(action.sa_sigaction), path, capacity);
  return strstr(path, "libucs") != nullptr ? Disposition::kUcx : Disposition::kOther;
}

}  // namespace

bool install_handler(int signal, Workspace* memory) {
  workspace = memory;
  previous = {};
  previous.sa_handler = SIG_DFL;
  if (signal == 0) return true;
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) != 0) return false;
  char path[512];
  const Disposition disposition = classify(before, path, sizeof path);
  // Set before the handler is: it may run at once.
  if (disposition != Disposition::kUcx && disposition != Disposition::kOurs) previous = before;
  dump_signal = signal;
  if (install()) return true;
  dump_signal = 0;
  return false;
}

bool install_handler_again() { return dump_signal != 0 && install(); }

Disposition current_disposition(char* path, size_t capacity) {
  struct sigaction now {};
  path[0] = 0;
  if (dump_signal == 0 || sigaction(dump_signal, nullptr, &now) != 0) return Disposition::kOurs;
  return classify(now, path, capacity);
}

void put_signal(SafeText& text, int signal) {
  switch (signal) {
    case SIGHUP: text.str("SIGHUP"); return;
    case SIGINT: text.str("SIGINT"); return;
    case SIGQUIT: text.str("SIGQUIT"); return;
    case SIGUSR1: text.str("SIGUSR1"); return;
    case SIGUSR2: text.str("SIGUSR2"); return;
    case SIGTERM: text.str("SIGTERM"); return;
    default: break;
  }
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) text.str("SIGRTMIN+").i64(signal - SIGRTMIN);
  else text.str("signal ").i64(signal);
}

}  // namespace resil::dump

namespace resil {

void dump_now(const char* reason) {
  if (dump::workspace == nullptr || !dump::own_process()) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ucontext_t context;
  getcontext(&context);
  dump::request_dump(nullptr, reason, context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace resil
