// SPDX-License-Identifier: Apache-2.0
//
// The writing side of one-sided synchronisation (MPI 4.0, 12.5). General active target: MPI_Win_post and
// MPI_Win_complete are counted as tokens sent to each rank of their group, MPI_Win_start and MPI_Win_post as tokens
// awaited, all before the call, so that a token is never missing that has been given. Passive target: a lock is held
// for certain once an operation under it is complete at its target, since a library may put off the locking until then,
// or when it is on the rank's own window, where MPI lets nobody put it off. Whatever does not fit is kLostWindow: then
// nothing is judged by the counts of this rank.

#include <cstring>

#include "detectors/hang/slots/writer_internal.h"
#include "shim/base/spinlock.h"

namespace resil::hang {

namespace {

constexpr uint32_t kGroup = 256;  // ranks of one epoch that are counted; larger ones are kLostWindow
constexpr uint32_t kLocks = 16;  // targets locked, or operated on, at a time that are followed

struct Partners {
  uint32_t count;
  int32_t ranks[kGroup];  // of the world
  uint32_t ordinals[kGroup];  // of the token that each must give
  uint64_t strict[kGroup / 64];  // by place: an operation of this epoch needs that rank
};

struct Lock {
  int32_t target;  // world rank; kUnknownRank: free
  bool exclusive, certain;
  bool pending, fetching, flushing;  // operations that are not complete at the target; that brought data; in a flush
};

struct Epochs {
  bool world_order;  // ranks of the window are ranks of the world
  bool known;  // else by `ranks`
  bool unchecked;  // access epoch with MPI_MODE_NOCHECK: nobody waits
  bool all, all_unchecked;
  uint32_t locked;  // of `locks` in use
  int32_t self, size;
  int32_t ranks[kGroup];
  Partners access, exposure;
  Lock locks[kLocks];
};

Epochs epochs[kWindows];
SpinLock lock;  // never around an MPI call

bool unchecked(const Event& e) { return backend->windows != nullptr && backend->windows->no_check(e.assertion); }

int32_t target_of(const Epochs& of, int32_t rank) {
  if (rank < 0 || rank >= of.size || !of.known) return kUnknownRank;
  return of.world_order ? rank : of.ranks[rank];
}

/// The ranks of a group; false: too many, or of another world.
bool read_group(const Event& e, Partners& to) {
  int size = 0;
  to.count = 0;
  memset(to.strict, 0, sizeof(to.strict));
  if (!backend->group_world_ranks(e.group, kGroup, to.ranks, &size)) return false;
  for (int i = 0; i < size; ++i)
    if (to.ranks[i] < 0) return false;
  to.count = static_cast<uint32_t>(size);
  return true;
}

template <uint64_t Envelope::*counter>
uint32_t count_token(uint64_t window, int32_t peer, int32_t token) {
  Envelope* envelope = envelope_of(token_comm(window), peer, token);
  if (envelope == nullptr) return 0;
  const uint64_t number = count_one(envelope->*counter);
  return counts_exactly(*envelope) ? static_cast<uint32_t>(number) & ~kSyncStrict : 0;
}

void list(Wait& wait, int32_t rank, uint32_t value) {
  if (wait.kept + 1 < kWaitedKeys) wait.keys[++wait.kept] = uint64_t{static_cast<uint32_t>(rank)} << 32 | value;
  ++wait.count;
}

void list_partners(Wait& wait, const Partners& partners, bool all_strict) {
  for (uint32_t i = 0; i < partners.count; ++i) {
    const bool strict = all_strict || (__atomic_load_n(&partners.strict[i / 64], __ATOMIC_RELAXED) >> i % 64 & 1) != 0;
    list(wait, partners.ranks[i], partners.ordinals[i] | (strict ? uint32_t{kSyncStrict} : 0));
  }
}

void hold(uint64_t window, const Lock& of) {
  for (Hold& place : writer.section->holds)
    if (place.window == 0) {
      place.target = of.target;
      place.exclusive = of.exclusive ? 1 : 0;
      __atomic_store_n(&place.window, window, __ATOMIC_RELEASE);
      return;
    }
}

void let_go(uint64_t window, int32_t target) {
  for (Hold& place : writer.section->holds)
    if (place.window == window && place.target == target) __atomic_store_n(&place.window, 0, __ATOMIC_RELEASE);
}

Lock* find_lock(Epochs& of, int32_t target) {
  for (Lock& place : of.locks)
    if (place.target == target) return &place;
  return nullptr;
}

void add_lock(Epochs& of, int32_t target, bool exclusive) {
  if (target == kUnknownRank || find_lock(of, target) != nullptr) return;
  Lock* place = find_lock(of, kUnknownRank);
  if (place == nullptr) return;
  *place = {target, exclusive, false, false, false, false};
  __atomic_store_n(&of.locked, of.locked + 1, __ATOMIC_RELAXED);
}

bool is_local_flush(WindowCall call) { return call == WindowCall::kFlushLocal || call == WindowCall::kFlushLocalAll; }

/// Calls `with` for the locks that this flush or unlock is about.
template <class With>
void each_lock(Epochs& of, const Event& e, With with) {
  const WindowCall call = call_info(e.id).window;
  const bool all =
      call == WindowCall::kUnlockAll || call == WindowCall::kFlushAll || call == WindowCall::kFlushLocalAll;
  const int32_t target = all ? kUnknownRank : target_of(of, e.peer);
  for (Lock& place : of.locks)
    if (place.target != kUnknownRank && (all || place.target == target)) with(place);
}

/// MPI_Win_lock need not wait for a lock that is not its own process's (12.5.3); a flush or an unlock must have it for
/// the operations that it completes.
void enter_passive(Event& e, Wait& wait, Epochs& of, uint64_t id) {
  const WindowCall call = call_info(e.id).window;
  if (call == WindowCall::kLock) {
    const uint32_t exclusive = backend->windows->exclusive(e.lock_type) ? uint32_t{kSyncExclusive} : 0;
    const int32_t target = target_of(of, e.peer);
    if (target != kUnknownRank && !unchecked(e))
      list(wait, target, exclusive | (e.peer == of.self ? uint32_t{kSyncStrict} : 0));
    return;
  }
  if (call == WindowCall::kLockAll) {
    const int32_t most = of.known && !unchecked(e) ? static_cast<int32_t>(kWaitedKeys) : 0;
    for (int32_t rank = 0; rank < of.size && rank < most; ++rank) list(wait, target_of(of, rank), 0);
    return;
  }
  each_lock(of, e, [&](Lock& place) {
    const bool local = is_local_flush(call), ends = call == WindowCall::kUnlock || call == WindowCall::kUnlockAll;
    if (place.pending && !place.certain)
      list(wait, place.target,
           (place.exclusive ? uint32_t{kSyncExclusive} : 0) | (!local || place.fetching ? uint32_t{kSyncStrict} : 0));
    if (place.pending && (!local || place.fetching)) place.flushing = true;
    if (ends) let_go(id, place.target);
  });
}

}  // namespace

void epochs_begin(uint32_t index, CommInfo& comm) {
  Epochs& made = epochs[index];
  made.world_order = comm.world_ranks_are_ranks;
  made.self = comm.rank;
  made.size = comm.size;
  made.all = false;
  made.locked = 0;
  made.access.count = made.exposure.count = 0;
  for (Lock& place : made.locks) place.target = kUnknownRank;
  made.known = made.world_order || comm.size <= static_cast<int32_t>(kGroup);
  for (int32_t rank = 0; !made.world_order && made.known && rank < comm.size; ++rank)
    made.ranks[rank] = world_of(&comm, rank);
}

bool epochs_end(uint32_t index) {
  const bool any = envelopes_forget(token_comm(writer.section->windows[index].id));
  SpinGuard guard(lock);
  for (Hold& place : writer.section->holds)
    if (place.window == writer.section->windows[index].id) __atomic_store_n(&place.window, 0, __ATOMIC_RELEASE);
  return any;
}

void sync_enter(Event& e, Wait& wait) {
  const int index = window_index(e.object);
  wait.peer = ring::kNoPeer;
  wait.count = wait.kept = 0;
  wait.flags = 0;
  wait.keys[0] = 0;
  if (index < 0 || backend->windows == nullptr) return set_irregular(kLostWindow);
  Epochs& of = epochs[index];
  const uint64_t id = writer.section->windows[index].id;
  wait.keys[0] = id;
  switch (call_info(e.id).window) {
    case WindowCall::kPost:
      if (!read_group(e, of.exposure)) return set_irregular(kLostWindow);
      for (uint32_t i = 0; i < of.exposure.count; ++i) {
        of.exposure.ordinals[i] = count_token<&Envelope::posted>(id, of.exposure.ranks[i], kCompleteToken);
        count_token<&Envelope::sent>(id, of.exposure.ranks[i], kPostToken);
      }
      return;  // does not wait
    case WindowCall::kStart:
      if (!read_group(e, of.access)) return set_irregular(kLostWindow);
      of.unchecked = unchecked(e);
      for (uint32_t i = 0; i < of.access.count; ++i)
        of.access.ordinals[i] = count_token<&Envelope::posted>(id, of.access.ranks[i], kPostToken);
      if (!of.unchecked) list_partners(wait, of.access, false);
      return;
    case WindowCall::kComplete:
      for (uint32_t i = 0; i < of.access.count; ++i)
        count_token<&Envelope::sent>(id, of.access.ranks[i], kCompleteToken);
      if (!of.unchecked) list_partners(wait, of.access, false);
      return;
    case WindowCall::kWait: return list_partners(wait, of.exposure, true);
    default: {
      SpinGuard guard(lock);
      return enter_passive(e, wait, of, id);
    }
  }
}

void sync_leave(Event& e) {
  const int index = window_index(e.object);
  if (index < 0) return;
  Epochs& of = epochs[index];
  const uint64_t id = writer.section->windows[index].id;
  const WindowCall call = call_info(e.id).window;
  switch (call) {
    case WindowCall::kComplete: of.access.count = 0; return;
    case WindowCall::kPost:
    case WindowCall::kStart:
    case WindowCall::kWait: return;
    default: break;
  }
  SpinGuard guard(lock);
  switch (call) {
    case WindowCall::kLock: {
      const int32_t target = target_of(of, e.peer);
      if (target == kUnknownRank || unchecked(e)) return;
      add_lock(of, target, backend->windows->exclusive(e.lock_type));
      if (Lock* made = find_lock(of, target); made != nullptr && e.peer == of.self) {
        made->certain = true;
        hold(id, *made);
      }
      return;
    }
    case WindowCall::kLockAll:
      of.all = true;
      of.all_unchecked = unchecked(e);
      return;
    case WindowCall::kUnlockAll: of.all = false; [[fallthrough]];
    case WindowCall::kUnlock:
      each_lock(of, e, [&of](Lock& place) {
        place.target = kUnknownRank;
        __atomic_store_n(&of.locked, of.locked - 1, __ATOMIC_RELAXED);
      });
      return;
    default:
      each_lock(of, e, [&](Lock& place) {
        if (!place.flushing) return;
        place.flushing = place.pending = place.fetching = false;
        if (!place.certain) {
          place.certain = true;
          hold(id, place);
        }
      });
  }
}

bool sync_polled(const Event& e, Probe* probe) {
  const int index = window_index(e.object);
  if (index < 0) return false;
  *probe = {writer.section->windows[index].id, kUnknownRank, kCompleteToken};
  return true;
}

void operate_enter(Event& e) {
  const int index = window_index(e.object);
  if (index < 0 || e.peer < 0 || e.target_count == 0 || type_size(*e.thread, e.target_type) <= 0) return;
  Epochs& of = epochs[index];
  const int32_t target = target_of(of, e.peer);
  if (target == kUnknownRank) return;
  const bool brings = fetches(call_info(e.id).rma);
  for (uint32_t i = 0; brings && i < of.access.count; ++i)
    if (of.access.ranks[i] == target) {
      __atomic_fetch_or(&of.access.strict[i / 64], uint64_t{1} << i % 64, __ATOMIC_RELAXED);
      return;
    }
  if (!of.all && __atomic_load_n(&of.locked, __ATOMIC_RELAXED) == 0)
    return;  // an epoch between fences, or of another kind
  SpinGuard guard(lock);
  if (of.all && !of.all_unchecked) add_lock(of, target, false);
  if (Lock* place = find_lock(of, target); place != nullptr) {
    place->pending = true;
    place->fetching |= brings;
  }
}

}  // namespace resil::hang
