// SPDX-License-Identifier: Apache-2.0
//
// The table of windows. A window is entered when its creating call returns and taken out when MPI_Win_free is entered;
// its place, with the memory that it has come to, serves the next one.

#include "checksum/rma/window.h"

#include <cstring>

#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::rma {

namespace {

/// World ranks of a communicator's members; shared by the windows made on it.
struct Members {
  uint64_t comm;
  int32_t* world;
  uint32_t size, uses;
};

constexpr uint32_t kBuckets = 2 * kMaxWindows, kMembers = 256;
constexpr uint64_t kReserved = ~uint64_t{0};  // handle of a place that is being filled

Window* windows;  // kMaxWindows of them
std::atomic<uint32_t>
    buckets[kBuckets];  // handle -> index + 1; linear probing, never emptied: a free window ends no chain
uint32_t window_count;  // places ever used
Members members[kMembers];
SpinLock table_lock;

uint32_t bucket_of(uint64_t handle) { return static_cast<uint32_t>(mix64(handle)) % kBuckets; }

/// Under the lock: every place keeps its bucket; a place that has another handle than before gets a new chain.
void index_handle(uint64_t handle, uint32_t place) {
  for (uint32_t i = bucket_of(handle), probes = 0; probes < kBuckets; i = (i + 1) % kBuckets, ++probes) {
    const uint32_t there = buckets[i].load(std::memory_order_relaxed);
    if (there == 0 || there == place + 1) {
      buckets[i].store(place + 1, std::memory_order_release);
      return;
    }
  }
}

Window* probe(uint64_t handle) {
  for (uint32_t i = bucket_of(handle), probes = 0; probes < kBuckets; i = (i + 1) % kBuckets, ++probes) {
    const uint32_t place = buckets[i].load(std::memory_order_acquire);
    if (place == 0) return nullptr;
    if (__atomic_load_n(&windows[place - 1].handle, __ATOMIC_ACQUIRE) == handle) return &windows[place - 1];
  }
  return nullptr;
}

/// Under the lock. A chain fills up with places whose handle has changed; then all are entered anew.
void index_again() {
  for (auto& bucket : buckets) bucket.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < window_count; ++i)
    if (windows[i].handle != 0 && windows[i].handle != kReserved) index_handle(windows[i].handle, i);
}

/// Under the lock.
const int32_t* members_find(uint64_t comm) {
  for (Members& m : members)
    if (m.comm == comm && m.world != nullptr) {
      m.uses += 1;
      return m.world;
    }
  return nullptr;
}

const int32_t* members_of(CommInfo& comm, bool* ok) {
  *ok = true;
  if (comm.world_ranks_are_ranks) return nullptr;
  {
    Guard guard(table_lock);
    if (const int32_t* known = members_find(comm.ring->id); known != nullptr) return known;
  }
  const auto size = static_cast<uint32_t>(comm.size);
  auto* world = memory::map_array<int32_t>(size);
  for (uint32_t i = 0; world != nullptr && i < size; ++i) world[i] = comm_world_rank(comm, static_cast<int>(i));
  Members old = {};
  const int32_t* used = nullptr;
  {
    Guard guard(table_lock);
    used = members_find(comm.ring->id);
    Members* place = nullptr;
    for (Members& m : members)
      if (m.uses == 0 && (place == nullptr || m.world == nullptr)) place = &m;
    if (used != nullptr || place == nullptr || world == nullptr) {
      old = {0, world, size, 0};  // another thread was faster, or there is no room
    } else {
      old = *place;
      *place = {comm.ring->id, world, size, 1};
      used = world;
    }
  }
  memory::unmap_array(old.world, old.size);
  *ok = used != nullptr;
  return used;
}

void members_drop(const int32_t* world) {
  for (Members& m : members)
    if (m.world == world && world != nullptr && m.uses != 0) m.uses -= 1;
}

/// Why no operation on a window of this communicator can be checked by its target; the same answer on all members.
Reason why_not(CommInfo& comm, const int32_t* world, bool members_known) {
  Reason why = Reason::kNone;
  if (!ledger::connected()) return Reason::kNotConnected;
  if (comm.index < 2 || (comm.ring->flags & 3) || comm.remote_size >= 0) return Reason::kUnknownCommunicator;
  if (!members_known) return Reason::kMemory;
  for (int i = 0; i < comm.size; ++i)
    if ((world != nullptr ? world[i] : i) < 0) return Reason::kOtherWorld;
  return why;
}

uint64_t make_id(uint64_t comm, uint64_t ordinal) {
  return hash_combine(hash_combine(comm, ordinal), 0x77696e646f77) | 1;
}

}  // namespace

bool windows_create() {
  windows = memory::map_array<Window>(kMaxWindows);
  return windows != nullptr;
}

Window* window_find(uint64_t handle) {
  if (Window* found = probe(handle); found != nullptr) [[likely]]
    return found;
  Guard guard(table_lock);  // not there, or another thread is entering all handles anew
  for (uint32_t i = 0; i < window_count; ++i)
    if (windows[i].handle == handle) return &windows[i];
  return nullptr;
}

Window* window_by_id(uint64_t id) {
  Guard guard(table_lock);
  for (uint32_t i = 0; i < window_count; ++i)
    if (windows[i].handle != 0 && windows[i].id == id) return &windows[i];
  return nullptr;
}

bool shares_memory(const Window& window) {
  Guard guard(table_lock);
  for (uint32_t i = 0; i < window_count; ++i) {
    const Window& other = windows[i];
    if (&other == &window || other.handle == 0 || other.handle == kReserved) continue;
    if (other.flavor == WindowFlavor::kDynamic ||
        (other.base < window.base + window.bytes && window.base < other.base + other.bytes))
      return true;
  }
  return false;
}

int world_rank(const Window& window, int rank) {
  return window.world_ranks != nullptr ? window.world_ranks[rank] : rank;
}

int group_rank(const Window& window, int world_rank, int hint) {
  if (window.world_ranks == nullptr) return world_rank < window.size ? world_rank : -1;
  for (int i = 0; i < window.size; ++i) {
    const int rank = (hint + i) % window.size;
    if (window.world_ranks[rank] == world_rank) return rank;
  }
  return -1;
}

Target* target_of(Window& window, int rank) {
  if (__atomic_load_n(&window.targets, __ATOMIC_ACQUIRE) == nullptr ||
      window.targets_room < static_cast<uint32_t>(window.size)) {
    auto* made = memory::map_array<Target>(static_cast<size_t>(window.size));
    if (made == nullptr) return nullptr;
    Guard guard(window.lock);
    if (window.targets != nullptr && window.targets_room >= static_cast<uint32_t>(window.size)) {
      memory::unmap_array(made, static_cast<size_t>(window.size));  // another thread was faster
    } else {
      memory::unmap_array(window.targets, window.targets_room);
      window.targets_room = static_cast<uint32_t>(window.size);
      __atomic_store_n(&window.targets, made, __ATOMIC_RELEASE);
    }
  }
  return &window.targets[rank];
}

int32_t* ranks_room(int32_t** array, uint32_t* room, uint32_t count) {
  if (*room < count) {
    auto* made = memory::map_array<int32_t>(count);
    if (made == nullptr) return nullptr;
    memory::unmap_array(*array, *room);
    *array = made;
    *room = count;
  }
  return *array;
}

void creating(Event& e) {
  // The calls are collective and come in the same order on all members, as those that make communicators.
  e.derived_id = e.comm != nullptr ? e.comm->children.fetch_add(1, std::memory_order_relaxed) : 0;
}

void created(Event& e) {
  if (e.result != 0 || e.comm == nullptr || e.new_window == nullptr) return;
  const uint64_t handle = backend->windows->handle_at(e.new_window);
  WindowInfo info;
  if (!backend->windows->describe(handle, &info)) {
    add_note_format(messages::checksum::window_unknown, call_info(e.id).name);
    return;
  }
  add_to(counters.windows, 1);
  bool members_known;
  Window* window = nullptr;
  {
    Guard guard(table_lock);
    for (uint32_t i = 0; i < window_count && window == nullptr; ++i)
      if (windows[i].handle == 0) window = &windows[i];
    if (window == nullptr && window_count < kMaxWindows) window = &windows[window_count++];
    if (window != nullptr) {
      window->id = 0;
      window->handle = kReserved;
    }
  }
  if (window == nullptr) {
    add_note(messages::checksum::many_windows);
    return;
  }
  const int32_t* world = members_of(*e.comm, &members_known);
  Window& w = *window;
  w.comm = e.comm->ring->id;
  w.size = e.comm->size;
  w.rank = e.comm->rank;
  w.world_ranks = world;
  w.why = why_not(*e.comm, world, members_known);
  w.bytes = info.size;
  w.unit = info.displacement_unit;
  w.flavor = info.flavor;
  // The program's own idea of where its memory is, not the library's.
  w.base = info.flavor == WindowFlavor::kDynamic  ? nullptr
           : info.flavor == WindowFlavor::kCreate ? static_cast<const char*>(e.receive.buffer)
                                                  : *static_cast<const char* const*>(e.receive.buffer);
  w.lock_all = w.fence_open = false;
  w.off.store(false, std::memory_order_relaxed);
  w.off_told = w.overflow = w.acknowledged = w.confirm_again = false;
  w.operation_count = w.operations_open = 0;
  w.epoch = w.confirm = w.confirm_missing = 0;
  w.exposed_count = w.accessed_count = 0;
  w.rounds = 0;
  while ((int64_t{1} << w.rounds) < w.size) w.rounds += 1;
  w.barrier[0] = w.barrier[1] = {};
  if (w.targets != nullptr) memset(w.targets, 0, w.targets_room * sizeof(Target));
  {
    Guard guard(table_lock);
    w.id = make_id(w.comm, e.derived_id);
    __atomic_store_n(&w.handle, handle, __ATOMIC_RELEASE);
    const auto place = static_cast<uint32_t>(window - windows);
    index_handle(handle, place);
    if (probe(handle) != window) index_again();
  }
  check_placement(e, w, info);
  placement_take_pending(w);
  if (w.flavor == WindowFlavor::kShared) operation_uncovered(Reason::kSharedWindow, 1, 0);
}

void freeing(Event& e) {
  Window* window = window_find(e.object);
  if (window == nullptr) return;
  give_up_operations(*window, Epoch::kNone, -1, Reason::kOneSided);
  snapshot_drop(*window);
  Packet* packet;
  {
    Guard guard(table_lock);
    __atomic_store_n(&window->handle, 0, __ATOMIC_RELEASE);
    members_drop(window->world_ranks);
  }
  {
    Guard guard(window->lock);
    packet = window->first;
    window->first = window->last = nullptr;
  }
  while (packet != nullptr) {
    Packet* next = packet->next;
    packet_release(packet);
    packet = next;
  }
}

}  // namespace resil::rma
