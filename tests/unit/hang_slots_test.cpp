// SPDX-License-Identifier: Apache-2.0
//
// State slots: what the hooks write, and what a reader makes of it: a full table, communicators that go, types of
// messages, wildcards, polls, collectives, a writer that is never still, damaged files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "detectors/hang/reader/reader.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/envelopes.h"
#include "detectors/hang/slots/signature.h"
#include "detectors/hang/slots/writer.h"
#include "hang_slots.h"
#include "shim/abi/backend.h"
#include "shim/base/helper_thread.h"
#include "shim/base/task_list.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/presence/launch.h"
#include "shim/tables/type_maps.h"

namespace resil {
const TypeMap* type_map_slow(Thread&, uint64_t type) {
  static TypeMap maps[2];
  maps[0].signature = 0x104;
  maps[1].signature = kAnySignature;
  return type == slots_test::kInt ? &maps[0] : type == fake::kByte ? &maps[1] : nullptr;
}
}

namespace {

using namespace slots_test;

bool single() { return false; }

}  // namespace

TEST_CASE("slots: many envelopes are told apart; beyond the table sums over tags stay exact, and nothing claims more") {
  Slots slots;
  // Three thousand tags to rank 1, tag t sent t % 3 + 1 times.
  uint64_t total = 0;
  for (int32_t tag = 0; tag < 3000; ++tag)
    for (int32_t i = 0; i <= tag % 3; ++i, ++total) slots.send(1, tag);
  const Answer early = slots.ask(0, 1, 5), late = slots.ask(0, 1, 2999);
  CHECK(early.sent == 3);
  CHECK(early.other_tags == 1);  // some went elsewhere: also those of tag 5 might have
  CHECK(late.other_tags == 1);
  CHECK(late.sent < 3);
  const Answer all = slots.ask(0, 1, ring::kAnyTag);
  CHECK(all.sent == total);
  CHECK(all.other_tags == 0);
  CHECK(slots.ask(0, 2, 5).other_tags == 0);  // another rank's are exact
  CHECK(slots.watched.section->irregular == 0);
  // Ordinals prove nothing any more.
  State state;
  Event e = slots.make(CallId::kMPI_Ssend, 1, 5);
  slots.during(e, state);
  REQUIRE(state.head().part_count == 1);
  CHECK(state.part().needed == 0);
  // Wildcards never share a place: what they took is counted once.
  OpenMpiStatus status = {3, 77, 0, 0, 8};
  Event wild = slots.make(CallId::kMPI_Recv, ring::kAnySource, 77);
  wild.statuses = wild.given_statuses = &status;
  slots.during(wild, state);
  CHECK(slots.ask(ring::kAnySource, 0, ring::kAnyTag).posted == 0);
  CHECK(slots.ask(3, 0, ring::kAnyTag).taken == 1);
}

TEST_CASE("slots: the type of an envelope is told while all its messages have the same predefined one") {
  Slots slots;
  int32_t tag = 10;
  const auto types = [&](std::initializer_list<std::pair<uint64_t, int64_t>> messages, CallId id = CallId::kMPI_Send) {
    ++tag;
    for (const auto& [type, count] : messages) {
      Event e = slots.make(id, 2, tag, count);
      e.send.type = e.receive.type = type;
      REQUIRE(fake::call(e));
    }
    const Envelope* envelope = envelope_of(slots.world(), 2, tag);
    REQUIRE(envelope != nullptr);
    CHECK((id == CallId::kMPI_Send ? envelope->types.posted : envelope->types.sent) == kNoType);
    return id == CallId::kMPI_Send ? envelope->types.sent : envelope->types.posted;
  };
  CHECK(types({{kInt, 0}}) == kNoType);  // no data
  CHECK(types({{kInt, 4}}) == 0x104);
  CHECK(types({{kInt, 4}, {kInt, 1}, {kDerived, 0}, {kInt, 9}}) == 0x104);
  CHECK(types({{kInt, 4}, {fake::kByte, 1}}) == kAnyType);
  CHECK(types({{fake::kByte, 1}, {kInt, 4}}) == kAnyType);
  CHECK(types({{kInt, 4}, {kDerived, 1}, {kInt, 4}}) == kAnyType);
  CHECK(types({{kInt, 4}}, CallId::kMPI_Recv) == 0x104);
  // A message that a wildcard took, and one of a persistent request.
  OpenMpiStatus status = {2, tag, 0, 0, 8};
  Event wild = slots.make(CallId::kMPI_Recv, ring::kAnySource, tag);
  wild.statuses = wild.given_statuses = &status;
  REQUIRE(fake::call(wild));
  CHECK(envelope_of(slots.world(), 2, tag)->types.posted == kAnyType);
  slots.start(CallId::kMPI_Send_init, 0x77, 2, ++tag);
  Event start = slots.make(CallId::kMPI_Start);
  uint64_t key = 0x77;
  start.requests = &key;
  start.request_count = 1;
  REQUIRE(fake::call(start));
  CHECK(envelope_of(slots.world(), 2, tag)->types.sent == kAnyType);
}

TEST_CASE("slots: envelopes of communicators that are gone make room") {
  Slots slots;
  uint64_t ids[64];
  for (int i = 0; i < 64; ++i) {
    const uint64_t handle = 0x84000100 + static_cast<uint64_t>(i);
    fake::Comm comm;
    comm.local = {0, 1, 2, 3};
    fake::add_comm(handle, comm);
    for (int32_t tag = 0; tag < 100; ++tag) slots.send(1, tag, handle);
    ids[i] = comm_lookup(slots.thread(), handle)->ring->id;
    if (i != 63) fake::free_comm(handle);
  }
  CHECK(slots.watched.section->irregular == kForgotten);
  CHECK(slots.ask(0, 1, 99, ids[63]).sent == 1);
  CHECK(slots.ask(0, 1, 99, ids[63]).other_tags == 0);
}

TEST_CASE(
    "slots: a wildcard's message counts for its own envelope, so that the next named receive needs the one after") {
  Slots slots;
  slots.receive(2, 7);
  OpenMpiStatus status = {2, 7, 0, 0, 8};
  Event e = slots.make(CallId::kMPI_Recv, ring::kAnySource, ring::kAnyTag);
  e.statuses = e.given_statuses = &status;
  REQUIRE(fake::call(e));
  State state;
  Event next = slots.make(CallId::kMPI_Recv, 2, 7);
  REQUIRE(enter(next));
  slots.read(state);
  CHECK(state.part().ordinal == 2);
  CHECK(state.part().needed == 3);
  const Answer made = slots.ask(2, 0, 7);
  CHECK((made.posted == 2 && made.taken == 1 && made.pending == 1 && made.wild_pending == 0));
  next.result = 0;
  leave(next);
  CHECK(slots.ask(2, 0, 7).pending == 0);
  // Nonblocking; the program ignores the statuses, so the hooks ask for them.
  slots.start(CallId::kMPI_Irecv, 0x1000, ring::kAnySource, 7);
  slots.start(CallId::kMPI_Irecv, 0x1010, 2, 8);
  CHECK(slots.ask(2, 0, 7).wild_pending == 1);
  CHECK(slots.ask(3, 0, 8).wild_pending == 0);
  std::vector<uint64_t> keys = {0x1000, fake::kRequestNull, 0x1010};
  Event all = slots.wait(CallId::kMPI_Waitall, keys);
  REQUIRE(enter(all));
  REQUIRE(all.given_statuses != nullptr);
  slots.read(state);
  REQUIRE(state.head().part_count == 2);
  CHECK((state.part(0).peer == ring::kAnySource && state.part(0).needed == 0));
  CHECK((state.part(1).peer == 2 && state.part(1).needed == 1 && state.part(1).flags == kNonblocking));
  static_cast<OpenMpiStatus*>(all.given_statuses)[0] = {3, 7, 0, 0, 8};
  static_cast<OpenMpiStatus*>(all.given_statuses)[2] = {2, 8, 0, 0, 8};
  keys.assign(3, fake::kRequestNull);
  all.result = 0;
  leave(all);
  CHECK(slots.ask(3, 0, 7).taken == 1);
  CHECK(slots.ask(2, 0, 8).taken == 0);
  CHECK(slots.watched.section->irregular == 0);
  // No status to be had: said.
  Event blind = slots.make(CallId::kMPI_Recv, ring::kAnySource, 7);
  REQUIRE(enter(blind));
  blind.given_statuses = nullptr;
  blind.result = 0;
  leave(blind);
  CHECK(slots.watched.section->irregular == kUnknownSource);
}

TEST_CASE("slots: persistent requests count each time they are started, and wait only then") {
  Slots slots;
  std::vector<uint64_t> keys = {0x2000, 0x2010};
  slots.start(CallId::kMPI_Recv_init, keys[0], 1, 5);
  slots.start(CallId::kMPI_Ssend_init, keys[1], 1, 6);
  CHECK(slots.ask(1, 0, 5).posted == 0);
  State state;
  Event idle = slots.wait(CallId::kMPI_Waitany, keys);
  REQUIRE(enter(idle));
  slots.read(state);
  CHECK((state.head().part_count == 0 && state.thread().kind == WaitKind::kAll));  // returns at once
  int index = -1;
  idle.index = &index;
  idle.result = 0;
  leave(idle);
  for (uint32_t round = 1; round <= 3; ++round) {
    Event go = slots.wait(CallId::kMPI_Startall, keys);
    REQUIRE(fake::call(go));
    Event all = slots.wait(CallId::kMPI_Waitall, keys);
    slots.during(all, state);
    REQUIRE(state.head().part_count == 2);
    CHECK((state.part(0).needed == round && state.part(0).flags == (kNonblocking | kPersistentPart)));
    CHECK((state.part(1).kind == PartKind::kSend && state.part(1).needed == round));
    CHECK(slots.ask(1, 0, 5).pending == 0);
    CHECK(slots.ask(0, 1, 6).sent == round);
  }
}

TEST_CASE("slots: a persistent collective is numbered when it is made; its starts have an order of their own") {
  Slots slots;
  std::vector<uint64_t> keys = {0x4000, 0x4010};
  slots.start(CallId::kMPI_Allreduce_init, keys[0], ring::kNoPeer, ring::kNoTag);
  slots.start(CallId::kMPI_Barrier_init, keys[1], ring::kNoPeer, ring::kNoTag);
  const CollectiveHistory& history =
      slots.watched.section->histories[comm_lookup(slots.thread(), fake::kCommWorld)->index];
  const uint64_t rolling = history.rolling;
  CHECK(history.sequence == 2);
  State state;
  for (uint32_t round = 1; round <= 3; ++round) {
    std::vector<uint64_t> one = {keys[1]}, other = {keys[0]};  // not in the order in which they were made
    Event first = slots.wait(CallId::kMPI_Startall, one);
    REQUIRE(fake::call(first));
    if (round != 2) {
      Event second = slots.wait(CallId::kMPI_Startall, other);
      REQUIRE(fake::call(second));
    }
    Event all = slots.wait(CallId::kMPI_Waitall, keys);
    slots.during(all, state);
    REQUIRE(state.head().part_count == (round == 2 ? 2u : 4u));
    const Part &made = state.part(state.head().part_count - 2), &started = state.part(state.head().part_count - 1);
    CHECK((made.kind == PartKind::kCollective && made.comm == slots.world() && made.sequence == 2 &&
           !(made.flags & kPersistentPart)));
    CHECK((started.comm == persistent_comm(slots.world(), 2) && started.sequence == round &&
           (started.flags & kPersistentPart)));
    uint64_t starts[2] = {};
    for (uint32_t i = 0; i < state.head().comm_count; ++i)
      for (uint64_t number : {1, 2})
        if (state.comm(i).comm == persistent_comm(slots.world(), number)) starts[number - 1] = state.comm(i).sequence;
    CHECK((starts[0] == (round == 1 ? 1 : round - 1) && starts[1] == round));
    char name[128];
    CHECK((comm_name(slots.watched, started.comm, name, sizeof(name)) &&
           std::string(name) == "MPI_COMM_WORLD (made by call 2 there)"));
  }
  CHECK((history.sequence == 2 && history.rolling == rolling));
}

TEST_CASE("slots: messages of one MPI_Startall, or of several threads, have no order among themselves") {
  Slots slots;
  std::vector<uint64_t> keys = {0x5000, 0x5010, 0x5020};
  slots.start(CallId::kMPI_Recv_init, keys[0], 1, 5);
  slots.start(CallId::kMPI_Recv_init, keys[1], 1, 5);
  slots.start(CallId::kMPI_Ssend_init, keys[2], 1, 5);
  slots.receive(1, 5);
  Event go = slots.wait(CallId::kMPI_Startall, keys);
  REQUIRE(fake::call(go));
  State state;
  std::vector<uint64_t> second = {keys[1]};
  Event wait = slots.wait(CallId::kMPI_Waitall, second);
  slots.during(wait, state);
  REQUIRE(state.head().part_count == 1);
  CHECK((state.part().ordinal == 2 && state.part().needed == 2));  // may be the first that was started
  // A named receive posted afterwards by the same and only thread is certainly later.
  Event plain = slots.make(CallId::kMPI_Recv, 1, 5);
  slots.during(plain, state);
  CHECK(state.part().needed == 4);
  // Another thread: who knows.
  const_cast<Section*>(slots.watched.section)->thread_level = 3;
  runtime.traces[1].state = static_cast<uint32_t>(ring::TraceState::kLive);
  Event next = slots.make(CallId::kMPI_Recv, 1, 5);
  slots.during(next, state);
  CHECK((state.part().ordinal == 2 && state.part().needed == 2));
}

TEST_CASE("slots: a run of polls is one wait for all that it asks for, until something is found or called") {
  Slots slots;
  slots.start(CallId::kMPI_Irecv, 0x3000, 1, 1);
  slots.start(CallId::kMPI_Irecv, 0x3010, 2, 2);
  slots.quick();
  State state;
  for (int i = 0; i < 5; ++i) {
    slots.poll(0x3000);
    slots.poll(0x3010, 0, 0x9040);  // another call site: no folded record, yet the same run
  }
  QuickLook quick = slots.quick();
  CHECK(quick.moved);
  const uint64_t run = quick.instance;
  CHECK(run >= kRun);
  slots.read(state);
  CHECK(state.head().activity == RankActivity::kComputing);  // not known to go on
  slots.poll(0x3000);
  slots.read(state);
  CHECK(state.head().activity == RankActivity::kPolling);
  quick = slots.quick();
  CHECK((quick.polling && !quick.moved && quick.instance == run));
  slots.read(state);
  CHECK(state.head().activity == RankActivity::kPolling);
  CHECK((state.thread().kind == WaitKind::kAny && state.head().part_count == 2));
  CHECK((state.part(0).peer == 1 && state.part(1).peer == 2));
  CHECK(slots.watched.section->waits[0].polls == 11);
  quick = slots.quick(100000000);  // nobody polled since, which says nothing after so short a time
  CHECK((quick.polling && !quick.moved && quick.instance == run));
  slots.read(state);
  CHECK(state.head().activity == RankActivity::kPolling);
  quick = slots.quick();
  CHECK((!quick.polling && !quick.moved && quick.instance == run));
  slots.poll(0x3000, 1);
  quick = slots.quick();
  CHECK((quick.moved && !quick.polling));
  slots.poll(0x3010);
  slots.quick();
  slots.poll(0x3010);
  slots.quick();
  slots.read(state);
  REQUIRE(state.head().part_count == 1);
  CHECK(state.part().peer == 2);
}

TEST_CASE("slots: whom a collective must wait for, and how its signature reads") {
  Slots slots;
  State state;
  struct Row {
    CallId id;
    int32_t root;
    int64_t count;
    int flags;
    OpKind op;
    uint64_t bytes;
  };
  const Row rows[] = {
      {CallId::kMPI_Barrier, ring::kNoPeer, 0, 0, OpKind::kNone, 0},
      {CallId::kMPI_Bcast, 2, 3, kRootOnly, OpKind::kNone, 24},
      {CallId::kMPI_Bcast, 2, 0, kRootOnly | kMayBuffer, OpKind::kNone, 0},
      {CallId::kMPI_Bcast, 0, 3, kMayBuffer, OpKind::kNone, 24},
      {CallId::kMPI_Reduce, 0, 3, 0, OpKind::kSum, 24},
      {CallId::kMPI_Reduce, 1, 3, kMayBuffer, OpKind::kSum, 24},
      {CallId::kMPI_Allreduce, ring::kNoPeer, 3, 0, OpKind::kSum, 24},
      {CallId::kMPI_Allreduce_c, ring::kNoPeer, 0, kMayBuffer, OpKind::kSum, 0},
      {CallId::kMPI_Gather, 0, 3, 0, OpKind::kNone, 24},
      {CallId::kMPI_Gather, 3, 3, kMayBuffer, OpKind::kNone, 24},
      {CallId::kMPI_Scatter, 3, 3, kRootOnly, OpKind::kNone, 24},
      {CallId::kMPI_Scan, ring::kNoPeer, 3, kMayBuffer, OpKind::kSum, 24},  // MPI lets rank 0 wait for nobody
      {CallId::kMPI_Comm_dup, ring::kNoPeer, 0, 0, OpKind::kNone, kBytesNotCompared},
  };
  uint64_t number = 0;
  for (const Row& row : rows) {
    CAPTURE(call_info(row.id).name, row.root, row.count);
    Event e = slots.make(row.id, row.root, ring::kNoTag, row.count);
    e.result = 0;
    REQUIRE(enter(e));
    slots.read(state);
    REQUIRE(state.head().part_count == 1);
    CHECK(state.part().kind == PartKind::kCollective);
    CHECK(state.part().flags == row.flags);
    CHECK(state.part().sequence == ++number);
    CHECK(state.comm().sequence == number);
    const Signature made = signature_unpack(slots.watched.section->waits[0].signature);
    CHECK(made.call == static_cast<uint16_t>(row.id == CallId::kMPI_Allreduce_c ? CallId::kMPI_Allreduce : row.id));
    CHECK(made.op == row.op);
    CHECK(made.root == static_cast<uint32_t>(row.root >= 0 ? row.root + 1 : 0));
    CHECK(made.bytes == row.bytes);
    uint64_t new_comm = fake::kCommNull;
    e.new_comm = &new_comm;
    leave(e);
  }
  const uint32_t index = comm_lookup(slots.thread(), fake::kCommWorld)->index;
  const CollectiveHistory& history = slots.watched.section->histories[index];
  CHECK((history.comm == slots.world() && history.sequence == number && (history.shape & kHistoryMarks) == 0));
  // A collective that fails may count or not.
  Event failed = slots.make(CallId::kMPI_Barrier);
  REQUIRE(fake::call(failed, 17));
  CHECK((history.shape & kHistoryFailed) != 0);
  CHECK((slots.watched.section->irregular & kUnknownOrder) != 0);
}

TEST_CASE("slots: requests beyond the table, cancelled and freed ones are said") {
  Slots slots;
  envelopes.concurrent = true;
  uint64_t key = uint64_t{1} << 40;
  for (uint32_t i = 0; i < runtime.request_count + 1000; ++i, key += 64) slots.start(CallId::kMPI_Irecv, key, 1, 3);
  const uint64_t hidden = slots.watched.section->hidden_receives;
  CHECK(hidden == runtime.request_count + 1000 - fake::pending_keys().size());
  CHECK(slots.ask(1, 0, 3).pending + hidden == runtime.request_count + 1000);
  CHECK(slots.watched.section->irregular == 0);
  for (uint64_t k = uint64_t{1} << 40; k < key; k += 64) {
    std::vector<uint64_t> one = {k};
    Event e = slots.wait(CallId::kMPI_Wait, one);
    REQUIRE(fake::call(e));
  }
  CHECK(slots.watched.section->hidden_receives == 0);
  CHECK(slots.ask(1, 0, 3).pending == 0);
  slots.start(CallId::kMPI_Irecv, 0x500, 1, 3);
  uint64_t freed = 0x500;
  Event e = slots.make(CallId::kMPI_Request_free);
  e.comm_handle = 0;
  e.requests = &freed;
  e.request_count = 1;
  REQUIRE(fake::call(e));
  CHECK(slots.watched.section->irregular == kCancelled);
}

// A sanitizer may have threads of its own that come and go: not under the thread sanitizer.
TEST_CASE("slots: with MPI_THREAD_MULTIPLE a rank is judged only when all its threads are known", "[races]") {
  Slots slots;
  State state;
  writer_after_init();
  int32_t tids[64];
  char scratch[2048];
  const int count = list_threads(0, tids, 64, scratch, sizeof(scratch));
  for (int i = 0; i < count; ++i)
    if (tids[i] != gettid()) helper_thread_told(tids[i], true);
  Event e = slots.make(CallId::kMPI_Recv, 1, 1);
  slots.during(e, state);
  CHECK(state.head().provable == 1);
  std::atomic<bool> stop{false};
  std::atomic<int32_t> tid{0};
  std::thread other([&] {
    tid = static_cast<int32_t>(gettid());
    while (!stop) std::this_thread::yield();
  });
  while (tid == 0) std::this_thread::yield();
  slots.during(e, state);
  CHECK((state.head().provable == 0 && state.head().activity == RankActivity::kBlocked));
  helper_thread_told(tid, true);  // had it been one of resil's
  slots.during(e, state);
  CHECK(state.head().provable == 1);
  helper_thread_told(tid, false);
  slots.during(e, state);
  CHECK(state.head().provable == 0);
  // Below that level nobody else may call MPI meanwhile.
  slots.table.thread_multiple = single;
  writer_after_init();
  slots.during(e, state);
  CHECK(state.head().provable == 1);
  stop = true;
  other.join();
}

TEST_CASE("slots: a reader that looks at any instant sees whole calls or none") {
  Slots slots;
  slots.table.thread_multiple = single;
  writer_after_init();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> blocked{0};
  uint64_t wrong = 0, looks = 0;
  Watched watched = slots.watched;
  std::thread reader([&] {
    State state;
    while (!stop) {
      look(watched, ~uint64_t{0});
      ++looks;
      if (snapshot(watched, state.room, sizeof(state.room)) == 0) {
        ++wrong;
        continue;
      }
      if (state.head().thread_count == 0 || state.head().part_count == 0) continue;
      ++blocked;
      // Every call says the same thing four times: peer p, tag 100 + p, p + 1 elements; calls in turn of two kinds.
      const Part& part = state.part();
      if (part.kind == PartKind::kOther) continue;
      const bool sends = part.kind == PartKind::kSend;
      wrong += part.tag != 100 + part.peer || part.bytes != 8u * static_cast<uint32_t>(part.peer + 1) ||
               part.needed != part.ordinal ||
               part.call != static_cast<uint16_t>(sends ? CallId::kMPI_Ssend : CallId::kMPI_Recv) ||
               sends != (part.peer % 2 == 0);
    }
  });
#ifdef __SANITIZE_THREAD__
  constexpr int kCalls = 20000;
#else
  constexpr int kCalls = 300000;
#endif
  for (int i = 0; i < kCalls || blocked < 100; ++i) {
    const int32_t peer = i % 4;
    Event e = slots.make(peer % 2 == 0 ? CallId::kMPI_Ssend : CallId::kMPI_Recv, peer, 100 + peer, peer + 1);
    REQUIRE(enter(e));
    if (i % 64 == 0) std::this_thread::yield();
    e.result = 0;
    leave(e);
  }
  stop = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(looks > 0);
}

TEST_CASE("slots: a damaged ring is refused, or read without harm") {
  Slots slots;
  slots.start(CallId::kMPI_Irecv, 0x4000, 1, 1);
  std::vector<uint64_t> keys = {0x4000};
  Event e = slots.wait(CallId::kMPI_Wait, keys);
  REQUIRE(enter(e));
  char path[] = "/tmp/resil-ring-XXXXXX";
  const int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  launch_draw();
  REQUIRE(launch_expect(4));
  launch_learn(0, launch_nonce());
  runtime.header->nonce = launch_nonce();
  const size_t bytes = runtime.header->file_bytes;
  auto whole = [&] { REQUIRE(pwrite(fd, runtime.header, bytes, 0) == static_cast<ssize_t>(bytes)); };
  auto opens = [&] {
    Watched watched = {};
    State state;
    const bool open = watched_open_file(watched, path, 0);
    if (open && watched.section != nullptr) {
      look(watched, 0);
      snapshot(watched, state.room, sizeof(state.room));
      const Question questions[] = {{slots.world(), 1, 0, 1, 0}, {0, ring::kAnySource, 0, ring::kAnyTag, 0}};
      Answer answers[2];
      answer(&watched, 1, questions, 2, answers, 2);
    }
    return open;
  };
  whole();
  CHECK(opens());
  const ring::Header& header = *runtime.header;
  auto poke = [&](const void* field, uint64_t value, size_t size) {
    whole();
    const auto offset = static_cast<const char*>(field) - reinterpret_cast<const char*>(&header);
    REQUIRE(pwrite(fd, &value, size, offset) == static_cast<ssize_t>(size));
  };
  poke(&header.magic, 1, 8);
  CHECK(!opens());
  poke(&header.version, 99, 4);
  CHECK(!opens());
  poke(&header.nonce, launch_nonce() + 1, 8);
  CHECK(!opens());
  poke(&header.rank, 3, 4);
  CHECK(!opens());
  poke(&header.pid, 1 << 30, 4);
  CHECK(!opens());
  poke(&header.pid_start_lo, 1, 4);
  CHECK(!opens());
  poke(&header.sections[0].offset, ~uint64_t{4095}, 8);
  CHECK(!opens());
  poke(&header.sections[2].bytes, ~uint64_t{0}, 8);
  CHECK(!opens());
  whole();
  REQUIRE(ftruncate(fd, 8192) == 0);
  CHECK(!opens());
  // Garbage anywhere behind the header.
  std::mt19937_64 random(1);
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 5;
#else
  constexpr int kRounds = 60;
#endif
  for (int round = 0; round < kRounds; ++round) {
    whole();
    for (int i = 0; i < 2000; ++i) {
      const uint64_t value = random();
      const auto section = header.sections[random() % header.section_count];
      const auto offset = static_cast<off_t>((section.offset + random() % (section.bytes - 8)) & ~uint64_t{7});
      REQUIRE(pwrite(fd, &value, 8, offset) == 8);
    }
    CHECK(opens());
  }
  close(fd);
  unlink(path);
  e.result = 0;
  leave(e);
}
