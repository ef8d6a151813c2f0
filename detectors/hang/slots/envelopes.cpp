// SPDX-License-Identifier: Apache-2.0
//
// See envelopes.h.

#include "detectors/hang/slots/envelopes.h"

#include <initializer_list>

#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/tables/tables.h"

namespace resil::hang {

Envelopes envelopes;

namespace {

SpinLock lock;
Section* section;  // of these
uint32_t in_use;  // places that are neither free nor given up
uint32_t sweeps;
uint32_t swept_at = ~0u;  // handle_generation when places were last taken from communicators that are gone

/// Lock-free: places are never freed, only given to another envelope.
Envelope* find(uint64_t comm, int32_t peer, int32_t tag, uint32_t reach) {
  const uint32_t home = envelope_home(comm, peer, tag);
  for (uint32_t i = 0; i < reach; ++i) {
    Envelope& place = envelopes.table[(home + i) % kEnvelopes];
    const uint64_t whose = __atomic_load_n(&place.comm, __ATOMIC_ACQUIRE);
    if (whose == 0) return nullptr;
    if (whose == comm && place.peer == peer && place.tag == tag) return &place;
  }
  return nullptr;
}

/// Under the lock.
Envelope* claim(uint64_t comm, int32_t peer, int32_t tag, uint32_t reach) {
  const uint32_t home = envelope_home(comm, peer, tag);
  for (uint32_t i = 0; i < reach; ++i) {
    Envelope* place = &envelopes.table[(home + i) % kEnvelopes];
    if (place->comm > kNobody) continue;
    __atomic_store_n(&in_use, in_use + 1, __ATOMIC_RELAXED);
    const uint32_t group = static_cast<uint32_t>(place - envelopes.table) / kEnvelopesTogether;
    __atomic_store_n(&section->unused_envelopes, section->unused_envelopes & ~(1u << group), __ATOMIC_RELAXED);
    __atomic_store_n(&place->comm, kNobody, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    place->peer = peer;
    place->tag = tag;
    __atomic_store_n(&place->sent, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&place->posted, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&place->taken, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&place->told, 0, __ATOMIC_RELAXED);
    place->types = {kNoType, kNoType};
    place->handles = {0, 0};
    __atomic_store_n(&place->comm, comm, __ATOMIC_RELEASE);
    return place;
  }
  return nullptr;
}

/// What is said of a freed communicator or window no longer rests on counts.
void not_counted(uint64_t comm) {
  for (Freed& freed : section->freed)
    if (freed.id != 0 && (freed.id == comm || token_comm(freed.id) == comm))
      __atomic_store_n(&freed.uncounted, 1, __ATOMIC_RELAXED);
}

/// Under the lock: gives up the envelopes of communicators and windows that are gone. Their ids never come again
/// (comm_table.cpp).
void sweep() {
  __atomic_store_n(&sweeps, sweeps + 1, __ATOMIC_RELEASE);
  constexpr uint32_t kLive = 1024, kAll = 2 * kLive + kWindows;
  uint64_t live[kAll];
  uint32_t count = 0;
  for (uint32_t i = 0; i < runtime.comm_count && count < 2 * kLive; ++i)
    if (const uint64_t id = __atomic_load_n(&runtime.comms[i].id, __ATOMIC_ACQUIRE); id != 0) {
      live[count++] = id;
      live[count++] = token_comm(id);
    }
  for (const WindowSlot& window : section->windows)
    if (const uint64_t id = __atomic_load_n(&window.id, __ATOMIC_ACQUIRE); id != 0) live[count++] = token_comm(id);
  for (uint32_t i = 0; i < kEnvelopes; ++i) {
    Envelope& place = envelopes.table[i];
    uint32_t k = 0;
    while (k < count && live[k] != place.comm) ++k;
    if (place.comm != 0 && k == count) {
      if (place.comm != kNobody) {
        set_irregular(kForgotten);
        not_counted(place.comm);
        __atomic_store_n(&in_use, in_use - 1, __ATOMIC_RELAXED);
      }
      __atomic_store_n(&place.comm, kNobody, __ATOMIC_RELEASE);
    }
  }
}

/// Under the lock. A table that is nearly full is left to kOtherTags and to wildcards, once it has been swept.
Envelope* claim_or_sweep(uint64_t comm, int32_t peer, int32_t tag, uint32_t reach, bool always) {
  for (const bool swept : {false, true}) {
    if (always || in_use < kEnvelopesInUse)
      if (Envelope* place = claim(comm, peer, tag, reach); place != nullptr) return place;
    const uint32_t generation = handle_generation.load(std::memory_order_relaxed);
    if (swept || generation == swept_at) break;
    __atomic_store_n(&swept_at, generation, __ATOMIC_RELAXED);
    sweep();
  }
  return nullptr;
}

}  // namespace

void envelopes_prepare(Section& section) {
  envelopes = {section.envelopes, &section.irregular, true};
  hang::section = &section;
  __atomic_store_n(&section.unused_envelopes, ~0u, __ATOMIC_RELEASE);
  __atomic_store_n(&section.histories_end, 1, __ATOMIC_RELEASE);
  in_use = 0;
  swept_at = ~0u;
}

uint32_t envelopes_swept() { return __atomic_load_n(&sweeps, __ATOMIC_ACQUIRE); }

void envelopes_counted(Freed& freed, uint64_t swept) {
  SpinGuard guard(lock);
  if (sweeps == swept) __atomic_store_n(&freed.uncounted, 0, __ATOMIC_RELEASE);
}

bool envelopes_forget(uint64_t comm) {
  SpinGuard guard(lock);
  bool any = false;
  for (uint32_t i = 0; i < kEnvelopes; ++i)
    if (envelopes.table[i].comm == comm) {
      any = true;
      __atomic_store_n(&in_use, in_use - 1, __ATOMIC_RELAXED);
      __atomic_store_n(&envelopes.table[i].comm, kNobody, __ATOMIC_RELEASE);
    }
  return any;
}

[[gnu::noinline]] Envelope* envelope_slow(uint64_t comm, int32_t peer, int32_t tag) {
  const bool wild = is_wild_envelope(peer, tag);
  const uint32_t reach = envelope_reach(peer, tag);
  if (Envelope* place = find(comm, peer, tag, reach); place != nullptr) return place;
  if (!wild && __atomic_load_n(&in_use, __ATOMIC_RELAXED) >= kEnvelopesInUse &&
      __atomic_load_n(&swept_at, __ATOMIC_RELAXED) == handle_generation.load(std::memory_order_relaxed))
    if (Envelope* place = find(comm, peer, kOtherTags, kLongReach); place != nullptr) return place;
  SpinGuard guard(lock);
  Envelope* place = find(comm, peer, tag, reach);  // another thread may have been faster
  if (place == nullptr) place = claim_or_sweep(comm, peer, tag, reach, wild);
  if (place == nullptr && !wild) place = find(comm, peer, kOtherTags, kLongReach);
  if (place == nullptr && !wild) place = claim(comm, peer, kOtherTags, kLongReach);
  if (place == nullptr) set_irregular(kLostEnvelope);
  return place;
}

}  // namespace resil::hang
