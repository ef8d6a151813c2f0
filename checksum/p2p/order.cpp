// SPDX-License-Identifier: Apache-2.0
//
// Which threads use which matching queue. Two threads that send (or post receives) on one matching queue have no
// defined order between them, so such a matching queue is compared as a multiset, for good. Asked before the real call,
// so that whoever comes second is known before its message can be matched.

#include <atomic>

#include "checksum/ledger/ledger.h"
#include "checksum/p2p/p2p.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/call/thread.h"
#include "shim/tables/tables.h"

namespace resil::p2p {

namespace {

constexpr uint32_t kPlaces = 8192, kReach = 16;
constexpr int32_t kSharedMatchQueue = -1;

struct Use {
  uint64_t key;  // 0: free
  int32_t thread;  // matching queue index + 1; kSharedMatchQueue
};
Use uses[kPlaces];
SpinLock lock;
constexpr uint32_t kWilds = 256;  // collisions only make more matching queues multisets
std::atomic<bool> wilds[kWilds];  // by communicator: wildcards have been posted

/// Notes the thread (0: only asks); true when more than one was there. A full table says true: never a false order.
bool note(uint64_t key, int32_t thread) {
  key |= 1;
  SpinGuard guard(lock);
  for (uint32_t step = 0; step < kReach; ++step) {
    Use& use = uses[(key + step) % kPlaces];
    if (use.key == 0) {
      if (thread == 0) return false;
      use = {key, thread};
    }
    if (use.key != key) continue;
    if (use.thread != thread && thread != 0) use.thread = kSharedMatchQueue;
    return use.thread == kSharedMatchQueue;
  }
  return true;
}

}  // namespace

bool match_queue_is_shared_slow(uint64_t comm_id, int32_t peer, int32_t tag, bool sending, bool ask_only) {
  const auto thread = ask_only ? 0 : static_cast<int32_t>(current_thread->trace_index) + 1;
  const uint64_t side = hash_combine(comm_id, sending);
  auto key = [side](int32_t a, int32_t b) {
    return hash_combine(side, static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b));
  };
  // A wildcard can take a message of any matching queue of the communicator: then it counts who posts receives there at
  // all.
  if (!sending) {
    const bool wild = peer == ring::kAnySource || tag == ring::kAnyTag;
    const bool others = note(hash_combine(side, 1), thread);
    std::atomic<bool>& wild_seen = wilds[side % kWilds];
    if (wild && !ask_only) wild_seen.store(true);
    if (wild_seen.load() && others) return true;
    if (wild) return false;
  }
  return note(key(peer, tag), thread);
}

int64_t partitioned_ordinal(uint64_t comm_id, int32_t peer, int32_t tag, bool sending) {
  constexpr uint32_t kKinds = 512;
  static struct {
    uint64_t key;
    int64_t count;
  } kinds[kKinds];
  const uint64_t key =
      1 | hash_combine(hash_combine(comm_id, sending),
                       static_cast<uint64_t>(static_cast<uint32_t>(peer)) << 32 | static_cast<uint32_t>(tag));
  SpinGuard guard(lock);
  for (uint32_t step = 0; step < kKinds; ++step) {
    auto& kind = kinds[(key + step) % kKinds];
    if (kind.key == 0) kind.key = key;
    if (kind.key == key) return kind.count++;
  }
  return -1;
}

}  // namespace resil::p2p
