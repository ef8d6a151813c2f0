// SPDX-License-Identifier: Apache-2.0
//
// Stacks of other processes' threads without a stop, and how those of many ranks become one answer.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "detectors/hang/reader/stacks.h"
#include "shim/base/process_state.h"
#include "shim/ring/segment.h"
#include "shim/runtime/stacks/remote.h"

using namespace resil;
using namespace resil::hang;

namespace {

volatile uint64_t sink;

__attribute__((noinline)) void spin_here() {
  for (;;) sink = sink + 1;
}
__attribute__((noinline)) void spin_below() {
  spin_here();
  sink = sink + 2;  // no tail call
}
__attribute__((noinline)) void sleep_here() {
  for (;;) pause();
}
__attribute__((noinline)) void sleep_below() {
  sleep_here();
  sink = sink + 3;
}

/// A child that does that for ever.
struct Child {
  explicit Child(void (*what)()) : pid(fork()) {
    if (pid == 0) {
      alarm(60);
      what();
    }
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid;
};

struct Look {
  stacks::RemoteProcess process;
  stacks::RemoteThread thread;
  stacks::UnwindWork work;
  stacks::Stack stack;

  /// Whether a frame lies in that function, not more than 200 bytes behind its begin. The child has our addresses.
  bool has(void (*function)()) const {
    const auto begin = reinterpret_cast<uint64_t>(function);
    for (uint32_t i = 0; i < stack.total && i < stacks::kFrames; ++i)
      if (const uint64_t address = stack.frames[i] & stacks::kFrameAddress; address >= begin && address < begin + 200)
        return true;
    return false;
  }
};

/// Looks until the child is where it shall be; false: the kernel tells nothing of it.
bool look_until(Look& look, pid_t pid, void (*where)()) {
  bool any = false;
  for (int tries = 0; tries < 500; ++tries) {
    look.thread.pid = look.thread.tid = pid;
    stacks::remote_sample(&look.thread, 1, 100);
    if (!look.thread.known) continue;
    any = true;
    REQUIRE(stacks::remote_open(&look.process, pid));
    stacks::remote_unwind(&look.process, look.thread, &look.work, &look.stack);
    if (look.has(where)) return true;
  }
  REQUIRE_FALSE(any);
  return false;
}

StackEntry entry_of(std::initializer_list<int32_t> ranks, bool steady = false) {
  StackEntry entry = {};
  for (const int32_t rank : ranks) entry.ranks.add(rank);
  entry.threads = entry.ranks.total;
  entry.steady = steady;
  return entry;
}

/// As a node answers.
std::vector<char> answer_of(std::vector<std::pair<StackEntry, std::string>> entries) {
  StacksHead head = {};
  std::vector<char> made(sizeof(head));
  for (auto& [entry, text] : entries) {
    head.ranks += entry.ranks.total;
    head.threads += entry.threads;
    entry.text_bytes = static_cast<uint32_t>(text.size());
    entry.bytes = static_cast<uint32_t>(sizeof(entry) + (text.size() + 7) / 8 * 8);
    const size_t at = made.size();
    made.resize(at + entry.bytes);
    memcpy(made.data() + at, &entry, sizeof(entry));
    memcpy(made.data() + at + sizeof(entry), text.data(), text.size());
  }
  memcpy(made.data(), &head, sizeof(head));
  return made;
}

}  // namespace

TEST_CASE("a thread that runs and one that sleeps are seen from outside, and go on") {
  auto look = std::make_unique<Look>();
  Child sleeper(sleep_below);
  if (look_until(*look, sleeper.pid, sleep_here)) {
#ifdef __OPTIMIZE__  // of a thread that sleeps two registers are known: a frame that lies by its frame pointer ends the
                     // stack
    CHECK(look->has(sleep_below));
#endif
    CHECK(look->thread.sleeps);
    char name[80];
    stacks::remote_name(&look->process, reinterpret_cast<uint64_t>(sleep_here), name, sizeof(name));
    CHECK(std::string(name).find("+0x") != std::string::npos);
  }
  Child runner(spin_below);
  if (look_until(*look, runner.pid, spin_here)) {
    CHECK(look->has(spin_below));
    CHECK_FALSE(look->thread.sleeps);
  }
  for (const pid_t pid : {sleeper.pid, runner.pid}) {
    const int state = process_state(pid, 0);
    CHECK(state != 'T');
    CHECK(state != 't');
    CHECK(waitpid(pid, nullptr, WNOHANG) == 0);
  }
}

TEST_CASE("a process that is not there, or ends, tells nothing") {
  auto look = std::make_unique<Look>();
  pid_t gone;
  {
    Child child(sleep_below);
    gone = child.pid;
  }
  CHECK_FALSE(stacks::remote_open(&look->process, gone));
  look->thread.pid = look->thread.tid = gone;
  stacks::remote_sample(&look->thread, 1, 5);
  CHECK_FALSE(look->thread.known);
}

TEST_CASE("fewer than one healthy thread is expected among those that do not move") {
  for (const uint64_t threads : {1ull, 249ull, 250ull, 62499ull, 62500ull, 10000000ull, 4000000000ull}) {
    double expected = static_cast<double>(threads);
    for (uint32_t i = 1; i < samples_for(threads); ++i) expected /= 250;
    CHECK(expected < 1);
  }
  CHECK(samples_for(10000000) == 4);  // as in the paper
  CHECK(samples_for(4000000000) == 6);
}

TEST_CASE("equal stacks of two nodes are one entry with all their ranks") {
  std::vector<char> merged(4096);
  uint32_t bytes = 0;
  const auto first = answer_of({{entry_of({0, 1}), "main+0x1\nwait+0x2\n"}, {entry_of({2}), "main+0x1\nspin+0x3\n"}});
  const auto second =
      answer_of({{entry_of({3, 5}), "main+0x1\nwait+0x2\n"}, {entry_of({4}, true), "main+0x1\nspin+0x3\n"}});
  const auto room = static_cast<uint32_t>(merged.size());
  REQUIRE(stacks_merge(merged.data(), &bytes, room, first.data(), static_cast<uint32_t>(first.size())));
  REQUIRE(stacks_merge(merged.data(), &bytes, room, second.data(), static_cast<uint32_t>(second.size())));
  StacksHead head;
  memcpy(&head, merged.data(), sizeof(head));
  CHECK(head.ranks == 6);
  CHECK(head.left_out == 0);
  StackText found;
  uint32_t at = sizeof(head);
  REQUIRE(next_stack(merged.data(), bytes, &at, &found));
  CHECK(found.entry.ranks.total == 4);
  CHECK(found.entry.ranks.count == 3);  // 0-1, 3, 5
  CHECK(std::string(found.text, found.entry.text_bytes) == "main+0x1\nwait+0x2\n");
  REQUIRE(next_stack(merged.data(), bytes, &at, &found));
  CHECK(found.entry.ranks.total == 1);
  REQUIRE(next_stack(merged.data(), bytes, &at, &found));
  CHECK(found.entry.steady == 1);
  CHECK_FALSE(next_stack(merged.data(), bytes, &at, &found));
}

TEST_CASE("threads of a library are entries of their own") {
  std::vector<char> merged(4096);
  uint32_t bytes = 0;
  StackEntry library = entry_of({0});
  library.library = 1;
  const auto first = answer_of({{entry_of({0}), "a+0x1\n"}}),
             second = answer_of({{library, "a+0x1\n"}, {entry_of({1}), "a+0x1\n"}});
  REQUIRE(stacks_merge(merged.data(), &bytes, 4096, first.data(), static_cast<uint32_t>(first.size())));
  REQUIRE(stacks_merge(merged.data(), &bytes, 4096, second.data(), static_cast<uint32_t>(second.size())));
  StackText found;
  uint32_t at = sizeof(StacksHead);
  REQUIRE(next_stack(merged.data(), bytes, &at, &found));
  CHECK(found.entry.library == 0);
  CHECK(found.entry.ranks.total == 2);
  REQUIRE(next_stack(merged.data(), bytes, &at, &found));
  CHECK(found.entry.library == 1);
  CHECK_FALSE(next_stack(merged.data(), bytes, &at, &found));
}

TEST_CASE("ranges of ranks that another node has sent damaged are refused") {
  const auto refused = [](auto damage) {
    StackEntry entry = entry_of({1, 3});
    damage(entry.ranks);
    const auto answer = answer_of({{entry, "a+0x1\n"}});
    StackText found;
    uint32_t at = sizeof(StacksHead);
    return !next_stack(answer.data(), static_cast<uint32_t>(answer.size()), &at, &found);
  };
  CHECK_FALSE(refused([](RankSet&) {}));
  CHECK(refused([](RankSet& ranks) { ranks.ranges[1].last = 2147483647; }));  // no end for who counts to it
  CHECK(refused([](RankSet& ranks) { ranks.ranges[0].first = -1; }));
  CHECK(refused([](RankSet& ranks) { ranks.ranges[1].first = 1; }));
  CHECK(refused([](RankSet& ranks) { ranks.named = 3; }));
  CHECK(refused([](RankSet& ranks) { ranks.total = 1; }));
  CHECK(refused([](RankSet& ranks) { ranks.count = 13; }));
}

TEST_CASE("what does not fit, or is cut off, is counted or refused") {
  const auto whole = answer_of({{entry_of({0}), "a+0x1\n"}, {entry_of({1}), "b+0x2\n"}});
  for (uint32_t length = 0; length < whole.size(); ++length) {
    std::vector<char> merged(4096);
    uint32_t bytes = 0;
    stacks_merge(merged.data(), &bytes, 4096, whole.data(), length);
    StackText found;
    uint32_t at = sizeof(StacksHead), count = 0;
    while (next_stack(merged.data(), bytes, &at, &found)) ++count;
    CHECK(count < 2);
  }
  std::vector<char> small(whole.size());
  uint32_t bytes = 0;
  const auto room = static_cast<uint32_t>(small.size());
  REQUIRE(stacks_merge(small.data(), &bytes, room, whole.data(), room));
  const auto more = answer_of({{entry_of({2}), "c+0x3\n"}});
  REQUIRE(stacks_merge(small.data(), &bytes, room, more.data(), static_cast<uint32_t>(more.size())));
  StacksHead head;
  memcpy(&head, small.data(), sizeof(head));
  CHECK(head.left_out == 1);
  CHECK(bytes == room);
}
