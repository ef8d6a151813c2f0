// SPDX-License-Identifier: Apache-2.0
//
// The wait-for graph by hand: every kind of wait, proved where it is a deadlock and not where one thing is different.

#include "check.h"
#include "hang_says.h"

using namespace hang_test;

namespace {

Ranks from_to(int32_t first, int32_t last) {
  Ranks ranks;
  for (int32_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
  return ranks;
}

/// 0 <-> 1, each receiving from the other.
World two_receives() {
  World world(2);
  world.block(0, kRecvCall, {receive(1, 7)});
  world.block(1, kRecvCall, {receive(0, 7)});
  return world;
}

}  // namespace

TEST_CASE("cycles of receives") {
  for (int32_t count : {2, 3, 4, 64, 65, 1000}) {
    World world(count + 2);
    for (int32_t rank = 0; rank < count; ++rank) world.block(rank, kRecvCall, {receive((rank + 1) % count, 7)});
    world.block(count, kRecvCall, {receive(0, 3)});  // waits for the cycle; the last one computes
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kDeadlock);
    CHECK(verdict->confidence == resil::Confidence::kProved);
    CHECK(verdict->culprit_count == static_cast<uint32_t>(count));
    CHECK(culprits(*verdict) == from_to(0, std::min<int32_t>(count, kMaxCulprits) - 1));
    CHECK(victims(*verdict) == Ranks{count});
    says(*verdict, ("Ranks 0-" + std::to_string(count - 1) + " wait for each other").c_str());
    says(*verdict,
         "Rank 0 waits in MPI_Recv from rank 1, tag 7, on MPI_COMM_WORLD at app+0x1000.0. Rank 1 has not sent that "
         "message.");
    says(*verdict, ("Rank " + std::to_string(count) + " waits for these.").c_str());
    if (count == 3) {
      world.ranks[1].activity = RankActivity::kComputing;
      CHECK(!world.judge());
      CHECK(!world.judge(true));
    }
  }
}

TEST_CASE("whatever makes one rank of a cycle doubtful prevents the proof") {
  auto doubt = [](auto change) {
    World world = two_receives();
    REQUIRE(world.judge());
    change(world);
    CHECK(!world.judge());
  };
  doubt([](World& w) { w.ranks[1].stable = false; });
  doubt([](World& w) { w.ranks[1].provable = false; });
  doubt([](World& w) { w.ranks[1].unknown = true; });
  doubt([](World& w) { w.ranks[1].activity = RankActivity::kStopped; });
  doubt([](World& w) { w.ranks[1].activity = RankActivity::kPolling; });
  doubt([](World& w) { w.ranks[1].activity = RankActivity::kUnknown; });
  doubt([](World& w) { w.ranks[1].threads.clear(); });
  doubt([](World& w) { w.ranks[0].irregular = kCancelled; });
  for (uint32_t flag : {kFailedCall, kLostEnvelope, kLostThread})
    for (size_t rank : {0u, 1u}) doubt([&](World& w) { w.ranks[rank].irregular = flag; });
  doubt([](World& w) { w.sent(1, 0, 7); });  // on its way
  doubt([](World& w) { w.silent = {1}; });  // nobody answers for rank 1
  doubt([](World& w) { w.question_room = 1; });
  doubt([](World& w) { w.ranks[0].parts[0].comm = 77; });  // not a communicator of its own
  doubt([](World& w) { w.ranks[0].parts[0].peer = kUnknownRank; });
  doubt([](World& w) { w.ranks[0].parts[0].peer = 5; });
  doubt([](World& w) { w.ranks[0].parts[0].kind = PartKind::kOther; });
  doubt([](World& w) { w.ranks[1].comms.clear(); });  // the peer knows it under another id
  doubt([](World& w) { w.ranks[0].comms[0].size = 3; });  // two opinions about one communicator
  doubt([](World& w) { w.ranks[0].comms.push_back(w.ranks[0].comms[0]); });
  doubt([](World& w) { w.ranks[0].parts[0].flags = kMayBuffer; });
  doubt(
      [](World& w) { w.block(0, kRecvCall, {receive(1, 8)}), w.sent(1, 0, 8); });  // another thread's message is there
}

TEST_CASE("what does not matter to a cycle of receives") {
  auto still = [](auto change) {
    World world = two_receives();
    change(world);
    CHECK(world.judge());
  };
  still([](World& w) { w.ranks[0].irregular = kOtherWorld | kPartitionedUse | kUnknownSource; });
  still([](World& w) { w.count(kWorld, 0, 1, 7).taken = 1, w.sent(1, 0, 7), w.ranks[0].parts[0].needed = 2; });
  still([](World& w) { w.sent(1, 0, 7, 1, kOther); });
  still([](World& w) { w.block(0, kRecvCall, {receive(1, 8)}); });  // two threads, both in vain
}

TEST_CASE("sends: large ones wait, small ones only as the library likes") {
  World world(2);
  world.block(0, kSendCall, {send(1, 3)});
  world.block(1, kSendCall, {send(0, 3)});
  auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->confidence == resil::Confidence::kProved);
  CHECK(culprits(*verdict) == Ranks{0, 1});
  says(*verdict,
       "Rank 0 waits in MPI_Send of 4000000 bytes to rank 1, tag 3, on MPI_COMM_WORLD at app+0x1000.0. Rank 1 has not "
       "posted a receive for it.");
  says(*verdict, "post receives first");

  SECTION("small") {
    world.ranks[0].parts[0].flags = kMayBuffer;
    CHECK(!world.judge());
    verdict = world.judge(true);
    REQUIRE(verdict);
    CHECK(verdict->confidence == resil::Confidence::kVerified);
    says(*verdict, "MPI does not require");
  }
  SECTION("the second of two, for which one receive is posted") {
    world.ranks[0].parts[0].ordinal = 2;
    world.count(kWorld, 1, 0, 3).posted = 1;
    CHECK(world.judge());
    world.count(kWorld, 1, 0, 3).posted = 2;
    world.count(kWorld, 1, 0, 3).pending = 1;
    CHECK(!world.judge());
  }
  SECTION("a wildcard that could take it, or has") {
    world.wilds.push_back({kWorld, 1, ring::kAnySource, 3});
    CHECK(!world.judge());
    world.wilds[0].tag = 4;
    CHECK(world.judge());
    world.count(kWorld, 1, 0, 3).taken = 1;
    CHECK(!world.judge());
  }
  SECTION("receives of the other side that nobody counted") {
    world.ranks[1].irregular = kUnknownSource;
    CHECK(!world.judge());
  }
  SECTION("no ordinal: only if that rank has never received from here") {
    world.ranks[0].parts[0].ordinal = 0;
    CHECK(world.judge());
    world.count(kWorld, 1, 0, 9).posted = 1;
    CHECK(!world.judge());
  }
}

TEST_CASE("wildcards: all who could send must be out") {
  World world(4);
  for (int32_t rank = 0; rank < 4; ++rank)
    world.block(rank, kRecvCall, {receive(ring::kAnySource, rank % 2 == 0 ? 5 : ring::kAnyTag)});
  auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kDeadlock);
  CHECK(culprits(*verdict) == Ranks{0, 1, 2, 3});
  says(*verdict, "from any rank");
  SECTION("one computes") {
    world.ranks[2].activity = RankActivity::kComputing;
    CHECK(!world.judge());
  }
  SECTION("one has finished") {
    world.finish(2);
    verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0, 1, 3});
  }
  SECTION("one has ended, but a message of it is on its way") {
    world.die(2);
    world.sent(2, 0, 5);
    CHECK(!world.judge());
  }
  SECTION("a message of another tag is for those who take any only") {
    world.sent(1, 0, 6);
    CHECK(!message_of(*world.judge()).empty());
    world.sent(0, 1, 6);
    CHECK(!world.judge());
  }
  SECTION("a message to itself") {
    world.sent(1, 1, 0);
    CHECK(!world.judge());
  }
  SECTION("a member is not known, or another world may send") {
    SECTION("unknown") { world.ranks[3].unknown = true; }
    SECTION("elsewhere") { world.ranks[3].comms.clear(); }
    SECTION("connected") { world.ranks[3].irregular = kOtherWorld; }
    SECTION("nobody answers for it") { world.silent = {3}; }
    SECTION("lost counts") { world.ranks[3].irregular = kLostEnvelope; }
    CHECK(!world.judge());
  }
}

TEST_CASE("a call that waits for a receive from anybody and a named one needs a message for each") {
  const auto wait_for_two = [](World& world) {
    world.block(0, kWaitallCall, {receive(ring::kAnySource, 7), receive(2, 7)});
    world.block(1, kRecvCall, {receive(0, 9)});
    world.block(2, kRecvCall, {receive(0, 9)});
  };
  World world(3);
  wait_for_two(world);
  world.sent(2, 0, 7);
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->confidence == resil::Confidence::kProved);
  says(*verdict, "1 message that it can receive has been sent, and the call waits for 2 of them.");

  World late = world;  // one for each: only which receive took which can be wrong, and that is never a proof
  late.sent(1, 0, 7);
  CHECK(!late.judge());
  const auto inferred = late.judge(true);
  REQUIRE(inferred);
  CHECK(inferred->confidence == resil::Confidence::kVerified);
  CHECK(culprits(*inferred) == Ranks{0, 2});
  says(*inferred, "A receive from MPI_ANY_SOURCE of rank 0 can have taken the message that rank 2 has sent for it.");
  says(*inferred, "which receive took it is known only when all are complete");

  World enough = late;  // whichever was taken first
  enough.sent(2, 0, 7);
  CHECK(!enough.judge(true));
  World computing = late;
  computing.ranks[2].activity = RankActivity::kComputing;
  CHECK(!computing.judge(true));
  World either(3);  // any of the two will do
  either.block(0, kWaitanyCall, {receive(ring::kAnySource, 7), receive(2, 7)}, WaitKind::kAny);
  either.block(1, kRecvCall, {receive(0, 9)});
  either.block(2, kRecvCall, {receive(0, 9)});
  either.sent(2, 0, 7);
  CHECK(!either.judge());
  CHECK(!either.judge(true));
  World other_tag(3);
  other_tag.block(0, kWaitallCall, {receive(ring::kAnySource, 7), receive(2, 8)});
  other_tag.block(1, kRecvCall, {receive(0, 9)});
  other_tag.block(2, kRecvCall, {receive(0, 9)});
  other_tag.sent(1, 0, 7);
  other_tag.sent(2, 0, 8);
  CHECK(!other_tag.judge());
}

TEST_CASE("the last one in a receive from anybody") {
  World world(3);
  world.block(0, kRecvCall, {receive(ring::kAnySource, ring::kAnyTag)});
  world.finish(1);
  world.finish(2);
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kUnmatchedMessage);
  CHECK(culprits(*verdict) == Ranks{0});
  says(*verdict, "All other members have ended");
}

TEST_CASE("any tag from one rank") {
  World world(2);
  world.block(0, kRecvCall, {receive(1, ring::kAnyTag)});
  world.block(1, kRecvCall, {receive(0, 1)});
  CHECK(world.judge());
  world.sent(1, 0, 40);
  CHECK(!world.judge());
  world.count(kWorld, 0, 1, 40).taken = 1;
  CHECK(world.judge());
}

TEST_CASE("tags without counters of their own: only sums over all tags count") {
  World world = two_receives();
  world.ranks[0].parts[0].needed = 0;
  CHECK(world.judge());
  world.sent(1, 0, kOtherTags, 3);
  CHECK(!world.judge());
  world.count(kWorld, 0, 1, kOtherTags) = {0, 3, 0, 0};
  CHECK(world.judge());
  world.ranks[0].parts[0].needed = 1;  // exact at the receiver, but the sender may have counted it among the others
  CHECK(world.judge());
  world.count(kWorld, 0, 1, kOtherTags).pending = 1;
  CHECK(!world.judge());
}

TEST_CASE("waits for several") {
  World world(3);
  world.block(1, kRecvCall, {receive(0, 1)});
  SECTION("all: one that never comes is enough") {
    auto& wait = world.block(0, kWaitallCall, {receive(1, 1), receive(2, 2), other(), send(2, 3)});
    auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0, 1});
    says(*verdict, "MPI_Waitall for MPI_Recv from rank 1");
    wait.truncated = 1;
    world.ranks[0].threads[0].truncated = 1;
    CHECK(world.judge());
    world.sent(1, 0, 1);
    CHECK(!world.judge());
  }
  SECTION("any: every one must be in vain") {
    world.block(0, kWaitanyCall, {receive(1, 1), receive(2, 2)}, WaitKind::kAny);
    CHECK(!world.judge());
    world.finish(2);
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kDeadlock);
    CHECK(culprits(*verdict) == Ranks{0, 1});  // that rank 2 has finished is not the reason
    world.ranks[0].threads[0].truncated = 1;
    CHECK(!world.judge());
  }
  SECTION("any, one of them unjudged") {
    world.block(0, kWaitanyCall, {receive(1, 1), other()}, WaitKind::kAny);
    CHECK(!world.judge());
  }
  SECTION("nothing at all returns at once") {
    world.block(0, kWaitallCall, {});
    CHECK(!world.judge());
  }
}

TEST_CASE("sendrecv, probe, persistent, self") {
  World world(2);
  SECTION("both halves") {
    world.block(0, kSendrecvCall, {send(1, 1), receive(1, 1)});
    world.block(1, kSendrecvCall, {send(0, 2), receive(0, 2)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);  // each sends the tag that the other one does not await
    says(*verdict, "Near miss: ");
    says(*verdict, "compare the tags");
  }
  SECTION("matching halves") {
    world.block(0, kSendrecvCall, {send(1, 1), receive(1, 1)});
    world.block(1, kSendrecvCall, {send(0, 1), receive(0, 1)});
    CHECK(!world.judge());
  }
  SECTION("matching halves, but for one small send") {
    // 0 -> 1 -> 2 -> 0; rank 1 sends tag 2, and rank 2 awaits tag 1. Rank 0 is one round ahead.
    World three(3);
    three.sent(2, 0, 1);
    three.count(kWorld, 0, 2, 1) = {0, 1, 0, 0};
    three.sent(0, 1, 1);
    three.block(0, kSendrecvCall, {send(1, 1, 2, kMayBuffer), receive(2, 1, 2)});
    three.block(1, kSendrecvCall, {send(2, 2, 1, kMayBuffer), receive(0, 1, 1)});
    three.block(2, kSendrecvCall, {send(0, 1, 2, kMayBuffer), receive(1, 1, 1)});
    CHECK(!three.judge());
    const auto verdict = three.judge(true);
    REQUIRE(verdict);
    CHECK(verdict->confidence == resil::Confidence::kVerified);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(culprits(*verdict) == Ranks{1, 2});
    says(*verdict, "Near miss: ");
    says(*verdict, "compare the tags");
    says(*verdict, "a send that MPI permits to return early");

    three.ranks[0].parts[1].kind = PartKind::kOther;  // in a file, say: what rank 1 is to get may wait for it
    CHECK(!three.judge(true));
    three.ranks[0].parts[1].kind = PartKind::kReceive;
    three.ranks[0].activity = RankActivity::kComputing;
    CHECK(!three.judge(true));
    three.ranks[0].activity = RankActivity::kPolling;
    CHECK(!three.judge(true));
  }
  SECTION("probe") {
    world.block(0, kProbeCall, {probe(1, 4, 3)});
    world.block(1, kProbeCall, {probe(ring::kAnySource, 4, 0)});
    world.sent(1, 0, 4, 2);
    world.count(kWorld, 0, 1, 4) = {0, 1, 1, 0};
    CHECK(world.judge());
    world.sent(1, 0, 4);
    CHECK(!world.judge());
  }
  SECTION("a message for an earlier receive is not one for the probe") {
    world.block(0, kProbeCall, {probe(ring::kAnySource, 4, 0)});
    world.finalize(1);
    world.sent(1, 0, 4);
    CHECK(world.judge(true)->type == HangClass::kInsideMpi);
    world.wilds.push_back({kWorld, 0, ring::kAnySource, 4});
    CHECK(!world.judge(true));
  }
  SECTION("from itself") {
    world.block(0, kRecvCall, {receive(0, 4)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(culprits(*verdict) == Ranks{0});
    says(*verdict, "MPI_Recv from itself, tag 4");
    world.sent(0, 0, 4);
    CHECK(!world.judge());
  }
  SECTION("a request that nobody else completes") {
    world.block(0, kWaitCall, {sink()});
    world.block(1, kRecvCall, {receive(0, 4)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(culprits(*verdict) == Ranks{0});
    CHECK(victims(*verdict) == Ranks{1});
    says(*verdict, "No other rank can end that");
  }
}

TEST_CASE("ranks in MPI_Finalize neither send nor receive again") {
  World world(3);
  world.block(0, kRecvCall, {receive(1, 7)});
  world.finalize(1);
  world.finalize(2);
  auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->type == HangClass::kUnmatchedMessage);
  CHECK(culprits(*verdict) == Ranks{1});
  says(*verdict, "Rank 1 has called MPI_Finalize and will not communicate again.");
  SECTION("unless a callback may run there") {
    world.ranks[1].irregular = kSelfAttribute;
    CHECK(!world.judge());
    CHECK(world.judge(true));
  }
  SECTION("its last message is there") {
    world.sent(1, 0, 7);
    CHECK(!world.judge());
    verdict = world.judge(true);  // but it does not come
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kInsideMpi);
    CHECK(verdict->culprit_count == 0);
    CHECK(victims(*verdict) == Ranks{0});
    says(*verdict, "The message was sent, but has not been delivered for 12.0 s.");
  }
  SECTION("it sent another tag") {
    world.sent(1, 0, 8);
    verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(culprits(*verdict) == Ranks{0, 1});
    says(*verdict, "1 unmatched message from rank 1 to rank 0 on MPI_COMM_WORLD has another tag.");
  }
  SECTION("it sent on another communicator") {
    world.sent(1, 0, 7, 2, kOther);
    verdict = world.judge();
    REQUIRE(verdict);
    says(*verdict, "2 unmatched messages from rank 1 to rank 0 with tag 7 are on another communicator.");
  }
}

TEST_CASE("threads: all of a rank must be out") {
  World world(3);
  world.block(0, kRecvCall, {receive(1, 1)});
  world.block(0, kRecvCall, {receive(2, 1)});
  world.block(1, kRecvCall, {receive(0, 1)});
  CHECK(!world.judge());  // rank 2 may free the second thread, which may send
  world.block(2, kRecvCall, {receive(0, 2)});
  const auto verdict = world.judge();
  REQUIRE(verdict);
  CHECK(verdict->culprit_count + verdict->victim_count == 3);
}

TEST_CASE("polling is a wait only after a long timeout") {
  World world = two_receives();
  world.ranks[1].activity = RankActivity::kPolling;
  CHECK(!world.judge());
  const auto verdict = world.judge(true);
  REQUIRE(verdict);
  CHECK(verdict->confidence == resil::Confidence::kVerified);
  says(*verdict, "one of them is a polling loop");
}

TEST_CASE("near misses of sends that wait") {
  World world(3);
  world.block(0, kRecvCall, {receive(1, 7)});
  SECTION("wrong tag") {
    world.block(1, kSsendCall, {send(0, 8)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(culprits(*verdict) == Ranks{0, 1});
    says(*verdict, "Near miss: rank 1 waits in MPI_Ssend for MPI_Send of 4000000 bytes to rank 0, tag 8");
  }
  SECTION("wrong communicator") {
    world.comm(kOther, {0, 1, 2});
    world.block(1, kSendCall, {send(0, 7, 1, 0, kOther)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    says(*verdict, "compare the communicators");
  }
  SECTION("wrong destination") {
    world.block(1, kSendCall, {send(2, 7)});
    world.block(2, kRecvCall, {receive(1, 3)});
    const auto verdict = world.judge();
    REQUIRE(verdict);
    says(*verdict, "Near miss: ");
  }
}

TEST_CASE("a near miss that closes a circle of other waits") {
  World world(
      4);  // 0 has sent tag 9 to 1, which waits for tag 8; 1 is missed by 2, and 2 by 0, in sums made of messages
  world.comm(kOther, {0, 1, 2, 3});
  world.block(0, kRecvCall, {receive(2, 60, 1, kOther)});
  world.block(1, kRecvCall, {receive(0, 8)});
  world.block(2, kProbeCall, {probe(1, 1, 1)});
  world.block(3, kRecvCall, {receive(2, 60, 1, kOther)});
  auto all_three = [&] {
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kDeadlock);
    CHECK(culprits(*verdict) == Ranks{0, 1, 2});
  };
  SECTION("no other message") { all_three(); }
  world.sent(0, 1, 9);
  SECTION("the wrong tag") {
    world.sent(0, 1, 1);  // and that of its next step
    const auto verdict = world.judge();
    REQUIRE(verdict);
    CHECK(verdict->type == HangClass::kUnmatchedMessage);
    CHECK(culprits(*verdict) == Ranks{0, 1});
    CHECK(victims(*verdict) == Ranks{2, 3});
    says(*verdict, "Near miss: ");
  }
  SECTION("another has one, too") {
    world.sent(1, 2, 5);
    all_three();
  }
  SECTION("another waits for the like") {
    world.ranks[2].parts[0].tag = 8;
    all_three();
  }
  SECTION("such messages have come before") {
    world.ranks[1].parts[0].needed = 2;
    world.sent(0, 1, 8);
    world.count(kWorld, 1, 0, 8).taken = 1;
    all_three();
  }
}

TEST_CASE("signatures are equal for equal findings only") {
  World world = two_receives();
  const uint64_t first = world.judge()->signature;
  CHECK(world.judge()->signature == first);
  world.ranks[0].threads[0].instance++;
  CHECK(world.judge()->signature != first);
}

TEST_CASE("records that lie about themselves are unknown ranks") {
  World world = two_receives();
  SECTION("thread's parts") { world.ranks[0].threads[0].part_count = 2; }
  SECTION("threads' parts, wrapping") { world.ranks[0].threads[0].first_part = ~0u; }
  SECTION("too many threads") {
    for (int i = 0; i < 8; ++i) world.ranks[0].threads.push_back(world.ranks[0].threads[0]);
  }
  CHECK(!world.judge());
}
