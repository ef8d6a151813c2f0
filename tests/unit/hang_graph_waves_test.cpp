// SPDX-License-Identifier: Apache-2.0
//
// The wait-for graph by hand: collectives, and jobs of many ranks.

#include "hang_says.h"

using namespace hang_test;

TEST_CASE("collectives") {
  World world(4);
  SECTION("one is elsewhere, waiting for one of those who wait for it") {
    for (int32_t rank : {0, 1, 3}) world.block(rank, kAllreduceCall, {collective(kAllreduceCall, 17)});
    world.block(2, kRecvCall, {receive(0, 7)});
    world.membership(2, kWorld).sequence = 16;
    auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kDeadlock);
    CHECK(culprits(*verdict) == Ranks{2});
    CHECK(victims(*verdict) == Ranks{0, 1, 3});
    CHECK(verdict->sequence == 17);
    CHECK(verdict->comm == kWorld);
    CHECK(verdict->call == kAllreduceCall);
    says(*verdict, "Ranks 0-1,3 (3 of 4) have waited 12.0 s in call 17 of MPI_Allreduce on MPI_COMM_WORLD");
    says(*verdict,
         "Rank 2 waits in MPI_Recv from rank 0, tag 7, on MPI_COMM_WORLD at app+0x1002.2. Rank 0 has not sent that "
         "message.");
    CHECK(evidence_of(*verdict).find("\ncore: rank 2\npeer: rank 0\nwaiting: ranks 0-1,3\n") != std::string::npos);
    world.ranks[1].unknown = true;  // one member not known: the others are enough
    CHECK(world.judge());
    world.finish(2);  // instead of the call: not the same as having made it
    world.membership(2, kWorld).sequence = 17;
    CHECK(world.judge()->type == HangClass::kMissingRank);
    world.ranks[2].activity = RankActivity::kBlocked;
    CHECK(!world.judge());
  }
  SECTION("one has finished") {
    for (int32_t rank : {0, 1, 3}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 2)});
    world.finish(2);
    auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kMissingRank);
    CHECK(culprits(*verdict) == Ranks{2});
    says(*verdict, "Rank 2 has called MPI_Finalize and will never make that call.");
    world.die(2);
    verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kRankGone);
    says(*verdict, "Rank 2 ended without MPI_Finalize");
  }
  SECTION("one waits in MPI_Finalize") {
    for (int32_t rank : {0, 1, 3}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 2)});
    world.membership(2, kWorld).sequence = 1;
    world.finalize(2);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kMissingRank);
    CHECK(culprits(*verdict) == Ranks{2});
  }
  SECTION("all others have finished: the one that goes on is odd") {
    world.block(3, kBarrierCall, {collective(kBarrierCall, 2)});
    for (int32_t rank : {0, 1, 2}) world.finish(rank);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kMissingRank);
    CHECK(culprits(*verdict) == Ranks{3});
  }
  SECTION("one computes") {
    for (int32_t rank : {0, 1, 3}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 2)});
    CHECK(!world.judge());
    CHECK(!world.judge(true));
  }
  SECTION("off the root only the root matters") {
    world.block(0, kBcastCall, {collective(kBcastCall, 1, kWorld, kRootOnly, 1)});
    world.finish(3);
    CHECK(!world.judge());
    world.block(1, kRecvCall, {receive(0, 1)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{1});
    world.membership(1, kWorld).sequence = 1;
    CHECK(!world.judge());
  }
  SECTION("off the root of a reduction: only after a long timeout") {
    world.block(0, kReduceCall, {collective(kReduceCall, 1, kWorld, kMayBuffer, 1)});
    world.finish(3);
    CHECK(!world.judge());
    CHECK(world.judge(true));
  }
  SECTION("lower ranks only") {
    world.block(2, kScanCall, {collective(kScanCall, 1, kWorld, kLowerOnly)});
    world.finish(3);
    CHECK(!world.judge());
    world.finish(1);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{1});
  }
  SECTION("nonblocking, waited for") {
    for (int32_t rank : {0, 1}) world.block(rank, kWaitCall, {collective(kIbarrierCall, 1)});
    world.finish(2);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    says(*verdict, "MPI_Wait for call 1 of MPI_Ibarrier on MPI_COMM_WORLD");
  }
  SECTION("intercommunicators: never a proof") {
    for (Rank& rank : world.ranks) rank.comms[0].size = rank.comms[0].remote_size = 2;
    world.block(0, kBarrierCall, {collective(kBarrierCall, 1)});
    world.finish(3);
    CHECK(!world.judge());
    CHECK(world.judge(true));
  }
}

TEST_CASE("two communicators in different orders") {
  World world(4);
  world.comm(kOther, {0, 1, 2, 3});
  SECTION("a failed collective: their numbers may be off") {
    for (int32_t rank : {0, 1}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 5)});
    world.finish(2);
    CHECK(world.judge());
    world.ranks[3].irregular = kUnknownOrder;
    CHECK(!world.judge());
  }
  SECTION("two and two") {
    for (int32_t rank : {0, 1}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 5)});
    for (int32_t rank : {2, 3}) world.block(rank, kAllreduceCall, {collective(kAllreduceCall, 3, kOther)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0, 1, 2, 3});
    says(*verdict, "Ranks call collectives in different orders.");
    says(*verdict, "Ranks 0-1 (2 of 4) have waited 12.0 s in call 5 of MPI_Barrier on MPI_COMM_WORLD");
    says(*verdict, "Ranks 2-3 (2 of 4) have waited 12.0 s in call 3 of MPI_Allreduce on other");
    says(*verdict, "in the same order");
  }
  SECTION("one is odd") {
    for (int32_t rank : {0, 1, 3}) world.block(rank, kBarrierCall, {collective(kBarrierCall, 5)});
    world.block(2, kAllreduceCall, {collective(kAllreduceCall, 3, kOther)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{2});
    CHECK(victims(*verdict) == Ranks{0, 1, 3});
  }
}

TEST_CASE("all have arrived at a transfer, which takes its time") {
  World world(2);
  for (int32_t rank : {0, 1})
    world.block(rank, kBarrierCall, {collective(kBarrierCall, 1, kWorld, kMayBuffer | kTransfer)});
  CHECK(!world.judge(true));
  for (int32_t rank : {0, 1}) world.ranks[static_cast<size_t>(rank)].parts[0].flags = kMayBuffer;
  CHECK(world.judge(true));
}

TEST_CASE("all have arrived and nobody leaves") {
  World world(3);
  for (int32_t rank = 0; rank < 3; ++rank) world.block(rank, kBarrierCall, {collective(kBarrierCall, 1)});
  CHECK(!world.judge());
  const auto verdict = world.judge(true);
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kInsideMpi);
  CHECK(verdict->culprit_count == 0);
  CHECK(victims(*verdict) == Ranks{0, 1, 2});
  says(*verdict, "All 3 ranks have entered call 1 of MPI_Barrier on MPI_COMM_WORLD");
  SECTION("a mismatch is not this module's to tell") {
    world.ranks[1].parts[0].call = kAllreduceCall;
    CHECK(!world.judge(true));
  }
  SECTION("one has started it without waiting, and computes") {
    world.ranks[1].activity = RankActivity::kComputing;
    CHECK(!world.judge(true));
  }
}

TEST_CASE("one is in a collective that the others have long left: it need not be the same one") {
  World world(3);
  for (const uint64_t ahead : {15u, 16u}) {
    CAPTURE(ahead);
    world.block(2, kBarrierCall, {collective(kBarrierCall, 5)});
    for (int32_t rank : {0, 1}) world.block(rank, kAllreduceCall, {collective(kAllreduceCall, 5 + ahead)});
    CHECK(!world.judge());
    const auto verdict = world.judge(true);
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kInsideMpi);
    CHECK(culprits(*verdict) == Ranks{2});
    if (ahead == 15) {  // its call is still known, and was the same
      says(*verdict, "All 3 ranks have entered call 5 of MPI_Barrier on MPI_COMM_WORLD");
      says(*verdict, "The MPI library or the network does not deliver.");
    } else {
      says(*verdict, "Rank 2 has not returned from call 5 of MPI_Barrier on MPI_COMM_WORLD");
      says(*verdict, "2 other ranks have left their call of that number long ago.");
      says(*verdict, "Either they called another function there");
      CHECK(message_of(*verdict).find("All 3 ranks") == std::string::npos);
    }
  }
}

TEST_CASE("many ranks") {
  constexpr int32_t kMany = 16384;
  World world(kMany);
  world.node_ranks = 128;
  SECTION("a ring") {
    for (int32_t rank = 0; rank < kMany; ++rank)
      world.block(rank, kSendrecvCall,
                  {send((rank + 1) % kMany, 1, 1, kMayBuffer), receive((rank + kMany - 1) % kMany, 2)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->culprit_count == kMany);
    says(*verdict, "Ranks 0-16383 wait for each other");
  }
  SECTION("everybody but one in one collective") {
    for (int32_t rank = 0; rank < kMany; ++rank)
      if (rank != 512) world.block(rank, kAllreduceCall, {collective(kAllreduceCall, 9)});
    world.block(512, kRecvCall, {receive(3, 1)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{512});
    CHECK(verdict->victim_count == kMany - 1);
    CHECK(evidence_of(*verdict).find("\nranks 0-2,4-511,513-16383: call 9 of MPI_Allreduce") != std::string::npos);
    says(*verdict, "Ranks 0-511,513-16383 (16383 of 16384) have waited 12.0 s in call 9");
  }
  SECTION("each in another collective, and each waits for all behind it") {
    for (int32_t rank = 1; rank < kMany; ++rank)
      world.block(rank, kScanCall,
                  {collective(kScanCall, static_cast<uint64_t>(rank), kWorld, rank % 2 != 0 ? kLowerOnly : 0)});
    world.finish(0);
    CHECK(world.judge());
  }
  SECTION("half of them wait for any of all, half are done") {
    for (int32_t rank = 0; rank < kMany; ++rank)
      if (rank % 2 == 0) world.finish(rank);
      else world.block(rank, kRecvCall, {receive(ring::kAnySource, 3)});
    world.question_room = 1;  // one answer is as good as any: the others stay open
    CHECK(!world.judge());
  }
}
