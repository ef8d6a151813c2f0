// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a call names, for every shape; arguments that are not significant are garbage in every event here,
// and asking for a garbage datatype or reading a garbage array fails the test.
#include <cstring>
#include <set>

#include "check.h"
#include "fake_backend.h"

namespace {

using resil::CallId;
using resil::compute_bytes;
using resil::DataArgument;
using resil::Event;
namespace ring = resil::ring;

constexpr uint64_t kInter = 0x84000010, kCart = 0x84000011, kSub = 0x84000012;

/// An event on a communicator, with the given root (a rank, or kRootSelf and kProcNull on an intercommunicator).
Event on(resil::Thread& thread, CallId id, uint64_t comm, int root = ring::kNoPeer) {
  Event e = fake::make_event(thread, id);
  e.comm_handle = comm;
  e.comm = resil::comm_lookup(thread, comm);
  e.peer = root;
  return e;
}

void fill(DataArgument& side, int64_t count, uint64_t type, const void* buffer = nullptr) {
  side.buffer = buffer;
  side.count = count;
  side.type = type;
}

/// Rank 1 of 4; an intercommunicator with 2 here and 3 there; a topology with 2 in and 3 out; a pair {3, 1}.
struct World : fake::Core {
  World() : Core(1, 4) {
    fake::Comm inter;
    inter.local = {0, 1};
    inter.remote = {4, 5, 6};
    inter.inter = true;
    fake::add_comm(kInter, inter);
    fake::Comm cart;
    cart.local = {0, 1, 2, 3};
    cart.degree_in = 2;
    cart.degree_out = 3;
    fake::add_comm(kCart, cart);
    fake::Comm sub;
    sub.local = {3, 1};
    fake::add_comm(kSub, sub);
  }
  ~World() { CHECK(fake::library.unknown_handles == 0); }
};

}  // namespace

TEST_CASE("bytes: point-to-point, one-sided and I/O look at their one side") {
  World world;
  for (CallId id : {CallId::kMPI_Send, CallId::kMPI_Isend, CallId::kMPI_Ssend_init, CallId::kMPI_Put,
                    CallId::kMPI_Send_c, CallId::kMPI_File_write, CallId::kMPI_Sendrecv}) {
    Event e = on(world.thread(), id, fake::kCommWorld, 2);
    fill(e.send, 10, fake::kPair);
    INFO(resil::call_info(id).name);
    CHECK(compute_bytes(e) == 120);
    fill(e.send, 0, 0xbadbad);  // a zero count: nothing else is looked at
    CHECK(compute_bytes(e) == 0);
    fill(e.send, -5, fake::kPair);  // an error, and MPI's to report
    CHECK(compute_bytes(e) == 0);
  }
  for (CallId id : {CallId::kMPI_Recv, CallId::kMPI_Irecv, CallId::kMPI_Recv_init, CallId::kMPI_Get,
                    CallId::kMPI_File_read, CallId::kMPI_Mrecv, CallId::kMPI_Get_accumulate}) {
    Event e = on(world.thread(), id, fake::kCommWorld, 2);
    fill(e.receive, 10, fake::kPair);
    INFO(resil::call_info(id).name);
    CHECK(compute_bytes(e) == 120);
  }
  Event e = on(world.thread(), CallId::kMPI_Send_c, fake::kCommWorld, 2);
  fill(e.send, int64_t{1} << 40, fake::kDouble);
  CHECK(compute_bytes(e) == uint64_t{1} << 43);
}

TEST_CASE("bytes: partitioned calls multiply by their partitions") {
  World world;
  Event e = on(world.thread(), CallId::kMPI_Psend_init, fake::kCommWorld, 0);
  fill(e.send, 5, fake::kDouble);
  e.partitions = 7;
  CHECK(compute_bytes(e) == 280);
  e = on(world.thread(), CallId::kMPI_Precv_init, fake::kCommWorld, 0);
  fill(e.receive, 5, fake::kDouble);
  e.partitions = 3;
  CHECK(compute_bytes(e) == 120);
}

TEST_CASE("bytes: rooted data counts on every rank, but not on bystanders") {
  World world;
  for (CallId id : {CallId::kMPI_Bcast, CallId::kMPI_Ibcast, CallId::kMPI_Reduce}) {
    for (int root : {0, 1}) {
      Event e = on(world.thread(), id, fake::kCommWorld, root);
      fill(e.send, 4, fake::kDouble);
      CHECK(compute_bytes(e) == 32);
    }
    Event e = on(world.thread(), id, kInter, ring::kProcNull);  // all arguments but the root are garbage
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, ring::kRootSelf);
    fill(e.send, 4, fake::kDouble);
    CHECK(compute_bytes(e) == 32);
  }
}

TEST_CASE("bytes: gather counts what this rank sends") {
  World world;
  for (CallId id : {CallId::kMPI_Gather, CallId::kMPI_Gatherv, CallId::kMPI_Igather, CallId::kMPI_Gather_c}) {
    Event e = on(world.thread(), id, fake::kCommWorld, 0);  // not the root: the receiving side is garbage
    fill(e.send, 3, fake::kDouble, &e);
    CHECK(compute_bytes(e) == 24);
    e = on(world.thread(), id, fake::kCommWorld, 1);  // the root
    fill(e.send, 3, fake::kDouble, &e);
    CHECK(compute_bytes(e) == 24);
    e = on(world.thread(), id, fake::kCommWorld, 1);
    e.send.buffer = fake::in_place();  // count and type are not significant then
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, 2);  // a sender of the other group's root
    fill(e.send, 3, fake::kDouble, &e);
    CHECK(compute_bytes(e) == 24);
    e = on(world.thread(), id, kInter, ring::kRootSelf);  // sends nothing: its sending side is garbage
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, ring::kProcNull);
    CHECK(compute_bytes(e) == 0);
  }
}

TEST_CASE("bytes: scatter counts what this rank receives") {
  World world;
  for (CallId id : {CallId::kMPI_Scatter, CallId::kMPI_Scatterv, CallId::kMPI_Iscatterv, CallId::kMPI_Scatterv_c}) {
    for (int root : {0, 1}) {
      Event e = on(world.thread(), id, fake::kCommWorld, root);
      fill(e.receive, 6, fake::kPair, &e);
      CHECK(compute_bytes(e) == 72);
    }
    Event e = on(world.thread(), id, fake::kCommWorld, 1);
    e.receive.buffer = fake::in_place();
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, ring::kRootSelf);
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, ring::kProcNull);
    CHECK(compute_bytes(e) == 0);
    e = on(world.thread(), id, kInter, 0);
    fill(e.receive, 6, fake::kPair, &e);
    CHECK(compute_bytes(e) == 72);
  }
}

TEST_CASE("bytes: allgather, also in place and with counts") {
  World world;
  Event e = on(world.thread(), CallId::kMPI_Allgather, fake::kCommWorld);
  fill(e.send, 3, fake::kDouble, &e);
  CHECK(compute_bytes(e) == 24);
  e = on(world.thread(), CallId::kMPI_Allgather, fake::kCommWorld);
  e.send.buffer = fake::in_place();
  fill(e.receive, 5, fake::kDouble);
  CHECK(compute_bytes(e) == 40);
  const int counts[] = {1, 20, 300, 4000};
  e = on(world.thread(), CallId::kMPI_Allgatherv, fake::kCommWorld);
  e.send.buffer = fake::in_place();
  e.receive.counts = counts;
  e.receive.type = fake::kDouble;
  CHECK(compute_bytes(e) == 160);
  const int64_t large[] = {1, int64_t{1} << 33};  // this rank is rank 1 of {3, 1}
  e = on(world.thread(), CallId::kMPI_Allgatherv_c, kSub);
  e.send.buffer = fake::in_place();
  e.receive.counts = large;
  e.receive.type = fake::kDouble;
  CHECK(compute_bytes(e) == uint64_t{1} << 36);
}

TEST_CASE("bytes: alltoall, v and w, in place, and to the remote group") {
  World world;
  Event e = on(world.thread(), CallId::kMPI_Alltoall, fake::kCommWorld);
  fill(e.send, 2, fake::kDouble, &e);
  CHECK(compute_bytes(e) == 64);
  e = on(world.thread(), CallId::kMPI_Ialltoall, kInter);
  fill(e.send, 2, fake::kDouble, &e);
  CHECK(compute_bytes(e) == 48);
  e = on(world.thread(), CallId::kMPI_Alltoall, fake::kCommWorld);
  e.send.buffer = fake::in_place();
  fill(e.receive, 1, fake::kPair);
  CHECK(compute_bytes(e) == 48);

  const int counts[] = {1, 0, 3, 4};  // exactly as many as ranks: reading on would be caught by the address sanitizer
  for (bool in_place : {false, true}) {
    e = on(world.thread(), CallId::kMPI_Alltoallv, fake::kCommWorld);
    e.send.buffer = in_place ? fake::in_place() : &e;
    DataArgument& side = in_place ? e.receive : e.send;
    (in_place ? e.send : e.receive).counts = reinterpret_cast<void*>(0xa7a7a7a7a7a7a7a7);
    side.counts = counts;
    side.type = fake::kDouble;
    CHECK(compute_bytes(e) == 64);
  }
  e = on(world.thread(), CallId::kMPI_Alltoallv, kInter);
  e.send.buffer = &e;
  e.send.counts = counts;
  e.send.type = fake::kDouble;
  CHECK(compute_bytes(e) == 32);  // three partners
  const int none[] = {0, 0, 0, 0};
  e.send.counts = none;
  e.send.type = 0xbadbad;  // nobody gets anything: the type is not asked about
  CHECK(compute_bytes(e) == 0);

  const uint64_t types[] = {fake::kByte, 0xbadbad, fake::kDouble, fake::kPair};  // no elements of the second
  e = on(world.thread(), CallId::kMPI_Alltoallw, fake::kCommWorld);
  e.send.buffer = &e;
  e.send.counts = counts;
  e.send.types = types;
  CHECK(compute_bytes(e) == 1 + 24 + 48);
  fake::set_handle_bytes(4);
  const uint32_t narrow[] = {fake::kByte, 0xbadbad, fake::kDouble, static_cast<uint32_t>(fake::kPair)};
  e.send.types = narrow;
  CHECK(compute_bytes(e) == 1 + 24 + 48);
}

TEST_CASE("bytes: reduce_scatter counts over the local group") {
  World world;
  const int counts[] = {1, 2, 3, 4};
  Event e = on(world.thread(), CallId::kMPI_Reduce_scatter, fake::kCommWorld);
  e.receive.counts = counts;
  e.receive.type = fake::kDouble;
  CHECK(compute_bytes(e) == 80);
  e = on(world.thread(), CallId::kMPI_Ireduce_scatter, kInter);
  e.receive.counts = counts;
  e.receive.type = fake::kDouble;
  CHECK(compute_bytes(e) == 24);
  e = on(world.thread(), CallId::kMPI_Reduce_scatter_block, fake::kCommWorld);
  fill(e.receive, 5, fake::kPair);
  CHECK(compute_bytes(e) == 240);
}

TEST_CASE("bytes: neighbourhoods, asked for once") {
  World world;
  const int counts[] = {1, 2, 3};
  const uint64_t types[] = {fake::kByte, fake::kDouble, fake::kPair};
  for (int round = 0; round < 3; ++round) {
    Event e = on(world.thread(), CallId::kMPI_Neighbor_alltoall, kCart);
    fill(e.send, 2, fake::kDouble);
    CHECK(compute_bytes(e) == 48);
    e = on(world.thread(), CallId::kMPI_Neighbor_alltoallv, kCart);
    e.send.counts = counts;
    e.send.type = fake::kDouble;
    CHECK(compute_bytes(e) == 48);
    e = on(world.thread(), CallId::kMPI_Neighbor_alltoallw, kCart);
    e.send.counts = counts;
    e.send.types = types;
    CHECK(compute_bytes(e) == 1 + 16 + 36);
    e = on(world.thread(), CallId::kMPI_Neighbor_allgather, kCart);
    fill(e.send, 2, fake::kDouble);
    CHECK(compute_bytes(e) == 16);
    e = on(world.thread(), CallId::kMPI_Neighbor_alltoallw, fake::kCommWorld);  // no topology: MPI's error to report
    e.send.counts = nullptr;
    CHECK(compute_bytes(e) == 0);
  }
  CHECK(fake::library.degree_questions == 2);
}

TEST_CASE("bytes: no call looks at anything when the communicator is unknown or null") {
  World world;
  std::set<resil::Collective> seen;
  for (unsigned id = 0; id < resil::kCallCount; ++id) {
    const auto& info = resil::call_info(static_cast<CallId>(id));
    if (!info.has(resil::kCallHasData)) seen.insert(info.collective);
    if (info.has(resil::kCallHasData | resil::kCallPartitioned) && !resil::has_root(info.collective)) continue;
    Event e = fake::make_event(world.thread(), static_cast<CallId>(id));
    INFO(info.name);
    CHECK(compute_bytes(e) == 0);
  }
  // Seven with arguments of blocks, each with a test above; MPI_Barrier, and what is no collective.
  CHECK(seen.size() == 9);
  CHECK(fake::library.type_questions == 0);
}

TEST_CASE("bytes: the size of a type is asked once, and again after a handle may have been reused") {
  World world;
  auto size = [&](uint64_t type) { return resil::type_size(world.thread(), type); };
  for (int i = 0; i < 5; ++i) CHECK(size(fake::kPair) == 12);
  CHECK(fake::library.type_questions == 1);
  resil::forget_type(&world.thread(), fake::kPair);
  fake::library.types[fake::kPair] = 20;
  CHECK(size(fake::kPair) == 20);
  CHECK(fake::library.type_questions == 2);
  // Two types in one place of the cache take turns and stay right.
  for (int i = 0; i < 200; ++i) fake::library.types[0x90000000 + static_cast<uint64_t>(i) * resil::kTypeCache] = i;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 200; ++i) CHECK(size(0x90000000 + static_cast<uint64_t>(i) * resil::kTypeCache) == i);
}
