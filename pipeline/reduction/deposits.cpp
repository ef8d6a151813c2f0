// SPDX-License-Identifier: Apache-2.0
//
// See deposits.h. A pool is address space until it is used. A deposit that everybody has read is taken again by the
// next reduction, the lowest first, so that what programs use over and over stays in the caches.

#include "pipeline/reduction/deposits.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pipeline/reduction/node.h"
#include "pipeline/reduction/notes.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/report/log.h"
#include "shim/ring/node_file.h"
#include "shim/ring/segment.h"
#include "shim/runtime/mailbox.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

constexpr uint64_t kPage = 4096, kGigabyte = uint64_t{1} << 30;
constexpr uint64_t kNodePools = kGigabyte, kMostPool = kGigabyte / 16, kLeastPool = kGigabyte / 128;
constexpr int kFirstDescriptor = 64;  // programs that have closed their standard streams must not get them so
constexpr int kMostMapped = 1024;

struct Pool {
  char* base;
  uint64_t bytes, inode;
  int descriptor;
  Deposit* first;  ///< list of what is taken
};
constinit Pool pool = {.base = nullptr, .bytes = 0, .inode = 0, .descriptor = -1, .first = nullptr}, second = {};
constinit SpinLock lock = {}, making_second = {};  // the latter once, across system calls
bool connected;

/// By rank in the world, this one among them. The first pools are entered in MPI_Init.
struct Mapped {
  int32_t rank_and_one;  ///< 0: nothing
  pid_t pid;
  char* pool;
  std::atomic<char*> second;
};
constexpr uint32_t kMapped = 4096;
constinit Mapped mapped[kMapped] = {};

Mapped& place_of(int rank) {
  uint32_t at = static_cast<uint32_t>(rank) * 2654435761u % kMapped;
  while (mapped[at].rank_and_one != 0 && mapped[at].rank_and_one != rank + 1) at = (at + 1) % kMapped;
  return mapped[at];
}

/// Address space only: pages count when they are used. Neither children nor core files get it.
char* map_pool(int fd, uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_DONTDUMP);
  madvise(memory, bytes, MADV_DONTFORK);
  return static_cast<char*>(memory);
}

/// A pool that another process of this user has open under that number.
char* map_other(pid_t pid, int64_t descriptor, uint64_t inode, uint64_t bytes) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, static_cast<int>(descriptor));
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return nullptr;
  struct stat status;
  char* memory = nullptr;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == inode &&
      static_cast<uint64_t>(status.st_size) == bytes)
    memory = map_pool(fd, bytes);
  close(fd);
  return memory;
}

/// Its memory comes zeroed.
bool make_pool(Pool* made, uint64_t bytes) {
  if (!file_size_allowed(bytes)) return false;
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3, where some systems ask for it
  auto low = static_cast<int>(syscall(SYS_memfd_create, "resil-reductions", MFD_CLOEXEC | kNoExecution));
  if (low < 0) low = static_cast<int>(syscall(SYS_memfd_create, "resil-reductions", MFD_CLOEXEC));
  if (low < 0) return false;
  const int fd = fcntl(low, F_DUPFD_CLOEXEC, kFirstDescriptor);
  close(low);
  if (fd < 0) return false;
  struct stat status;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fstat(fd, &status) == 0)
    *made = {map_pool(fd, bytes), bytes, status.st_ino, fd, nullptr};
  if (made->base == nullptr) close(fd);
  return made->base != nullptr;
}

/// All that the node's memory could hold, and room for pieces.
uint64_t second_bytes() {
  const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t share = 4 * memory / static_cast<uint64_t>(runtime.local_size) / kPage * kPage;
  return share < 4 * kGigabyte ? 4 * kGigabyte : share;
}

/// Where a process may have so much address space only, it is the program's.
bool address_space_is_limited() {
  rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

bool is_read(const Deposit* deposit) { return __atomic_load_n(&deposit->left, __ATOMIC_ACQUIRE) == 0; }

/// The lowest place that is free; null: none. What everybody has read is forgotten on the way.
Deposit* take_from(Pool& from, uint64_t bytes) {
  SpinGuard guard(lock);
  Deposit** link = &from.first;
  char* free = from.base;
  for (Deposit* at; (at = *link) != nullptr;) {
    if (is_read(at)) {
      *link = at->next;
      continue;
    }
    if (static_cast<uint64_t>(reinterpret_cast<char*>(at) - free) >= bytes) break;
    free = reinterpret_cast<char*>(at) + at->bytes;
    link = &at->next;
  }
  if (*link == nullptr && static_cast<uint64_t>(from.base + from.bytes - free) < bytes) return nullptr;
  auto* deposit = reinterpret_cast<Deposit*>(free);
  deposit->bytes = bytes;
  deposit->next = *link;
  deposit->left = 1;  // so that it is not forgotten before it is filled
  *link = deposit;
  return deposit;
}

[[noreturn]] void end_without_memory(uint64_t bytes) {
  log_format(messages::reduction::no_memory, static_cast<size_t>(bytes));
  backend->messages->abort(93);
  _exit(93);
}

void open_second(uint64_t bytes) {
  SpinGuard guard(making_second);
  if (second.base == nullptr && !make_pool(&second, second_bytes())) end_without_memory(bytes);
}

bool open_all(const PoolShown* (*shown_by)(int), int node_ranks) {
  int found = 0;
  for (int rank = 0; rank < runtime.size; ++rank) {
    const PoolShown* shown = shown_by(rank);
    if (shown == nullptr) continue;
    if (++found > kMostMapped || shown->descriptor < 0 || shown->pid_namespace != pid_namespace() ||
        shown->bytes != pool.bytes)
      return false;
    char* memory =
        rank == runtime.rank ? pool.base : map_other(shown->pid, shown->descriptor, shown->inode, shown->bytes);
    if (memory == nullptr) return false;
    Mapped& entry = place_of(rank);
    entry.rank_and_one = rank + 1;
    entry.pid = shown->pid;
    entry.pool = memory;
  }
  return found == node_ranks;
}

}  // namespace

void deposits_prepare(PoolShown* shown) {
  shown->descriptor = -1;
  if (runtime.local_size <= 1 || runtime.local_size > kMostMapped || !proc_is_own() || address_space_is_limited() ||
      !file_size_allowed(second_bytes()))
    return;
  const uint64_t share = kNodePools / static_cast<uint64_t>(runtime.local_size) / kPage * kPage;
  if (!make_pool(&pool, share < kLeastPool ? kLeastPool : share > kMostPool ? kMostPool : share)) return;
  *shown = {pool.bytes, pool.inode, pool.descriptor, runtime.pid, pid_namespace()};
}

void deposits_connect(const PoolShown* (*shown_by)(int world_rank), int node_ranks) {
  if (mailbox::is_open() && runtime.size > 1 && !connected) {
    // Who is alone on its node says yes: it is in no communicator that would use it.
    const bool mine = node_ranks == 1 || (pool.base != nullptr && open_all(shown_by, node_ranks));
    connected = mailbox::agree(mine) && pool.base != nullptr && !job_survives();
  }
  if (pool.descriptor < 0) return;
  close(pool.descriptor);  // everybody has mapped it, or nobody uses it
  pool.descriptor = -1;
  if (connected) return;
  munmap(pool.base, pool.bytes);
  pool.base = nullptr;
}

bool deposits_reach(const Call& c, int* ranks) {
  if (!connected || c.inter() || c.size > kNodeRanks) return false;
  if (c.info->size >= 0) {
    for (int r = 0; r < c.size; ++r) ranks[r] = comm_world_rank(*c.info, r);
  } else {  // a communicator that other ranks may know
    int all[kNodeRanks];
    for (int r = 0; r < c.size; ++r) all[r] = r;
    if (!backend->comm_world_ranks(c.comm, false, c.size, all, ranks)) return false;
  }
  for (int r = 0; r < c.size; ++r)
    if (ranks[r] < 0 || place_of(ranks[r]).rank_and_one == 0) return false;
  return true;
}

Deposit* deposit_take(uint64_t bytes, uint32_t readers, DepositPlace* place) {
  const uint64_t whole = (bytes + sizeof(Deposit) + kPage - 1) / kPage * kPage;
  *place = {bytes, 0, 0, 0, -1};
  const Pool* from = &pool;
  Deposit* deposit = take_from(pool, whole);
  if (deposit == nullptr) {
    open_second(bytes);
    from = &second;
    deposit = take_from(second, whole);
    if (deposit == nullptr) end_without_memory(bytes);
    place->inode = second.inode;
    place->pool_bytes = second.bytes;
    place->descriptor = second.descriptor;
  }
  place->begin = static_cast<uint64_t>(reinterpret_cast<char*>(deposit) - from->base);
  deposit->claimed = 0;
  deposit->folded = 0;
  __atomic_store_n(&deposit->left, readers, __ATOMIC_RELAXED);
  return deposit;
}

Deposit* deposit_open(int world_rank, const DepositPlace& place) {
  Mapped& of = place_of(world_rank);
  char* base = of.pool;
  if (place.inode != 0) {
    base = world_rank == runtime.rank ? second.base : of.second.load(std::memory_order_acquire);
    if (base == nullptr) {
      base = map_other(of.pid, place.descriptor, place.inode, place.pool_bytes);
      if (base == nullptr) end_without_memory(place.bytes);
      char* there = nullptr;
      if (!of.second.compare_exchange_strong(there, base, std::memory_order_acq_rel)) {  // another thread's
        munmap(base, place.pool_bytes);
        base = there;
      }
    }
  }
  return reinterpret_cast<Deposit*>(base + place.begin);
}

void deposit_close(Deposit* deposit) { __atomic_fetch_sub(&deposit->left, 1, __ATOMIC_ACQ_REL); }

}  // namespace resil::reduction
