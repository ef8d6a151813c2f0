// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::freed: what this rank has freed, so that others that still wait for it there can be told
// that it will never come. Threads of the program, inside the calls that free; nothing on any other path.

#include "detectors/hang/slots/writer_internal.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"

namespace resil::hang {

namespace {

SpinLock lock;
uint32_t persistent_on[kFreedPlaces];  // persistent requests that were made, by index of their communicator

/// Persistent requests of a communicator that goes: they may be started all the same, and nobody knows under which id
/// to count that, since its entry in section "comms" may be given to another. True: there are some for messages.
bool give_up_persistent(uint32_t index) {
  if (index >= kFreedPlaces || __atomic_exchange_n(&persistent_on[index], 0, __ATOMIC_RELAXED) == 0) return false;
  bool any = false;
  for (uint32_t i = 0; i < writer.pending_count; ++i) {
    const ring::Request& entry = runtime.requests[i];
    const auto value = [](const auto& field) { return __atomic_load_n(&field, __ATOMIC_RELAXED); };
    if (__atomic_load_n(&entry.key, __ATOMIC_ACQUIRE) == 0 || value(entry.comm) != index ||
        (value(entry.flags) & ring::kPersistent) == 0)
      continue;
    const bool collective = value(entry.kind) == static_cast<uint8_t>(ring::RequestKind::kCollective);
    if (collective) __atomic_store_n(&writer.pending[i].receive_tag, 0, __ATOMIC_RELAXED);
    else __atomic_store_n(&writer.pending[i].peer, kUnknownRank, __ATOMIC_RELAXED);
    any |= !collective;
  }
  return any;
}

Freed& publish(const Freed& of) {
  SpinGuard guard(lock);
  Section& section = *writer.section;
  const uint64_t number = section.freed_count;
  Freed& place = section.freed[number % kFreed];
  __atomic_store_n(&place.id, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  place.time = of.time;
  place.sequence = of.sequence;
  place.site = of.site;
  place.rank = of.rank;
  place.size = of.size;
  place.remote_size = of.remote_size;
  place.comm = of.comm;
  place.call = of.call;
  __atomic_store_n(&place.uncounted, of.uncounted, __ATOMIC_RELAXED);
  if (of.comm != 0) __atomic_store_n(&section.freed_at[of.comm], of.time, __ATOMIC_RELEASE);
  __atomic_store_n(&place.id, of.id, __ATOMIC_RELEASE);
  __atomic_store_n(&section.freed_count, number + 1, __ATOMIC_RELEASE);
  return place;
}

}  // namespace

void persistent_made(const Event& e) {
  if (can_be_counted(e.comm) && e.comm->index < kFreedPlaces)
    __atomic_fetch_add(&persistent_on[e.comm->index], 1, __ATOMIC_RELAXED);
}

void comm_free_enter(const Event& e, Wait& wait) {
  wait.count = wait.kept = 0;
  wait.keys[0] = 0;
  if (!can_be_counted(e.comm) || e.comm->index >= kFreedPlaces || e.comm->ring->flags != 0 || wait.sequence == 0)
    return;
  wait.keys[0] = e.comm->ring->id;
  wait.keys[1] = uint64_t{e.comm->index} << 32 | static_cast<uint32_t>(e.comm->rank);
  wait.keys[2] = uint64_t{static_cast<uint32_t>(e.comm->size)} << 32 | static_cast<uint32_t>(e.comm->remote_size);
  wait.keys[3] = envelopes_swept();
}

void comm_freed(const Event& e, const Wait& wait) {
  // The communicator may be gone, and its entry another's: only what was kept on the way in counts.
  if (wait.instance != e.record_number || wait.keys[0] == 0) return;  // or a callback of an attribute has used it
  const auto index = static_cast<uint32_t>(wait.keys[1] >> 32);
  const bool counted = !give_up_persistent(index);
  Freed& freed = publish({wait.keys[0],
                          e.time,
                          wait.sequence,
                          e.site,
                          static_cast<int32_t>(wait.keys[1]),
                          static_cast<int32_t>(wait.keys[2] >> 32),
                          static_cast<int32_t>(wait.keys[2]),
                          index,
                          static_cast<uint16_t>(e.id),
                          1,
                          {}});
  if (counted) envelopes_counted(freed, wait.keys[3]);
}

void object_freed(const Event& e, const WindowSlot& slot, bool uncounted) {
  publish(
      {slot.id, e.time, slot.ordered, e.site, slot.rank, slot.size, -1, 0, static_cast<uint16_t>(e.id), uncounted, {}});
}

}  // namespace resil::hang
