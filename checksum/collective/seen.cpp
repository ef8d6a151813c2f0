// SPDX-License-Identifier: Apache-2.0
//
// See seen.h. A table of what came last: an entry that another one has overwritten makes a rank look at its result for
// as long as it would without.

#include "checksum/collective/seen.h"

#include "shim/base/hash.h"
#include "shim/base/spinlock.h"

namespace resil::collective {

namespace {

using ledger::Peer;
using ledger::Record;

constexpr uint32_t kKept = 256;

struct Seen {
  uint64_t comm, digest;
  const Peer* from;
  uint32_t tag;
};

constinit Seen table[kKept] = {};
SpinLock lock;

struct Guard : OptionalGuard {
  Guard() : OptionalGuard(lock, ledger::concurrent()) {}
};

Seen& place_of(uint64_t comm, uint32_t tag, const Peer* from) {
  const auto rank = static_cast<uint64_t>(ledger::world_rank_of(*from));
  return table[mix64(comm ^ (rank << 32 | tag)) % kKept];
}

/// Inside progress().
void told(Thread&, Peer& from, const Record& record) {
  Guard guard;
  place_of(record.comm, record.tag, &from) = {record.comm, record.digest, &from, record.tag};
}

}  // namespace

Around::Around(const Tree& tree) : count(0), whole(tree.reason == ledger::Reason::kNone) {
  if (tree.parent != nullptr) peers[count++] = tree.parent;
  for (uint32_t i = 0; i < tree.child_count; ++i) peers[count++] = tree.children[i];
}

void seen_connect() { ledger::handle_space(ledger::Space::kSeen, told); }

void seen_tell(Thread& thread, const Name& name, const Around& around, uint64_t digest) {
  for (uint32_t i = 0; i < around.count; ++i)
    ledger::announce(thread, *around.peers[i],
                     {name.comm, digest, name.bytes, name.site, name.tag, static_cast<uint16_t>(name.id),
                      static_cast<uint8_t>(ledger::Space::kSeen), ledger::kNotMatchQueues});
  ledger::flush(thread);
}

bool seen_by_all(const Name& name, const Around& around, uint64_t digest) {
  if (!around.whole) return false;
  Guard guard;
  for (uint32_t i = 0; i < around.count; ++i) {
    const Seen& seen = place_of(name.comm, name.tag, around.peers[i]);
    if (seen.from != around.peers[i] || seen.comm != name.comm || seen.tag != name.tag || seen.digest != digest)
      return false;
  }
  return true;
}

}  // namespace resil::collective
