// SPDX-License-Identifier: Apache-2.0
//
// See leader.h. THREAD: "resil-hang", at most one a rank, all signals blocked, never calls MPI; it leads, or sleeps
// beside a leader. Whoever holds the control block's term leads; a leader that finds another name there steps back (it
// was stopped, and the other one took over).

#include "detectors/hang/monitor/leader.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "detectors/hang/monitor/monitor.h"
#include "detectors/hang/reader/watch.h"
#include "shim/base/clock.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"
#include "shim/base/process_state.h"
#include "shim/call/fast_path.h"
#include "shim/call/runtime.h"
#include "shim/presence/launch.h"
#include "shim/ring/segment.h"

namespace resil::hang {

ControlBlock* offer_control;

namespace {

ControlBlock* control;

constexpr double kStandbyLook = 0.4;  // seconds between two looks at the leader
constexpr double kSilent = 10;  // of a heartbeat that stands still in a process that seems to live
constexpr double kLongestTurn = 0.25;

Wiring wiring;
std::atomic<uint32_t> running;  // futex word: 1 while this rank's thread lives
std::atomic<uint32_t> stopping;  // futex word: 1 wanted, 2 with the unmatched messages
std::atomic<uint32_t> role;
std::atomic<uint64_t> turns, takeovers, cpu_ns;

uint32_t own_name() { return static_cast<uint32_t>(runtime.rank) + 1; }
uint32_t name_in(uint64_t term) { return static_cast<uint32_t>(term); }

void pause_for(double seconds) { futex_wait(&stopping, 0, seconds); }

/// The leader's pause: until the bell rings, which stood at `bell` before its last look at what is to do.
void pause_at_bell(uint32_t bell, double seconds) {
  if (stopping.load(std::memory_order_acquire) == 0) futex_wait(&control->bell, bell, seconds, FutexScope::kShared);
}

void ring_bell() {
  __atomic_fetch_add(&control->bell, 1, __ATOMIC_RELEASE);
  futex_wake(&control->bell, INT_MAX, FutexScope::kShared);
}

void note_cpu() { cpu_ns.store(thread_cpu_ns(), std::memory_order_relaxed); }

/// The page of another rank's ring that holds the control; null when it cannot be had.
ControlBlock* map_control_block(int32_t rank) {
  unsigned long bytes = 0;
  if (rank == runtime.rank) return static_cast<ControlBlock*>(segment_section("hang", &bytes));
  char path[256];
  segment_path_of(rank, path, sizeof(path));
  ring::Header header;
  struct stat status;
  const int fd = node_file_open(AT_FDCWD, path, true, sizeof(header), &status);
  if (fd < 0) return nullptr;
  ControlBlock* found = nullptr;
  if (pread(fd, &header, sizeof(header), 0) == sizeof(header) && header.magic == ring::kMagic &&
      header.version == ring::kVersion && header.rank == rank && header.nonce != 0 &&
      header.nonce == launch_nonce_of(rank) && header.pid_namespace == pid_namespace()) {
    for (uint32_t i = 0; i < header.section_count && i < 16; ++i) {
      const ring::Section& section = header.sections[i];
      if (strncmp(section.name, "hang", sizeof(section.name)) != 0 || section.offset % 4096 != 0 ||
          section.offset + 4096 > static_cast<uint64_t>(status.st_size))
        continue;
      void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(section.offset));
      found = mapped != MAP_FAILED ? static_cast<ControlBlock*>(mapped) : nullptr;
    }
  }
  close(fd);
  return found;
}

/// Takes the term from `seen`. False: somebody else was faster.
bool take_term(uint64_t seen) {
  const uint64_t mine = ((seen >> 32) + 1) << 32 | own_name();
  if (!__atomic_compare_exchange_n(&control->term, &seen, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return false;
  control->leader_pid = runtime.pid;
  __atomic_store_n(&control->leader_start, uint64_t{runtime.header->pid_start_hi} << 32 | runtime.header->pid_start_lo,
                   __ATOMIC_RELEASE);
  return true;
}

void leave_standby() {
  uint32_t me = own_name();
  __atomic_compare_exchange_n(&control->standby, &me, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool claim_standby() {
  uint32_t nobody = 0;
  return __atomic_compare_exchange_n(&control->standby, &nobody, own_name(), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/// Leads until told to stop or replaced.
void lead() {
  role.store(1, std::memory_order_relaxed);
  if (!monitor_begin(wiring, *control)) return;
  uint64_t term;
  while (stopping.load(std::memory_order_acquire) == 0) {
    term = __atomic_load_n(&control->term, __ATOMIC_ACQUIRE);
    if (name_in(term) != own_name()) break;
    __atomic_fetch_add(&control->heartbeat, 1, __ATOMIC_RELAXED);
    const uint32_t bell = __atomic_load_n(&control->bell, __ATOMIC_ACQUIRE);
    const double rest = monitor_step(monotonic_seconds());
    turns.fetch_add(1, std::memory_order_relaxed);
    note_cpu();
    if (!monitor_waits())  // else it has waited on its sockets
      pause_at_bell(bell, rest < kLongestTurn ? rest : kLongestTurn);
  }
  if (stopping.load(std::memory_order_acquire) == 2) monitor_unmatched();
  monitor_end();
  term = __atomic_load_n(&control->term, __ATOMIC_ACQUIRE);
  if (name_in(term) == own_name())  // the standby takes over when it looks next
    __atomic_compare_exchange_n(&control->term, &term, ((term >> 32) + 1) << 32, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
}

/// Sleeps beside the leader. True: lead now.
bool stand_by() {
  role.store(2, std::memory_order_relaxed);
  double beat_at = monotonic_seconds();
  uint64_t beat = __atomic_load_n(&control->heartbeat, __ATOMIC_RELAXED);
  unsigned bad = 0, looks = 0;
  bool all_seen = false;
  while (stopping.load(std::memory_order_acquire) == 0) {
    if (!all_seen && (looks++ < 20 || looks % 16 == 0)) all_seen = monitor_stand_by(wiring);
    pause_for(kStandbyLook);
    const uint64_t term = __atomic_load_n(&control->term, __ATOMIC_ACQUIRE);
    const uint64_t now_beat = __atomic_load_n(&control->heartbeat, __ATOMIC_RELAXED);
    const double now = monotonic_seconds();
    note_cpu();
    if (name_in(term) == own_name()) return true;
    bool silent = now_beat == beat;
    if (!silent) {
      beat = now_beat;
      beat_at = now;
    }
    const bool nobody = name_in(term) == 0;
    if (!nobody && silent) {
      const int state = process_state(control->leader_pid, __atomic_load_n(&control->leader_start, __ATOMIC_ACQUIRE));
      silent = state == 0 || state == 'T' || state == 't' || now - beat_at > kSilent;
    }
    bad = nobody || silent ? bad + 1 : 0;
    if ((nobody || bad >= 2) && take_term(term)) {
      takeovers.fetch_add(1, std::memory_order_relaxed);
      leave_standby();
      return true;
    }
  }
  leave_standby();
  return false;
}

void thread_main() {
  const bool leads = name_in(__atomic_load_n(&control->term, __ATOMIC_ACQUIRE)) == own_name();
  bool lead_now = leads || stand_by();
  while (lead_now) {
    lead();
    // Replaced while this process was stopped: sleep beside the new leader if nobody does.
    lead_now = stopping.load(std::memory_order_acquire) == 0 && claim_standby() && stand_by();
  }
  running.store(0, std::memory_order_release);
  futex_wake(&running);
}

void start_thread() {
  running.store(1, std::memory_order_relaxed);
  if (!helper_thread_start("resil-hang", thread_main)) {
    running.store(0, std::memory_order_relaxed);
    leave_standby();
  }
}

}  // namespace

void leader_start(const Wiring& given) {
  wiring = given;
  if (wiring.rank_count == 0) return;
  ControlBlock* found = map_control_block(wiring.alone ? runtime.rank : wiring.ranks[0]);
  if (found == nullptr) return;
  control = found;
  if (runtime.rank == wiring.leader) {
    if (take_term(0)) start_thread();
  } else if (runtime.rank == wiring.standby) {
    __atomic_store_n(&control->standby, own_name(), __ATOMIC_RELEASE);
    __atomic_store_n(&control->had_standby, 1, __ATOMIC_RELEASE);
    start_thread();
  } else if (!wiring.alone) {
    __atomic_store_n(&offer_control, found, __ATOMIC_RELEASE);
    __atomic_store_n(&fast::gate, &found->standby, __ATOMIC_RELEASE);
  }
}

void leader_offer() {
  if (__atomic_load_n(&control->had_standby, __ATOMIC_ACQUIRE) == 0)
    return;  // the first one is still on its way out of MPI_Init
  if (!claim_standby()) return;
  __atomic_store_n(&offer_control, nullptr, __ATOMIC_RELEASE);
  fast::open();
  start_thread();
}

void leader_end(double seconds) {
  if (running.load(std::memory_order_acquire) == 0) return;
  stopping.store(role.load(std::memory_order_relaxed) == 1 ? 2 : 1, std::memory_order_release);
  futex_wake(&stopping);
  ring_bell();
  monitor_wake();
  futex_wait_while(running, 1, seconds);
}

void leader_last_look(bool by_library, double seconds) {
  if (control == nullptr) return;
  const uint32_t leader = name_in(__atomic_load_n(&control->term, __ATOMIC_ACQUIRE));
  if (leader == 0 || (leader == own_name() && running.load(std::memory_order_acquire) == 0)) return;
  __atomic_store_n(&control->ender, own_name() | (by_library ? kByLibrary : 0), __ATOMIC_RELEASE);
  const uint32_t ticket = __atomic_add_fetch(&control->asked, 1, __ATOMIC_ACQ_REL);
  ring_bell();
  monitor_wake();
  const double until = monotonic_seconds() + seconds;
  for (double now = monotonic_seconds(); now < until; now = monotonic_seconds()) {
    const uint32_t answered = __atomic_load_n(&control->answered, __ATOMIC_ACQUIRE);
    if (static_cast<int32_t>(answered - ticket) >= 0) return;
    futex_wait(&control->answered, answered, until - now, FutexScope::kShared);
  }
}

LeaderReport leader_report() {
  return {role.load(std::memory_order_relaxed), turns.load(std::memory_order_relaxed),
          takeovers.load(std::memory_order_relaxed),
          static_cast<double>(cpu_ns.load(std::memory_order_relaxed)) * 1e-9};
}

}  // namespace resil::hang
