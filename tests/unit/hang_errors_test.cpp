// SPDX-License-Identifier: Apache-2.0
//
// Errors of waits whose timers have expired: thresholds by type and distance, what the probes say of the destination,
// who is responsible, merged and associated. States are made here.
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "check.h"
#include "detectors/hang/root/wait_errors.h"
#include "shim/base/clock.h"

using namespace resil;
using namespace resil::hang;

namespace {

struct State {
  RankState state;
  ThreadWait thread;
  Part part;
  Membership comm;
};

/// Two ranks a node; everybody outside MPI.
struct Job {
  explicit Job(uint32_t count) : root(std::make_unique<Root>()), states(count), by_rank(count), nodes((count + 1) / 2) {
    wiring.node_count = static_cast<uint32_t>(nodes.size());
    wiring.nodes = nodes.data();
    root->wiring = &wiring;
    root->states = {nullptr, 0, count, by_rank.data()};
    root->questions = questions;
    root->answers = answers;
    for (uint32_t i = 0; i < count; ++i) {
      nodes[i / 2].first_rank = i / 2 * 2;
      nodes[i / 2].ranks = 2;
      states[i] = {};
      states[i].state.rank = static_cast<int32_t>(i);
      states[i].state.node = i / 2;
      states[i].state.activity = RankActivity::kComputing;
      states[i].state.comm_count = 1;
      states[i].comm = {9, 4, static_cast<int32_t>(i), static_cast<int32_t>(count), -1, 0};
      memcpy(static_cast<void*>(&states[i].thread), &states[i].comm,
             sizeof(Membership));  // no call, so no thread before it
      by_rank[i] = &states[i].state;
    }
    for (uint64_t timer = 1; timer <= 12; ++timer)
      for (int i = 0; i < 20; ++i) root->timers.ended(timer, 0.1);
  }

  Part& waits(uint32_t rank, PartKind kind, int32_t peer, double seconds) {
    State& one = states[rank];
    one.state.activity = RankActivity::kBlocked;
    one.state.thread_count = one.state.part_count = 1;
    one.thread = {};
    one.thread.part_count = 1;
    one.thread.entered_ns = realtime_ns() - static_cast<uint64_t>(seconds * 1e9);
    one.part = {};
    one.part.kind = kind;
    one.part.peer = peer;
    one.part.comm = 9;
    one.part.needed = 1;
    if (kind == PartKind::kCollective) one.part.sequence = one.comm.sequence = 5;
    return one.part;
  }

  std::vector<WaitError> errors() {
    std::vector<WaitError> found(kMostErrors);
    found.resize(find_errors(*root, found.data(), kMostErrors));
    return found;
  }

  std::unique_ptr<Root> root;
  Wiring wiring = {};
  std::vector<State> states;
  std::vector<const RankState*> by_rank;
  std::vector<NodeEntry> nodes;
  Question questions[4] = {};
  Answer answers[4] = {};
};

}  // namespace

TEST_CASE("a timer expires after five times the longest healthy wait of its type and distance") {
  Job job(4);
  job.waits(0, PartKind::kReceive, 1, 30);  // same node
  CHECK(job.errors().size() == 1);
  job.waits(0, PartKind::kReceive, 2, 30);  // other node
  for (int i = 0; i < 20; ++i) job.root->timers.ended(timer_of(*job.root, job.states[0].state), 8);
  CHECK(job.errors().empty());
  job.waits(0, PartKind::kReceive, 1, 30);
  REQUIRE(job.errors().size() == 1);
  CHECK(job.errors()[0].distance == Distance::kSameNode);
  CHECK(job.errors()[0].limit == 5);
  job.waits(0, PartKind::kReceive, 2, 41);
  REQUIRE(job.errors().size() == 1);
  CHECK(job.errors()[0].distance == Distance::kOtherNode);
  CHECK(job.errors()[0].limit == 40);
  job.waits(0, PartKind::kSend, 2, 30);
  CHECK(job.errors().size() == 1);
}

TEST_CASE("until enough waits have been seen thresholds are preset by type and distance") {
  Job job(4);
  job.root->timers = {};
  const std::tuple<PartKind, int32_t, double> cases[] = {{PartKind::kReceive, 1, 5},
                                                         {PartKind::kReceive, 2, 10},
                                                         {PartKind::kSend, 1, 5},
                                                         {PartKind::kCollective, -1, 20},
                                                         {PartKind::kLock, 1, 10}};
  for (const auto& [kind, peer, limit] : cases) {
    job.waits(0, kind, peer, limit - 1);
    CHECK(job.errors().empty());
    job.waits(0, kind, peer, limit + 1);
    REQUIRE(job.errors().size() == 1);
    CHECK(job.errors()[0].limit == limit);
  }
}

TEST_CASE("errors of the same destination are merged, with all their sources, and its node is responsible") {
  Job job(6);
  for (const uint32_t rank : {0u, 1u, 2u, 4u, 5u}) job.waits(rank, PartKind::kCollective, -1, 10 + rank);
  const auto found = job.errors();
  REQUIRE(found.size() == 1);
  CHECK(found[0].destination == 3);
  CHECK(found[0].status == WaitStatus::kComputing);
  CHECK(found[0].sources.total == 5);
  CHECK(found[0].seconds > 14);
  CHECK(found[0].responsible == 1);
  CHECK(found[0].follows == -1);
}

TEST_CASE("what the probes say") {
  Job job(4);
  job.waits(0, PartKind::kReceive, 2, 30);
  const std::pair<RankActivity, WaitStatus> cases[] = {
      {RankActivity::kComputing, WaitStatus::kComputing}, {RankActivity::kGone, WaitStatus::kGone},
      {RankActivity::kStopped, WaitStatus::kStopped},     {RankActivity::kFinished, WaitStatus::kFinished},
      {RankActivity::kPolling, WaitStatus::kWaiting},     {RankActivity::kUnknown, WaitStatus::kUnreachable}};
  for (const auto& [activity, status] : cases) {
    job.states[2].state.activity = activity;
    REQUIRE(job.errors().size() == 1);
    CHECK(job.errors()[0].status == status);
  }
  job.by_rank[2] = nullptr;
  CHECK(job.errors()[0].status == WaitStatus::kUnreachable);
  CHECK(job.errors()[0].responsible == 1);
  job.waits(0, PartKind::kReceive, ring::kAnySource, 30);
  CHECK(job.errors()[0].status == WaitStatus::kOpen);
  CHECK(job.errors()[0].destination < 0);
}

TEST_CASE("by the message log a message was sent and does not come") {
  Job job(4);
  job.waits(0, PartKind::kReceive, 2, 30);
  job.questions[0] = {9, 2, 0, 0, 0};
  job.root->question_count = job.root->answer_count = 1;
  job.answers[0] = {};
  job.answers[0].from_source = 1;
  CHECK(job.errors()[0].status == WaitStatus::kComputing);
  job.answers[0].sent = 1;
  CHECK(job.errors()[0].status == WaitStatus::kNotDelivered);
  job.waits(0, PartKind::kReceive, 2, 30).needed = 2;
  CHECK(job.errors()[0].status == WaitStatus::kComputing);
}

TEST_CASE("between nodes below other switches a timer has its own threshold") {
  Job job(6);
  job.root->timers = {};
  job.nodes[0].network = job.nodes[1].network = 7;
  job.nodes[2].network = 8;
  job.waits(0, PartKind::kReceive, 2, 60);
  CHECK(job.errors()[0].distance == Distance::kOtherNode);
  CHECK(job.errors()[0].limit == 10);
  job.waits(0, PartKind::kReceive, 4, 60);
  CHECK(job.errors()[0].distance == Distance::kOtherSwitch);
  CHECK(job.errors()[0].limit == 15);
  job.wiring.several_switches = true;
  job.waits(0, PartKind::kCollective, -1, 60);
  CHECK(job.errors()[0].limit == 30);
}

TEST_CASE("a vote that says that the way is broken is the status, unless the other rank computes") {
  Job job(8);
  job.waits(0, PartKind::kReceive, 4, 30);
  job.waits(4, PartKind::kReceive, 6, 1);
  Probes& probes = job.root->probes;
  probes.nodes = 4;
  probes.ways[0] = {0, 2, Reach::kNothing, false, false, 2, 100, 95};
  probes.ways[1] = {1, 0, Reach::kReplied, false, false, 0, 98, 0};
  probes.ways[2] = {1, 2, Reach::kHost, false, false, 0, 98, 0};
  probes.ways[3] = {3, 2, Reach::kReplied, false, false, 0, 90, 0};  // before it broke: no vote
  probes.count = 4;
  REQUIRE(job.errors().size() == 1);
  WaitError error = job.errors()[0];
  CHECK(error.status == WaitStatus::kPathBroken);
  CHECK(error.follows == -1);
  CHECK(error.vote.asked == 1);
  CHECK(error.vote.reach_both == 1);
  job.states[4].state.activity = RankActivity::kComputing;
  CHECK(job.errors()[0].status == WaitStatus::kComputing);
  job.waits(4, PartKind::kReceive, 6, 1);
  probes.ways[2].reach = Reach::kNothing;
  CHECK(job.errors()[0].status == WaitStatus::kWaiting);
}

TEST_CASE("an error whose destination waits itself follows from the end of the chain; causes come first") {
  Job job(6);
  job.waits(0, PartKind::kReceive, 1, 30);
  job.waits(1, PartKind::kReceive, 2, 30);
  job.waits(2, PartKind::kSend, 5, 30);
  job.states[5].state.activity = RankActivity::kStopped;
  const auto found = job.errors();
  REQUIRE(found.size() == 3);
  CHECK(found[0].source == 2);
  CHECK(found[0].status == WaitStatus::kStopped);
  CHECK(found[0].follows == -1);
  CHECK(found[1].follows == 5);
  CHECK(found[2].follows == 5);
  job.waits(5, PartKind::kReceive, 0, 30);  // a cycle: none follows from another
  for (const WaitError& error : job.errors()) CHECK(error.follows == -1);
}
