// SPDX-License-Identifier: Apache-2.0
//
// THREADS: up to three threads "resil-digest" in a process, made at the first digest of 4 MiB or more, and only where
// digest_helpers() found cores that no rank uses. They block all signals, take no lock, allocate nothing, never call
// MPI, sleep on a futex while there is nothing to do, and end with the process; nobody joins them. A child of fork()
// has none and digests alone.
//
// One buffer is shared at a time. It is cut into chunks that the caller and the helpers claim by counting `work` down;
// whatever no helper has claimed the caller does itself. So a helper that does not run, for want of a core, costs
// nothing, and one that is stopped in the middle costs the time until its one chunk is done: the buffer belongs to the
// application again when the digest returns, and until then nobody may be reading it.
#include "shim/base/digest/helpers.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <climits>
#include <cstdlib>

#include "shim/base/digest/digest.h"
#include "shim/base/digest/variant.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"

namespace resil {

namespace {

constexpr size_t kChunkLeaves = 32;  // 128 KiB: some 5 µs, a hundred times the cost of claiming it

constinit std::atomic<int> allowed{0};  // helpers that may exist
constinit std::atomic<bool> busy{false};  // a thread shares a buffer or makes helpers
int made;  // helpers that exist; under busy
constinit std::atomic<bool> fork_handled{false};
constinit std::atomic<bool> child{false};  // of a fork, where no helper is
bool cpus_known;
cpu_set_t cpus;  // where helpers may run: not where the thread that happens to make them is bound

// The shared buffer. Written under `busy` while `work` counts no chunk, hence never while a claim can succeed.
constinit std::atomic<const char*> shared_data{nullptr};
constinit std::atomic<size_t> shared_leaves{0};
constinit std::atomic<uint64_t> work{0};  // number of the buffer << 32 | chunks that nobody has claimed
constinit std::atomic<uint64_t> total{0};  // sum of the terms of the chunks done
constinit std::atomic<uint64_t> open{0};  // chunks not done
constinit std::atomic<uint32_t> bell{0};  // futex: changes when there is work
constinit std::atomic<uint64_t> by_helpers{0};

/// Claims and digests one chunk; false if there is none.
bool do_chunk() {
  uint64_t seen = work.load(std::memory_order_acquire);
  for (;;) {
    if (static_cast<uint32_t>(seen) == 0) return false;
    // These two may be the next buffer's already; but then all chunks of this one are claimed, and the exchange fails.
    const char* data = shared_data.load(std::memory_order_relaxed);
    const size_t leaves = shared_leaves.load(std::memory_order_relaxed);
    if (!work.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const size_t first = (static_cast<uint32_t>(seen) - 1) * kChunkLeaves;
    const size_t count = leaves - first < kChunkLeaves ? leaves - first : kChunkLeaves;
    total.fetch_add(digest_variant().whole(data + first * kDigestLeaf, count, first), std::memory_order_relaxed);
    open.fetch_sub(1, std::memory_order_release);
    return true;
  }
}

void help() {
  sched_setaffinity(0, sizeof(cpus), &cpus);
  for (;;) {
    const uint32_t heard = bell.load(std::memory_order_acquire);
    while (do_chunk()) by_helpers.fetch_add(1, std::memory_order_relaxed);
    futex_wait(&bell, heard);
  }
}

void after_fork_in_child() {
  child.store(true, std::memory_order_relaxed);
  allowed.store(0, std::memory_order_relaxed);
}

/// Under busy.
void make_helpers(int wanted) {
  if (!fork_handled.exchange(true) && pthread_atfork(nullptr, nullptr, after_fork_in_child) != 0)
    allowed.store(0, std::memory_order_relaxed);
  for (; made < wanted; ++made) {
    if (!helper_thread_start("resil-digest", help)) {
      allowed.store(made, std::memory_order_relaxed);  // not tried again
      break;
    }
  }
}

}  // namespace

bool share_with_helpers(const char* data, size_t leaves, uint64_t* sum) {
  const size_t chunks = (leaves + kChunkLeaves - 1) / kChunkLeaves;
  if (allowed.load(std::memory_order_relaxed) == 0 || chunks > UINT32_MAX) return false;
  if (busy.exchange(true, std::memory_order_acquire)) return false;
  if (made < allowed.load(std::memory_order_relaxed)) make_helpers(allowed.load(std::memory_order_relaxed));
  const int helpers = allowed.load(std::memory_order_relaxed);
  if (helpers > 0) {
    shared_data.store(data, std::memory_order_relaxed);
    shared_leaves.store(leaves, std::memory_order_relaxed);
    total.store(0, std::memory_order_relaxed);
    open.store(chunks, std::memory_order_relaxed);
    work.store(((work.load(std::memory_order_relaxed) >> 32) + 1) << 32 | chunks, std::memory_order_release);
    bell.fetch_add(1, std::memory_order_release);
    futex_wake(&bell, helpers);
    while (do_chunk()) {}
    while (open.load(std::memory_order_acquire) != 0) {
      if (child.load(std::memory_order_relaxed))
        return false;  // a signal handler that came in the middle forked, and returned in the child
      sched_yield();  // a helper is in the middle of its chunk; it may need this core
    }
    *sum += total.load(std::memory_order_relaxed);
  }
  busy.store(false, std::memory_order_release);
  return helpers > 0;
}

int helper_count(int cpus_in_mask, int ranks, int threads) {
  const int64_t used = int64_t{ranks < 1 ? 1 : ranks} * (threads < 1 ? 1 : threads);
  // Twice the cores that are in use at least, for the mask may count two for a core; then the rank's share of the rest.
  const int64_t share = cpus_in_mask / used;
  if (share < 4) return 0;
  return static_cast<int>(share / 2 - 1 < kMostHelpers ? share / 2 - 1 : kMostHelpers);
}

void allow_helpers(int count) {
  if (!cpus_known && count > 0) cpus_known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
  if (!cpus_known) count = 0;  // more CPUs than fit into the set
  allowed.store(count < kMostHelpers ? count : kMostHelpers, std::memory_order_relaxed);
}

void digest_helpers(int local_ranks) {
  cpu_set_t mask;
  if (local_ranks < 1 || sched_getaffinity(0, sizeof(mask), &mask) != 0) return allow_helpers(0);
  const char* threads = getenv("OMP_NUM_THREADS");
  allow_helpers(helper_count(CPU_COUNT(&mask), local_ranks, threads == nullptr ? 1 : atoi(threads)));
}

uint64_t helper_chunks() { return by_helpers.load(std::memory_order_relaxed); }

}  // namespace resil
