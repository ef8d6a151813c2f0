// SPDX-License-Identifier: Apache-2.0
//
// State slots of what synchronises over windows, files and two groups: which tokens and locks the hooks count, and the
// parts that a reader makes of them.

#include "hang_slots.h"

using namespace slots_test;

namespace {

constexpr uint64_t kWindowHandle = 0x500, kFileHandle = 0x600;
uint64_t handle_there(const void* address) { return *static_cast<const uint64_t*>(address); }
bool bit_one(int value) { return (value & 1) != 0; }
bool never(int) { return false; }

struct Epochs : Slots {
  Epochs() {
    functions.handle_at = functions.file_at = handle_there;
    functions.no_precede = functions.no_succeed = never;
    functions.no_check = functions.exclusive = bit_one;
    table.windows = &functions;
    fake::library.groups[7] = {1, 2};
    Event e = make(CallId::kMPI_Win_create);
    e.new_window = &window;
    REQUIRE(fake::call(e));
    REQUIRE(watched.section->windows[0].id != 0);
  }
  uint64_t id() { return watched.section->windows[0].id; }

  Event sync(CallId call, int32_t peer = ring::kNoPeer, int assertion = 0) {
    Event e = make(call, peer);
    e.comm_handle = 0;
    e.object = kWindowHandle;
    e.group = 7;
    e.assertion = assertion;
    e.lock_type = 1;
    return e;
  }
  void run(CallId call, int32_t peer = ring::kNoPeer, int assertion = 0) {
    Event e = sync(call, peer, assertion);
    REQUIRE(fake::call(e));
  }
  void operate(CallId call, int32_t peer) {
    Event e = sync(call, peer);
    e.target_count = 1;
    e.target_type = fake::kDouble;
    REQUIRE(fake::call(e));
  }
  State inside(CallId call, int32_t peer = ring::kNoPeer) {
    State state;
    Event e = sync(call, peer);
    during(e, state);
    return state;
  }
  void is_token(const Part& part, int32_t peer, int32_t tag, uint64_t needed, uint8_t flags) {
    CHECK(part.kind == PartKind::kToken);
    CHECK(part.comm == id());
    CHECK(part.peer == peer);
    CHECK(part.tag == tag);
    CHECK(part.needed == needed);
    CHECK(part.flags == flags);
  }
  uint32_t held() {
    uint32_t count = 0;
    for (const Hold& place : watched.section->holds) count += place.window != 0;
    return count;
  }

  WindowFunctions functions = {};
  uint64_t window = kWindowHandle;
};

constexpr uint8_t kMay = kMayBuffer | kPermitted;

}  // namespace

TEST_CASE("epochs: posts and completes are counted by pair before the call, and awaited by number") {
  Epochs epochs;
  const uint64_t tokens = token_comm(epochs.id());
  for (uint64_t round = 1; round <= 3; ++round) {
    epochs.run(CallId::kMPI_Win_post);
    CHECK(epochs.ask(0, 1, kPostToken, tokens).sent == round);
    CHECK(epochs.ask(0, 3, kPostToken, tokens).sent == 0);
    const State waits = epochs.inside(CallId::kMPI_Win_wait);
    REQUIRE(waits.thread().part_count == 2);
    epochs.is_token(waits.part(0), 1, kCompleteToken, round, 0);
    epochs.is_token(waits.part(1), 2, kCompleteToken, round, 0);

    const State starts = epochs.inside(CallId::kMPI_Win_start);
    REQUIRE(starts.thread().part_count == 2);
    epochs.is_token(starts.part(0), 1, kPostToken, round, kMay);
    epochs.operate(CallId::kMPI_Put, 1);
    epochs.operate(CallId::kMPI_Get, 2);
    CHECK(epochs.ask(0, 1, kCompleteToken, tokens).sent == round - 1);
    const State completes = epochs.inside(CallId::kMPI_Win_complete);
    REQUIRE(completes.thread().part_count == 2);
    epochs.is_token(completes.part(0), 1, kPostToken, round, kMay);
    epochs.is_token(completes.part(1), 2, kPostToken, round, 0);  // its data must come from there
    CHECK(epochs.ask(0, 1, kCompleteToken, tokens).sent == round);
  }
  CHECK(epochs.watched.section->irregular == 0);
}

TEST_CASE("epochs: windows that come and go leave no counters behind") {
  Epochs epochs;
  for (int i = 0; i < 2000; ++i) {
    epochs.run(CallId::kMPI_Win_post);
    const uint64_t tokens = token_comm(epochs.id());
    epochs.run(CallId::kMPI_Win_free);
    CHECK(epochs.ask(0, 1, kPostToken, tokens).sent == 0);
    Event e = epochs.make(CallId::kMPI_Win_create);
    e.new_window = &epochs.window;
    REQUIRE(fake::call(e));
  }
  epochs.send(1, 5);
  CHECK(epochs.ask(0, 1, 5).sent == 1);
  CHECK(epochs.ask(0, 1, 5).other_tags == 0);
  CHECK(epochs.watched.section->irregular == 0);
}

TEST_CASE("epochs: a window made when all slots are taken has none, and another one with its handle later has") {
  Epochs epochs;
  const auto make_window = [&](uint64_t handle) {
    epochs.window = handle;
    Event e = epochs.make(CallId::kMPI_Win_create);
    e.new_window = &epochs.window;
    REQUIRE(fake::call(e));
  };
  const auto run_on = [&](CallId call, uint64_t handle) {
    Event e = epochs.sync(call);
    e.object = handle;
    REQUIRE(fake::call(e));
  };
  const auto numbered = [&](uint64_t handle) -> uint64_t {
    for (const WindowSlot& slot : epochs.watched.section->windows)
      if (slot.id != 0 && slot.handle == handle) return slot.ordered;
    return ~uint64_t{0};
  };
  constexpr uint64_t kLast = 0x9000 + kWindows;
  for (uint32_t i = 1; i <= kWindows; ++i) make_window(0x9000 + i);
  for (int i = 0; i < 3; ++i) run_on(CallId::kMPI_Win_fence, kLast);
  CHECK(numbered(kLast) == ~uint64_t{0});
  run_on(CallId::kMPI_Win_fence, kLast - 1);
  CHECK(numbered(kLast - 1) == 1);
  run_on(CallId::kMPI_Win_free, kLast);
  run_on(CallId::kMPI_Win_free, kLast - 1);
  make_window(kLast);
  for (int i = 0; i < 3; ++i) run_on(CallId::kMPI_Win_fence, kLast);
  CHECK(numbered(kLast) == 3);
}

TEST_CASE("epochs: nobody waits for what was said not to be checked") {
  Epochs epochs;
  State state;
  Event e = epochs.sync(CallId::kMPI_Win_start, ring::kNoPeer, 1);
  epochs.during(e, state);
  CHECK(state.thread().part_count == 0);
  CHECK(epochs.inside(CallId::kMPI_Win_complete).thread().part_count == 0);
}

TEST_CASE("epochs: what cannot be followed is remembered") {
  Epochs epochs;
  SECTION("a window that was never seen") { epochs.window = 1; }
  SECTION("a group of another world") { fake::library.groups[7] = {1, -1}; }
  SECTION("a large group") { fake::library.groups[7].assign(257, 1); }
  Event e = epochs.sync(CallId::kMPI_Win_post);
  e.object = epochs.window;
  REQUIRE(fake::call(e));
  CHECK(epochs.watched.section->irregular == kLostWindow);
}

TEST_CASE("epochs: a call that fails is remembered") {
  Epochs epochs;
  Event e = epochs.sync(CallId::kMPI_Win_start);
  REQUIRE(enter(e));
  e.result = 1;
  leave(e);
  CHECK(epochs.watched.section->irregular == kLostWindow);
}

TEST_CASE("locks: held for certain on the own window, else once an operation is complete") {
  Epochs epochs;
  const State own = epochs.inside(CallId::kMPI_Win_lock, 0);
  REQUIRE(own.head().part_count == 1);
  CHECK(own.part().kind == PartKind::kLock);
  CHECK(own.part().flags == 0);
  CHECK(own.part().tag == 1);
  CHECK(epochs.held() == 1);

  const State other = epochs.inside(CallId::kMPI_Win_lock, 2);
  REQUIRE(other.thread().part_count == 1);
  CHECK(other.part(0).flags == kMay);
  REQUIRE(other.head().part_count == 2);  // and what it holds
  CHECK(other.part(1).kind == PartKind::kHold);
  CHECK(other.part(1).peer == 0);
  CHECK(epochs.held() == 1);
  epochs.run(CallId::kMPI_Win_flush, 2);  // of nothing
  CHECK(epochs.held() == 1);

  epochs.operate(CallId::kMPI_Put, 2);
  State flush = epochs.inside(CallId::kMPI_Win_flush_local, 2);
  REQUIRE(flush.thread().part_count == 1);
  CHECK(flush.part().flags == kMay);
  CHECK(epochs.held() == 1);  // the data may be in a buffer
  flush = epochs.inside(CallId::kMPI_Win_flush_all);
  REQUIRE(flush.thread().part_count == 1);
  CHECK(flush.part().peer == 2);
  CHECK(flush.part().flags == 0);
  CHECK(epochs.held() == 2);
  epochs.operate(CallId::kMPI_Get, 2);
  CHECK(epochs.inside(CallId::kMPI_Win_unlock, 2).thread().part_count == 0);  // it has the lock
  CHECK(epochs.held() == 1);
  epochs.run(CallId::kMPI_Win_unlock, 0);
  CHECK(epochs.held() == 0);
  CHECK(epochs.watched.section->irregular == 0);
}

TEST_CASE("locks: of all, by the targets that are operated on; none without a check; none of a window that is gone") {
  Epochs epochs;
  const State all = epochs.inside(CallId::kMPI_Win_lock_all);
  CHECK(all.thread().part_count == 4);
  epochs.operate(CallId::kMPI_Get, 3);
  const State flush = epochs.inside(CallId::kMPI_Win_flush_local_all);
  REQUIRE(flush.thread().part_count == 1);
  CHECK(flush.part().peer == 3);
  CHECK(flush.part().tag == 0);
  CHECK(flush.part().flags == 0);
  CHECK(epochs.held() == 1);
  epochs.run(CallId::kMPI_Win_unlock_all);
  CHECK(epochs.held() == 0);
  epochs.run(CallId::kMPI_Win_lock, 0, 1);
  CHECK(epochs.held() == 0);
  epochs.run(CallId::kMPI_Win_unlock, 0);
  epochs.run(CallId::kMPI_Win_lock, 0);
  CHECK(epochs.held() == 1);
  epochs.run(CallId::kMPI_Win_free);
  CHECK(epochs.held() == 0);
}

TEST_CASE("a run of MPI_Win_test waits for the completes, unless something else is asked for too") {
  Epochs epochs;
  epochs.run(CallId::kMPI_Win_post);
  auto poll = [&] {
    int flag = 0;
    Event e = epochs.sync(CallId::kMPI_Win_test);
    e.flag = &flag;
    REQUIRE(fake::call(e));
  };
  poll();
  epochs.quick();
  poll();
  epochs.quick();
  State state;
  epochs.read(state);
  CHECK(state.head().activity == RankActivity::kPolling);
  CHECK(state.thread().kind == WaitKind::kAll);
  REQUIRE(state.thread().part_count == 2);
  for (uint32_t i : {0u, 1u}) CHECK(state.part(i).tag == kCompleteToken);
  epochs.poll(0x77);
  epochs.quick();
  poll();
  epochs.quick();
  epochs.read(state);
  REQUIRE(state.thread().part_count != 0);
  for (uint32_t i = 0; i < state.thread().part_count; ++i) CHECK(state.part(i).kind == PartKind::kOther);
}

TEST_CASE("files: numbers of their own, until one is closed or fails") {
  Epochs epochs;
  uint64_t file = kFileHandle;
  Event open = epochs.make(CallId::kMPI_File_open);
  open.new_file = &file;
  REQUIRE(fake::call(open));
  auto on_file = [&](CallId call, int64_t count = 4) {
    Event e = epochs.make(call, ring::kNoPeer, ring::kNoTag, count);
    e.comm_handle = 0;
    e.object = kFileHandle;
    return e;
  };
  State state;
  Event write = on_file(CallId::kMPI_File_write_all);
  epochs.during(write, state);
  REQUIRE(state.thread().part_count == 1);
  CHECK(state.part().flags == (kMayBuffer | kTransfer));
  CHECK(state.part().sequence == 1);
  Event ordered = on_file(CallId::kMPI_File_write_ordered);
  epochs.during(ordered, state);
  CHECK(state.part().flags == (kLowerOnly | kTransfer));
  CHECK(state.part().sequence == 2);
  const uint64_t id = state.part().comm;
  SECTION("closed") {
    Event close = on_file(CallId::kMPI_File_close);
    epochs.during(close, state);
    CHECK(state.part().comm == id);
    CHECK(state.part().sequence == 3);
  }
  SECTION("failed") {
    Event failed = on_file(CallId::kMPI_File_set_view);
    REQUIRE(enter(failed));
    failed.result = 1;
    leave(failed);
  }
  Event after = on_file(CallId::kMPI_File_write_all);
  epochs.during(after, state);
  CHECK(state.part().kind == PartKind::kOther);
  CHECK(epochs.watched.section->irregular == 0);
}

TEST_CASE("the first look tells since when a rank stands still, unless that is not known") {
  Slots slots;
  const auto first = [&] {
    Watched fresh = slots.watched;
    fresh.looked = false;
    return look(fresh, realtime_ns()).last_ns;
  };
  const uint64_t begun = realtime_ns();
  constexpr uint64_t kNear = 2000000;  // ns that ticks and clock may differ by
  Event e = slots.make(CallId::kMPI_Recv, 1, 7);
  REQUIRE(enter(e));
  const uint64_t inside = first();
  CHECK(inside + kNear >= begun);
  CHECK(inside <= realtime_ns());
  CHECK(slots.quick().last_ns == inside);
  CHECK(slots.quick().last_ns == 0);  // no first look
  e.result = 0;
  leave(e);
  ring::TraceBuffer& trace = slots.core->trace();
  ring::Record& record = trace.records[(trace.head - 1) % ring::kRecordsPerTrace];
  record.duration = 1000;
  CHECK(first() >= inside);
  CHECK(first() <= realtime_ns());
  record.duration = 0;  // not timed: it may have been left just now
  CHECK(first() == 0);
  record.duration = 1000;
  record.repeat = 5;  // polls
  CHECK(first() == 0);
  record.repeat = 1;
  record.time = ~uint64_t{0} / 2;  // damaged
  CHECK(first() == 0);
}
