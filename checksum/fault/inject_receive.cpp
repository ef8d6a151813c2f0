// SPDX-License-Identifier: Apache-2.0
//
// Faults of the receiving side: packets are changed after the library has delivered them and before anybody else has
// looked at them. See engine.h.

#include <cstring>
#include <initializer_list>

#include "checksum/fault/engine.h"
#include "checksum/fault/pool.h"
#include "shim/base/spinlock.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::fault {

namespace {

/// The last packet of each partner, communicator, kind of call and size.
struct Earlier {
  uint64_t key;
  char* packed;
};
constexpr unsigned kEarlier = 1024;
Earlier earlier[kEarlier];
SpinLock lock;

uint64_t key_of(const Arrival& a) {
  uint64_t key = a.comm ^ (a.packet.bytes * 0x9e3779b97f4a7c15);
  key = (key ^ (static_cast<uint64_t>(static_cast<uint32_t>(a.peer)) << 32)) * 0xff51afd7ed558ccd;
  key ^= call_info(a.id).attributes & kCallCollective ? static_cast<uint64_t>(a.id) + 1 : 0;
  return key | 1;
}

/// Another packet of the same size to exchange with: of the same partner, else of any.
Arrival* find_other(PerThread& mine, unsigned count, Arrival& a) {
  Arrival* found = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    Arrival& other = mine.arrivals[i];
    if (&other == &a || other.hit || other.packet.bytes != a.packet.bytes || equal(a.packet, other.packet)) continue;
    if (other.peer == a.peer) return &other;
    found = found != nullptr ? found : &other;
  }
  return found;
}

/// Would the fault make a difference? Only packets of which this is true count as eligible.
bool possible(PerThread& mine, unsigned count, Arrival& a, const Spec& spec) {
  switch (spec.kind) {
    case Kind::kStale:
    case Kind::kTruncate: return a.kept != nullptr && !equal(a.packet, 0, a.packet.bytes, a.kept);
    case Kind::kEarly:  // by a timer the first of a call: until others are looked at the data may have landed
      return (spec.delay == 0 || &a == &mine.arrivals[0]) && a.kept != nullptr && !mine.late_write.used &&
             !equal(a.packet, 0, a.packet.bytes, a.kept);
    case Kind::kDuplicate: return a.previous != nullptr && !equal(a.packet, 0, a.packet.bytes, a.previous);
    case Kind::kTranspose: return find_other(mine, count, a) != nullptr;
    default: return on_receive_side(spec.kind);
  }
}

bool truncate(Arrival& a, Draw& draw, uint64_t* position) {
  const uint64_t wanted = draw.below(a.packet.bytes);
  for (uint64_t first : {wanted, uint64_t{0}}) {
    if (equal(a.packet, first, a.packet.bytes - first, a.kept + first)) continue;
    a.packet.write(first, a.packet.bytes - first, a.kept + first);
    *position = equal(a.packet, 0, first, a.kept) ? 0 : first;  // 0: what was delivered makes no difference either
    return true;
  }
  return false;
}

bool make_early(PerThread& mine, Arrival& a, const Spec& spec, Draw& draw) {
  LateWrite& late_write = mine.late_write;
  char* packed = static_cast<char*>(pool.allocate(a.packet.bytes));
  if (packed == nullptr) return false;
  a.packet.read(0, a.packet.bytes, packed);
  a.packet.write(0, a.packet.bytes, a.kept);
  late_write.used = true;
  late_write.packet = a.packet;
  late_write.packed = packed;
  late_write.delay = spec.delay;
  late_write.looks = 1 + static_cast<uint32_t>(draw.below(2));  // of a long packet there may be no more
  type_map_hold(a.packet.type);  // until it has landed
  return true;
}

bool replace(Arrival& a, const char* packed) {
  a.packet.write(0, a.packet.bytes, packed);
  return true;
}

bool damage(PerThread& mine, unsigned count, Arrival& a, const Spec& spec, Draw& draw, Injection* injection) {
  uint64_t* position = &injection->position;
  switch (spec.kind) {
    case Kind::kFlip: return flip(a.packet, false, draw, position);
    case Kind::kSwap: return swap(a.packet, false, draw, position);
    case Kind::kZero: return zero(a.packet, draw, position);
    case Kind::kStale: return replace(a, a.kept);
    case Kind::kDuplicate: return replace(a, a.previous);
    case Kind::kTruncate: return truncate(a, draw, position);
    case Kind::kEarly: return make_early(mine, a, spec, draw);
    case Kind::kTranspose:
      if (Arrival* other = find_other(mine, count, a); other != nullptr) {
        exchange(a.packet, other->packet);
        other->hit = true;
        injection->other_peer = other->peer;
        injection->other_tag = other->tag;
        return true;
      }
      return false;
    default: return false;
  }
}

void try_specs(PerThread& mine, unsigned count, Arrival& a) {
  for (unsigned i = 0; i < engine.specs.count && !a.hit; ++i) {
    Spec& spec = engine.specs.list[i];
    Draw draw;
    uint64_t ordinal = 0;
    if (!spec.matches(a.id, a.peer, a.packet.bytes) || !possible(mine, count, a, spec) ||
        !spec.fires(engine.rank, i, &draw, &ordinal))
      continue;
    Injection injection = {spec.kind,      true, a.id,    a.peer, a.tag,  -1,         -1,
                           a.packet.bytes, 0,    ordinal, i,      a.comm, a.sequence, nullptr};
    if (!damage(mine, count, a, spec, draw, &injection)) {
      spec.spare();
      continue;
    }
    a.hit = true;
    if (spec.kind == Kind::kEarly) mine.late_write.injection = injection;  // noted when it has landed
    else note(injection);
  }
}

}  // namespace

char* take_earlier(uint64_t key) {
  SpinGuard guard(lock);
  Earlier& entry = earlier[(key >> 20) % kEarlier];
  if (entry.key != key) return nullptr;
  entry.key = 0;
  return entry.packed;
}

void put_earlier(uint64_t key, char* packed) {
  char* displaced = nullptr;
  {
    SpinGuard guard(lock);
    Earlier& entry = earlier[(key >> 20) % kEarlier];
    displaced = entry.key != 0 ? entry.packed : nullptr;
    entry = {key, packed};
  }
  pool.release(displaced);
}

void inject_received(PerThread& mine, unsigned count, bool one_of) {
  if (count == 0) return;
  for (unsigned i = 0; engine.remembers && i < count; ++i) {
    Arrival& a = mine.arrivals[i];
    a.previous = take_earlier(key_of(a));
    a.fresh = static_cast<char*>(pool.allocate(a.packet.bytes));
    if (a.fresh != nullptr) a.packet.read(0, a.packet.bytes, a.fresh);
  }
  if (one_of) {
    Draw choice(0, static_cast<uint64_t>(engine.rank), kMaxSpecs, ++mine.blocks_chosen);
    try_specs(mine, count, mine.arrivals[choice.below(count)]);
  } else {
    for (unsigned i = 0; i < count; ++i) try_specs(mine, count, mine.arrivals[i]);
  }
  for (unsigned i = 0; engine.remembers && i < count; ++i) {
    Arrival& a = mine.arrivals[i];
    // What was damaged has never arrived, and cannot arrive again.
    char* remembered = a.hit ? a.previous : a.fresh;
    pool.release(a.hit ? a.fresh : a.previous);
    if (remembered != nullptr) put_earlier(key_of(a), remembered);
  }
}

char* keep(Thread& thread, const Layout& layout) {
  const uint64_t bytes = total_bytes(thread, layout);
  char* packed = bytes != 0 ? static_cast<char*>(pool.allocate(bytes)) : nullptr;
  if (packed == nullptr) return nullptr;
  Packet packet;
  char* at = packed;
  for (int64_t i = layout.first; i < layout.end; ++i)
    if (block_at(thread, layout, i, &packet)) {
      packet.read(0, packet.bytes, at);
      at += packet.bytes;
    }
  return packed;
}

unsigned gather_arrivals(Thread& thread, PerThread& mine, const Layout& layout, CallId id, int32_t tag,
                         uint64_t sequence, const char* kept) {
  unsigned count = 0;
  Packet packet;
  for (int64_t i = layout.first; i < layout.end && count < kArrivals; ++i) {
    if (!block_at(thread, layout, i, &packet)) continue;
    mine.arrivals[count++] = {packet,
                              id,
                              block_partner(layout, i),
                              tag,
                              layout.comm != nullptr ? layout.comm->ring->id : 0,
                              sequence,
                              kept,
                              false,
                              nullptr,
                              nullptr};
    kept += kept != nullptr ? packet.bytes : 0;
  }
  return count;
}

}  // namespace resil::fault
