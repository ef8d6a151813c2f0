// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder through the call path (dispatch.h): what a reader of the trace buffer finds after folding polls,
// wrapping around, nesting and calls that were left by an exception; and which calls are timed.
#include "shim/call/flight.h"

#include <cstring>

#include "check.h"
#include "fake_backend.h"

namespace {

using resil::CallId;
using resil::Event;
namespace ring = resil::ring;

struct Recorder : fake::Core {
  Recorder() {
    resil::flight::short_ticks = uint64_t{1} << 40;
    resil::flight::tight_ticks = 0;  // no loop is tight: every call is stamped
    resil::flight::gap_ticks = uint64_t{1} << 60;
  }

  Event send(uint64_t site = 0x1000, int peer = 1, int64_t count = 4, uint64_t frame = 0x7000) {
    Event e = fake::make_event(thread(), CallId::kMPI_Send, site, frame);
    e.comm_handle = fake::kCommWorld;
    e.peer = peer;
    e.tag = 9;
    e.send.count = count;
    e.send.type = fake::kDouble;
    return e;
  }
  void sends(int count) {
    for (int i = 0; i < count; ++i) {
      Event e = send();
      REQUIRE(fake::call(e));
    }
  }
  /// One poll; `flag` says whether it succeeds.
  void poll(int flag, uint64_t site = 0x2000, uint64_t request = 0x99, CallId id = CallId::kMPI_Test) {
    Event e = fake::make_event(thread(), id, site);
    int index[1] = {0};
    e.requests = &request;
    e.request_count = 1;
    if (id == CallId::kMPI_Testsome) e.outcount = &flag, e.indices = index;
    else e.flag = &flag;
    REQUIRE(fake::call(e));
  }
  const ring::Record& record(uint64_t back = 0) { return ring::record_at(trace(), trace().head - 1 - back); }
  const ring::CallCounter& counter(CallId id) { return trace().counters[static_cast<unsigned>(id)]; }
};

uint16_t number(CallId id) { return static_cast<uint16_t>(id); }
constexpr auto kDone = static_cast<uint8_t>(ring::RecordState::kDone);
constexpr auto kOpen = static_cast<uint8_t>(ring::RecordState::kOpen);

}  // namespace

TEST_CASE("flight: a call leaves its envelope, counters and traffic") {
  Recorder recorder;
  Event e = recorder.send();
  REQUIRE(resil::enter(e));
  CHECK(recorder.trace().current == 1);
  CHECK(recorder.record().state == kOpen);
  CHECK(recorder.thread().depth == 1);
  e.result = 0;
  resil::leave(e);
  const ring::Record& record = recorder.record();
  CHECK(record.call == number(CallId::kMPI_Send));
  CHECK(record.state == kDone);
  CHECK(record.peer == 1);
  CHECK(record.tag == 9);
  CHECK(record.bytes == 32);
  CHECK(record.site == 0x1000);
  CHECK(record.repeat == 1);
  CHECK(recorder.trace().current == 0);
  CHECK(recorder.thread().depth == 0);
  e = recorder.send();
  REQUIRE(fake::call(e, 5));
  CHECK((recorder.record().flags & ring::kFailed) != 0);
  CHECK((recorder.record(1).flags & ring::kFailed) == 0);
  CHECK(recorder.counter(CallId::kMPI_Send).count == 2);
  CHECK(recorder.counter(CallId::kMPI_Send).bytes == 64);
  const ring::PeerCounter* peer = nullptr;
  for (auto& entry : recorder.trace().peers)
    if (entry.rank == 1) peer = &entry;
  REQUIRE(peer != nullptr);
  CHECK(peer->sent_messages == 2);
  CHECK(peer->sent_bytes == 64);
  CHECK(peer->received_messages == 0);
}

TEST_CASE("flight: one call site with changing arguments never repeats an old envelope") {
  Recorder recorder;
  for (int i = 0; i < 300; ++i) {
    Event e = recorder.send(0x1000, i % 4, 1 + i % 3);
    e.tag = i % 5;
    if (i % 7 == 0) e.send.type = fake::kPair;
    REQUIRE(fake::call(e));
    const ring::Record& record = recorder.record();
    REQUIRE(record.peer == i % 4);
    REQUIRE(record.tag == i % 5);
    REQUIRE(record.bytes == static_cast<uint64_t>(1 + i % 3) * (i % 7 == 0 ? 12 : 8));
    REQUIRE(record.sequence == static_cast<uint64_t>(i + 1));
  }
}

TEST_CASE("flight: traffic with more ranks than places goes to the last one, none is lost") {
  fake::Core core(0, 1000);
  uint64_t messages = 0;
  for (int round = 0; round < 2; ++round)
    for (int peer = 0; peer < 1000; ++peer) {
      Event e = fake::make_event(core.thread(), CallId::kMPI_Send, 0x1000);
      e.comm_handle = fake::kCommWorld;
      e.peer = peer;
      e.send.count = 1;
      e.send.type = fake::kByte;
      REQUIRE(fake::call(e));
    }
  for (auto& entry : core.trace().peers) {
    messages += entry.sent_messages;
    if (entry.rank >= 0) CHECK(entry.sent_messages == 2);
  }
  CHECK(messages == 2000);
  CHECK(core.trace().peers[ring::kPeerEntries - 1].rank == -2);
  CHECK(core.trace().peers[ring::kPeerEntries - 1].sent_messages > 1600);
}

TEST_CASE("flight: wildcards and MPI_PROC_NULL count with nobody") {
  Recorder recorder;
  for (int peer : {ring::kAnySource, ring::kProcNull}) {
    Event e = fake::make_event(recorder.thread(), CallId::kMPI_Recv, 0x1000);
    e.comm_handle = fake::kCommWorld;
    e.peer = peer;
    e.tag = ring::kAnyTag;
    e.receive.count = 3;
    e.receive.type = fake::kByte;
    REQUIRE(fake::call(e));
    CHECK(recorder.record().peer == peer);
  }
  for (auto& entry : recorder.trace().peers) CHECK(entry.sent_messages + entry.received_messages == 0);
  CHECK(recorder.counter(CallId::kMPI_Recv).bytes == 6);
}

TEST_CASE("flight: failing polls of one site share a record, the one that succeeds has its own") {
  Recorder recorder;
  recorder.sends(1);
  for (int i = 0; i < 10000; ++i) recorder.poll(0);
  CHECK(recorder.trace().head == 2);
  CHECK(recorder.record().repeat == 10000);
  CHECK((recorder.record().flags & ring::kFolded) != 0);
  CHECK(recorder.counter(CallId::kMPI_Test).count == 10000);
  recorder.poll(1);
  CHECK(recorder.trace().head == 3);
  CHECK(recorder.record().repeat == 1);
  CHECK((recorder.record().flags & ring::kFolded) == 0);
  CHECK(recorder.record(1).repeat == 10000);
  CHECK(recorder.record(1).state == kDone);
  // A new run begins, another site and another call in between end it.
  recorder.poll(0);
  recorder.poll(0);
  CHECK(recorder.record().repeat == 2);
  recorder.poll(0, 0x3000);
  CHECK(recorder.trace().head == 5);
  recorder.sends(1);
  recorder.poll(0, 0x3000);
  CHECK(recorder.trace().head == 7);
  recorder.poll(1);  // succeeds at once: one record, not folded
  CHECK(recorder.trace().head == 8);
  CHECK((recorder.record().flags & ring::kFolded) == 0);
  CHECK(recorder.trace().calls == 1 + 10001 + 3 + 1 + 2);
}

TEST_CASE("flight: a loop over MPI_Testsome folds like one over MPI_Test") {
  Recorder recorder;
  for (int i = 0; i < 5000; ++i) recorder.poll(0, 0x2000, 0x99, CallId::kMPI_Testsome);
  CHECK(recorder.trace().head == 1);
  CHECK(recorder.record().repeat == 5000);
  recorder.poll(1, 0x2000, 0x99, CallId::kMPI_Testsome);
  CHECK(recorder.trace().head == 2);
  CHECK((recorder.record().flags & ring::kFolded) == 0);
}

TEST_CASE("flight: a poll that fails with an error is not folded away") {
  Recorder recorder;
  recorder.poll(0);
  Event e = fake::make_event(recorder.thread(), CallId::kMPI_Test, 0x2000);
  uint64_t request = 0x99;
  int flag = 0;
  e.requests = &request;
  e.request_count = 1;
  e.flag = &flag;
  REQUIRE(fake::call(e, 15));
  CHECK((recorder.record().flags & ring::kFailed) != 0);
  CHECK(recorder.trace().head == 2);
}

TEST_CASE("flight: local queries fold by call and site") {
  Recorder recorder;
  for (int i = 0; i < 100; ++i) resil::count_local(&recorder.thread(), CallId::kMPI_Comm_rank, 0x1000, 0x7000);
  CHECK(recorder.trace().head == 1);
  CHECK(recorder.record().repeat == 100);
  resil::count_local(&recorder.thread(), CallId::kMPI_Comm_rank, 0x1100, 0x7000);
  resil::count_local(&recorder.thread(), CallId::kMPI_Comm_size, 0x1100, 0x7000);
  CHECK(recorder.trace().head == 3);
  CHECK(recorder.counter(CallId::kMPI_Comm_rank).count == 101);
}

TEST_CASE("flight: after wrapping around the newest records are whole and in order") {
  const uint32_t held = GENERATE(ring::kRecordsPerTrace, ring::kRecordsOfFurther);
  Recorder recorder;
  recorder.trace().last_place = held - 1;
  const int total = static_cast<int>(held) * 2 + 77;
  for (int i = 0; i < total; ++i) {
    Event e = recorder.send(0x1000, i % 4, 1 + i % 100);
    REQUIRE(fake::call(e));
  }
  CHECK(recorder.trace().head == static_cast<uint64_t>(total));
  for (uint32_t place = held; place < ring::kRecordsPerTrace; ++place)
    REQUIRE(recorder.trace().records[place].sequence == 0);  // never touched
  for (uint64_t back = 0; back < held; ++back) {
    const auto i = static_cast<uint64_t>(total) - 1 - back;
    const ring::Record& record = recorder.record(back);
    REQUIRE(record.sequence == i + 1);
    REQUIRE(record.bytes == 8 * (1 + i % 100));
    REQUIRE(record.state == kDone);
  }
}

TEST_CASE("flight: callbacks' calls are recorded inside, even when they overwrite the outer record") {
  const auto held = static_cast<int>(GENERATE(ring::kRecordsPerTrace, ring::kRecordsOfFurther));
  for (int inner : {1, 5, held - 1, held, held + 3}) {
    Recorder recorder;
    recorder.trace().last_place = static_cast<uint64_t>(held) - 1;
    Event outer = recorder.send(0x1000, 1, 4, 0x7000);
    outer.id = CallId::kMPI_Send;
    REQUIRE(resil::enter(outer));
    for (int i = 0; i < inner; ++i) {
      Event e = recorder.send(0x5000, 2, 1, 0x6000);
      REQUIRE(fake::call(e));
      REQUIRE(e.nested);
      REQUIRE((recorder.record().flags & ring::kCallback) != 0);
      REQUIRE(recorder.trace().current == outer.record_number);  // the innermost open call
    }
    ring::Record overwriter = recorder.trace().records[0];
    outer.result = 0;
    resil::leave(outer);
    INFO(inner);
    if (inner < held) {
      CHECK(recorder.trace().records[0].peer == 1);
      CHECK(recorder.trace().records[0].state == kDone);
    } else {
      CHECK(memcmp(&overwriter, &recorder.trace().records[0], sizeof(overwriter)) == 0);
    }
    CHECK(recorder.trace().current == 0);
    CHECK(recorder.thread().depth == 0);
  }
}

TEST_CASE("flight: nested polls around a full ring end their run without touching what overwrote it") {
  Recorder recorder;
  recorder.poll(0);
  int flag = 0;
  uint64_t request = 0x99;
  Event e = fake::make_event(recorder.thread(), CallId::kMPI_Test, 0x2000);
  e.requests = &request;
  e.request_count = 1;
  e.flag = &flag;
  REQUIRE(resil::enter(e));
  for (uint32_t i = 0; i < ring::kRecordsPerTrace; ++i) {
    Event inner = recorder.send(0x5000, 2, 1, 0x6000);
    REQUIRE(fake::call(inner));
  }
  e.result = 0;
  resil::leave(e);
  for (uint32_t i = 0; i < ring::kRecordsPerTrace; ++i) {
    REQUIRE(recorder.trace().records[i].call == number(CallId::kMPI_Send));
    REQUIRE(recorder.trace().records[i].repeat == 1);
  }
}

TEST_CASE("flight: a call left by an exception heals at the next call") {
  Recorder recorder;
  Event abandoned = recorder.send(0x1000, 1, 4, 0x6000);
  REQUIRE(resil::enter(abandoned));
  CHECK(recorder.thread().depth == 1);
  // The handler runs in a caller: its frame lies above, or at the same place.
  for (uint64_t frame : {0x6000, 0x7000}) {
    Event e = recorder.send(0x1000, 1, 4, frame);
    REQUIRE(fake::call(e));
    CHECK_FALSE(e.nested);
    CHECK((recorder.record().flags & ring::kCallback) == 0);
    CHECK(recorder.thread().depth == 0);
    CHECK(recorder.trace().current == 0);
    abandoned = recorder.send(0x1000, 1, 4, 0x6000);
    REQUIRE(resil::enter(abandoned));
  }
  // Two levels at once: a callback's call and the one around it.
  Event inner = recorder.send(0x5000, 1, 4, 0x5000);
  resil::admit(inner);
  REQUIRE(inner.thread == &recorder.thread());
  REQUIRE(resil::enter(inner));
  CHECK(recorder.thread().depth == 2);
  Event e = recorder.send(0x1000, 1, 4, 0x7000);
  REQUIRE(fake::call(e));
  CHECK(recorder.thread().depth == 0);
}

TEST_CASE("flight: before MPI is initialised nothing is recorded, afterwards late attachment is") {
  Recorder recorder;
  resil::Thread* mine = resil::current_thread;
  resil::current_thread = nullptr;
  fake::attached = false;
  fake::library.initialized = false;
  CHECK_FALSE(fake::admitted(CallId::kMPI_Comm_rank));
  fake::library.initialized = true;
  CHECK_FALSE(fake::admitted(CallId::kMPI_Initialized));
  CHECK_FALSE(fake::admitted(CallId::kMPI_T_init_thread));
  fake::library.finalized = true;
  CHECK_FALSE(fake::admitted(CallId::kMPI_Send));
  CHECK(fake::late_attachments == 0);
  resil::current_thread = mine;
  resil::thread_disable();
  CHECK_FALSE(fake::admitted(CallId::kMPI_Send));
  resil::current_thread = mine;
}

TEST_CASE("flight: collectives are numbered on their communicator") {
  Recorder recorder;
  for (int i = 1; i <= 5; ++i) {
    Event e = fake::make_event(recorder.thread(), CallId::kMPI_Barrier, 0x1000);
    e.comm_handle = fake::kCommWorld;
    REQUIRE(fake::call(e));
    CHECK(e.sequence == static_cast<uint64_t>(i));
    CHECK(recorder.record().sequence == static_cast<uint64_t>(i));
    recorder.sends(1);
  }
  CHECK(resil::comm_lookup(recorder.thread(), fake::kCommWorld)->ring->collectives == 5);
}

TEST_CASE("flight: one call in eight is timed while a function returns at once") {
  Recorder recorder;
  recorder.sends(8 * 50);
  int timed = 0;
  for (uint64_t back = 0; back < 400; ++back) timed += recorder.record(back).duration > 0;
  CHECK(timed == 50);
  CHECK(recorder.counter(CallId::kMPI_Send).ticks > 0);
  CHECK(recorder.thread().unattributed == 0);
}

TEST_CASE("flight: calls that take long are all timed") {
  Recorder recorder;
  resil::flight::short_ticks = 0;
  recorder.sends(100);
  for (uint64_t back = 0; back < 100; ++back) CHECK(recorder.record(back).duration > 0);
}

TEST_CASE("flight: the extrapolated ticks of a function stand for all its calls") {
  Recorder recorder;
  double measured = 0;
  recorder.sends(81);  // the last one is timed: nothing is left over
  for (uint64_t back = 0; back < 81; ++back) measured += static_cast<double>(recorder.record(back).duration);
  const double ticks = recorder.counter(CallId::kMPI_Send).ticks;
  CHECK(ticks > measured);
  double wanted = 0;  // each timed call stands for itself and the seven before it
  for (uint64_t back = 0; back < 81; ++back)
    wanted += static_cast<double>(recorder.record(back).duration) * (back == 80 ? 1 : 8);
  CHECK(ticks == Approx(wanted));
}

TEST_CASE("flight: a wait that hid in an untimed call is told and makes the next calls timed") {
  Recorder recorder;
  recorder.sends(3);  // timed, untimed, untimed
  resil::flight::gap_ticks = 0;  // the time to the next call counts as long
  recorder.sends(1);
  CHECK(recorder.thread().unattributed > 0);
  resil::flight::gap_ticks = uint64_t{1} << 60;
  recorder.sends(300);
  int timed = 0;
  for (uint64_t back = 0; back < 300; ++back) timed += recorder.record(back).duration > 0;
  CHECK(timed >= resil::flight::kSuspicious);
  CHECK(timed < 300);
}

TEST_CASE("flight: in a tight loop one stamp serves eight calls, and the others say so") {
  Recorder recorder;
  resil::flight::tight_ticks = uint64_t{1} << 60;
  recorder.sends(800);
  int stamped = 0;
  for (uint64_t back = 0; back < 799; ++back) {
    const ring::Record& record = recorder.record(back);
    const bool own = (record.flags & ring::kUntimed) == 0;
    stamped += own;
    CHECK(record.time >= recorder.record(back + 1).time);  // time never runs backwards
    CHECK((record.duration == 0 || own));  // what is timed has a stamp of its own
  }
  CHECK(stamped >= 99);
  CHECK(stamped <= 202);  // one in eight for the loop, one in eight because it is timed
  resil::flight::tight_ticks = 0;
  recorder.sends(10);
  for (uint64_t back = 0; back < 2; ++back) CHECK((recorder.record(back).flags & ring::kUntimed) == 0);
}

TEST_CASE("flight: both halves of MPI_Sendrecv count") {
  Recorder recorder;
  for (CallId id : {CallId::kMPI_Sendrecv, CallId::kMPI_Sendrecv_replace}) {
    Event e = fake::make_event(recorder.thread(), id, 0x1000 + static_cast<uint64_t>(id));
    e.comm_handle = fake::kCommWorld;
    e.peer = 2;
    e.send.count = 3;
    e.send.type = fake::kDouble;
    e.receive_peer = 3;
    if (id == CallId::kMPI_Sendrecv) e.receive.count = 5, e.receive.type = fake::kByte;
    REQUIRE(fake::call(e));
  }
  for (auto& peer : recorder.trace().peers) {
    if (peer.rank == 2) CHECK((peer.sent_messages == 2 && peer.sent_bytes == 48 && peer.received_messages == 0));
    if (peer.rank == 3)
      CHECK((peer.received_messages == 2 && peer.received_bytes == 5 + 24 && peer.sent_messages == 0));
  }
}
