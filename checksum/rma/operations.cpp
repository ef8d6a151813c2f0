// SPDX-License-Identifier: Apache-2.0
//
// What an origin notes of its one-sided operations.

#include <cstring>

#include "checksum/cookie.h"
#include "checksum/ledger/blame.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"
#include "shim/abi/backend.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/runtime/looked_at.h"
#include "shim/runtime/memory.h"
#include "shim/tables/buffer_view.h"

namespace resil::rma {

namespace {

/// What kind of operation, and which buffer of the origin it is about.
struct Kind {
  What what;
  bool receives;  ///< the data is in the receive buffer
  Reason reason;  ///< kTouch
};

Kind kind_of(const Event& e) {
  constexpr Kind kPuts = {What::kPut, false, Reason::kNone}, kGets = {What::kGet, true, Reason::kNone};
  switch (call_info(e.id).rma) {
    case RmaOperation::kPut: return kPuts;
    case RmaOperation::kGet: return kGets;
    case RmaOperation::kAccumulate:
      if (backend->types->op_kind(e.op) == OpKind::kReplace) return kPuts;
      break;
    case RmaOperation::kGetAccumulate:
      if (backend->types->op_kind(e.op) == OpKind::kNoOp) return kGets;
      break;
    case RmaOperation::kFetchAndOp:
    case RmaOperation::kCompareAndSwap:
    case RmaOperation::kNone: break;
  }
  return {What::kTouch, false, Reason::kAccumulate};
}

Epoch epoch_of(const Window& w, int target) {
  const Target* targets = __atomic_load_n(&w.targets, __ATOMIC_ACQUIRE);
  if (targets != nullptr) {
    if (targets[target].exclusive) return Epoch::kExclusive;
    if (targets[target].shared) return Epoch::kNone;
    if (targets[target].started) return Epoch::kAccess;
  }
  return w.lock_all || !w.fence_open ? Epoch::kNone : Epoch::kFence;
}

bool passive(const Window& w, int target) {
  const Target* targets = __atomic_load_n(&w.targets, __ATOMIC_ACQUIRE);
  return w.lock_all || (targets != nullptr && (targets[target].shared || targets[target].exclusive));
}

/// A place in the list; null: it is full.
Operation* append(Window& w, uint32_t* place) {
  if (__atomic_load_n(&w.operations, __ATOMIC_ACQUIRE) == nullptr) {
    auto* made = memory::map_array<Operation>(kMaxOperations);
    Guard guard(w.lock);
    if (made != nullptr && w.operations == nullptr) __atomic_store_n(&w.operations, made, __ATOMIC_RELEASE);
  }
  Guard guard(w.lock);
  if (w.operations == nullptr || w.operation_count == kMaxOperations) {
    w.overflow = true;
    return nullptr;
  }
  *place = w.operation_count++;
  w.operations_open += 1;
  w.operations[*place].done = true;  // until it is filled
  return &w.operations[*place];
}

/// The cookie of a request: window's address is too long for it together with the place.
struct Follow {
  Window* window;
  uint64_t id;
  uint32_t place;
  bool used;
};
constexpr uint32_t kFollowed = 4096;
Follow followed[kFollowed];
SpinLock followed_lock;
uint32_t followed_next;

uint64_t follow(Window& w, uint32_t place) {
  Guard guard(followed_lock);
  for (uint32_t i = 0; i < kFollowed; ++i) {
    const uint32_t at = (followed_next + i) % kFollowed;
    if (!followed[at].used) {
      followed[at] = {&w, w.id, place, true};
      followed_next = at + 1;
      return uint64_t{at} << 3 | kCookieRma;
    }
  }
  return 0;
}

void release(Operation& operation) {
  if (operation.type != nullptr) type_map_release(operation.type);
  if (operation.target_type != nullptr) type_map_release(operation.target_type);
  operation.type = operation.target_type = nullptr;
  operation.done = true;
}

/// Gets that came into the same memory: what is there says nothing about the ones before the last.
void drop_shared_buffers(Window& w, Epoch epoch, int target, uint32_t gets) {
  Workspace workspace(gets * (sizeof(Interval) + sizeof(uint32_t) + 1));
  char* memory = workspace.data();
  auto* intervals = reinterpret_cast<Interval*>(memory);
  auto* places = reinterpret_cast<uint32_t*>(intervals + gets);
  auto* shared = reinterpret_cast<bool*>(places + gets);
  if (memory != nullptr) memset(shared, 0, gets);
  uint32_t found = 0;
  for (uint32_t i = 0; i < w.operation_count && found < gets; ++i) {
    Operation& o = w.operations[i];
    if (o.done || o.epoch != epoch || o.what != What::kGet || (target >= 0 && o.target != target)) continue;
    if (memory == nullptr) {
      o.what = What::kTouch;
      operation_uncovered(Reason::kMemory, 1, o.bytes);
      continue;
    }
    int64_t low, high;
    type_span(*o.type, o.count, &low, &high);
    const auto at = reinterpret_cast<int64_t>(o.buffer);
    intervals[found] = {at + low, at + high, found, true};
    places[found++] = i;
  }
  if (memory == nullptr) return;
  mark_overlaps(intervals, found, shared);
  for (uint32_t i = 0; i < found; ++i) {
    if (!shared[i]) continue;
    w.operations[places[i]].what = What::kTouch;
    operation_uncovered(Reason::kOverlapped, 1, w.operations[places[i]].bytes);
  }
}

View view_of(const Operation& operation) {
  return {operation.buffer, operation.count, operation.type, operation.bytes, Reason::kNone};
}

/// Full blame: reads it again.
void digest_get(Operation& o) {
  o.digest = view_digest(view_of(o), o.bytes);
  o.digested = true;
  if (!ledger::full_blame()) return;
  if (buffer_looked_at != nullptr) buffer_looked_at(o.buffer, 1);
  o.at_end = view_digest(view_of(o), o.bytes);
  if (buffer_looked_at != nullptr && o.at_end == o.digest) {
    buffer_looked_at(o.buffer, 2);
    o.at_end = view_digest(view_of(o), o.bytes);
  }
  o.ended = true;
}

/// May the request be complete before the data is there? See WindowFunctions::rget_completes_early.
bool completes_early(const Event& e, const TypeMap& origin, const TypeMap& target) {
  return call_info(e.id).rma == RmaOperation::kGet && (e.attributes & kCallStarts) &&
         backend->windows->rget_completes_early && !(origin.permanent && target.permanent);
}

/// Of a call that gets data, between its hooks: what is in the buffer before.
struct GetState {
  bool digested;
  uint64_t digest;
};

}  // namespace

void before(Event& e) {
  e.state<GetState>().digested = false;
  if (e.peer < 0 || kind_of(e).what != What::kGet) return;
  const View view = make_view(*e.thread, e.receive.buffer, e.receive.count, e.receive.type);
  if (view.reason != Reason::kNone) return;
  e.state<GetState>() = {true, view_digest(view, view.bytes)};
}

void note(Event& e) {
  if (e.result != 0 || e.peer < 0) return;
  add_to(counters.operations, 1);
  add_to(counters.bytes, e.bytes);
  Window* window = window_find(e.object);
  if (window == nullptr) {
    operation_uncovered(Reason::kOneSided, 1, e.bytes);
    return;
  }
  Window& w = *window;
  if (e.peer >= w.size) return;
  if (const Target* targets = __atomic_load_n(&w.targets, __ATOMIC_ACQUIRE);
      targets != nullptr && targets[e.peer].misplaced)
    operation_misplaced(e, w, targets[e.peer]);
  Kind kind = kind_of(e);
  const Epoch epoch = epoch_of(w, e.peer);
  if (epoch == Epoch::kNone || w.why != Reason::kNone || w.off.load(std::memory_order_relaxed)) {
    const Reason reason = kind.what == What::kTouch ? kind.reason
                          : epoch == Epoch::kNone   ? (passive(w, e.peer) ? Reason::kPassiveTarget : Reason::kOneSided)
                          : w.why != Reason::kNone  ? w.why
                                                    : Reason::kOneSided;
    operation_uncovered(reason, 1, e.bytes);
    return;
  }
  Thread& thread = *e.thread;
  const DataArgument& side = kind.receives ? e.receive : e.send;
  View view = {};
  if (kind.what != What::kTouch) {
    view = make_view(thread, side.buffer, side.count, side.type);
    if (view.reason != Reason::kNone) kind = {What::kTouch, kind.receives, view.reason};
  }
  const TypeMap* target = type_map(thread, e.target_type);
  uint32_t place;
  Operation* operation = append(w, &place);
  if (operation == nullptr) {
    operation_uncovered(Reason::kMemory, 1, e.bytes);
    return;
  }
  Operation& o = *operation;
  o = {};
  o.done = true;
  o.buffer = side.buffer;
  o.count = side.count;
  o.displacement = e.target_displacement;
  o.target_count = e.target_count;
  o.site = e.site;
  o.target = e.peer;
  o.call = static_cast<uint16_t>(e.id);
  o.epoch = epoch;
  o.bytes = target != nullptr ? type_bytes(*target, e.target_count) : e.bytes;
  if (target == nullptr) {
    o.anywhere = true;
    kind = {What::kTouch, kind.receives, Reason::kDatatype};
  } else if (!target->contiguous) {
    type_map_hold(target);
    o.target_type = target;
    if (target->run_count > kMaxItemRuns && kind.what != What::kTouch)
      kind = {What::kTouch, kind.receives, Reason::kDatatype};
  }
  if (kind.what != What::kTouch && view.type->padded != target->padded)
    kind = {What::kTouch, kind.receives, Reason::kDatatype};  // long doubles as bytes: padding is data there
  if (kind.what != What::kTouch && view.bytes != o.bytes)
    kind = {What::kTouch, kind.receives, Reason::kError};  // MPI requires the same amount on both sides
  o.what = kind.what;
  o.reason = kind.reason;
  if (o.what == What::kTouch) operation_uncovered(o.reason, 1, e.bytes);
  const bool full = ledger::full_blame() && epoch != Epoch::kExclusive;
  if (o.what == What::kPut) o.digest = view_digest(view, view.bytes);
  if (o.what == What::kPut && full) {
    type_map_hold(view.type);
    o.type = view.type;
    if (e.attributes & kCallStarts) {  // looked at when the request is complete, or not again
      if (e.cookies != nullptr) e.cookies[kChecksumWord] = follow(w, place);
      o.digested = true;
    }
  }
  if (o.what == What::kGet) {
    type_map_hold(view.type);
    o.type = view.type;
    o.has_before = full && e.state<GetState>().digested;
    o.before = e.state<GetState>().digest;
    if (e.attributes & kCallStarts) {
      o.early = completes_early(e, *view.type, *target);
      // The program may use the buffer again as soon as the request is complete.
      if (e.cookies != nullptr) e.cookies[kChecksumWord] = follow(w, place);
      if (e.cookies == nullptr || e.cookies[kChecksumWord] == 0) {
        if (e.request_key == 0) {
          digest_get(o);
        } else {
          o.what = What::kTouch;
          operation_uncovered(Reason::kRequestFreed, 1, e.bytes);
        }
      }
    }
  }
  __atomic_store_n(&o.done, false, __ATOMIC_RELEASE);
}

void request_done(uint64_t cookie, bool freed) {
  Follow one;
  {
    Guard guard(followed_lock);
    Follow& there = followed[(cookie >> 3) % kFollowed];
    one = there;
    there.used = false;
  }
  if (!one.used || one.window->handle == 0 || one.window->id != one.id || one.place >= one.window->operation_count)
    return;
  Operation& o = one.window->operations[one.place];
  if (!o.done && o.what == What::kPut && !freed && o.type != nullptr) {
    o.at_end = view_digest(view_of(o), o.bytes);
    o.ended = true;
    return;
  }
  if (o.done || o.what != What::kGet || o.digested) return;
  if (freed) {
    o.what = What::kTouch;  // when the data came is not known, nor what the program has done with it since
    operation_uncovered(Reason::kRequestFreed, 1, o.bytes);
    return;
  }
  digest_get(o);
}

void digest_gets(Window& w, Epoch epoch, int target) {
  uint32_t gets = 0;
  for (uint32_t i = 0; w.operations_open != 0 && i < w.operation_count; ++i) {
    Operation& o = w.operations[i];
    if (o.done || o.epoch != epoch || (target >= 0 && o.target != target)) continue;
    if (o.what == What::kPut && o.type != nullptr && !o.digested) {  // full blame
      o.at_end = view_digest(view_of(o), o.bytes);
      o.ended = true;
    }
    if (o.what != What::kGet) continue;
    gets += 1;
    if (!o.digested) digest_get(o);
  }
  if (gets > 1) drop_shared_buffers(w, epoch, target, gets);
}

void close_operations(Window& w, Epoch epoch, int target) {
  if (w.operations_open == 0) return;
  Guard guard(w.lock);
  for (uint32_t i = 0; i < w.operation_count; ++i) {
    Operation& o = w.operations[i];
    if (o.done || (epoch != Epoch::kNone && o.epoch != epoch) || (target >= 0 && o.target != target)) continue;
    release(o);
    w.operations_open -= 1;
  }
  if (w.operations_open == 0) {
    w.operation_count = 0;
    w.overflow = false;
  }
}

void give_up_operations(Window& w, Epoch epoch, int target, Reason reason) {
  for (uint32_t i = 0; w.operations_open != 0 && i < w.operation_count; ++i) {
    const Operation& o = w.operations[i];
    if (!o.done && (epoch == Epoch::kNone || o.epoch == epoch) && (target < 0 || o.target == target) &&
        o.what != What::kTouch)
      operation_uncovered(reason, 1, o.bytes);
  }
  close_operations(w, epoch, target);
}

}  // namespace resil::rma
