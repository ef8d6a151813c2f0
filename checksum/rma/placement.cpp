// SPDX-License-Identifier: Apache-2.0
//
// Is a window's memory where the program was told? MPI_WIN_BASE must be the address that the program gave or was
// given. Debian 12's MPICH (4.0.2 on UCX 1.13) rounds it down to a multiple of 16, and operations land there: before
// the program's memory, in another rank's (docs/NWCHEM-MPICH.md). Neither reading back nor comparing what two
// operations saw finds that, since all operations agree; only the program's own loads and stores do not.

#include <cinttypes>
#include <cstring>

#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "shim/abi/backend.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"

namespace resil::rma {

namespace {

/// What another rank said of a window that this one has not entered yet.
struct Told {
  uint64_t window;
  int32_t rank;
  int64_t shift;
};
constexpr uint32_t kTold = 256;
Told told[kTold];
uint32_t told_count;
SpinLock told_lock;

std::atomic<bool> published, stopped;
std::atomic<int> probed;  // 0: not yet, 1: operations land where MPI_WIN_BASE says, 2: they do not

/// Puts into a window of resil's own, on this process alone, whose memory is aligned as badly.
bool lands_off(const void* base, int64_t shift) {
  int known = probed.load(std::memory_order_relaxed);
  if (known == 0) {
    known = backend->windows->lands_off(reinterpret_cast<uintptr_t>(base) % 64, shift) ? 1 : 2;
    probed.store(known, std::memory_order_relaxed);
  }
  return known == 1;
}

void mark(Window& w, int rank, int64_t shift) {
  Target* target = rank >= 0 && rank < w.size ? target_of(w, rank) : nullptr;
  if (target == nullptr) return;
  target->shift = shift;
  __atomic_store_n(&target->misplaced, true, __ATOMIC_RELEASE);
}

void say_misplaced_window(const Event& e, const Window& w, const WindowInfo& info, int64_t shift) {
  Finding finding;
  finding.start("one_sided_corrupted", Confidence::kProved);
  finding.victim(runtime.rank);
  char site[96];
  site_text(e.site, site, sizeof(site));
  finding.say(messages::checksum::window_misplaced, call_info(e.id).name, site, runtime.rank,
              static_cast<const void*>(w.base), info.base, shift < 0 ? -shift : shift, shift < 0 ? "before" : "behind");
  finding.to_do(messages::checksum::window_misplaced_to_do);
  finding.add("address", "%p", static_cast<const void*>(w.base));
  finding.add("MPI_WIN_BASE", "%p", info.base);
  finding.add("bytes", "%" PRId64, w.bytes);
  finding.add("call_site", "%s", site);
  finding.add("trial", "a put into a window of resil's own, aligned alike, landed as far off");
  finding.add("further", "later windows of this rank are counted only: windows_misplaced in the report");
  finding_publish(finding);
}

}  // namespace

void check_placement(Event& e, Window& w, const WindowInfo& info) {
  if (w.flavor == WindowFlavor::kDynamic || w.bytes == 0 || !info.base_known || info.base == w.base) return;
  const int64_t shift = static_cast<const char*>(info.base) - w.base;
  add_to(counters.misplaced, 1);
  if (!lands_off(w.base, shift)) {
    add_note_format(messages::checksum::base_differs, shift);
    return;
  }
  if (!published.exchange(true)) on_own_stack([&] { say_misplaced_window(e, w, info, shift); });
  mark(w, w.rank, shift);
  if (w.why == Reason::kNone)
    for (int i = 0; i < w.size; ++i)
      if (i != w.rank)
        send(*e.thread, w, i, ledger::Kind::kRma, {w.id, 0, w.rank, Message::kMisplaced, false, false, 0, 0, shift});
}

void placement_told(uint64_t id, int rank, int64_t shift) {
  if (Window* window = window_by_id(id); window != nullptr) return mark(*window, rank, shift);
  Guard guard(told_lock);
  told[told_count % kTold] = {id, rank, shift};
  told_count += 1;
}

void placement_take_pending(Window& w) {
  for (uint32_t i = 0; i < kTold; ++i) {
    Told one;
    {
      Guard guard(told_lock);
      if (told[i].window != w.id) continue;
      one = told[i];
      told[i].window = 0;
    }
    mark(w, one.rank, one.shift);
  }
}

static void say_misplaced(Event& e, Window& w, const Target& target) {
  if (stopped.exchange(true)) return;
  ledger::count_mismatch();
  add_to(counters.mismatches, 1);
  const int world = world_rank(w, e.peer);
  Finding finding;
  finding.start("one_sided_corrupted", Confidence::kProved);
  finding.victim(world);
  char site[96];
  site_text(e.site, site, sizeof(site));
  finding.say(messages::checksum::operation_misplaced, call_info(e.id).name, runtime.rank, world, site, e.bytes,
              e.target_displacement, target.shift < 0 ? -target.shift : target.shift,
              target.shift < 0 ? "before" : "behind");
  finding.to_do(messages::checksum::operation_misplaced_to_do);
  finding.add("origin", "rank %d on %s", runtime.rank, runtime.host);
  finding.add("target", "rank %d", world);
  finding.add("call", "%s", call_info(e.id).name);
  finding.add("call_site", "%s", site);
  finding.add("shift", "%" PRId64 " bytes", target.shift);
  finding.add("further", "later operations on such memory are not reported one by one");
  finding_publish(finding);
  if (ledger::abort_wanted()) stop_job(90);
}

void operation_misplaced(Event& e, Window& w, const Target& target) {
  on_own_stack([&] { say_misplaced(e, w, target); });
}

}  // namespace resil::rma
