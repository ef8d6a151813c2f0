// SPDX-License-Identifier: Apache-2.0
//
// See sums.h. A sum may begin with a child's record or with this rank's own part. Handlers only note; what is complete
// is passed on by sums_own() and sums_progress().

#include "checksum/collective/sums.h"

#include <atomic>

#include "checksum/collective/agreement.h"
#include "checksum/ledger/calls.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/runtime/memory.h"

namespace resil::collective {

namespace {

using ledger::Peer;
using ledger::Reason;
using ledger::Record;

constexpr uint32_t kNodes = 1u << 15, kBuckets = 1u << 12;  // 4 MiB at most, touched as needed
constexpr uint32_t kNone = 0;

struct Node {
  Name name;
  uint32_t next, ready_next;
  uint32_t expected, arrived;  // children
  bool own;  // this rank's part is in
  LinearMode mode;
  Reason reason;
  Linear sum;
  Peer* parent;  // null: the root
  uint16_t calls, call;  // of the first part; 0: none yet
  uint64_t seen;  // a bit for each child whose record has come, by its rank modulo 64
  static constexpr uint32_t kChildren = 8;
  Peer* children[kChildren];  // the first of them
};

Node* nodes;
uint32_t* buckets;
uint32_t node_top = 1, node_free, ready_first;
std::atomic<uint64_t> pending, lost;
SpinLock lock;

struct Guard : OptionalGuard {
  Guard() : OptionalGuard(lock, ledger::concurrent()) {}
};

uint32_t& bucket_of(uint64_t comm, uint32_t tag) {
  return buckets[static_cast<uint32_t>(mix64(comm + tag * 0x9e3779b97f4a7c15) >> 20) & (kBuckets - 1)];
}

/// Finds or makes; 0: no room. Under the lock.
uint32_t node_of(uint64_t comm, uint32_t tag) {
  uint32_t& first = bucket_of(comm, tag);
  for (uint32_t i = first; i != kNone; i = nodes[i].next)
    if (nodes[i].name.comm == comm && nodes[i].name.tag == tag) return i;
  uint32_t index = node_free;
  if (index != kNone) node_free = nodes[index].next;
  else if (node_top < kNodes) index = node_top++;
  else return kNone;
  Node& node = nodes[index];
  node = {};
  node.name.comm = comm;
  node.name.tag = tag;
  node.next = first;
  first = index;
  return index;
}

/// Takes the node out; under the lock.
Node remove(uint32_t index) {
  Node node = nodes[index];
  uint32_t* link = &bucket_of(node.name.comm, node.name.tag);
  while (*link != index) link = &nodes[*link].next;
  *link = node.next;
  nodes[index].next = node_free;
  nodes[index].own = false;
  node_free = index;
  pending.fetch_sub(1, std::memory_order_relaxed);
  return node;
}

/// Parts of calls that do not belong together have no sum.
void add(Node& node, uint16_t calls, uint16_t call, LinearMode mode, const Linear& part, Reason reason) {
  if (node.call == 0) node.calls = calls, node.call = call;
  else if (!ledger::half_matches(node.calls, calls) || !ledger::same_call(node.call, call))
    reason = Reason::kCallsDiffer;
  if (node.mode != LinearMode::kNone && mode != LinearMode::kNone && node.mode != mode)
    reason = Reason::kCallsDiffer;  // the ranks disagree about the datatype
  if (reason != Reason::kNone) node.reason = node.reason == Reason::kCallsDiffer ? node.reason : reason;
  else node.sum = linear_add(mode, node.sum, part);
  if (mode != LinearMode::kNone) node.mode = mode;
}

bool complete(const Node& node) { return node.own && node.arrived >= node.expected; }

Record record_of(const Name& name, LinearMode mode, const Linear& sum, Reason reason) {
  Record record = {name.comm,
                   sum.words[0],
                   name.bytes,
                   0,
                   name.tag,
                   static_cast<uint16_t>(name.id),
                   static_cast<uint8_t>(ledger::Space::kSum),
                   static_cast<uint8_t>(ledger::kNotMatchQueues | static_cast<uint8_t>(mode) << 4)};
  record.site = sum.words[1];
  record.lower = sum.words[1] >> ledger::kLowBits;
  record.upper = name.calls;
  if (reason != Reason::kNone) {
    record.flags |= ledger::kUnchecked;
    record.digest = static_cast<uint64_t>(reason);
  }
  return record;
}

void pass_on(Thread& thread, const Node& node) {
  Reason reason = node.reason;
  if (node.parent == nullptr) {
    agreement_sum(node.name, node.mode, node.sum, node.reason);
  } else {
    ledger::announce(thread, *node.parent, record_of(node.name, node.mode, node.sum, node.reason));
    if (reason == Reason::kNone && ledger::records_dropped(*node.parent))
      reason = Reason::kMemory;  // this rank's part never gets there
  }
  if (reason == Reason::kNone) ledger::count_checked(1, node.name.bytes);
  else ledger::count_uncovered(reason, 1, node.name.bytes);
}

/// From a child; inside progress().
void arrived(Thread&, Peer& from, const Record& record) {
  const auto mode = static_cast<LinearMode>(record.flags >> 4);
  const Reason reason = record.flags & ledger::kUnchecked ? static_cast<Reason>(record.digest & 0xff) : Reason::kNone;
  Guard guard;
  const uint32_t index = node_of(record.comm, record.tag);
  if (index == kNone) {
    lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Node& node = nodes[index];
  node.arrived += 1;
  node.seen |= uint64_t{1} << (static_cast<unsigned>(ledger::world_rank_of(from)) % 64);
  add(node, static_cast<uint16_t>(record.upper), record.call, mode,
      {{record.digest, record.site | uint64_t{record.lower} << ledger::kLowBits}}, reason);
  if (complete(node)) {
    node.ready_next = ready_first;
    __atomic_store_n(&ready_first, index, __ATOMIC_RELEASE);
  }
}

}  // namespace

bool sums_prepare() {
  const size_t bytes = kNodes * sizeof(Node) + kBuckets * sizeof(uint32_t);
  nodes = static_cast<Node*>(memory::map(bytes));
  if (nodes == nullptr) return false;
  buckets = reinterpret_cast<uint32_t*>(nodes + kNodes);
  return true;
}

void sums_connect() { ledger::handle_space(ledger::Space::kSum, arrived); }

void sums_own(Thread& thread, const Name& name, const Tree& tree, LinearMode mode, const Linear& part, Reason reason) {
  if (reason == Reason::kNone) reason = tree.reason;
  Node done;
  done.name = name;
  done.mode = mode;
  done.parent = tree.parent;
  done.calls = name.calls;
  if (tree.child_count == 0) {  // half of all ranks
    done.sum = part;
    done.reason = reason;
    return pass_on(thread, done);
  }
  {
    Guard guard;
    const uint32_t index = node_of(name.comm, name.tag);
    if (index == kNone) {
      lost.fetch_add(1, std::memory_order_relaxed);
      done.sum = {};
      done.reason = Reason::kMemory;
    } else {
      Node& node = nodes[index];
      node.name = name;
      node.parent = tree.parent;
      node.expected = tree.child_count;
      node.own = true;
      for (uint32_t i = 0; i < Node::kChildren; ++i)
        node.children[i] = i < tree.child_count ? tree.children[i] : nullptr;
      add(node, name.calls, static_cast<uint16_t>(name.id), mode, part, reason);
      pending.fetch_add(1, std::memory_order_relaxed);
      if (!complete(node)) return;
      done = remove(index);
    }
  }
  pass_on(thread, done);
}

bool sums_vanish_with(const Name& name, const Tree& tree, LinearMode mode, const Linear& part) {
  if (tree.parent != nullptr || tree.reason != Reason::kNone) return false;
  if (tree.child_count == 0) return part.zero();
  Guard guard;
  for (uint32_t i = bucket_of(name.comm, name.tag); i != kNone; i = nodes[i].next)
    if (const Node& node = nodes[i]; node.name.comm == name.comm && node.name.tag == name.tag)
      return node.arrived >= tree.child_count && node.reason == Reason::kNone && node.mode == mode &&
             linear_add(mode, node.sum, part).zero();
  return false;
}

void sums_progress(Thread& thread) {
  while (__atomic_load_n(&ready_first, __ATOMIC_ACQUIRE) != kNone) {
    Node done;
    {
      Guard guard;
      const uint32_t index = ready_first;
      if (index == kNone) return;
      __atomic_store_n(&ready_first, nodes[index].ready_next, __ATOMIC_RELAXED);
      done = remove(index);
    }
    pass_on(thread, done);
  }
}

Peer* sums_take_unanswered(bool (*has_told_all)(const Peer&), Name* name) {
  Guard guard;
  for (uint32_t i = 1; i < node_top; ++i) {
    const Node& node = nodes[i];
    if (!node.own || complete(node)) continue;
    for (Peer* child : node.children) {
      if (child == nullptr || !has_told_all(*child) ||
          (node.seen >> (static_cast<unsigned>(ledger::world_rank_of(*child)) % 64) & 1) != 0)
        continue;
      *name = node.name;
      remove(i);
      return child;
    }
  }
  return nullptr;
}

uint32_t sums_awaited(int32_t* ranks, uint32_t most) {
  Guard guard;
  uint32_t found = 0;
  for (uint32_t i = 1; i < node_top; ++i) {
    const Node& node = nodes[i];
    if (!node.own || complete(node)) continue;
    for (Peer* child : node.children) {
      if (child == nullptr) continue;
      const int32_t rank = ledger::world_rank_of(*child);
      bool known = (node.seen >> (static_cast<unsigned>(rank) % 64) & 1) != 0;
      for (uint32_t k = 0; k < found && !known; ++k) known = ranks[k] == rank;
      if (!known && found < most) ranks[found++] = rank;
    }
  }
  return found;
}

bool sums_ready() { return __atomic_load_n(&ready_first, __ATOMIC_RELAXED) != kNone; }
uint64_t sums_pending() {
  return lost.load(std::memory_order_relaxed) == 0 ? pending.load(std::memory_order_relaxed) : 0;
}
uint64_t sums_lost() { return lost.load(std::memory_order_relaxed); }

}  // namespace resil::collective
