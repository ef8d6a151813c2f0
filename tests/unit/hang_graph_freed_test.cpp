// SPDX-License-Identifier: Apache-2.0
//
// The wait-for graph on communicators and windows that some ranks have freed, and in collectives that wait for the
// ranks that their own counts name.

#include "check.h"
#include "hang_says.h"

using namespace hang_test;

namespace {

/// Rank 1 receives on kOther, which rank 0 has freed; rank 0 computes.
World left_behind() {
  World world(3);
  world.comm(kOther, {0, 1, 2});
  world.frees(0, kOther);
  world.block(1, kRecvCall, {receive(0, 7, 1, kOther)});
  return world;
}

}  // namespace

TEST_CASE("a receive from a rank that has freed the communicator is proved, whatever that rank does") {
  for (const bool blocked : {false, true}) {
    World world = left_behind();
    if (blocked) world.block(0, kBarrierCall, {collective(kBarrierCall, 1)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(verdict->confidence == resil::Confidence::kProved);
    CHECK(culprits(*verdict) == Ranks{0});
    CHECK(victims(*verdict) == Ranks{1});
    says(*verdict, "Rank 1 waits in MPI_Recv from rank 0, tag 7, on other");
    says(*verdict, "Rank 0 has freed that communicator (MPI_Barrier at app+0x7000.0)");
  }
}

TEST_CASE("what was freed proves nothing where a message may still come") {
  auto doubt = [](auto change) {
    World world = left_behind();
    REQUIRE(world.judge());
    change(world);
    CHECK(!world.judge());
  };
  doubt([](World& w) { w.sent(0, 1, 7, 1, kOther); });
  doubt([](World& w) { w.ranks[0].parts[0].flags = kUncounted; });
  doubt([](World& w) { w.ranks[0].parts.clear(); });  // nobody has told
  doubt([](World& w) { w.ranks[0].irregular = kLostEnvelope; });
  doubt([](World& w) { w.silent = {0}; });
  doubt([](World& w) { w.ranks[0].parts[0].tag = 2; });  // two opinions about its size
  doubt([](World& w) { w.ranks[1].stable = false; });
  doubt([](World& w) {
    w.ranks[1].parts[0] = receive(2, 7, 1, kOther);  // from one that has not freed it
  });
}

TEST_CASE("a rank that has freed a communicator which the library still keeps has freed it") {
  World world = left_behind();
  world.ranks[0].comms.push_back({kOther, 1, 0, 3, -1, 0});
  CHECK(world.judge());
}

TEST_CASE("wildcards and sends on a communicator that others have freed") {
  World world(3);
  world.comm(kOther, {0, 1, 2});
  world.frees(0, kOther);
  SECTION("a wildcard, one could still send") {
    world.block(1, kRecvCall, {receive(ring::kAnySource, 7, 0, kOther)});
    CHECK(!world.judge());
    world.frees(2, kOther);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    says(*verdict, "Ranks 0,2 have freed that communicator");
  }
  SECTION("a send") {
    world.block(1, kSsendCall, {send(0, 7, 1, 0, kOther)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0});
    world.count(kOther, 0, 1, 7).posted = 1;
    CHECK(!world.judge());
  }
  SECTION("any of two, one from a rank that goes on") {
    world.block(1, kWaitanyCall, {receive(0, 7, 1, kOther), receive(2, 7)}, WaitKind::kAny);
    CHECK(!world.judge());
    world.finish(2);
    CHECK(world.judge());
  }
}

TEST_CASE("collectives on a communicator that a rank has freed") {
  World world(3);
  world.comm(kOther, {0, 1, 2});
  world.frees(0, kOther);  // its call 1
  world.block(1, kBarrierCall, {collective(kBarrierCall, 1, kOther)});
  SECTION("the call that frees is none that others wait for") {
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kMissingRank);
    CHECK(culprits(*verdict) == Ranks{0});
    says(*verdict, "Rank 0 has freed that communicator");
  }
  SECTION("but for the others that free it") {
    world.ranks[1].parts[0].ordinal = kReleases;
    world.ranks[1].parts[0].flags = kMayBuffer;
    CHECK(!world.judge(true));
  }
  SECTION("a window's does end a wait for the same call") {
    world.ranks[0].parts[0].flags = kFreedObject;
    CHECK(!world.judge());
    world.ranks[1].parts[0].sequence = world.membership(1, kOther).sequence = 2;
    CHECK(world.judge());
  }
  SECTION("the root alone") {
    world.ranks[1].parts[0].flags = kRootOnly;
    world.ranks[1].parts[0].peer = 0;
    CHECK(world.judge());
    world.ranks[1].parts[0].peer = 2;
    CHECK(!world.judge());
  }
}

TEST_CASE("a collective waits for the ranks that its counts name, and may wait for the others") {
  World world(3);
  auto source = [](int32_t rank) {
    return collective(kAllreduceCall, 1, kWorld, static_cast<uint8_t>(kRootOnly | kOneSource), rank);
  };
  world.block(0, kAllreduceCall, {source(1), collective(kAllreduceCall, 1, kWorld, kMayBuffer)});
  SECTION("the one that is named does not come") {
    world.block(1, kRecvCall, {receive(0, 3)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{1});
  }
  SECTION("the one that is named has come: another is awaited only by the library's leave, after a long timeout") {
    world.block(1, kAllreduceCall, {source(0), collective(kAllreduceCall, 1, kWorld, kMayBuffer)});
    world.block(2, kRecvCall, {receive(0, 3)});
    CHECK(!world.judge());
    const auto verdict = world.judge(true);
    REQUIRE(verdict);
    CHECK(verdict->confidence == resil::Confidence::kVerified);
    CHECK(culprits(*verdict) == Ranks{2});
  }
  SECTION("beside a message that must come, and can, that is no reason") {
    world.ranks[0].threads.clear();
    world.ranks[0].parts.clear();
    world.block(0, kWaitallCall, {source(1), collective(kAllreduceCall, 1, kWorld, kMayBuffer), receive(1, 5)});
    world.block(1, kAllreduceCall, {source(0), collective(kAllreduceCall, 1, kWorld, kMayBuffer)});
    world.block(2, kRecvCall, {receive(0, 3)});
    world.sent(1, 0, 5);
    CHECK(!world.judge(true));
  }
}
