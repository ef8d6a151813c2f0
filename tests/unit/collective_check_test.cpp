// SPDX-License-Identifier: Apache-2.0
//
// Checks of collectives, on simulated ranks: random collectives that go right are never called wrong and leave nothing
// open; one changed byte is found, and where a majority or a root can tell, the right rank is named.
#include <cmath>
#include <cstring>
#include <limits>

#include "check.h"
#include "checksum/collective/linear.h"
#include "collective_calls.h"

namespace {

using resil::OpKind;
using unit::Args;
using unit::Call;
using unit::Group;
using unit::How;
using unit::Style;
using unit::Transfer;
using unit::World;
namespace ledger = resil::ledger;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kThorough = false;  // which the run without sanitizers is
#else
constexpr bool kThorough = true;
#endif

std::vector<int> all(int size) {
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(i);
  return ranks;
}

How any_way(World& world) { return static_cast<How>(world.random() % 3); }

/// Nothing found, nothing left open, no datatype still held.
void all_right(World& world) {
  world.settle(true);
  const RankState state = world.total();
  INFO(state.last);
  CHECK(state.findings == 0);
  CHECK(state.mismatches == 0);
  CHECK(state.cases == 0);
  CHECK(state.pending == 0);
  CHECK(state.unverified == 0);
  CHECK(state.held == 0);
}

/// A ring, edges to higher ranks, self edges and a doubled edge.
std::vector<std::pair<int, int>> some_edges(int n) {
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; i < n; ++i) {
    edges.push_back({i, (i + 1) % n});
    edges.push_back({i, (i + n - 1) % n});
    if (i > 0) edges.push_back({0, i});
  }
  edges.push_back({n - 1, n - 1});
  return edges;
}

void random_one(World& world, Group& group, Group& topology, const std::vector<std::pair<int, int>>& edges) {
  const char* kMoving[] = {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall"};
  const int n = static_cast<int>(group.members.size()),
            root = static_cast<int>(world.random() % static_cast<unsigned>(n));
  Style style;
  style.type = world.random() % 3 == 0 ? kStride : kInt;
  style.in_place = world.random() % 2;
  const std::string name = kMoving[world.random() % 5];
  style.vector = name != "Bcast" && world.random() % 2;
  if (name == "Alltoall" && world.random() % 3 == 0) style.typed = true, style.vector = false;
  Call call;
  switch (world.random() % 4) {
    case 0: {
      Style other = style;
      other.in_place = false;
      const bool exchange = world.random() % 2;
      other.typed = exchange && world.random() % 3 == 0;
      other.vector = !other.typed && world.random() % 2;
      Call neighbours =
          unit::neighbouring(world, topology, exchange ? "Neighbor_alltoall" : "Neighbor_allgather", other, edges);
      return world.run(neighbours, any_way(world), 3);
    }
    case 1: {
      const char* kReducing[] = {"Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"};
      const uint64_t kTypes[] = {kInt, kUnsigned, kLong, kByte, kDouble, kFloat};
      const uint64_t type = kTypes[world.random() % 6];
      const OpKind kOps[] = {OpKind::kSum, OpKind::kMin, OpKind::kMax, OpKind::kProd, OpKind::kBxor, OpKind::kBand};
      const OpKind op = kOps[world.random() % (type == kDouble || type == kFloat ? 4 : 6)];
      call = unit::reducing(world, group, kReducing[world.random() % 6], type, op, style.in_place,
                            static_cast<int>(world.random() % 700) + 1, root);
      // Random bytes are no floating numbers: those are refilled only where they were made.
      return world.run(call, type == kDouble || type == kFloat ? static_cast<How>(world.random() % 2) : any_way(world),
                       3);
    }
    default: call = unit::moving(world, group, name, style, root); return world.run(call, any_way(world), 3);
  }
}

/// Flips a bit of a byte that was transferred, in member `victim`'s receive buffer. False: it got nothing.
bool flip(World& world, Call& call, int victim, bool from_others) {
  std::vector<Transfer> to;
  for (const Transfer& t : call.transfers)
    if (t.to == victim && t.count > 0 && (!from_others || t.from != victim)) to.push_back(t);
  if (to.empty()) return false;
  const Transfer& t = to[world.random() % to.size()];
  const size_t element = world.random() % static_cast<unsigned>(t.count);
  const size_t at = t.into + element * unit::extent_of(call.type) + world.random() % unit::size_of(call.type);
  call.args[static_cast<size_t>(victim)].receive[at] ^= static_cast<char>(1 << world.random() % 8);
  return true;
}

Call constant(World& world, Group& group, uint64_t type, OpKind op, int count) {
  Call call = unit::reducing(world, group, "Allreduce", type, op, false, count);
  for (Args& args : call.args) std::fill(args.send.begin(), args.send.end(), 0);
  return call;
}

}  // namespace

TEST_CASE("collectives: what goes right is never called wrong, in any variant and order") {
  for (int size = 1; size <= 7; ++size) {
    World world(size, static_cast<unsigned>(size));
    const int calls = kThorough ? 250 : 80;
    std::vector<int> reversed;
    for (int i = size; i-- > 0;) reversed.push_back(i);
    Group groups[] = {world.group(all(size)), world.group(reversed)};
    const auto edges = some_edges(size);
    Group topology = world.topology(all(size), edges);
    for (int i = 0; i < calls; ++i) random_one(world, groups[world.random() % 2], topology, edges);
    all_right(world);
    CHECK(world.total().checked > static_cast<unsigned>(calls));
  }
}

TEST_CASE("collectives: on intercommunicators too") {
  for (int first = 1; first <= 4; ++first) {
    World world(5, static_cast<unsigned>(first));
    std::vector<int> one, two;
    for (int i = 0; i < 5; ++i) (i < first ? one : two).push_back(4 - i);
    Group group = world.between(one, two);
    const char* kNames[] = {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall"};
    for (int i = 0; i < (kThorough ? 60 : 20); ++i) {
      Call call = unit::across(world, group, kNames[i % 5], first);
      world.run(call, any_way(world), 2);
    }
    all_right(world);
    const uint64_t checked = world.total().checked;
    CHECK(checked > (kThorough ? 60 : 20));
    for (const char* name : kNames) {
      World wrong(5, static_cast<unsigned>(first));
      Group same = wrong.between(one, two);
      Call call = unit::across(wrong, same, name, first);
      const int victim = std::string(name) == "Gather" ? 0 : 4;
      call.tamper = [&](Call& of) { REQUIRE(flip(wrong, of, victim, true)); };
      wrong.run(call, How::kBlocking);
      wrong.settle(true);
      INFO(name << ", " << first << " and " << 5 - first);
      CHECK(wrong.total().findings + wrong.total().cases > 0);
    }
  }
}

TEST_CASE("collectives: one changed bit is found, whoever got it") {
  for (const char* name : {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall"})
    for (int round = 0; round < (kThorough ? 24 : 12); ++round) {
      const int size = 2 + round % 5;
      World world(size, static_cast<unsigned>(round));
      Group group = world.group(all(size));
      Style style;
      style.type = round % 2 ? kStride : kInt;
      style.vector = std::string(name) != "Bcast" && round % 3 == 0;
      style.typed = std::string(name) == "Alltoall" && round % 3 == 1;
      style.in_place = round % 4 == 3;
      const int root = round % size, victim = std::string(name) == "Gather" ? root : (root + 1) % size;
      bool changed = false;
      for (int i = 0; i < 6; ++i) {
        Call call = unit::moving(world, group, name, style, root);
        if (!changed) call.tamper = [&](Call& of) { changed = changed || flip(world, of, victim, true); };
        world.run(call, static_cast<How>(round % 3), 1);
      }
      world.settle(true);
      const RankState state = world.total();
      INFO(name << ", round " << round << ": " << state.last);
      if (!changed) continue;
      CHECK(state.findings + state.cases > 0);
      CHECK(state.pending == 0);
      for (int rank = 0; rank < size; ++rank)
        if (rank != victim) CHECK(state.culprits[rank] == 0);
      if (std::string(name) == "Bcast" || (std::string(name) == "Allgather" && size > 2))
        CHECK(state.culprits[victim] > 0);  // by the root's data, by a majority
    }
}

TEST_CASE("collectives: full blame tells broadcast and allgathered data from giver to getter") {
  struct Full {
    Full() { setenv("COLLECTIVE_RANK_FULL", "1", 1); }
    ~Full() { unsetenv("COLLECTIVE_RANK_FULL"); }
  } full;
  for (int size = 1; size <= 5; ++size) {
    World world(size, static_cast<unsigned>(size));
    Group group = world.group(all(size));
    const auto edges = some_edges(size);
    Group topology = world.topology(all(size), edges);
    for (int i = 0; i < 150; ++i) random_one(world, group, topology, edges);
    all_right(world);
  }
  World across(5, 1);
  Group between = across.between({0, 1}, {4, 3, 2});
  for (int i = 0; i < 30; ++i) {
    const char* kNames[] = {"Bcast", "Gather", "Scatter", "Allgather", "Alltoall"};
    Call call = unit::across(across, between, kNames[i % 5], 2);
    across.run(call, any_way(across), 2);
  }
  all_right(across);
  for (const char* name : {"Bcast", "Allgather"})
    for (int round = 0; round < 12; ++round) {
      const int size = 2 + round % 4;
      World world(size, static_cast<unsigned>(round));
      Group group = world.group(all(size));
      Style style;
      style.type = kInt;
      style.in_place = std::string(name) == "Allgather" && round % 4 == 3;
      bool changed = false;
      Call call = unit::moving(world, group, name, style, 0);
      call.tamper = [&](Call& of) { changed = changed || flip(world, of, 1, true); };
      world.run(call, static_cast<How>(round % 3), 1);
      world.settle(true);
      INFO(name << ", round " << round);
      if (changed) CHECK(world.state(1).cases == 1);  // between the two ranks that it is about
      CHECK(world.total().cases == (changed ? 1 : 0));
      CHECK(world.total().findings == 0);
    }
}

TEST_CASE("collectives: neighbours, also over repeated edges") {
  for (int round = 0; round < 20; ++round) {
    const int size = 1 + round % 4;
    World world(size, static_cast<unsigned>(round));
    const auto edges = some_edges(size);
    Group group = world.topology(all(size), edges);
    Style style;
    style.vector = round % 2;
    Call call = unit::neighbouring(world, group, round % 3 ? "Neighbor_alltoall" : "Neighbor_allgather", style, edges);
    bool changed = false;
    call.tamper = [&](Call& of) { changed = flip(world, of, size - 1, false); };
    world.run(call, static_cast<How>(round % 3));
    world.settle(true);
    const RankState state = world.total();
    INFO("round " << round);
    if (changed)  // multiset lanes: what was left over is told at drains
      CHECK(state.cases + state.findings + state.pending > 0);
  }
}

TEST_CASE("collectives: blocks over repeated edges may arrive in any order") {
  World world(2);
  const std::vector<std::pair<int, int>> twice = {{0, 1}, {0, 1}, {1, 0}, {1, 0}};  // a periodic dimension of two
  Group group = world.topology({0, 1}, twice);
  for (int i = 0; i < 10; ++i) {
    Call call = unit::neighbouring(world, group, "Neighbor_alltoall", {}, twice);
    std::swap(call.transfers[0].into, call.transfers[1].into);
    world.run(call, any_way(world));
  }
  all_right(world);
  CHECK(world.total().checked > 10);
}

TEST_CASE("collectives: integer sums are added up, whoever has the result") {
  for (const char* name : {"Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"})
    for (OpKind op : {OpKind::kSum, OpKind::kBxor})
      for (uint64_t type : {kInt, kUnsigned, kLong})
        for (int round = 0; round < 6; round += kThorough ? 1 : 2) {
          const int size = 2 + round;
          World world(size, static_cast<unsigned>(round));
          Group group = world.group(all(size));
          const bool prefix = name[1] == 'c' || name[0] == 'E';
          for (bool wrong : {false, true}) {
            Call call = unit::reducing(world, group, name, type, op, round % 2, 600, size / 2);
            if (wrong)  // the same wrong result wherever there is one: only its arithmetic can tell
              call.tamper = [&](Call& of) {
                for (int i = 0; i < size; ++i)
                  if (!prefix || i == size - 1) of.args[static_cast<size_t>(i)].receive[0] ^= 4;
              };
            world.run(call, static_cast<How>(round % 2));
            world.settle(true);
            const RankState state = world.total();
            INFO(name << ", type " << type << ", operator " << static_cast<int>(op) << ", " << size
                      << " ranks: " << state.last);
            CHECK(state.findings == (wrong ? 1 : 0));
            CHECK(state.pending + state.unverified == 0);
            CHECK(state.uncovered[static_cast<int>(ledger::Reason::kReduction)] == 0);
          }
        }
}

TEST_CASE("collectives: one buffer for contribution and result is no false alarm") {
  World world(4);
  Group group = world.group(all(4));
  for (const char* name : {"Allreduce", "Reduce", "Scan"}) {
    Call call = unit::reducing(world, group, name, kInt, OpKind::kSum, true, 30, 1);
    for (Args& args : call.args)
      if (args.in_place) args.sending.buffer = args.receiving.buffer = args.receive.data();
    world.run(call, How::kBlocking);
  }
  all_right(world);
  CHECK(world.total().checked > 0);
}

TEST_CASE("collectives: an odd result is out-voted") {
  for (int size = 3; size <= 7; ++size)
    for (int odd = 0; odd < size; ++odd) {
      World world(size, static_cast<unsigned>(odd));
      Group group = world.group(all(size));
      Call call = unit::reducing(world, group, "Allreduce", kDouble, OpKind::kSum, false, 50);
      call.tamper = [odd](Call& of) { of.args[static_cast<size_t>(odd)].receive[7] ^= 1; };
      world.run(call, How::kBlocking);
      world.settle(true);
      const RankState state = world.total();
      INFO(size << " ranks, " << odd << ": " << state.last);
      CHECK(state.findings > 0);
      CHECK(state.mismatches == state.findings);
      for (int rank = 0; rank < size; ++rank) CHECK((state.culprits[rank] > 0) == (rank == odd));
    }
  World two(2);
  Group group = two.group(all(2));
  Call call = unit::reducing(two, group, "Allreduce", kDouble, OpKind::kSum, false, 50);
  call.tamper = [](Call& of) { of.args[1].receive[7] ^= 1; };
  two.run(call, How::kBlocking);
  two.settle(true);
  CHECK(two.total().findings == 1);
  CHECK(two.total().culprits[0] + two.total().culprits[1] == 0);  // one word against the other
}

TEST_CASE("collectives: what correct libraries may do differently on two ranks is no difference") {
  World world(4);
  Group group = world.group(all(4));
  auto place = [](Call& of, size_t rank, size_t at, const void* value, size_t bytes) {
    memcpy(&of.args[rank].receive[at], value, bytes);
  };
  SECTION("payload and sign of a NaN") {
    for (uint64_t type : {kFloat, kDouble}) {
      Call call = constant(world, group, type, OpKind::kSum, 9);
      const double nan = std::numeric_limits<double>::quiet_NaN(), other = -nan;
      const float narrow = std::numeric_limits<float>::quiet_NaN(), other_narrow = -narrow;
      call.tamper = [&](Call& of) {
        for (size_t rank = 0; rank < 4; ++rank)
          if (type == kDouble) place(of, rank, 16, rank % 2 ? &nan : &other, 8);
          else place(of, rank, 16, rank % 2 ? &narrow : &other_narrow, 4);
      };
      world.run(call, How::kBlocking);
    }
  }
  SECTION("sign of zero, and denormals, in minima and maxima") {
    const double zeros[] = {0.0, -0.0, 5e-324, -5e-324};
    for (OpKind op : {OpKind::kMin, OpKind::kMax}) {
      Call call = constant(world, group, kDouble, op, 9);
      for (Args& args : call.args)
        for (size_t i = 0; i < 9; ++i)
          memcpy(&args.send[8 * i], &zeros[op == OpKind::kMin ? 2 : 3], 8);  // no bound is broken
      call.compute = nullptr;
      call.tamper = [&](Call& of) {
        for (size_t rank = 0; rank < 4; ++rank)
          place(of, rank, 24, op == OpKind::kMin ? &zeros[rank % 2] : &zeros[rank % 2], 8);
      };
      for (Args& args : call.args) std::fill(args.receive.begin(), args.receive.end(), 0);
      world.run(call, How::kBlocking);
    }
  }
  SECTION("padding of long double and of pairs") {
    for (uint64_t type : {kLongDouble, kDoubleInt}) {
      Call call = constant(world, group, type, type == kLongDouble ? OpKind::kSum : OpKind::kMaxloc, 5);
      for (Args& args : call.args) args.send.resize(5 * 16), args.receive.assign(5 * 16, 0);
      call.compute = nullptr;
      call.tamper = [&](Call& of) {
        for (size_t rank = 0; rank < 4; ++rank) of.args[rank].receive[16 + 13] = static_cast<char>(rank);
      };
      world.run(call, How::kBlocking);
    }
  }
  SECTION("a NaN among the contributions makes minima arbitrary") {
    Call call = constant(world, group, kDouble, OpKind::kMin, 9);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    memcpy(&call.args[2].send[8], &nan, 8);
    call.compute = nullptr;
    call.tamper = [&](Call& of) {
      for (size_t rank = 0; rank < 4; ++rank) {
        std::fill(of.args[rank].receive.begin(), of.args[rank].receive.end(), 0);
        const double value = rank < 2 ? -1 : -2;
        place(of, rank, 8, &value, 8);
      }
    };
    world.run(call, How::kBlocking);
    world.settle(true);
    CHECK(world.total().findings == 0);
    CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kReduction)] > 0);
    return;
  }
  SECTION("products of complex numbers are not compared") {
    Call call = constant(world, group, kComplex, OpKind::kProd, 5);
    call.compute = nullptr;
    world.run(call, How::kBlocking);  // the receive buffers hold anything
    world.settle(true);
    CHECK(world.total().findings == 0);
    CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kReduction)] == 4);
    return;
  }
  SECTION("nor what users' operators make") {
    Call call = constant(world, group, kInt, OpKind::kUser, 5);
    call.compute = nullptr;
    world.run(call, How::kBlocking);
    world.settle(true);
    CHECK(world.total().findings == 0);
    CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kUserOperator)] == 4);
    return;
  }
  all_right(world);
}

TEST_CASE("collectives: a minimum above the own contribution is wrong, even if all ranks agree") {
  World world(3);
  Group group = world.group(all(3));
  Call call = unit::reducing(world, group, "Allreduce", kInt, OpKind::kMin, false, 20);
  for (Args& args : call.args) args.send.assign(args.send.size(), 1);
  call.compute = nullptr;
  call.tamper = [](Call& of) {
    for (Args& args : of.args) args.receive.assign(args.receive.size(), 2);
  };
  world.run(call, How::kBlocking);
  world.settle(true);
  CHECK(world.total().findings == 3);
  CHECK(std::string(world.total().last).find("contradicts") != std::string::npos);
}

TEST_CASE("collectives: one rank whose data cannot be read keeps the others from waiting and from false alarms") {
  for (const char* name : {"Bcast", "Allgather", "Alltoall", "Gather", "Scatter"}) {
    World world(5);
    Group group = world.group(all(5));
    Style style;
    style.most = 5;
    for (int i = 0; i < 4; ++i) {
      Call call = unit::moving(world, group, name, style, 1);
      call.args[3].sending.type = call.args[3].receiving.type = kOpaque;
      world.run(call, How::kBlocking);
    }
    all_right(world);
    INFO(name);
    CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kDatatype)] > 0);
  }
}

TEST_CASE("collectives: after an error on one rank its numbers are not trusted") {
  World world(3);
  Group group = world.group(all(3));
  Call failing = unit::moving(world, group, "Bcast", {}, 0);
  world.fails(failing, 1);
  for (int i = 0; i < 10; ++i) {
    for (const char* name : {"Bcast", "Allgather", "Alltoall"}) {
      Call call = unit::moving(world, group, name, {}, 0);
      world.run(call, How::kBlocking);
    }
    Call call = unit::reducing(world, group, "Allreduce", kInt, OpKind::kSum, false, 9);
    world.run(call, How::kNonblocking);
  }
  all_right(world);
  CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kError)] == 1);
  CHECK(world.total().uncovered[static_cast<int>(ledger::Reason::kOrderLost)] > 0);
  CHECK(world.total().checked > 0);  // the other two
}

TEST_CASE("collectives: abort ends the job once the finding is out") {
  World world(3, 1, true);
  Group group = world.group(all(3));
  Call call = unit::moving(world, group, "Bcast", {kInt, false, false, false, 40}, 0);
  while (call.transfers.empty() || call.transfers[0].count == 0) call = unit::moving(world, group, "Bcast", {}, 0);
  call.tamper = [&](Call& of) { flip(world, of, 1, true); };
  int status = 0;
  try {
    world.run(call, How::kBlocking);
    world.settle(true);
  } catch (int thrown) { status = thrown; }
  CHECK(status == 90);
  CHECK(world.total().findings == 1);
  CHECK(world.total().stopped);
}

TEST_CASE("linear digests: linear in all modes, at any offset; no single change is missed in a sum") {
  using namespace resil::collective;
  linear_prepare();
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const auto mode = static_cast<LinearMode>(1 + round % 3);
    const unsigned width = mode == LinearMode::kWidth4 ? 4 : mode == LinearMode::kWidth8 ? 8 : 1 + round % 8;
    const auto total = static_cast<int64_t>(random() % 3000 + 1);
    std::vector<char> a(static_cast<size_t>(total) * width), b(a.size()), sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<char>(random()), b[i] = static_cast<char>(random());
    for (size_t i = 0; i < a.size(); i += width) {
      uint64_t x = 0, y = 0;
      memcpy(&x, &a[i], width);
      memcpy(&y, &b[i], width);
      x = mode == LinearMode::kXor ? x ^ y : x + y;
      memcpy(&sum[i], &x, width);
    }
    const Linear both = linear_add(mode, linear_digest(mode, a.data(), width, 0, total, total),
                                   linear_digest(mode, b.data(), width, 0, total, total));
    const int64_t cut = static_cast<int64_t>(random() % static_cast<uint64_t>(total));
    const Linear parts =
        linear_add(mode, linear_digest(mode, sum.data(), width, 0, cut, total),
                   linear_digest(mode, &sum[static_cast<size_t>(cut) * width], width, cut, total - cut, total));
    INFO("mode " << static_cast<int>(mode) << ", " << total << " elements, cut at " << cut);
    CHECK(linear_subtract(mode, both, parts).zero());
    sum[random() % sum.size()] ^= static_cast<char>(1 << random() % 8);
    CHECK_FALSE(linear_subtract(mode, both, linear_digest(mode, sum.data(), width, 0, total, total)).zero());
  }
}
