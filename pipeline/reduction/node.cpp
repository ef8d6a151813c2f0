// SPDX-License-Identifier: Apache-2.0
//
// See node.h. The file in /dev/shm: a page of the owner's, then bays. A bay has room for its head from its first
// communicator on, for folds of groups where that is large, and for the rest from its first large reduction on.

#include "pipeline/reduction/node.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "pipeline/reduction/deposits.h"
#include "pipeline/reduction/groups.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/ring/node_memory.h"
#include "shim/runtime/mailbox.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

constexpr size_t kPage = 4096, kHead = 6 * kPage;
constexpr size_t kStride = kNodeSegment + kPage;  // a cell's head lies at the end of a page, its data begin one
constexpr size_t kFolds = kHead + kPage + 4 * kStride, kFoldBytes = 6 * kPage;  // of groups
constexpr size_t kBay = kFolds + kFoldBytes;
constexpr int32_t kBays = 16;
constexpr size_t kFile = kPage + kBays * kBay;

// Within a bay. The tiny cells' stride keeps neighbouring lines for one cell: processors fetch lines in pairs. There
// are many: where ranks share a processor, one shows a batch of contributions (to MPI_Reduce, MPI_Scan) in its turn.
constexpr RingShape kTiny = {0, 256, 128, sizeof(CellHead), 128, 128 - sizeof(CellHead), kFolds};
constexpr RingShape kSmall = {
    64, 256 + 128 * 128, 1408, sizeof(CellHead), 4, 1408 - sizeof(CellHead), kFolds + 128 * 128};
constexpr RingShape kSegments = {128, kHead + kPage - 64, kStride, 64, 2, kNodeSegment, 0};
constexpr RingShape kResults = {192, kSegments.cells + 2 * kStride, kStride, 64, 2, kNodeSegment, 0};
constexpr size_t kControls[] = {kTiny.control, kSmall.control, kSegments.control, kResults.control};
static_assert(kSmall.most == kNodeMostFolded && kTiny.most <= kNodeMostFolded);
static_assert(kSmall.cells + kSmall.count * kSmall.stride <= kHead);
static_assert(kResults.cells + kStride + kResults.data + kResults.most <= kFolds);
static_assert(kSmall.folds + kSmall.count * kSmall.stride <= kBay);

NodeMemory* own;
std::atomic<NodeGroup*> users[kBays];  // of this rank's bays
bool crowded;

struct Opened {
  int32_t world_rank;
  char* memory;
};
Opened opened[1024];
uint32_t opened_count;
SpinLock lock;

/// By index of communicator: the state of the one that had the entry in that generation.
struct Known {
  std::atomic<uint64_t> generation;  ///< and 1 in the lowest bit
  std::atomic<NodeGroup*> group;
};
Known known[4096];

char* bay_of(char* memory, int32_t bay) { return memory + kPage + static_cast<size_t>(bay) * kBay; }

char* find_opened(int world_rank) {
  SpinGuard guard(lock);
  for (uint32_t i = 0; i < opened_count; ++i)
    if (opened[i].world_rank == world_rank) return opened[i].memory;
  return nullptr;
}

/// Ranks of a node in tests that simulate several on one machine; 0: as it is.
int64_t simulated_node() { return config_integer("RESIL_NODE_RANKS"); }

/// Another rank's memory, or this one's; null: out of reach.
char* memory_of(int world_rank) {
  if (world_rank == runtime.rank) return reinterpret_cast<char*>(own);
  const int64_t node = simulated_node();
  if (world_rank < 0 || (node > 0 && world_rank / node != runtime.rank / node)) return nullptr;
  if (char* memory = find_opened(world_rank); memory != nullptr) return memory;
  auto* memory = reinterpret_cast<char*>(node_memory_open(world_rank, NodeUse::kReductions));
  if (memory == nullptr || reinterpret_cast<NodeMemory*>(memory)->bytes != kFile) return nullptr;
  SpinGuard guard(lock);
  if (opened_count < sizeof(opened) / sizeof(opened[0])) opened[opened_count++] = {world_rank, memory};
  return memory;
}

bool is_quiet(const NodeGroup& group) {
  return group.tiny.is_quiet() && group.small.is_quiet() && group.segments.is_quiet() && group.results.is_quiet();
}

void discard(NodeGroup* group) {
  release(group->bases);
  release(group);
}

int allowed(pid_t process) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(process, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

/// Of this node, for all its ranks. A launcher binds a rank to some, and is bound to none itself; it is not in sight
/// from a container (parent 0: this process).
int processors() {
  int count = allowed(0);
  if (runtime.local_size > count) count = std::max(count, allowed(getppid()));
  return count > 1 ? count : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

/// A bay of this rank's that nobody uses or reads any more; -1: there is none.
int32_t claim(NodeGroup* group, int size) {
  for (int32_t bay = 0; bay < kBays; ++bay) {
    NodeGroup* user = users[bay].load(std::memory_order_acquire);
    if (user != nullptr && (!user->gone.load(std::memory_order_acquire) || !is_quiet(*user))) continue;
    if (!users[bay].compare_exchange_strong(user, group, std::memory_order_acq_rel)) continue;
    if (user != nullptr) discard(user);
    const size_t place = kPage + static_cast<size_t>(bay) * kBay;
    if (node_memory_reserve(NodeUse::kReductions, place, kHead) &&
        (size < kGroupedRanks || node_memory_reserve(NodeUse::kReductions, place + kFolds, kFoldBytes)))
      return bay;
    users[bay].store(nullptr, std::memory_order_release);
    return -1;
  }
  return -1;
}

/// What a rank says of itself.
struct Offer {
  int64_t bay;  ///< -1: it cannot
  uint64_t first;  ///< above all numbers that its bay has had
};

Offer make_offer(const Call& c, NodeGroup* group, char** memories) {
  if (own == nullptr) return {-1, 0};
  for (int r = 0; r < c.size; ++r)
    if ((memories[r] = memory_of(comm_world_rank(*c.info, r))) == nullptr) return {-1, 0};
  const int32_t bay = claim(group, c.size);
  if (bay < 0) return {-1, 0};
  const char* head = bay_of(reinterpret_cast<char*>(own), bay);
  uint64_t first = 1;
  for (size_t control : kControls)
    if (const uint64_t at = __atomic_load_n(reinterpret_cast<const uint64_t*>(head + control), __ATOMIC_RELAXED);
        at > first)
      first = at;
  return {bay, first};
}

void open_rings(const Call& c, NodeGroup* group, uint64_t first) {
  group->tiny.open(kTiny, group->bases, c.size, c.rank, first);
  group->small.open(kSmall, group->bases, c.size, c.rank, first);
  group->segments.open(kSegments, group->bases, c.size, c.rank, first);
  group->results.open(kResults, group->bases, c.size, c.rank, first);
}

/// All ranks of the communicator at once. An error of MPI's counts as a no: the reduction meets it again.
NodeGroup* settle(const Call& c) {
  auto* group = reinterpret_cast<NodeGroup*>(allocate(sizeof(NodeGroup)));
  memset(static_cast<void*>(group), 0, sizeof(*group));
  const auto size = static_cast<size_t>(c.size);
  auto* bases = reinterpret_cast<char**>(allocate(size * sizeof(char*)));
  auto* offers = reinterpret_cast<Offer*>(allocate(size * sizeof(Offer)));
  group->bases = bases;
  const Offer mine = make_offer(c, group, bases);
  group->bay = static_cast<int32_t>(mine.bay);
  group->shared = backend->collectives->allgather(c.comm, &mine, sizeof(mine), offers) == 0;
  uint64_t first = 1;
  for (size_t r = 0; r < size && group->shared; ++r) {
    if (offers[r].first > first) first = offers[r].first;
    group->shared = offers[r].bay >= 0 && offers[r].bay < kBays;
  }
  if (group->shared) {
    for (size_t r = 0; r < size; ++r) bases[r] = bay_of(bases[r], static_cast<int32_t>(offers[r].bay));
    open_rings(c, group, first);
  } else if (group->bay >= 0) {
    users[group->bay].store(nullptr, std::memory_order_release);
    group->bay = -1;
  }
  release(offers);
  backend->collectives->put_state(c.comm, group);
  return group;
}

const PoolShown* shown_by(int world_rank) {
  char* memory = memory_of(world_rank);
  return memory != nullptr ? reinterpret_cast<PoolShown*>(memory + kNodeMemoryBegin) : nullptr;
}

/// Ranks on this one's node.
int node_ranks() {
  const int64_t node = simulated_node();
  if (node <= 0) return runtime.local_size;
  const int64_t first = runtime.rank / node * node;
  return static_cast<int>(first + node <= runtime.size ? node : runtime.size - first);
}

/// MPI frees the communicator. A bay is given back when somebody wants one: others may still be reading there.
void comm_is_gone(void* state) {
  auto* group = static_cast<NodeGroup*>(state);
  if (group->bay < 0) return discard(group);
  for (Rings* rings : {&group->tiny, &group->small, &group->segments, &group->results}) rings->tell();
  group->gone.store(true, std::memory_order_release);
}

}  // namespace

void node_prepare() {
  if (config_integer("RESIL_REDUCE_SHARED") == 0 || runtime.size <= 1 || runtime.local_size == 1) return;
  own = node_memory_create(kFile, NodeUse::kReductions, kPage);
  if (own != nullptr) deposits_prepare(reinterpret_cast<PoolShown*>(reinterpret_cast<char*>(own) + kNodeMemoryBegin));
}

void node_connect() {
  if (!backend->collectives->keep_states(comm_is_gone)) own = nullptr;
  if (own != nullptr && own->rank != runtime.rank) own = nullptr;
  crowded = runtime.local_size > processors();
  if (config_integer("RESIL_REDUCE_SHARED") != 0) deposits_connect(shown_by, node_ranks());
}

bool node_is_crowded() { return crowded; }

NodeGroup* node_group(const Call& c) {
  if (c.inter() || c.size > kNodeRanks || !mailbox::is_open() || job_survives()) return nullptr;
  const uint32_t index = c.info->index;
  const bool in_table = c.info->size >= 0 && index < sizeof(known) / sizeof(known[0]);
  const uint64_t generation = uint64_t{c.info->ring->generation} << 1 | 1;
  if (in_table && known[index].generation.load(std::memory_order_acquire) == generation) [[likely]] {
    NodeGroup* group = known[index].group.load(std::memory_order_relaxed);
    return group->shared ? group : nullptr;
  }
  auto* group = static_cast<NodeGroup*>(backend->collectives->state(c.comm));
  if (group == nullptr) group = settle(c);
  if (in_table) {
    known[index].group.store(group, std::memory_order_relaxed);
    known[index].generation.store(generation, std::memory_order_release);
  }
  return group->shared ? group : nullptr;
}

bool node_group_large(const Call& c, NodeGroup& group) {
  if (group.asked_large) [[likely]]
    return group.large;
  group.asked_large = true;
  const size_t bay = kPage + static_cast<size_t>(group.bay) * kBay;
  const bool mine = node_memory_reserve(NodeUse::kReductions, bay + kHead, kFolds - kHead);
  group.large = backend->collectives->agree(c.comm, mine);
  return group.large;
}

}  // namespace resil::reduction
