// SPDX-License-Identifier: Apache-2.0
//
// Communicator ids: the same on all ranks without a message, different for different communicators; the table when it
// is full, when handles are reused, and under threads.
#include <map>
#include <random>
#include <set>
#include <thread>

#include "check.h"
#include "fake_backend.h"

namespace {

using resil::CallId;
using resil::CommInfo;
using resil::Event;
namespace ring = resil::ring;
using Ranks = std::vector<int>;

/// One rank's program: makes communicators and notes their ids under a name that all members share.
class Rank : public fake::Core {
 public:
  explicit Rank(int rank, int size = 6) : Core(rank, size), rank_(rank) {}

  CommInfo* find(uint64_t handle) { return resil::comm_lookup(thread(), handle); }

  /// A creating call on `parent`; the result is `local` (and `remote`) for this rank, or MPI_COMM_NULL if not in it.
  uint64_t create(CallId id, uint64_t parent, const std::string& name, const Ranks& local, const Ranks& remote = {},
                  int tag = 0, uint64_t group = 0, const char* string = "") {
    Event e = fake::make_event(thread(), id);
    e.comm = parent != 0 ? find(parent) : nullptr;
    e.tag = tag;
    e.group = group;
    e.string = string;
    e.derived_id = resil::comm_derive_id(e);
    if (std::find(local.begin(), local.end(), rank_) == local.end()) {
      resil::comm_register_new(thread(), fake::kCommNull, e.derived_id, e.comm, id, 0);
      return 0;
    }
    // Handles differ between ranks, as they do in a real MPI.
    uint64_t handle = next_handle_ += 1 + static_cast<uint64_t>(rank_);
    fake::Comm comm;
    comm.local = local;
    comm.remote = remote;
    comm.inter = !remote.empty();
    fake::add_comm(handle, comm);
    e.new_comm = &handle;
    resil::comm_creation_succeeded(e);
    resil::comm_register_new(thread(), handle, e.derived_id, e.comm, id, 0);
    ids[name] = find(handle)->ring->id;
    return handle;
  }

  std::map<std::string, uint64_t> ids;

 private:
  int rank_;
  uint64_t next_handle_ = 0x84000100;
};

/// The same program on rank `rank` of 6: every way of making a communicator, siblings, repetitions.
std::map<std::string, uint64_t> program(int rank) {
  Rank me(rank);
  const Ranks all = {0, 1, 2, 3, 4, 5}, even = {0, 2, 4}, odd = {1, 3, 5}, low = {0, 1, 2}, high = {3, 4, 5};
  const bool is_even = rank % 2 == 0, is_low = rank < 3;
  auto world = fake::kCommWorld;
  for (int i = 0; i < 3; ++i) me.create(CallId::kMPI_Comm_dup, world, "dup " + std::to_string(i), all);
  uint64_t half = me.create(CallId::kMPI_Comm_split, world, is_even ? "even" : "odd", is_even ? even : odd);
  me.create(CallId::kMPI_Comm_split, world, is_even ? "even again" : "odd again", is_even ? even : odd);
  me.create(CallId::kMPI_Comm_split, world, is_low ? "low" : "high", is_low ? low : high);
  // Members in another order: the same ranks, another communicator.
  me.create(CallId::kMPI_Comm_split, world, "reversed", {5, 4, 3, 2, 1, 0});
  me.create(CallId::kMPI_Comm_create, world, "pair", {1, 4});
  // Only the even half does this: nobody else's later ids may shift.
  if (is_even) {
    me.create(CallId::kMPI_Comm_dup, half, "dup of even", even);
    fake::library.groups[1] = even;
    for (int i = 0; i < 2; ++i)
      me.create(CallId::kMPI_Comm_create_group, world, "group of even " + std::to_string(i), even, {}, 3, 1);
    me.create(CallId::kMPI_Comm_create_group, world, "group of even, tag 4", even, {}, 4, 1);
    me.create(CallId::kMPI_Comm_create_from_group, 0, "set a", even, {}, 0, 1, "set://a");
    me.create(CallId::kMPI_Comm_create_from_group, 0, "set b", even, {}, 0, 1, "set://b");
  }
  me.create(CallId::kMPI_Comm_dup, half, is_even ? "half dup even" : "half dup odd", is_even ? even : odd);
  // Both sides of an intercommunicator, whose local communicators differ.
  uint64_t inter = 0;
  for (int i = 0; i < 2; ++i)
    inter = me.create(CallId::kMPI_Intercomm_create, half, "inter " + std::to_string(i), is_even ? even : odd,
                      is_even ? odd : even, 17);
  me.create(CallId::kMPI_Intercomm_create, half, "inter, tag 18", is_even ? even : odd, is_even ? odd : even, 18);
  me.create(CallId::kMPI_Comm_dup, inter, "inter dup", is_even ? even : odd, is_even ? odd : even);
  me.create(CallId::kMPI_Intercomm_merge, inter, "merged", {0, 2, 4, 1, 3, 5});
  me.create(CallId::kMPI_Cart_create, world, "cart", all);
  me.create(CallId::kMPI_Dist_graph_create_adjacent, world, "graph", all);
  me.create(CallId::kMPI_Comm_split_type, world, is_low ? "node 0" : "node 1", is_low ? low : high);
  me.ids["world"] = me.find(world)->ring->id;
  me.ids["self " + std::to_string(rank)] = me.find(fake::kCommSelf)->ring->id;
  CHECK(fake::library.unknown_handles == 0);
  return me.ids;
}

}  // namespace

TEST_CASE("communicators: ids agree on all members and differ between communicators") {
  std::map<std::string, uint64_t> ids;
  for (int rank = 0; rank < 6; ++rank) {
    for (auto& [name, id] : program(rank)) {
      INFO("rank " << rank << ": " << name);
      auto [place, is_new] = ids.emplace(name, id);
      CHECK(place->second == id);
      CHECK(id != 0);
    }
  }
  CHECK(ids.size() == 3 + 6 + 2 + 6 + 2 + 5 + 2 + 2 + 7);
  std::map<uint64_t, std::string> names;
  for (auto& [name, id] : ids) {
    auto [place, is_new] = names.emplace(id, name);
    INFO(name << " and " << place->second);
    CHECK(is_new);
  }
}

TEST_CASE("communicators: ranks of one world that meet by accept and connect give theirs the same id") {
  uint64_t ids[2][3];
  for (int rank = 0; rank < 2; ++rank) {
    Rank me(rank, 2);
    const Ranks own = {rank}, other = {1 - rank};
    for (int round = 0; round < 2; ++round) {
      const uint64_t joined = me.create(rank == 0 ? CallId::kMPI_Comm_accept : CallId::kMPI_Comm_connect,
                                        fake::kCommSelf, "joined " + std::to_string(round), own, other);
      ids[rank][round] = me.find(joined)->ring->id;
      if (round == 1)
        ids[rank][2] = me.find(me.create(CallId::kMPI_Intercomm_merge, joined, "merged", {0, 1}))->ring->id;
    }
  }
  for (int i = 0; i < 3; ++i) CHECK(ids[0][i] == ids[1][i]);
  CHECK(ids[0][0] != ids[0][1]);
}

TEST_CASE("communicators: a call that fails on all ranks, or on one that repeats it, does not count") {
  std::map<std::string, uint64_t> ids[3];
  for (int rank = 0; rank < 3; ++rank) {
    Rank me(rank, 3);
    const Ranks all = {0, 1, 2};
    auto failing = [&](CallId id) {
      Event e = fake::make_event(me.thread(), id);
      e.comm_handle = fake::kCommWorld;
      e.tag = 0;
      e.requests = e.new_comm = nullptr;
      e.group = 1;
      fake::call(e, 16);
    };
    fake::library.groups[1] = all;
    me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "first", all);
    failing(CallId::kMPI_Comm_split);
    if (rank == 1)
      for (CallId id :
           {CallId::kMPI_Comm_dup, CallId::kMPI_Comm_split, CallId::kMPI_Comm_idup, CallId::kMPI_Comm_create_group})
        failing(id);
    me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "second", all);
    if (rank == 2) failing(CallId::kMPI_Comm_create);
    me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "third", all);
    me.create(CallId::kMPI_Comm_create_group, fake::kCommWorld, "group", all, {}, 0, 1);
    ids[rank] = me.ids;
  }
  CHECK(ids[0] == ids[1]);
  CHECK(ids[0] == ids[2]);
  CHECK(ids[0]["first"] != ids[0]["second"]);
  CHECK(ids[0]["second"] != ids[0]["third"]);
}

TEST_CASE("communicators: a spawned world has ids of its own") {
  std::set<uint64_t> ids;
  for (int world : {0, 1, 2}) {
    Rank me(0);
    resil::runtime.world = world;
    resil::tables_create();
    for (uint32_t i = 2; i < 4; ++i) resil::runtime.comms[i] = {};
    resil::comm_register_predefined();
    ids.insert(me.find(fake::kCommWorld)->ring->id);
    me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "dup", {0, 1, 2, 3, 4, 5});
    ids.insert(me.ids["dup"]);
  }
  CHECK(ids.size() == 6);
}

TEST_CASE("communicators: made out of sight, the same on all members and numbered") {
  std::vector<uint64_t> first;
  for (int rank : {1, 3}) {
    Rank me(rank);
    std::vector<uint64_t> ids;
    for (uint64_t handle : {0x91, 0x92}) {
      fake::Comm comm;
      comm.local = {1, 3};
      fake::add_comm(handle + static_cast<uint64_t>(rank), comm);
      CommInfo* info = me.find(handle + static_cast<uint64_t>(rank));
      REQUIRE(info != nullptr);
      ids.push_back(info->ring->id);
      CHECK(me.find(handle + static_cast<uint64_t>(rank)) == info);
    }
    CHECK(ids[0] != ids[1]);
    if (first.empty()) first = ids;
    CHECK(ids == first);
  }
}

TEST_CASE("communicators: a null or unknown handle has none, and world ranks are translated") {
  Rank me(2);
  CHECK(me.find(fake::kCommNull) == nullptr);
  CHECK(fake::library.unknown_handles == 0);  // MPI_COMM_NULL is not asked about
  fake::library.unknown_handles = 0;
  CHECK(me.find(0xdead) == nullptr);
  uint64_t handle = me.create(CallId::kMPI_Comm_split, fake::kCommWorld, "even", {4, 2, 0});
  CommInfo& comm = *me.find(handle);
  CHECK(comm.rank == 1);
  CHECK(comm.size == 3);
  for (int round = 0; round < 2; ++round) {
    CHECK(resil::comm_world_rank(comm, 0) == 4);
    CHECK(resil::comm_world_rank(comm, 2) == 0);
    CHECK(resil::comm_world_rank(comm, 3) == -1);
    CHECK(resil::comm_world_rank(comm, -1) == -1);
    CHECK(resil::comm_world_rank(*me.find(fake::kCommWorld), 5) == 5);
  }
  CommInfo& inter = *me.find(me.create(CallId::kMPI_Intercomm_create, handle, "inter", {4, 2, 0}, {5, 3}));
  CHECK(inter.remote_size == 2);
  CHECK(resil::comm_world_rank(inter, 0) == 5);  // the remote group is who one talks to
  CHECK((inter.ring->flags & 1) == 0);
}

TEST_CASE("communicators: an intercommunicator to another world says that only this side knows its id") {
  Rank me(0);
  Event e = fake::make_event(me.thread(), CallId::kMPI_Comm_spawn);
  e.comm = me.find(fake::kCommWorld);
  e.derived_id = resil::comm_derive_id(e);
  fake::Comm comm;
  comm.local = {0, 1};
  comm.remote = {-1, -1};
  comm.inter = true;
  fake::add_comm(0x99, comm);
  resil::comm_register_new(me.thread(), 0x99, e.derived_id, e.comm, e.id, 0);
  CHECK((me.find(0x99)->ring->flags & 1) == 1);
}

TEST_CASE("communicators: beyond the table they share one entry, and places come back") {
  Rank me(0);
  const Ranks all = {0, 1, 2, 3, 4, 5};
  const size_t places = resil::runtime.comm_count - 2 - 2;  // none, others; world, self
  std::vector<uint64_t> handles;
  for (size_t i = 0; i < places + 50; ++i)
    handles.push_back(me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "x", all));
  CommInfo* others = me.find(handles.back());
  REQUIRE(others != nullptr);
  CHECK(others->index == 1);
  CHECK(others->size == -1);
  CHECK(resil::comm_world_rank(*others, 3) == -1);
  CHECK(me.find(handles[places - 1])->index != 1);
  Event e = fake::make_event(me.thread(), CallId::kMPI_Alltoallv);  // no size is known, so nothing is read
  e.comm = others;
  CHECK(resil::compute_bytes(e) == 0);
  fake::free_comm(handles[7]);
  uint64_t reborn = me.create(CallId::kMPI_Comm_dup, fake::kCommWorld, "y", all);
  CHECK(me.find(reborn)->index != 1);
  CHECK(me.ids["y"] != me.ids["x"]);
  for (size_t i = 0; i < handles.size(); ++i)
    if (i != 7) fake::free_comm(handles[i]);
  fake::free_comm(reborn);
  for (uint32_t i = 4; i < resil::runtime.comm_count; ++i) CHECK(resil::runtime.comms[i].id == 0);
}

TEST_CASE("communicators: a reused handle never meets the old entry, in any cache") {
  Rank me(0);
  std::set<uint64_t> ids;
  for (int round = 0; round < 3000; ++round) {
    const uint64_t handle = 0x84000200 + static_cast<uint64_t>(round % 3);
    const Ranks members = round % 2 == 0 ? Ranks{0, 1} : Ranks{0, 2, 3};
    Event e = fake::make_event(me.thread(), CallId::kMPI_Comm_split);
    e.comm = me.find(fake::kCommWorld);
    e.derived_id = resil::comm_derive_id(e);
    fake::Comm comm;
    comm.local = members;
    fake::add_comm(handle, comm);
    resil::comm_register_new(me.thread(), handle, e.derived_id, e.comm, e.id, 0);
    // Through the call path as well: one call site, whose cached envelope must not outlive the communicator.
    Event barrier = fake::make_event(me.thread(), CallId::kMPI_Barrier, 0x4000);
    barrier.comm_handle = handle;
    REQUIRE(fake::call(barrier));
    REQUIRE(barrier.comm->handle == handle);
    REQUIRE(barrier.comm->size == static_cast<int>(members.size()));
    REQUIRE(barrier.sequence == 1);
    REQUIRE(ids.insert(barrier.comm->ring->id).second);
    fake::free_comm(handle);
  }
}

TEST_CASE("communicators: when MPI refuses the attribute, the communicator counts among the others") {
  Rank me(0);
  fake::library.attach_works = false;
  fake::Comm comm;
  comm.local = {0, 1};
  fake::add_comm(0x50, comm);
  for (int i = 0; i < 2; ++i) {
    Event barrier = fake::make_event(me.thread(), CallId::kMPI_Barrier, 0x4000);
    barrier.comm_handle = 0x50;
    REQUIRE(fake::call(barrier));
    CHECK(barrier.comm->index == 1);
  }
}

TEST_CASE("communicators: threads that create, use and free their own") {
  Rank me(0);
  constexpr unsigned kThreads = 8;
  std::vector<std::thread> threads;
  std::vector<std::set<uint64_t>> ids(kThreads);
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto state = fake::make_thread(t % resil::runtime.trace_count);
      std::mt19937 random(t);
      std::vector<uint64_t> mine;
      // A communicator of its own to dup, so that ids follow from this thread's order alone.
      for (int step = 0; step < 300; ++step) {
        if (mine.size() < 8 && random() % 3 != 0) {
          const uint64_t handle = 0x84001000 + t * 64 + random() % 64;  // reused soon
          if (std::find(mine.begin(), mine.end(), handle) != mine.end()) continue;
          Event e = fake::make_event(*state, CallId::kMPI_Comm_dup);
          e.comm = resil::comm_lookup(*state, mine.empty() ? fake::kCommWorld : mine[0]);
          e.derived_id = resil::comm_derive_id(e);
          fake::Comm comm;
          comm.local.assign(1 + t, 0);
          fake::add_comm(handle, comm);
          resil::comm_register_new(*state, handle, e.derived_id, e.comm, e.id, 0);
          mine.push_back(handle);
          ids[t].insert(resil::comm_lookup(*state, handle)->ring->id);
        } else if (!mine.empty()) {
          size_t which = random() % mine.size();
          CommInfo* info = resil::comm_lookup(*state, mine[which]);
          if (info == nullptr || info->handle != mine[which] || info->size != static_cast<int>(1 + t)) ++wrong;
          fake::free_comm(mine[which]);
          mine.erase(mine.begin() + static_cast<long>(which));
        }
      }
      for (uint64_t handle : mine) fake::free_comm(handle);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  std::set<uint64_t> all;
  size_t total = 0;
  for (auto& some : ids) {
    all.insert(some.begin(), some.end());
    total += some.size();
  }
  CHECK(all.size() == total);
  size_t live = 0;
  for (uint32_t i = 2; i < resil::runtime.comm_count; ++i) live += resil::runtime.comms[i].id != 0;
  CHECK(live == 2);
}

TEST_CASE("communicators: a communicator that all threads meet first gets one entry") {
  Rank me(0);
  for (int round = 0; round < 100; ++round) {
    const uint64_t handle = 0x84005000;
    fake::Comm comm;
    comm.local = {0, 1, 2};
    fake::add_comm(handle, comm);
    CommInfo* seen[4] = {};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        auto state = fake::make_thread(t);
        seen[t] = resil::comm_lookup(*state, handle);
      });
    for (std::thread& thread : threads) thread.join();
    for (CommInfo* info : seen) CHECK((info != nullptr && info == seen[0]));
    fake::free_comm(handle);
  }
}
