// SPDX-License-Identifier: Apache-2.0
//
// What the root and the leaders of nodes make of numbers: ranges, sums of samples, records that came over the wire.

#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/verdict/format.h"

using namespace resil::hang;

namespace {

std::string ranges(const std::vector<int32_t>& ranks, uint32_t total) {
  RankSet set = {};
  for (const int32_t rank : ranks) set.add(rank);
  set.total = total;
  char room[256];
  Text text(room, sizeof(room));
  add_ranks(text, set);
  return room;
}

Summary summary(uint32_t ranks, uint32_t out, std::vector<RankEvent> events = {}) {
  Summary made = {};
  made.ranks = ranks;
  made.out = out;
  made.familiar = ~uint64_t{0};
  made.event_count = static_cast<uint32_t>(events.size());
  for (size_t i = 0; i < events.size() && i < kMaxEvents; ++i) made.events[i] = events[i];
  return made;
}

}  // namespace

TEST_CASE("ranks are written as ranges") {
  CHECK(ranges({}, 0) == "");
  CHECK(ranges({7}, 1) == "7");
  CHECK(ranges({0, 1, 2, 4}, 4) == "0-2,4");
  CHECK(ranges({0, 2, 4, 5}, 4) == "0,2,4-5");
  CHECK(ranges({0, 1}, 9) == "0-1 and 7 more");
}

TEST_CASE("ranges that are too many are counted") {
  std::vector<int32_t> odd;
  for (int32_t i = 0; i < 1000; ++i) odd.push_back(2 * i + 1);
  odd.push_back(2000);
  CHECK(ranges(odd, 1001) == "1,3,5,7,9,11,13,15,17,19,21,23 and 989 more");
}

TEST_CASE("samples of nodes add up") {
  Summary all = summary(4, 1, {{3, RankActivity::kGone, {}}});
  all.excused = all.starved = 0.25;
  all.familiar = 100;
  all.oldest_open_ns = 5;
  Summary other = summary(8, 2, {{9, RankActivity::kStopped, {}}, {11, RankActivity::kGone, {}}});
  other.excused = 0.5;
  other.starved = 0.125;
  other.familiar = 7;
  other.moved = 3;
  all.quiet = 4;
  other.quiet = 2;
  other.oldest_open_ns = 9;
  summary_add(&all, other);
  CHECK((all.ranks == 12 && all.out == 3 && all.moved == 3));
  CHECK((all.excused == 0.5 && all.starved == 0.125 && all.familiar == 7 && all.oldest_open_ns == 9 && all.quiet == 2));
  REQUIRE(all.event_count == 3);
  CHECK((all.events[0].rank == 3 && all.events[1].rank == 9 && all.events[2].rank == 11));
}

TEST_CASE("events beyond the room are counted, also when a foreign count lies") {
  Summary all = summary(1, 0);
  for (int i = 0; i < 10; ++i)
    summary_add(&all, summary(1, 0, {{i, RankActivity::kGone, {}}, {i + 100, RankActivity::kGone, {}}}));
  CHECK(all.event_count == 20);
  CHECK(all.events[kMaxEvents - 1].rank == 107);
  Summary liar = summary(1, 0);
  liar.event_count = 4000000000u;
  summary_add(&all, liar);
  CHECK(all.event_count >= kMaxEvents);
}

TEST_CASE("a record of a state that came over the wire is whole or not used") {
  alignas(8) char room[sizeof(RankState) + sizeof(ThreadWait) + 2 * sizeof(Part) + sizeof(Membership)] = {};
  auto& state = *reinterpret_cast<RankState*>(room);
  state.bytes = sizeof(room);
  state.thread_count = 1;
  state.part_count = 2;
  state.comm_count = 1;
  auto& wait = *reinterpret_cast<ThreadWait*>(&state + 1);
  wait.part_count = 2;
  REQUIRE(state_is_whole(state, sizeof(room)));
  REQUIRE(first_part(state) == reinterpret_cast<const Part*>(&wait + 1));
  CHECK_FALSE(state_is_whole(state, sizeof(room) - 8));
  SECTION("more parts than there are") { state.part_count = 3; }
  SECTION("counts that overflow") { state.part_count = state.comm_count = state.thread_count = 0xffffffff; }
  SECTION("parts of a thread beyond the end") { wait.first_part = 1; }
  SECTION("parts that wrap") { wait.first_part = 0xffffffff, wait.part_count = 3; }
  SECTION("a length that is no multiple") { state.bytes -= 4; }
  SECTION("no length") { state.bytes = 0; }
  CHECK_FALSE(state_is_whole(state, sizeof(room)));
}

TEST_CASE("what the out-of-memory killer has done is read of the job's control group") {
  char root[] = "/tmp/resil-oom-XXXXXX";
  REQUIRE(mkdtemp(root) != nullptr);
  std::vector<std::string> made;
  auto folder = [&](const std::string& name) {
    REQUIRE(mkdir((root + name).c_str(), 0700) == 0);
    made.push_back(root + name);
  };
  auto write = [&](const std::string& name, const std::string& text) {
    FILE* file = fopen((root + name).c_str(), "w");
    REQUIRE(file != nullptr);
    fputs(text.c_str(), file);
    fclose(file);
    made.push_back(root + name);
  };
  const std::string groups = std::string(root) + "/groups";
  auto kills = [&](const std::string& text) {
    FILE* file = fopen(groups.c_str(), "w");
    REQUIRE(file != nullptr);
    fputs(text.c_str(), file);
    fclose(file);
    return oom_kills(groups.c_str(), root);
  };
  folder("/job_7");
  folder("/job_7/step_0");
  folder("/alone");
  folder("/memory");
  folder("/memory/old");
  write("/job_7/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n");
  write("/alone/memory.events", "oom_kill 0\n");
  write("/memory/old/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  CHECK(kills("0::/job_7/step_0/user/task_1\n") == 3);
  CHECK(kills("0::/alone\n") == 0);
  CHECK(kills("5:devices:/\n4:memory:/old\n0::/\n") == 5);
  CHECK(kills("0::/nowhere\n") == 0);
  CHECK(kills("nonsense\n::\n\n") == 0);
  CHECK(kills("") == 0);
  CHECK(oom_kills("/nonexistent", root) == 0);
  unlink(groups.c_str());
  while (!made.empty()) {
    remove(made.back().c_str());
    made.pop_back();
  }
  CHECK(rmdir(root) == 0);
}
