// SPDX-License-Identifier: Apache-2.0
//
// The wait-for graph by hand: one-sided synchronisation, two groups.

#include "check.h"
#include "hang_says.h"

using namespace hang_test;

namespace {

World windowed(int32_t count) {
  World world(count);
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < count; ++rank) all.push_back(rank);
  world.comm(kWindow, all);
  return world;
}

void made(World& world, int32_t from, int32_t to, int32_t token, uint64_t times = 1) {
  world.count(token_comm(kWindow), from, to, token).sent = times;
}

}  // namespace

TEST_CASE("an exposure that nobody completes") {
  World world = windowed(3);
  world.block(0, kWinWaitCall, {token(1, kCompleteToken), token(2, kCompleteToken)});
  world.block(1, kRecvCall, {receive(0, 7)});
  made(world, 2, 0, kCompleteToken);
  auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kDeadlock);
  CHECK(verdict->confidence == resil::Confidence::kProved);
  CHECK(culprits(*verdict) == Ranks{0, 1});
  says(*verdict,
       "Rank 0 waits in MPI_Win_wait for MPI_Win_complete of rank 1, on a window at app+0x1000.0. Rank 1 has not "
       "called MPI_Win_complete.");
  says(*verdict, "Rank 1 waits in MPI_Recv from rank 0");

  SECTION("completed") { made(world, 1, 0, kCompleteToken); }
  SECTION("only before") {
    made(world, 1, 0, kCompleteToken, 4);
    world.ranks[0].parts[0].needed = 5;
    CHECK(world.judge());
    made(world, 1, 0, kCompleteToken, 5);
  }
  SECTION("computes") { world.ranks[1].activity = RankActivity::kComputing; }
  SECTION("not counted") { world.ranks[1].irregular = kLostWindow; }
  SECTION("not counted by the one who waits") { world.ranks[0].irregular = kLostWindow; }
  SECTION("another window there") { world.ranks[1].comms.pop_back(); }
  SECTION("nobody answers") { world.silent = {1}; }
  SECTION("the number is not known") { world.ranks[0].parts[0].needed = 0; }
  SECTION("other tokens in one count") { world.count(token_comm(kWindow), 1, 0, kOtherTags).sent = 1; }
  CHECK(!world.judge());
}

TEST_CASE("an access that nobody permits") {
  World world = windowed(2);
  world.block(0, kStartCall, {token(1, kPostToken, 1, kPermitted)});
  world.block(1, kBarrierCall, {collective(kBarrierCall, 1)});
  const auto verdict = world.judge();
  REQUIRE(verdict);
  says(*verdict, "Rank 1 (1 of 2) has waited 12.0 s in call 1 of MPI_Barrier");
  says(*verdict, "Rank 0 waits in MPI_Win_start for MPI_Win_post of rank 1, on a window");
  world.ranks[0].parts[0].flags = kPermitted | kMayBuffer;
  CHECK(!world.judge());
  REQUIRE(world.judge(true));
  CHECK(world.judge(true)->confidence == resil::Confidence::kVerified);
  made(world, 1, 0, kPostToken);
  CHECK(!world.judge(true));
}

TEST_CASE("a target that has finished posts no more") {
  World world = windowed(2);
  world.block(0, kCompleteCall, {token(1, kPostToken)});
  world.finish(1);
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kMissingRank);
  CHECK(culprits(*verdict) == Ranks{1});
}

TEST_CASE("locks") {
  World world = windowed(4);
  world.block(1, kUnlockCall, {lock(2, true)});
  world.block(0, kRecvCall, {receive(1, 7)});
  CHECK(!world.judge());  // nobody holds it for certain
  world.holds(0, 2, false);
  auto verdict = world.judge();  // rank 2 computes: it could not help
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kDeadlock);
  CHECK(culprits(*verdict) == Ranks{0, 1});
  says(*verdict,
       "Rank 1 waits in MPI_Win_unlock for the exclusive lock of rank 2, on a window at app+0x1001.1. Rank 0 holds "
       "that lock.");
  says(*verdict, "Rank 0 waits in MPI_Recv from rank 1");

  SECTION("both shared") { world.ranks[1].parts[0].tag = 0; }
  SECTION("another target's") { world.ranks[0].parts[1].peer = 3; }
  SECTION("another window's") { world.ranks[0].parts[1].comm = kOther; }
  SECTION("the holder can go on") { world.ranks[0].activity = RankActivity::kComputing; }
  SECTION("the holder's counts are lost") { world.ranks[0].irregular = kLostWindow; }
  SECTION("held by itself") { world.holds(1, 2, true); }
  SECTION("not demanded") { world.ranks[1].parts[0].flags = kMayBuffer | kPermitted; }
  CHECK(!world.judge());
}

TEST_CASE("a lock that several share: one who keeps it is enough") {
  World world = windowed(4);
  world.block(0, kLockCall, {lock(3, true)});
  world.holds(1, 3, false);
  world.holds(2, 3, false);
  CHECK(!world.judge());  // both compute
  world.block(1, kRecvCall, {receive(0, 7)});
  std::swap(world.ranks[1].parts[0], world.ranks[1].parts[1]);
  world.ranks[1].threads[0].first_part = 0;
  for (const bool other : {false, true}) {
    if (other) world.block(2, kRecvCall, {receive(3, 7)});  // which waits for one who computes
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0, 1});
    says(*verdict, other ? "Rank 1 and others hold that lock." : "Rank 1 holds that lock.");
  }
  world.ranks[1].activity = RankActivity::kComputing;
  CHECK(!world.judge());
}

TEST_CASE("a lock of a rank that is gone") {
  World world = windowed(2);
  world.block(0, kUnlockCall, {lock(0, true)});
  world.holds(1, 0, true);
  world.die(1);
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kRankGone);
  CHECK(culprits(*verdict) == Ranks{1});
}

TEST_CASE("two groups wait for each other, not for their own") {
  World world(4);
  world.intercomm(kInter, {0, 1}, {2, 3});
  auto barrier = [](int32_t peer) { return collective(kBarrierCall, 1, kInter, kRootOnly, peer); };
  world.block(0, kBarrierCall, {barrier(2), barrier(3)});
  world.block(1, kRecvCall, {receive(0, 7)});
  world.block(2, kBarrierCall, {barrier(0), barrier(1)});
  CHECK(!world.judge());  // rank 3 computes
  world.block(3, kRecvCall, {receive(0, 7)});
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->confidence == resil::Confidence::kProved);
  CHECK(culprits(*verdict) == Ranks{3});
  world.ranks[0].comms[1].sequence = 2;  // rank 0 is in its second call: the first one ends
  CHECK(world.judge());
  world.ranks[3].activity = RankActivity::kComputing;
  CHECK(!world.judge());
}

TEST_CASE("leaders of two groups") {
  World world(2);
  world.block(0, kStartCall, {token(1, kFirstLeaderToken - 5, 1, 0, kWorld)});
  world.block(1, kRecvCall, {receive(0, 7)});
  REQUIRE(world.judge());
  world.count(token_comm(kWorld), 1, 0, kFirstLeaderToken - 6).sent = 1;  // with another tag
  CHECK(world.judge());
  world.count(token_comm(kWorld), 1, 0, kFirstLeaderToken - 5).sent = 1;
  CHECK(!world.judge());
}
