// SPDX-License-Identifier: Apache-2.0
//
// The communicator table: handle -> job-wide id, counters, world ranks. Entries appear when a communicator is created
// or first seen and go when its attribute is deleted, so a reused handle never meets an old entry. Creation takes a
// short lock (never across an MPI call); lookups take none.

#include <cstdio>
#include <cstring>

#include "shim/abi/backend.h"
#include "shim/abi/handler_change.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/runtime/memory.h"
#include "shim/tables/freed.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

// Entry 0 of the ring's section is "none", entry 1 collects the communicators that found no place.
constexpr uint32_t kOthers = 1, kFirst = 2;
constexpr uint32_t kOrdinals = 4096;

struct Ordinal {
  uint64_t base;
  uint64_t count;
};

CommInfo* infos;  // by index
Ordinal* ordinals;  // how many communicators were created from equal circumstances, by hash of those
uint32_t* buckets;  // handle hash -> index, open addressing; 0 empty, ~0 deleted
uint32_t bucket_count;
SpinLock lock;
bool ordinals_full;  // an id by its ordinal may be an earlier one's

uint32_t bucket_of(uint64_t handle) { return static_cast<uint32_t>(mix64(handle)) & (bucket_count - 1); }

/// Index of a handle, 0 if unknown. Lock-free: buckets and handles are single words that change only under the lock.
uint32_t find(uint64_t handle) {
  for (uint32_t i = bucket_of(handle), probes = 0; probes < bucket_count; i = (i + 1) & (bucket_count - 1), ++probes) {
    uint32_t index = __atomic_load_n(&buckets[i], __ATOMIC_ACQUIRE);
    if (index == 0) return 0;
    if (index != ~0u && __atomic_load_n(&infos[index].handle, __ATOMIC_ACQUIRE) == handle) return index;
  }
  return 0;
}

void insert(uint64_t handle, uint32_t index) {
  for (uint32_t i = bucket_of(handle);; i = (i + 1) & (bucket_count - 1)) {
    if (buckets[i] == 0 || buckets[i] == ~0u) {
      __atomic_store_n(&buckets[i], index, __ATOMIC_RELEASE);
      return;
    }
  }
}

/// Number of the communicator among those with an equal base, from 0. Ids stay unique while the table has room.
uint64_t ordinal_among_equals(uint64_t base) {
  SpinGuard guard(lock);
  for (uint32_t i = static_cast<uint32_t>(base) & (kOrdinals - 1), probes = 0; probes < kOrdinals;
       i = (i + 1) & (kOrdinals - 1), ++probes) {
    if (ordinals[i].base == base) return ordinals[i].count++;
    if (ordinals[i].base == 0) {
      ordinals[i] = {base, 1};
      return 0;
    }
  }
  __atomic_store_n(&ordinals_full, true, __ATOMIC_RELAXED);
  return 0;
}

bool is_of_group(CallId id) {
  return id == CallId::kMPI_Comm_create_group || id == CallId::kMPI_Comm_create_from_group;
}

/// Named by who is left: the ranks disagree about what failed, and so about how many communicators were made before.
bool is_of_survivors(CallId id) { return id == CallId::kMPIX_Comm_shrink || id == CallId::kMPIX_Comm_ishrink; }

/// Collective over the group only: its members, and the tag or string; then the ordinal among equals.
uint64_t group_base(const Event& e) {
  constexpr int kMost = 1024;
  int few[1], size = 0;  // 4 KiB are too much for a small stack
  auto* members = static_cast<int*>(scratch_acquire(*e.thread, kMost * sizeof(int), e.frame));
  uint64_t base = hash_text(call_info(e.id).name);
  if (backend->group_world_ranks(e.group, members != nullptr ? kMost : 1, members != nullptr ? members : few, &size))
    for (int i = 0; i < size; ++i)
      base = hash_combine(base, static_cast<uint64_t>(members != nullptr ? members[i] : few[i]));
  if (members != nullptr) scratch_release(*e.thread, members);
  return e.id == CallId::kMPI_Comm_create_from_group ? hash_combine(base, hash_text(e.string))
                                                     : hash_combine(base, static_cast<uint64_t>(e.tag));
}

/// What MPI says of a communicator's groups.
struct Groups {
  int size = 1, rank = 0, remote = -1;
  bool known;  ///< else it has no such communicator
  explicit Groups(uint64_t handle) : known(backend->comm_shape(handle, &size, &rank, &remote)) {}
};

CommInfo* add(uint64_t handle, uint64_t id, uint32_t flags, const Groups& groups, const char* fallback_name,
              uint64_t site = 0) {
  uint32_t index = 0;
  {
    SpinGuard guard(lock);
    if (uint32_t known = find(handle); known != 0) return &infos[known];  // another thread was faster
    for (uint32_t i = kFirst; i < runtime.comm_count && index == 0; ++i)
      if (runtime.comms[i].id == 0) index = i;
    if (index == 0) return &infos[kOthers];
    CommInfo& info = infos[index];
    ring::Comm& entry = runtime.comms[index];
    uint32_t generation = entry.generation + 1;
    entry = {};
    entry.generation = generation;
    entry.handle = handle;
    entry.size = info.size = groups.size;
    entry.rank = info.rank = groups.rank;
    entry.remote_size = info.remote_size = groups.remote;
    entry.flags = flags;
    entry.site = site;
    info.ring = &entry;
    info.index = index;
    info.children.store(0);
    info.degree_in = info.degree_out = -1;
    info.world_ranks_are_ranks = false;
    for (auto& cached : info.world_rank_cache) cached.store(0, std::memory_order_relaxed);
    __atomic_store_n(&info.handle, handle, __ATOMIC_RELEASE);
    __atomic_store_n(&entry.id, id, __ATOMIC_RELEASE);
    insert(handle, index);
  }
  CommInfo& info = infos[index];
  backend->comm_name(handle, info.ring->name, sizeof(info.ring->name));
  if (info.ring->name[0] == 0) {
    strncpy(info.ring->name, fallback_name, sizeof(info.ring->name) - 1);
    info.ring->unnamed = 1;
  }
  if (!backend->comm_attach(handle, &info)) {
    comm_forget(&info);  // without the attribute nobody would tell when the handle is reused
    return &infos[kOthers];
  }
  return &info;
}

/// Readers of the ring may see it half written, and take no more than its length.
void set_name(CommInfo& info, const char* name) {
  strncpy(info.ring->name, name, sizeof(info.ring->name) - 1);
  info.ring->unnamed = 0;
}

uint64_t members_hash(uint64_t handle, int size, bool remote) {
  uint64_t hash = 0x6d656d62;
  for (int first = 0; first < size;) {
    int ranks[256], world[256], count = size - first < 256 ? size - first : 256;
    for (int i = 0; i < count; ++i) ranks[i] = first + i;
    if (!backend->comm_world_ranks(handle, remote, count, ranks, world))
      return hash_combine(hash, static_cast<uint64_t>(size));
    for (int i = 0; i < count; ++i) hash = hash_combine(hash, static_cast<uint64_t>(world[i]));
    first += count;
  }
  return hash;
}

}  // namespace

bool tables_create() {
  bucket_count = 4 * runtime.comm_count;
  while (bucket_count & (bucket_count - 1)) bucket_count &= bucket_count - 1;
  size_t bytes = runtime.comm_count * sizeof(CommInfo) + kOrdinals * sizeof(Ordinal) + bucket_count * sizeof(uint32_t);
  infos = static_cast<CommInfo*>(memory::map(bytes));
  if (infos == nullptr) return false;
  ordinals = reinterpret_cast<Ordinal*>(infos + runtime.comm_count);
  buckets = reinterpret_cast<uint32_t*>(ordinals + kOrdinals);
  infos[kOthers].ring = &runtime.comms[kOthers];
  infos[kOthers].index = kOthers;
  infos[kOthers].handle = ~uint64_t{0};
  infos[kOthers].size = infos[kOthers].remote_size = -1;
  infos[kOthers].degree_in = infos[kOthers].degree_out = -2;
  strcpy(runtime.comms[kOthers].name, "(communicators beyond the table)");
  runtime.comms[kOthers].id = 1;
  return true;
}

uint64_t world_comm_id(int world) { return hash_combine(hash_text("MPI_COMM_WORLD"), static_cast<uint64_t>(world)); }

void comm_register_predefined() {
  const uint64_t world = backend->comm_world();
  CommInfo* info = add(world, world_comm_id(runtime.world), 0, Groups(world), "MPI_COMM_WORLD");
  info->world_ranks_are_ranks = info->index >= kFirst;
  uint64_t self = hash_combine(hash_combine(hash_text("MPI_COMM_SELF"), static_cast<uint64_t>(runtime.world)),
                               static_cast<uint64_t>(runtime.rank));
  add(backend->comm_self(), self, 0, Groups(backend->comm_self()), "MPI_COMM_SELF");
}

void comm_register_part(uint64_t handle, int part) {
  add(handle, hash_combine(world_comm_id(runtime.world), static_cast<uint64_t>(part) + 1), 0, Groups(handle),
      "MPI_COMM_WORLD");
}

void comm_renamed(uint64_t handle) {
  char name[sizeof(ring::Comm::name)] = "";
  backend->comm_name(handle, name, sizeof(name));
  SpinGuard guard(lock);
  if (const uint32_t index = find(handle); index != 0 && name[0] != 0) set_name(infos[index], name);
}

CommInfo* comm_lookup_slow(Thread& thread, uint64_t handle) {
  if (handle == backend->comm_null()) return nullptr;
  uint32_t generation = call_generation.load(std::memory_order_acquire);
  if (thread.comm_generation != generation) {
    memset(thread.comms, 0, sizeof(thread.comms));
    thread.comm_generation = generation;
  }
  uint32_t index = find(handle);
  CommInfo* info = index != 0 ? &infos[index] : nullptr;
  if (info == nullptr) {
    // Made out of sight: by a library before resil came, by MPI itself, or in another world. Its members name it.
    const Groups groups(handle);
    if (!groups.known) return nullptr;
    uint64_t base = hash_combine(hash_text("unseen"), members_hash(handle, groups.size, false));
    info = add(handle, hash_combine(base, ordinal_among_equals(base)) | 1, 3, groups, "communicator made out of sight");
  }
  thread.comms[(handle ^ (handle >> 7)) % kCommCache] = {handle, info};
  return info;
}

uint64_t comm_derive_id(Event& e) {
  uint64_t how = hash_text(call_info(e.id).name);
  if (is_of_group(e.id)) return 1;  // after the call: nobody but MPI may ask of its group before
  if (is_of_survivors(e.id)) return hash_text("survivors");  // completed when its members are known
  if (e.id == CallId::kMPI_Intercomm_create || e.id == CallId::kMPI_Intercomm_create_from_groups)
    return hash_combine(hash_text("intercommunicator"), static_cast<uint64_t>(e.tag));
  if (e.comm == nullptr) return hash_combine(how, static_cast<uint64_t>(runtime.world));
  uint64_t ordinal = e.comm->children.fetch_add(1, std::memory_order_relaxed);
  return hash_combine(hash_combine(hash_combine(0x6368696c64, e.comm->ring->id), ordinal), how);
}

void comm_creation_succeeded(Event& e) {
  if (e.id == CallId::kMPI_Comm_create_from_group || e.id == CallId::kMPI_Intercomm_create_from_groups)
    handlers_were_set.store(true, std::memory_order_relaxed);  // it is given one
  if (!is_of_group(e.id) || e.new_comm == nullptr || request_handle(e.new_comm, 0) == backend->comm_null())
    return;  // Open MPI takes MPI_GROUP_NULL, and makes nothing
  const uint64_t base = group_base(e);  // calls with equal ones are made one after the other
  e.derived_id = hash_combine(base, ordinal_among_equals(base));
}

void comm_creation_failed(Event& e) {
  if (is_of_group(e.id) || is_of_survivors(e.id)) return;
  if (e.comm != nullptr && e.id != CallId::kMPI_Intercomm_create && e.id != CallId::kMPI_Intercomm_create_from_groups)
    e.comm->children.fetch_sub(1, std::memory_order_relaxed);
}

namespace {
/// Do both sides of an intercommunicator make it by the same call?
bool is_made_by_both(CallId how) {
  return how != CallId::kMPI_Comm_accept && how != CallId::kMPI_Comm_connect && how != CallId::kMPI_Comm_join;
}
}  // namespace

void comm_register_new(Thread& thread, uint64_t handle, uint64_t derived, const CommInfo* parent, CallId how,
                       uint64_t site) {
  (void)thread;
  if (handle == backend->comm_null() || derived == 0) return;
  handle_given(HandleKind::kComm, handle);
  const Groups groups(handle);
  if (!groups.known) return;
  // Siblings (the colours of a split, the groups of a create) differ in their first member; the two sides of an
  // intercommunicator must agree, so they take both leaders in order of size.
  int zero = 0, leader = -1, remote_leader = -1;
  uint32_t flags = 0;
  bool known = backend->comm_world_ranks(handle, false, 1, &zero, &leader);
  uint64_t id = derived;
  if (groups.remote >= 0) {
    known = known && backend->comm_world_ranks(handle, true, 1, &zero, &remote_leader) && remote_leader >= 0;
    if (!known) flags = 1;  // the other side is another world (spawn, accept, connect): this id holds on this side only
    // Ranks of one world may meet by accept and connect, too: neither the parent nor the call is the same on both
    // sides.
    const bool joined = known && !is_made_by_both(how);
    if (joined) {
      id = hash_text("joined");
      flags = 4;  // several that threads make at once may be in another order on each rank
      if (backend->thread_multiple()) flags |= 2;  // so nothing on them, and on what is made of them, can be paired
    }
    id = hash_combine(id, static_cast<uint64_t>(leader < remote_leader ? leader : remote_leader));
    id = hash_combine(id, static_cast<uint64_t>(leader < remote_leader ? remote_leader : leader));
    // All members, not the leaders alone: whoever was not in an earlier one of the same leaders and tag would count
    // from another number than those who were.
    if (joined || how == CallId::kMPI_Intercomm_create || how == CallId::kMPI_Intercomm_create_from_groups) {
      const uint64_t ours = members_hash(handle, groups.size, false),
                     theirs = members_hash(handle, groups.remote, true);
      id = hash_combine(id, leader < remote_leader ? hash_combine(ours, theirs) : hash_combine(theirs, ours));
      id = hash_combine(id, ordinal_among_equals(id));
    }
  } else {
    id = hash_combine(id,
                      is_of_survivors(how) ? members_hash(handle, groups.size, false) : static_cast<uint64_t>(leader));
    if (is_of_survivors(how)) id = hash_combine(id, ordinal_among_equals(id));
  }
  if (parent != nullptr && (parent->ring->flags & 6) == 6) flags |= 6;
  const bool by_ordinal = is_of_group(how) || is_of_survivors(how) || how == CallId::kMPI_Intercomm_create ||
                          how == CallId::kMPI_Intercomm_create_from_groups || !is_made_by_both(how);
  if (by_ordinal && __atomic_load_n(&ordinals_full, __ATOMIC_RELAXED)) flags |= 2;
  char name[56];
  snprintf(name, sizeof(name), "%s of %s", call_info(how).name, parent != nullptr ? parent->ring->name : "a group");
  add(handle, id | 2, flags, groups, name, site);
}

void comm_forget(CommInfo* info) {
  if (info->index < kFirst) return;
  handle_freed(HandleKind::kComm, info->handle);
  SpinGuard guard(lock);
  for (uint32_t i = bucket_of(info->handle), probes = 0; probes < bucket_count && buckets[i] != 0;
       i = (i + 1) & (bucket_count - 1), ++probes)
    if (buckets[i] == info->index) {  // the only one
      __atomic_store_n(&buckets[i], ~0u, __ATOMIC_RELEASE);
      break;
    }
  __atomic_store_n(&info->handle, 0, __ATOMIC_RELEASE);
  info->ring->was = info->ring->id;
  __atomic_store_n(&info->ring->id, 0, __ATOMIC_RELEASE);
  handle_generation.fetch_add(1, std::memory_order_acq_rel);
  call_generation.fetch_add(1, std::memory_order_acq_rel);
}

int comm_world_rank(CommInfo& comm, int rank) {
  // The program's own error, which MPI will tell it; libraries translate such a rank by reading beyond their tables.
  if (rank < 0 || comm.index < kFirst || rank >= (comm.remote_size >= 0 ? comm.remote_size : comm.size)) return -1;
  if (comm.world_ranks_are_ranks) return rank;
  auto& cached = comm.world_rank_cache[static_cast<uint32_t>(rank) % 64];
  uint64_t value = cached.load(std::memory_order_relaxed);
  if (value >> 32 == static_cast<uint64_t>(rank) + 1) return static_cast<int>(value & 0xffffffff) - 1;
  int world = -1;
  if (!backend->comm_world_ranks(comm.handle, comm.remote_size >= 0, 1, &rank, &world)) return -1;
  cached.store((static_cast<uint64_t>(rank) + 1) << 32 | static_cast<uint32_t>(world + 1), std::memory_order_relaxed);
  return world;
}

}  // namespace resil
