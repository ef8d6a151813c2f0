// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/action.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/helper_thread.h"
#include "shim/base/process_state.h"
#include "shim/call/runtime.h"
#include "shim/presence/pmi1.h"
#include "shim/presence/pmix.h"
#include "shim/ring/segment.h"

namespace resil::hang {

namespace {

constexpr double kTimeout = 2;  // seconds until SIGKILL
constexpr double kAfterKill = 0.5;
constexpr double kTurn = 0.02;
constexpr long kForLauncher = 1500;  // ms that a rank leaves its launcher to end it; less than kTimeout
constexpr long kForOrders = 200;  // ms until all nodes have the order, before the launcher is asked

/// Who ends the ranks. Written in MPI_Init.
enum class EndedBy : uint8_t {
  kRanks,  ///< each itself, at once
  kTold,  ///< the launcher, by PMIx_Abort or by PMI-1's abort
  kOne  ///< the launcher, since the root has left
} ended_by;

double begun_at;  // 0: not under way
double first_at;  // of the root, EndedBy::kOne: when it leaves
bool killed;

bool launcher_ends() { return ended_by != EndedBy::kRanks; }

void wait_milliseconds(long milliseconds) {
  timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, nullptr);
}

/// The ring says what happened; nothing else may be done in here.
[[noreturn]] void leave(bool wait_for_launcher) {
  runtime.header->exit_status = kExitHang;
  segment_set_phase(ring::Phase::kStopped);
  if (wait_for_launcher) wait_milliseconds(kForLauncher);
  _exit(kExitHang);
}

void handler(int) { leave(launcher_ends()); }

bool lives(const Watched& watched) {
  return watched.header != nullptr && watched.pid > 0 && watched.pid != runtime.pid &&
         process_state(watched.pid, watched.pid_start) != 0;
}

/// To all other ranks of the node that live; returns how many. Signal 0: their own.
uint32_t send_all(Watch& watch, int signal) {
  uint32_t alive = 0;
  for (uint32_t i = 0; i < watch.count; ++i) {
    const Watched& watched = watch.watched[i];
    if (!lives(watched)) continue;
    ++alive;
    const int own = watched.section != nullptr ? watched.section->abort_signal : 0;
    kill(watched.pid, signal != 0 ? signal : own != 0 ? own : SIGKILL);
    if (signal == 0 && own != 0) kill(watched.pid, SIGCONT);  // one that is stopped takes its signals then
  }
  return alive;
}

}  // namespace

int action_install() {
  if (pmix_takes_status() || pmi1_available()) ended_by = EndedBy::kTold;
  else if (pmix_is_orte()) ended_by = EndedBy::kOne;
  for (int number = SIGRTMAX - 1; number > SIGRTMIN + 2; --number) {
    struct sigaction before;
    if (sigaction(number, nullptr, &before) != 0 || (before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL)
      continue;
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    if (sigaction(number, &action, nullptr) == 0) return number;
  }
  return 0;
}

void action_tell_launcher(bool several_nodes) {
  static bool told;
  if (ended_by == EndedBy::kOne && !told) {
    told = true;
    first_at = monotonic_seconds() + (several_nodes ? kForOrders / 1e3 : 0);
  }
  if (ended_by == EndedBy::kTold && !told)
    told = helper_thread_start("resil-abort", [] {
      wait_milliseconds(kForOrders);
      pmi1_abort(kExitHang);
      pmix_abort(kExitHang);  // may never return, when MPI's own thread is stopped there: so a thread of its own
    });
}

void action_begin(Watch& watch) {
  if (begun_at != 0) return;
  begun_at = monotonic_seconds();
  send_all(watch, 0);
}

double action_step(Watch& watch, double now) {
  if (begun_at == 0) return -1;
  if (first_at != 0 && now >= first_at) leave(false);
  uint32_t alive = 0;
  for (uint32_t i = 0; i < watch.count; ++i) alive += lives(watch.watched[i]);
  if (alive == 0 || (killed && now - begun_at > kTimeout + kAfterKill)) return 0;
  if (!killed && now - begun_at > kTimeout) {
    killed = true;
    send_all(watch, SIGKILL);
  }
  return kTurn;
}

void action_end() { leave(launcher_ends()); }

}  // namespace resil::hang
