// SPDX-License-Identifier: Apache-2.0
//
// Records in shared memory: one stream from end to end, and the inboxes of a node's ranks in real node-local memory.
#include "checksum/ledger/stream.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "checksum/ledger/inbox.h"
#include "checksum/ledger/parts_internal.h"
#include "shim/base/process_state.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/presence/launch.h"
#include "shim/ring/node_memory.h"
#include "shim/ring/segment.h"

namespace {
std::map<int, resil::ledger::Peer> met;
int64_t node_ranks;
}  // namespace

namespace resil {
int64_t config_integer(const char*) { return node_ranks; }
namespace ledger {
Peer* peer_of(int world_rank) {
  Peer& peer = met[world_rank];
  peer.world_rank = world_rank;
  return &peer;
}
}  // namespace ledger
}  // namespace resil

using namespace resil::ledger;
using resil::runtime;

namespace {

Record packet(uint64_t number) { return {1, number, 8, number * 3, 7, 0, 0, 0}; }

struct Memory {
  explicit Memory(uint32_t slots) : slot(slots) {
    out.open(&control, slot.data(), slots);
    in.open(&control, slot.data(), slots);
  }
  StreamControl control = {};
  std::vector<StreamSlot> slot;
  StreamOut out = {};
  StreamIn in = {};
};

/// A node: each rank's inbox is made by a process of its own, which lives as long as this.
class Node {
 public:
  explicit Node(int size) {
    static int jobs;
    static resil::ring::Header header;
    header = {};
    snprintf(header.job, sizeof(header.job), "stream-%d-%d", getpid(), jobs++);
    const uint64_t start = resil::process_start_time(getpid());
    header.pid_start_lo = static_cast<uint32_t>(start);
    header.pid_start_hi = static_cast<uint32_t>(start >> 32);
    header.pid_namespace = resil::pid_namespace();
    runtime = {};
    runtime.header = &header;
    runtime.pid = getpid();
    runtime.size = size;
    runtime.local_size = size;
    strcpy(runtime.host, "node-1");
    resil::launch_draw();
    resil::launch_expect(size);
    for (int rank = 0; rank < size; ++rank)  // one for all: the processes are forks of this one
      resil::launch_learn(rank, resil::launch_nonce());
    node_ranks = 0;
    met.clear();
  }
  ~Node() { resil::node_memory_discard(); }
  std::string path(int rank) {
    return "/dev/shm/resil-" + std::to_string(getuid()) + "-" + runtime.header->job + "-0-" + std::to_string(rank) +
           "-" + runtime.launch_key + ".node";
  }
};

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

TEST_CASE("a stream keeps order and contents around its circle, and says when it is full") {
  for (uint32_t slots : {8u, 64u, 1024u}) {
    Memory memory(slots);
    std::set<uint32_t> places;
    for (uint32_t i = 0; i < slots; ++i) places.insert(stream_place(i, slots));
    CHECK(places.size() == slots);
    CHECK(memory.in.next() == nullptr);
    uint64_t written = 0, read = 0;
    for (unsigned turn = 0; turn < 200; ++turn) {
      for (unsigned k = 0; k < 1 + turn * 7 % slots; ++k) {
        if (!memory.out.put(packet(written), written + 5, written, ~written)) {
          CHECK(written - read > slots - slots / 8);
          break;
        }
        ++written;
      }
      for (unsigned k = 0; k < 1 + turn * 5 % slots; ++k) {
        const StreamSlot* slot = memory.in.next();
        if (slot == nullptr) {
          CHECK(read == written);
          break;
        }
        REQUIRE((slot->record.digest == read && slot->record.site == read * 3 && slot->total == read &&
                 slot->sum == ~read));
        REQUIRE(slot->ordinal == static_cast<uint32_t>(read + 5));
        memory.in.advance();
        ++read;
      }
    }
    CHECK(memory.out.count() == written);
    while (memory.out.put(packet(0), 0, 0, 0)) {}
    CHECK(!memory.out.has_room());
    while (memory.in.next() != nullptr) memory.in.advance();
    CHECK(memory.out.has_room());
  }
}

TEST_CASE("a stream between two threads") {
  constexpr uint64_t kCount = 100000;
  auto memory = std::make_unique<Memory>(64);
  std::thread writer([&] {
    for (uint64_t i = 0; i < kCount; ++i)
      while (!memory->out.put(packet(i), i, i, i)) std::this_thread::yield();
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const StreamSlot* slot;
    while ((slot = memory->in.next()) == nullptr) std::this_thread::yield();
    wrong += slot->record.digest != i || slot->record.site != i * 3 || slot->total != i || slot->sum != i;
    memory->in.advance();
  }
  writer.join();
  CHECK(wrong == 0);
}

TEST_CASE("an inbox stays within its bound and has a stream for each rank of a usual node") {
  for (int ranks : {0, 2, 3, 16, 17, 64, 127, 128, 129, 1000}) {
    const InboxShape shape = inbox_shape(ranks);
    INFO(ranks << " ranks: " << shape.streams << " streams of " << shape.slots);
    CHECK(shape.streams * (sizeof(StreamControl) + shape.slots * sizeof(StreamSlot)) <= 1 << 20);
    CHECK(shape.slots >= 64);
    if (ranks > 0 && ranks <= 128) CHECK(static_cast<int>(shape.streams) == ranks - 1);
  }
  CHECK(inbox_shape(2).slots == 1024);
  CHECK(inbox_shape(1).streams == 0);
}

TEST_CASE("ranks of a node find each other's inboxes, and nobody else's") {
  Node node(4);
  const char* why;
  runtime.rank = 2;
  REQUIRE(inbox_create(&why));
  CHECK(exists(node.path(2)));
  Peer to = {};
  to.world_rank = 2;
  runtime.rank = 3;  // this process plays both
  SECTION("records arrive") {
    REQUIRE(inbox_open(to));
    REQUIRE(to.out.put(packet(17), 0, 1, 2));
    runtime.rank = 2;
    Peer* from = inbox_next_sender();
    REQUIRE(from != nullptr);
    CHECK(from->world_rank == 3);
    CHECK(from->heard);
    CHECK(std::string(from->host) == "node-1");
    REQUIRE(from->in.next() != nullptr);
    CHECK(from->in.next()->record.digest == 17);
    CHECK(inbox_next_sender() == nullptr);
    inbox_discard();
    CHECK(!exists(node.path(2)));
    CHECK(to.out.put(packet(18), 1, 2, 3));  // what is mapped stays
  }
  SECTION("more senders than streams") {
    for (int sender = 0; sender < 3; ++sender) {
      Peer again = to;
      CHECK(inbox_open(again));
    }
    CHECK(!inbox_open(to));
    CHECK(!to.out.is_open());
    runtime.rank = 2;
    for (int sender = 0; sender < 3; ++sender) CHECK(inbox_next_sender() != nullptr);
    CHECK(inbox_next_sender() == nullptr);
  }
  SECTION("another launch, another size, another node by RESIL_NODE_RANKS, no inbox") {
    for (uint64_t other : {resil::launch_nonce() + 1, uint64_t{0}}) {
      resil::launch_learn(to.world_rank, other);
      CHECK(!inbox_open(to));
    }
    resil::launch_learn(to.world_rank, resil::launch_nonce());
    runtime.size = 5;
    CHECK(!inbox_open(to));
    runtime.size = 4;
    node_ranks = 3;
    CHECK(!inbox_open(to));
    node_ranks = 2;
    CHECK(inbox_open(to));
    node_ranks = 0;
    to.world_rank = 1;
    CHECK(!inbox_open(to));
  }
  SECTION("MPI gave the rank to another process") {
    runtime.rank = 0;
    inbox_connect();
    CHECK(!exists(node.path(2)));
  }
}

TEST_CASE("a name that a killed job left is no inbox, and is swept") {
  Node node(2);
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t start = resil::process_start_time(getpid());
    runtime.header->pid_start_lo = static_cast<uint32_t>(start);
    runtime.header->pid_start_hi = static_cast<uint32_t>(start >> 32);
    runtime.pid = getpid();
    runtime.rank = 1;
    const char* why;
    _exit(inbox_create(&why) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(exists(node.path(1)));
  runtime.rank = 0;
  Peer to = {};
  to.world_rank = 1;
  CHECK(!inbox_open(to));
  const int folder = open("/dev/shm", O_RDONLY | O_DIRECTORY);
  const std::string name = node.path(1).substr(9);
  resil::node_memory_sweep(folder, name.c_str());
  CHECK(!exists(node.path(1)));
  // The living are left alone.
  const char* why;
  REQUIRE(resil::node_memory_create(8192) != nullptr);
  resil::node_memory_sweep(folder, node.path(0).substr(9).c_str());
  CHECK(exists(node.path(0)));
  close(folder);
  (void)why;
}

TEST_CASE("no inbox without room for it") {
  Node node(2);
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {32768, 32768};
    const char* why = nullptr;
    runtime.rank = 0;
    const bool made = setrlimit(RLIMIT_FSIZE, &limit) == 0 && inbox_create(&why);
    _exit(!made && why != nullptr && !exists(node.path(0)) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  runtime.rank = 0;
  const char* why;
  runtime.local_size = 1;  // one rank a node: nothing to say
  CHECK(!inbox_create(&why));
  CHECK(why == nullptr);
}
