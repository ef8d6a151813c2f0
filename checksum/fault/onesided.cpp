// SPDX-License-Identifier: Apache-2.0
//
// Faults of one-sided operations: the library is given a changed copy of what is put, which it may read until the epoch
// is over; what has been got is changed when the epoch is over and nobody has looked at it yet. See engine.h.

#include "checksum/fault/engine.h"
#include "checksum/fault/pool.h"
#include "shim/base/spinlock.h"
#include "shim/model/event.h"
#include "shim/tables/type_maps.h"

namespace resil::fault {

namespace {

struct Retained {
  uint64_t window;
  char* memory;  ///< the copy that the library reads; null: a free place
  char* buffer;  ///< the address that it was given
  char* origin;  ///< the program's buffer
  Packet change;  ///< modify: the packet in it; count 0: nothing changes
  uint64_t change_at, change_bytes;
};
constexpr unsigned kRetained = 4096;
Retained retained[kRetained];

struct Get {
  uint64_t window;
  Packet packet;
  CallId id;
  int32_t peer;
  char* kept;
  bool used;
};
constexpr unsigned kGets = kArrivals;
Get gets[kGets];

SpinLock lock;

}  // namespace

void retain_put(uint64_t window, PerThread& mine) {
  const bool changes = mine.changes;
  if (changes) type_map_hold(mine.change_in.type);
  SpinGuard guard(lock);
  for (Retained& place : retained)
    if (place.memory == nullptr) {
      place = {window,         mine.shadow,    mine.shadow_buffer, buffer_of(mine.send),
               mine.change_in, mine.change_at, mine.change_bytes};
      place.change.count = changes ? place.change.count : 0;
      return;
    }
}  // without a place it is kept for good

void retain_get(Event& e, PerThread& mine) {
  Packet packet;
  if (e.result == 0 && block_at(*e.thread, mine.layout, 0, &packet)) {
    SpinGuard guard(lock);
    for (Get& get : gets)
      if (!get.used) {
        type_map_hold(packet.type);
        get = {e.object, packet, e.id, block_partner(mine.layout, 0), mine.kept, true};
        return;
      }
  }
  pool.release(mine.kept);
}

void epoch_ends(uint64_t window) {
  for (Retained& place : retained) {
    if (place.memory == nullptr || place.window != window || place.change.count == 0) continue;
    unsigned char bytes[32];
    Packet copied = place.change;
    copied.buffer = place.buffer + (place.change.buffer - place.origin);
    copied.read(place.change_at, place.change_bytes, bytes);
    place.change.write(place.change_at, place.change_bytes, bytes);
    type_map_release(place.change.type);
    place.change.count = 0;
  }
}

void epoch_ended(Event& e, PerThread& mine) {
  {
    SpinGuard guard(lock);
    for (Retained& place : retained)
      if (place.memory != nullptr && place.window == e.object) {
        pool.release(place.memory);
        place = {};
      }
  }
  unsigned count = 0;
  for (Get& get : gets)
    if (get.used && get.window == e.object)
      mine.arrivals[count++] = {get.packet, get.id, get.peer, -1, 0, 0, get.kept, false, nullptr, nullptr};
  if (count == 0) return;
  if (e.result == 0) inject_received(mine, count, false);
  for (Get& get : gets)
    if (get.used && get.window == e.object) {
      type_map_release(get.packet.type);
      pool.release(get.kept);
      get.used = false;
    }
}

}  // namespace resil::fault
