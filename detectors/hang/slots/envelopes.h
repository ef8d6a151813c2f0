// SPDX-License-Identifier: Apache-2.0
//
// The writing side of Section::envelopes: how many messages this rank has sent and awaited with each envelope. A hash
// table without deletion; a place whose communicator is gone may be taken by another envelope. Threads of the program.
#pragma once

#include <cstdint>

#include "detectors/hang/slots/layout.h"

namespace resil::hang {

constexpr uint64_t kNobody = 1;  ///< Envelope::comm of a place that is taken and has no communicator (any more)

constexpr uint32_t kEnvelopesInUse = kEnvelopes / 4 * 3;  ///< from then on new tags are counted under kOtherTags

/// Home of an envelope in the table. It lies there or in one of the envelope_reach() places that follow, round the end.
constexpr uint32_t envelope_home(uint64_t comm, int32_t peer, int32_t tag) {
  const uint64_t key = comm + (uint64_t{static_cast<uint32_t>(peer)} << 32 | static_cast<uint32_t>(tag));
  return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15) >> 53);
}
static_assert(kEnvelopes == 1u << 11);

/// Those of wildcards are never counted with others: what they took is counted elsewhere again.
constexpr bool is_wild_envelope(int32_t peer, int32_t tag) { return peer == ring::kAnySource || tag == ring::kAnyTag; }
constexpr uint32_t kShortReach = 32, kLongReach = 128;
constexpr uint32_t envelope_reach(int32_t peer, int32_t tag) {
  return tag == kOtherTags || is_wild_envelope(peer, tag) ? kLongReach : kShortReach;
}

struct Envelopes {
  Envelope* table;  ///< Section::envelopes
  uint32_t* irregular;  ///< Section::irregular
  bool concurrent;  ///< several threads may call MPI at a time
};
extern Envelopes envelopes;
void envelopes_prepare(Section& section);

/// The places of a communicator that is gone, of which nobody counts any more; 2,048 looks. True: there were some.
bool envelopes_forget(uint64_t comm);

/// How often places have been taken from communicators that are gone.
uint32_t envelopes_swept();
/// What was freed is counted to the end, if no place has been taken since then.
void envelopes_counted(Freed& freed, uint64_t swept);

/// Never inlined: a first message, or a table that is nearly full. Null: no place; kLostEnvelope is set.
Envelope* envelope_slow(uint64_t comm, int32_t peer, int32_t tag);

/// `peer`: world rank or kAnySource; `tag`: or kAnyTag. May be that of other tags: see counts_exactly().
[[gnu::always_inline]] inline Envelope* envelope_of(uint64_t comm, int32_t peer, int32_t tag) {
  Envelope* place = &envelopes.table[envelope_home(comm, peer, tag)];
  if (__atomic_load_n(&place->comm, __ATOMIC_ACQUIRE) == comm && place->peer == peer && place->tag == tag) [[likely]]
    return place;
  return envelope_slow(comm, peer, tag);
}

inline bool counts_exactly(const Envelope& envelope) { return envelope.tag != kOtherTags; }

/// Adds one and returns the new value.
[[gnu::always_inline]] inline uint64_t count_one(uint64_t& counter) {
  if (envelopes.concurrent) return __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
  const uint64_t value = __atomic_load_n(&counter, __ATOMIC_RELAXED) + 1;
  __atomic_store_n(&counter, value, __ATOMIC_RELAXED);
  return value;
}

inline void set_irregular(uint32_t flag) {
  if ((__atomic_load_n(envelopes.irregular, __ATOMIC_RELAXED) & flag) != flag)
    __atomic_fetch_or(envelopes.irregular, flag, __ATOMIC_RELAXED);
}

}  // namespace resil::hang
