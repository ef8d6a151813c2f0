// SPDX-License-Identifier: Apache-2.0
//
// One-sided operations bring data that is there only when their epoch ends or they are flushed: until then it is noted
// where it will lie. Calls that complete operations on one target read what came from there, all others everything.

#include "checksum/record/state.h"
#include "shim/base/spinlock.h"
#include "shim/runtime/pool.h"
#include "shim/tables/type_maps.h"

namespace resil::record {

namespace {

struct Fetched {
  View view;
  uint64_t window;
  int32_t target;
  bool decided;  ///< what comes depends on the order in which processes came: MPI_Fetch_and_op and the like
  Fetched* next;
};

constexpr unsigned kBuckets = 64;
memory::Pool<Fetched, &Fetched::next, 256, 1u << 18> pool;
struct {
  Fetched *first, *last;
} pending[kBuckets];  // by window, in the order of issue
SpinLock lock;

auto& bucket(uint64_t window) { return pending[window * 0x9e3779b97f4a7c15 >> 58]; }

/// Does the call complete operations on one target only?
bool of_one_target(CallId id) {
  const WindowCall call = call_info(id).window;
  return call == WindowCall::kUnlock || call == WindowCall::kFlush || call == WindowCall::kFlushLocal;
}

}  // namespace

void window_get(Event& e) {
  if (e.result != 0 || e.peer < 0) return;
  const View view = receive_view(e);
  if (view.bytes == 0) return;
  SpinGuard guard(lock);
  Fetched* fetched = pool.allocate();
  if (fetched == nullptr) {
    counts.unread += 1;
    return;
  }
  if (view.type != nullptr) type_map_hold(view.type);
  *fetched = {view, e.object, e.peer, (data_flow_of(e.id) & kUnforced) != 0, nullptr};
  auto& list = bucket(e.object);
  (list.last != nullptr ? list.last->next : list.first) = fetched;
  list.last = fetched;
}

namespace {

/// Verify: who came first at a counter is a decision as well. The only value that this call brings, if it is a number,
/// becomes the recorded one: each process gets the tickets that it got then.
void force_value(const Fetched& fetched, const CallRecord& then) {
  const View& view = fetched.view;
  if (!fetched.decided || view.reason != Reason::kNone || !view.type->contiguous || view.bytes > 8 ||
      then.out_type == ValueType::kNone || then.out_type == ValueType::kDigest)
    return;
  __builtin_memcpy(const_cast<void*>(view.buffer), &then.out, view.bytes);
  counts.forced += 1;
  counts.unforced -= counts.unforced != 0;
}

/// How many operations the call completes; `only`: the last of them.
uint32_t completed_by(const Event& e, bool one, Fetched** only) {
  uint32_t count = 0;
  for (Fetched* fetched = bucket(e.object).first; fetched != nullptr; fetched = fetched->next)
    if (fetched->window == e.object && (!one || fetched->target == e.peer)) ++count, *only = fetched;
  return count;
}

}  // namespace

Value window_sync(Event& e, const CallRecord* then) {
  Value all = {0, ValueType::kNone, false};
  const bool one = of_one_target(e.id);
  SpinGuard guard(lock);
  Fetched* only = nullptr;
  if (then != nullptr && completed_by(e, one, &only) == 1) force_value(*only, *then);
  auto& list = bucket(e.object);
  Fetched** place = &list.first;
  Fetched* last = nullptr;
  uint64_t count = 0;
  while (Fetched* fetched = *place) {
    if (fetched->window != e.object || (one && fetched->target != e.peer)) {
      last = fetched;
      place = &fetched->next;
      continue;
    }
    const Value value = read_view(fetched->view, fetched->view.bytes);
    all.unread = all.unread || value.unread;
    if (value.type != ValueType::kNone) {
      const bool first = ++count == 1;
      all.bits = first ? value.bits : mix64(all.bits ^ mix64(value.bits + count));
      all.type = first ? value.type : ValueType::kDigest;
    }
    if (fetched->view.type != nullptr) type_map_release(fetched->view.type);
    *place = fetched->next;
    pool.release(fetched);
  }
  list.last = last;
  return all;
}

}  // namespace resil::record
