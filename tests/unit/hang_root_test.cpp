// SPDX-License-Identifier: Apache-2.0
//
// What the root decides without the graph and without statistics: nodes that give no answer, and ranks that use no
// processor time inside MPI. States are made here; nobody is asked for names.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "detectors/hang/root/publish.h"
#include "detectors/hang/root/quiet_notice.h"
#include "detectors/hang/root/report_files.h"
#include "detectors/hang/root/root_verdict.h"
#include "detectors/hang/root/stacks_file.h"
#include "detectors/hang/root/why.h"
#include "shim/base/clock.h"

using namespace resil::hang;

namespace {

std::vector<std::string> logged;

/// A job of one rank a node. All ranks wait in one plain call each.
struct Job {
  explicit Job(uint32_t count)
      : root(std::make_unique<Root>()), nodes(count), silences(count), facts(count), cpu(count), waits(count),
        by_rank(count) {
    logged.clear();
    wiring.node_count = count;
    wiring.nodes = nodes.data();
    root->wiring = root->names.wiring = &wiring;
    root->silences = silences.data();
    root->facts = facts.data();
    root->cpu_then = cpu.data();
    root->states = {nullptr, 0, count, by_rank.data()};
    root->learned = {2, 6, 100};
    root->summary.ranks = count;
    for (uint32_t i = 0; i < count; ++i) {
      nodes[i].first_rank = i;
      nodes[i].ranks = 1;
      Wait& wait = waits[i];
      wait = {};
      wait.state.rank = static_cast<int32_t>(i);
      wait.state.activity = RankActivity::kBlocked;
      wait.state.thread_count = wait.state.part_count = wait.thread.part_count = 1;
      wait.state.cpu_ns = 1000000000;
      wait.part.kind = PartKind::kReceive;
      by_rank[i] = &wait.state;
    }
  }

  /// In words.
  std::string message() {
    explain(verdict, names_of(root->names), &root->explanation);
    return root->explanation.message;
  }
  std::string evidence() { return message(), root->explanation.evidence; }

  /// One round at `now`; nodes without an answer.
  void round(double now, std::vector<uint32_t> missed = {}) {
    for (uint32_t node : missed) by_rank[node] = nullptr;
    note_silence(*root, missed.data(), static_cast<uint32_t>(missed.size()), now);
  }
  /// All wait but those who compute, and nobody has moved from `since` to `now`, in two looks a second.
  bool quiet(double since, double now, std::vector<uint32_t> computing) {
    for (uint32_t i = 0; i < waits.size(); ++i) waits[i].state.activity = RankActivity::kBlocked;
    for (uint32_t rank : computing) waits[rank].state.activity = RankActivity::kComputing;
    root->summary.out = static_cast<uint32_t>(computing.size());
    root->moved_at = since;
    const double step = .5;
    for (double at = since; at <= now; at += step)
      root->model.look({at, root->summary.out, root->summary.ranks, static_cast<uint64_t>(since * 4), 100, 0, 0});
    return quiet_notice(*root, now, &verdict);
  }
  /// Rank 0 is stopped since then, as the kernel says; nobody has moved.
  bool stopped(double since, double now) {
    waits[0].state.activity = RankActivity::kStopped;
    waits[0].state.kernel_state = 'T';
    facts[0] = {RankActivity::kStopped, true, true, since};
    root->moved_at = since;
    return stopped_verdict(*root, now, &verdict);
  }
  bool silent(double now) { return silent_verdict(*root, now, &verdict); }
  /// All ranks have come to their calls at `since`; processor time of `ms[i]` until `now`.
  bool idle(double since, double now, std::vector<uint64_t> ms) {
    root->moved_at = root->blocked_since = since;
    note_cpu(*root, since + 5);
    for (size_t i = 0; i < ms.size(); ++i) waits[i].state.cpu_ns += ms[i] * 1000000;
    return cpu_idle_verdict(*root, now, &verdict);
  }

  struct Wait {
    RankState state;
    ThreadWait thread;
    Part part;
  };
  std::unique_ptr<Root> root;
  Wiring wiring = {};
  std::vector<NodeEntry> nodes;
  std::vector<Silence> silences;
  std::vector<Fact> facts;
  std::vector<uint64_t> cpu;
  std::vector<Wait> waits;
  std::vector<const RankState*> by_rank;
  Verdict verdict = {};
};

}  // namespace

namespace resil::hang {

void log_hang(const char* what, const Statement& statement, const Names& names) {
  char text[1024];
  explain(statement, names, text, sizeof(text));
  logged.push_back(std::string(what) + " " + text);
}

void log_hang(const char* what, const char* text) { logged.push_back(std::string(what) + " " + text); }

void write_hang_files(Root&, HangFile, uint32_t, const char*, char*, char*, size_t) {}
void want_stacks(Root&, const char*) {}
uint32_t watch_names(Watch&, const NameQuestion*, uint32_t, char*, uint32_t) { return 0; }

}  // namespace resil::hang

namespace resil {
uint64_t world_comm_id(int) { return 1; }
void log_line(const char* text) { logged.push_back(text); }
}  // namespace resil

TEST_CASE("nobody moves for 30 s and ranks wait: one line that is no verdict, taken back when the job goes on") {
  Job job(4);
  job.root->learned = {};
  job.root->notice.after = 30;
  job.root->model.start(4, .4, .001, 7);
  CHECK(!job.quiet(100, 129, {1}));
  REQUIRE(job.quiet(200, 231, {1}));
  CHECK(job.verdict.notice);
  CHECK(job.message().find("No rank has finished an MPI call for 3") == 0);
  CHECK(job.message().find("Rank 1 is outside MPI; its last call was") != std::string::npos);
  CHECK(job.message().find("Ranks 0,2-3 wait in") != std::string::npos);
  CHECK(job.message().find("If this is expected, ignore this line") != std::string::npos);
  print_notice(*job.root);
  CHECK(logged.size() == 2);
  CHECK(!job.quiet(200, 260, {1}));  // once for each silence
  withdraw_notice(*job.root, 262);
  CHECK(logged.size() == 4);
  CHECK(logged[3].find("ranks finish MPI calls again") == 0);
  withdraw_notice(*job.root, 263);
  CHECK(logged.size() == 4);
}

TEST_CASE("the line comes later in a job that has been quiet for long before, and five times at most") {
  Job job(2);
  job.root->notice.after = 30;
  job.root->learned = {60, 0, 0};
  job.root->model.start(2, .4, .001, 7);
  CHECK(notice_limit(*job.root) == 180);
  CHECK(!job.quiet(100, 279, {1}));
  CHECK(job.quiet(1000, 1181, {1}));
  job.root->learned.notices = 5;
  CHECK(!job.quiet(2000, 2181, {1}));
}

TEST_CASE("no line where most compute, nobody waits, somebody is out of sight, writes a file or has been named") {
  Job job(4);
  job.root->learned = {};
  job.root->notice.after = 30;
  job.root->model.start(4, .4, .001, 7);
  CHECK(!job.quiet(100, 140, {1, 2, 3}));
  CHECK(!job.quiet(200, 240, {0, 1, 2, 3}));
  CHECK(job.quiet(300, 340, {1, 2}));
  CHECK(job.quiet(400, 440, {}));
  CHECK(job.message().find("All 4 ranks are inside MPI.") != std::string::npos);
  job.root->published_at = 505;
  CHECK(!job.quiet(500, 540, {1}));
  job.waits[3].state.irregular = kOtherWorld;
  CHECK(!job.quiet(600, 640, {1}));
  job.waits[3].state.irregular = 0;
  job.waits[3].thread.call = static_cast<uint16_t>(resil::CallId::kMPI_File_write_all);
  CHECK(!job.quiet(700, 740, {1}));
  job.waits[3].thread.call = 0;
  job.waits[1].state.kernel_state = 't';
  CHECK(!job.quiet(800, 840, {1}));
  job.waits[1].state.kernel_state = 'R';
  job.by_rank[2] = nullptr;
  CHECK(!job.quiet(900, 940, {1}));
}

TEST_CASE("a stopped rank is found after 5 s where all others wait, else after 15, and where the job would be ended") {
  Job job(3);
  CHECK(!job.stopped(100, 104.5));
  REQUIRE(job.stopped(100, 105));
  CHECK(job.verdict.culprits[0] == 0);
  job.root->aborts = true;
  CHECK(!job.stopped(100, 114.5));
  CHECK(job.stopped(100, 115));
  job.root->aborts = false;
  job.waits[2].state.activity = RankActivity::kComputing;
  CHECK(!job.stopped(100, 114.5));
  CHECK(job.stopped(100, 115));
  job.waits[2].state.activity = RankActivity::kBlocked;
  job.root->longest_stop = 4;
  CHECK(!job.stopped(100, 111));
  CHECK(job.stopped(100, 112));
}

TEST_CASE("a stop of a moment, as strace makes at each system call, is not told, a longer one once and at its end") {
  Job job(2);
  const auto look = [&job](double now, bool stopped) {
    job.root->summary.event_count = stopped;
    job.root->summary.events[0] = {1, RankActivity::kStopped, 0, {}};
    note_facts(*job.root, now);
  };
  for (int i = 0; i <= 30; ++i) look(100 + .3 * i, i % 3 != 0);
  CHECK(logged.empty());
  for (const double now : {200., 200.9}) look(now, true);
  CHECK(logged.empty());
  for (const double now : {201.1, 204., 204.9}) look(now, true);
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].find("rank 1 is stopped") != std::string::npos);
  look(205, false);
  REQUIRE(logged.size() == 2);
  CHECK(logged[1].find("rank 1 runs again after 5.0 s") != std::string::npos);
  CHECK(job.root->longest_stop == Approx(5));
}

TEST_CASE("a node that gives no answer since the last progress is a finding after 30 s, while all others wait") {
  Job job(4);
  job.root->moved_at = 100;
  for (double now = 100.5; now < 129.9; now += .5) {
    job.round(now, {2});
    CHECK(!job.silent(now));
  }
  job.round(131, {2});
  REQUIRE(job.silent(131));
  CHECK(job.verdict.type == HangClass::kNodeSilent);
  CHECK(job.verdict.confidence == resil::Confidence::kVerified);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 2);
  CHECK(job.verdict.victim_count == 3);
  CHECK(job.message().find("Node 2 (rank 2) has given no answer for 30.") == 0);

  job.root->summary.out = 1;  // somebody computes
  CHECK(!job.silent(200));
  job.root->summary.out = 0;
  job.root->summary.moved = 1;
  CHECK(!job.silent(200));
  job.root->summary.moved = 0;
  job.root->learned.longest = 40;
  CHECK(!job.silent(200));
  job.round(221, {2});
  CHECK(job.silent(221));
  job.root->learned.watched = 10;
  CHECK(!job.silent(221));
}

TEST_CASE("hosts are named: of a node that is silent, and of culprits before all other evidence") {
  Job job(4);
  for (uint32_t i = 0; i < 4; ++i) {
    job.waits[i].state.node = i;
    job.waits[i].state.pid = static_cast<int32_t>(4000 + i);
    snprintf(job.nodes[i].host, sizeof(job.nodes[i].host), "nid%05u", i + 7);
  }
  job.root->moved_at = 100;
  job.round(100.5, {2});
  job.round(131, {2});
  REQUIRE(job.silent(131));
  CHECK(job.message().find("Node 2 (nid00009, rank 2) has given no answer for 30.") == 0);
  job.verdict = {};
  for (const int rank : {1, 2, 3}) job.verdict.add_culprit(rank);  // rank 2's node is silent: its place is not known
  job.verdict.add(Message::kReasonProved);
  add_places(*job.root, &job.verdict);
  CHECK(job.evidence().find("where: rank 1 on ?; rank 3 on ?\n") == 0);  // and asks
  REQUIRE(job.root->names.missing);
  std::vector<NameAnswer> answers;
  for (uint32_t i = 0; i < job.root->names.count; ++i)
    if (const NameQuestion& question = job.root->names.questions[i]; question.kind == NameKind::kHost) {
      answers.push_back({i, ""});
      snprintf(answers.back().text, sizeof(answers.back().text), "nid%05d, pid %d", question.rank + 7,
               4000 + question.rank);
    }
  names_learn(job.root->names, answers.data(), static_cast<uint32_t>(answers.size()));
  CHECK(job.evidence().find("where: rank 1 on nid00008, pid 4001; rank 3 on nid00010, pid 4003\nreason: proved") == 0);
}

TEST_CASE("a node whose connection was lost while the job went on is not accused") {
  Job job(4);
  for (double now = 50; now < 100; now += .5) job.round(now, {2});
  job.root->moved_at = 100;
  job.round(200, {2});
  CHECK(!job.silent(200));
}

TEST_CASE("an answer missed long ago is forgotten with the next one") {
  Job job(4);
  job.round(1, {2});
  job.round(2);
  job.by_rank[2] = &job.waits[2].state;
  job.root->moved_at = 100;
  job.round(100.5, {2});
  CHECK(logged.empty());
  job.round(102, {2});
  REQUIRE(logged.size() == 1);
  CHECK(logged[0] == "notice node 2 (rank 2) does not answer");
  job.round(131, {2});
  CHECK(job.silent(131));
  job.round(132);
  CHECK(logged.back() == "notice node 2 (rank 2) answers again after 31.5 s");
  CHECK(!job.silent(140));
}

TEST_CASE("who is alone with more than half of the ranks silent accuses nobody") {
  Job job(4);
  job.root->moved_at = 100;
  job.round(101, {1, 2, 3});
  job.round(140, {1, 2, 3});
  CHECK(!job.silent(140));
  Job two(2);
  two.root->moved_at = 100;
  two.round(101, {1});
  two.round(140, {1});
  CHECK(two.silent(140));
}

TEST_CASE("asked, a node that has just missed an answer is listed, and accused only when it is silent for longer") {
  Job job(4);
  job.root->moved_at = 90;
  job.round(101, {2});
  CHECK(find_just_silent(*job.root, 101.5).total == 1);
  why_verdict(*job.root, 101.5, &job.verdict);
  CHECK(job.verdict.type == HangClass::kUnknown);
  CHECK(job.verdict.culprit_count == 0);
  CHECK(job.message().find("Rank 2 has given no answer for a second or two: its node may be stopped, or crowded. Ask "
                           "again.") != std::string::npos);
  why_verdict(*job.root, 102.1, &job.verdict);
  CHECK(find_just_silent(*job.root, 102.1).total == 0);
  CHECK(job.verdict.type == HangClass::kNodeSilent);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 2);

  job.round(103, {1, 2});  // of two the one that is silent for long
  why_verdict(*job.root, 103.2, &job.verdict);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 2);

  job.root->moved_at = 102;  // a job that goes on
  why_verdict(*job.root, 103.2, &job.verdict);
  CHECK(job.verdict.type == HangClass::kMoving);
}

TEST_CASE("asked, nodes below a silent one are not accused until they must have found another way") {
  Job job(80);  // 33 to 64 are below node 1
  job.root->moved_at = 90;
  job.round(101, {1, 40, 41});
  job.round(104, {1, 40, 41});
  why_verdict(*job.root, 104, &job.verdict);
  CHECK(job.verdict.type == HangClass::kNodeSilent);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 1);
  CHECK(find_just_silent(*job.root, 104).total == 2);
  job.round(108.5, {1, 41});
  job.by_rank[40] = &job.waits[40].state;  // has found one
  why_verdict(*job.root, 108.5, &job.verdict);
  CHECK(job.verdict.culprit_count == 2);
}

TEST_CASE("who leads instead of a silent node knows since when it is silent, and answers no old question") {
  Job job(4);
  job.root->moved_at = 90;
  root_instead(*job.root, 0, 100);
  job.round(101.2, {0});
  job.round(101.7, {0});
  why_verdict(*job.root, 101.7, &job.verdict);
  CHECK(job.verdict.culprit_count == 0);
  why_verdict(*job.root, 102.1, &job.verdict);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 0);
  const uint64_t now = resil::realtime_ns(), second = 1000000000;
  CHECK(why_is_due(*job.root, now - second));
  CHECK(!why_is_due(*job.root, now - 20 * second));
  root_instead(*job.root, kNoNode, 0);  // it has gone
}

TEST_CASE("inside MPI, one that uses no processor time among others that do is named") {
  Job job(4);
  CHECK(job.idle(100, 140, {900, 0, 30000, 2000}));
  CHECK(job.verdict.type == HangClass::kInsideMpi);
  REQUIRE(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 1);
  CHECK(job.verdict.victim_count == 3);
}

using resil::DeviceDone;
using resil::DeviceWorkKind;

TEST_CASE("inside MPI, a rank whose staged copy does not end is named, with what is known of the copy") {
  const auto stuck = [](Job& job, double seconds, DeviceWorkKind kind) {
    job.waits[1].state.device = {
        static_cast<uint64_t>(seconds * 1e9), 16u << 20, 3, 7, kind, DeviceDone::kNotKnown, {}, {}};
    job.root->moved_at = job.root->blocked_since = 100;
    return device_verdict(*job.root, 100 + seconds, &job.verdict);
  };
  Job job(4);
  REQUIRE(stuck(job, 31, DeviceWorkKind::kCopyDown));
  CHECK(job.verdict.culprit_count == 1);
  CHECK(job.verdict.culprits[0] == 1);
  CHECK(!stuck(job, 29, DeviceWorkKind::kCopyDown));
  CHECK(!stuck(job, 31, DeviceWorkKind::kWait));
  job.root->learned.longest = 20;
  CHECK(!stuck(job, 59, DeviceWorkKind::kCopyUp));
  CHECK(stuck(job, 61, DeviceWorkKind::kCopyUp));
  job.root->summary.out = 1;
  CHECK(!stuck(job, 61, DeviceWorkKind::kCopyUp));
}

TEST_CASE("... but not too early, not if all sleep or most, not if one is in between, not in calls of another kind") {
  CHECK(!Job(4).idle(100, 111.5, {9000, 0, 9000, 9000}));
  CHECK(Job(4).idle(100, 116, {9000, 0, 9000, 9000}));
  Job crowded(4);
  for (const int rank : {0, 2, 3}) crowded.waits[rank].state.kernel_state = 'R';
  CHECK(crowded.idle(100, 116, {0, 0, 90, 20}));
  CHECK(crowded.verdict.culprits[0] == 1);
  Job swapped(4);
  swapped.waits[1].state.kernel_state = 'D';
  CHECK(!swapped.idle(100, 129, {9000, 0, 9000, 9000}));
  CHECK(swapped.idle(200, 231, {9000, 0, 9000, 9000}));
  CHECK(!Job(4).idle(100, 140, {0, 0, 0, 0}));
  CHECK(!Job(4).idle(100, 140, {9000, 0, 0, 0}));
  CHECK(Job(4).idle(100, 140, {9000, 0, 0, 9000}));
  CHECK(!Job(4).idle(100, 140, {9000, 0, 9000, 250}));
  Job other(4);
  other.waits[1].part.kind = PartKind::kOther;
  CHECK(!other.idle(100, 140, {9000, 0, 9000, 9000}));
  Job unknown(4);
  unknown.waits[2].state.cpu_ns = 0;
  CHECK(!unknown.idle(100, 140, {9000, 0, 9000, 9000}));
  Job out(4);
  out.root->summary.out = 1;
  CHECK(!out.idle(100, 140, {9000, 0, 9000, 9000}));
  Job unseen(4);
  unseen.round(139, {2});
  CHECK(!unseen.idle(100, 140, {9000, 0, 9000, 9000}));
  Job patient(4);
  patient.root->learned.longest = 20;
  CHECK(!patient.idle(100, 155, {9000, 0, 9000, 9000}));
  CHECK(patient.idle(200, 261, {9000, 0, 9000, 9000}));
}

TEST_CASE("inside MPI, a rank in a call that waits for nobody is named after 30 s, though it uses processor time") {
  Job job(3);
  const auto judge = [&](double quiet) {
    job.root->moved_at = job.root->blocked_since = 1000 - quiet;
    for (auto& wait : job.waits) wait.thread.entered_ns = resil::realtime_ns() - static_cast<uint64_t>(quiet * 1e9);
    return local_call_verdict(*job.root, 1000, &job.verdict);
  };
  for (auto& wait : job.waits) wait.thread.call = static_cast<uint16_t>(resil::CallId::kMPI_Win_fence);
  CHECK(!judge(3000));
  for (const resil::CallId id : {resil::CallId::kMPI_Put, resil::CallId::kMPI_Rget, resil::CallId::kMPI_Isend,
                                 resil::CallId::kMPI_Iallreduce, resil::CallId::kMPI_Start, resil::CallId::kMPI_Test}) {
    job.waits[1].thread.call = static_cast<uint16_t>(id);
    CHECK(!judge(29));
    REQUIRE(judge(31));
    CHECK(job.verdict.type == HangClass::kInsideMpi);
    CHECK(job.verdict.confidence == resil::Confidence::kVerified);
    REQUIRE(job.verdict.culprit_count == 1);
    CHECK(job.verdict.culprits[0] == 1);
    CHECK(job.verdict.victim_count == 2);
    CHECK(job.message().find("which waits for no other rank and has not returned for 31") != std::string::npos);
  }
  for (const resil::CallId id : {resil::CallId::kMPI_Send, resil::CallId::kMPI_Wait, resil::CallId::kMPI_Win_flush,
                                 resil::CallId::kMPI_Win_lock, resil::CallId::kMPI_Allreduce_init}) {
    job.waits[1].thread.call = static_cast<uint16_t>(id);
    CHECK(!judge(3000));
  }
  job.waits[1].thread.call = static_cast<uint16_t>(resil::CallId::kMPI_Put);
  job.waits[1].part.bytes = uint64_t{5} << 30;  // a copy may take a while
  CHECK(!judge(100));
  CHECK(judge(150));
  job.waits[1].part.bytes = 0;
  job.root->learned.longest = 40;
  CHECK(!judge(100));
  CHECK(judge(121));
  job.root->summary.out = 1;  // somebody computes, and may be what it waits for
  CHECK(!judge(3000));
  job.root->summary.out = 0;
  for (auto& wait : job.waits) wait.thread.call = static_cast<uint16_t>(resil::CallId::kMPI_Put);
  CHECK(!judge(3000));  // all of them: the network
}

TEST_CASE("a finding of the graph about a call that does not return gets the name") {
  Job job(3);
  job.idle(100, 140, {9000, 9000, 0});
  Verdict of_graph = {};
  of_graph.type = HangClass::kInsideMpi;
  name_cpu_idle(*job.root, 140, &of_graph);
  CHECK((of_graph.culprit_count == 1 && of_graph.culprits[0] == 2));
  job.verdict = of_graph;
  CHECK(job.message() == "Rank 2 uses no CPU time in it; all other waiting ranks do. To do: look at rank 2 first.");
  Verdict deadlock = {};
  deadlock.type = HangClass::kDeadlock;
  name_cpu_idle(*job.root, 140, &deadlock);
  CHECK((deadlock.culprit_count == 0 && deadlock.statement_count == 0));
}
