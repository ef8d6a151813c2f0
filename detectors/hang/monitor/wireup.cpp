// SPDX-License-Identifier: Apache-2.0
//
// See wireup.h. Three small collective calls at most: one byte tells whether all ranks can take part, 16 bytes a rank
// which of them share a node; only where there are several nodes, 80 bytes a rank carry the leaders' addresses, host
// names and rank 0's key. All ranks make the same calls: nothing that only one of them knows may come between.

#include "detectors/hang/monitor/wireup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "detectors/hang/verdict/note.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/ring/segment.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"

namespace resil::hang {

namespace {

struct Place {
  uint64_t node, host;
};

/// Machines may share a host name.
uint64_t machine_key() {
  char boot[kBootText];
  boot_identity(boot);
  return hash_combine(hash_text(runtime.host), hash_text(boot));
}

/// Equal on two ranks if they reach each other by the loopback interface: containers may have one each.
uint64_t host_key() {
  struct stat status;
  return hash_combine(machine_key(), stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0);
}

/// Equal on two ranks if each can read the other's slots and ask /proc for its process.
uint64_t node_key() {
  uint64_t key = hash_combine(machine_key(), pid_namespace());
  struct stat status;
  if (stat("/dev/shm", &status) == 0) key = hash_combine(hash_combine(key, status.st_dev), status.st_ino);
  if (const int64_t ranks = config_integer("RESIL_NODE_RANKS"); ranks > 0)
    key = hash_combine(key, static_cast<uint64_t>(runtime.rank / ranks));
  if (segment_is_anonymous() || !proc_is_own())  // nobody else sees these slots, or the process: a node of its own
    key = hash_combine(key, ~static_cast<uint64_t>(runtime.rank));
  return key;
}

struct Contact {
  Address address;
  uint8_t key[16];
  char host[kHostText];
  uint64_t network;
};

/// Of the switches above this node, as Slurm's topology plugin names them ("core.leaf3.node17"); 0: not known.
uint64_t network_key() {
  const char *address = getenv("SLURM_TOPOLOGY_ADDR"), *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
  const char* node = address != nullptr ? strrchr(address, '.') : nullptr;
  if (node == nullptr || pattern == nullptr || strncmp(pattern, "switch", 6) != 0) return 0;
  uint64_t key = 1;
  for (; address != node; ++address) key = hash_combine(key, static_cast<unsigned char>(*address));
  return key | 1;
}

/// Nodes in order of their lowest rank: for each rank its node. Returns how many. Open addressing over `slots`.
uint32_t number_nodes(const Place* keys, uint32_t count, uint32_t* node_of, uint32_t* slots, uint32_t slot_count) {
  uint32_t nodes = 0;
  for (uint32_t rank = 0; rank < count; ++rank) {
    uint32_t place = static_cast<uint32_t>(mix64(keys[rank].node)) & (slot_count - 1);
    while (slots[place] != 0 && keys[slots[place] - 1].node != keys[rank].node) place = (place + 1) & (slot_count - 1);
    if (slots[place] == 0) {
      slots[place] = rank + 1;
      node_of[rank] = nodes++;
    } else {
      node_of[rank] = node_of[slots[place] - 1];
    }
  }
  return nodes;
}

void find_own_ranks(Wiring& wiring, const uint32_t* node_of, uint32_t count) {
  wiring.leader = wiring.standby = -1;
  for (uint32_t rank = 0; rank < count; ++rank) {
    if (node_of[rank] != wiring.own_node) continue;
    if (wiring.rank_count == 0) wiring.leader = static_cast<int32_t>(rank);
    else if (wiring.rank_count == 1) wiring.standby = static_cast<int32_t>(rank);
    if (wiring.rank_count < kMaxWatched) wiring.ranks[wiring.rank_count++] = static_cast<int32_t>(rank);
    else ++wiring.unwatched;
  }
}

bool same_host(const Place* places, uint32_t count) {
  for (uint32_t rank = 1; rank < count; ++rank)
    if (places[rank].host != places[0].host) return false;
  return true;
}

void fill_nodes(NodeEntry* nodes, const uint32_t* node_of, const Contact* contacts, uint32_t count) {
  for (uint32_t rank = 0; rank < count; ++rank) {
    NodeEntry& node = nodes[node_of[rank]];
    if (node.ranks == 0) {
      node.first_rank = rank;
      node.leader = contacts[rank].address;
      memcpy(node.host, contacts[rank].host, sizeof(node.host) - 1);
      node.network = contacts[rank].network;
    } else if (node.ranks == 1) {
      node.standby = contacts[rank].address;
    }
    ++node.ranks;
  }
}

/// All ranks of a world that cannot be asked: those of this node whose rings are there.
void wire_alone(Wiring& wiring) {
  wiring.alone = true;
  wiring.node_count = 1;
  const uint32_t size = runtime.size > 0 ? static_cast<uint32_t>(runtime.size) : 0;
  wiring.leader = 0;
  wiring.standby = -1;
  for (uint32_t rank = 0; rank < size && rank < kMaxWatched; ++rank)
    wiring.ranks[wiring.rank_count++] = static_cast<int32_t>(rank);
}

}  // namespace

bool wire_up(Wiring& wiring, bool usable) {
  wiring.listener = -1;
  if (!mailbox::is_open()) {
    wire_alone(wiring);
    return usable;
  }
  const auto count = static_cast<uint32_t>(runtime.size);
  uint32_t slot_count = 16;
  while (slot_count < 2 * count) slot_count *= 2;
  const size_t bytes =
      size_t{count} * (sizeof(Place) + sizeof(uint32_t) + sizeof(Contact)) + size_t{slot_count} * sizeof(uint32_t);
  char* memory = usable ? memory::map_array<char>(bytes) : nullptr;
  if (!mailbox::agree(memory != nullptr)) {
    if (memory == nullptr) return false;
    memory::unmap(memory, bytes);
    wire_alone(wiring);
    return true;
  }
  auto* contacts = reinterpret_cast<Contact*>(memory);
  auto* keys = reinterpret_cast<Place*>(contacts + count);
  auto* node_of = reinterpret_cast<uint32_t*>(keys + count);
  uint32_t* slots = node_of + count;
  const Place own_place = {node_key(), host_key()};
  bool ok = mailbox::allgather(&own_place, sizeof(own_place), keys);
  if (ok) {
    wiring.node_count = number_nodes(keys, count, node_of, slots, slot_count);
    wiring.own_node = node_of[runtime.rank];
    find_own_ranks(wiring, node_of, count);
  }
  if (ok && wiring.node_count > 1) {
    Contact own = {};
    memcpy(own.host, runtime.host, strnlen(runtime.host, sizeof(own.host) - 1));
    own.network = network_key();
    if (runtime.rank == wiring.leader || runtime.rank == wiring.standby)
      wiring.listener = overlay_listen(&own.address, same_host(keys, count));
    if (runtime.rank == 0 && getrandom(own.key, sizeof(own.key), 0) != static_cast<ssize_t>(sizeof(own.key)))
      memset(own.key, 0, sizeof(own.key));
    ok = mailbox::allgather(&own, sizeof(own), contacts);
    memcpy(wiring.key, contacts[0].key, sizeof(wiring.key));
    if (runtime.rank == wiring.leader || runtime.rank == wiring.standby) {
      wiring.nodes = memory::map_array<NodeEntry>(wiring.node_count);
      if (wiring.nodes != nullptr) fill_nodes(wiring.nodes, node_of, contacts, count);
      for (uint32_t node = 1; wiring.nodes != nullptr && node < wiring.node_count; ++node)
        wiring.several_switches =
            wiring.several_switches || (wiring.nodes[0].network != 0 && wiring.nodes[node].network != 0 &&
                                        wiring.nodes[0].network != wiring.nodes[node].network);
    }
    static constexpr uint8_t kNoKey[16] = {};
    if (memcmp(wiring.key, kNoKey, sizeof(kNoKey)) == 0) {
      note(Message::kNoKey);
      wiring.nodes = nullptr;
    }
  }
  memory::unmap(memory, bytes);
  return ok;
}

}  // namespace resil::hang
