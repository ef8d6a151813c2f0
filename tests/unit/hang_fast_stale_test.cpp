// SPDX-License-Identifier: Apache-2.0
//
// The fast path of the call path (shim/call/fast_path.h) where what a call site remembers is no longer so: handles that
// were freed and come again, objects that were unloaded, threads, ends of calls that nobody saw.
#include <atomic>
#include <mutex>
#include <thread>

#include "detectors/hang/slots/signature.h"
#include "hang_fast.h"
#include "shim/call/objects.h"

using namespace fast_test;

namespace {

constexpr uint64_t kSite = 0x2000;

const ring::Record& newest() {
  const ring::TraceBuffer& trace = *current_thread->trace;
  return trace.records[(trace.head - 1) % ring::kRecordsPerTrace];
}

const Envelope* envelope(const Program& program, uint64_t comm, int32_t peer, int32_t tag) {
  for (const Envelope& one : program.slots.watched.section->envelopes)
    if (one.comm == comm && one.peer == peer && one.tag == tag) return &one;
  return nullptr;
}

/// Whether the next one goes the fast path.
bool sends(Program& program, int tag = 7, uint64_t type = fake::kDouble, uint64_t comm = fake::kCommWorld) {
  const uint64_t before = program.by_fast_path;
  program.message<CallId::kMPI_Send>(kSite, 1, tag, 4, type, comm, 0);
  return program.by_fast_path != before;
}

}  // namespace

TEST_CASE("fast path: a communicator that was freed and made again with the same handle and other members") {
  Program program(true);
  constexpr uint64_t kHandle = 0x84000200;
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    Event e = program.make(CallId::kMPI_Comm_split);
    e.comm = comm_lookup(program.slots.thread(), fake::kCommWorld);
    e.derived_id = comm_derive_id(e);
    fake::Comm comm;
    comm.local = round % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{0, 3, 1};
    fake::add_comm(kHandle, comm);
    comm_register_new(program.slots.thread(), kHandle, e.derived_id, e.comm, e.id, 0);
    const CommInfo& made = *comm_lookup(program.slots.thread(), kHandle);
    const int32_t partner = round % 2 == 0 ? 2 : 3;
    const uint64_t before = program.by_fast_path;
    for (uint64_t i = 1; i <= 4; ++i) {
      program.message<CallId::kMPI_Send>(kSite, 1, 7, 4, fake::kDouble, kHandle, 0);
      REQUIRE(newest().comm == made.index);
      program.message<CallId::kMPI_Irecv>(kSite + 16, 1, 8, 4, fake::kDouble, kHandle, 0, 0x55550000);
      REQUIRE(fake::pending_keys() == std::vector<uint64_t>{0x55550000});
      program.wait<CallId::kMPI_Wait>(kSite + 32, {reinterpret_cast<void*>(0x55550000)}, 0);
      program.collective<CallId::kMPI_Bcast>(kSite + 48, 1, 4, fake::kDouble, 0, kHandle, 0);
      REQUIRE(newest().sequence == i);
      program.poll<CallId::kMPI_Iprobe>(kSite + 64, 0, 1, 7, kHandle, 0, 0);
      const Wait& slot = program.slots.watched.section->waits[0];
      REQUIRE((slot.probes[0].comm == made.ring->id && slot.probes[0].peer == partner));
      const Envelope *sent = envelope(program, made.ring->id, partner, 7),
                     *posted = envelope(program, made.ring->id, partner, 8);
      REQUIRE((sent != nullptr && sent->sent == i));
      REQUIRE((posted != nullptr && posted->posted == i));
      const CollectiveHistory& history = program.slots.watched.section->histories[made.index];
      REQUIRE((history.comm == made.ring->id && history.sequence == i && made.ring->ordered == i));
    }
    REQUIRE(program.by_fast_path == before + 15);
    REQUIRE(fake::pending_keys().empty());
    fake::free_comm(kHandle);
  }
  CHECK(program.slots.watched.section->irregular == 0);
}

TEST_CASE("fast path: a datatype that was freed and made again with the same handle and another size") {
  Program program(true);
  const auto other = [&](int tag) {
    const uint64_t before = program.by_fast_path;
    program.message<CallId::kMPI_Send>(kSite + 32, 1, tag, 4, fake::kDouble, fake::kCommWorld, 0);
    return program.by_fast_path != before;
  };
  for (int round = 0; round < 50; ++round) {
    // With one thread, which is told, and with others, whose call sites all are closed.
    threads_made = static_cast<uint32_t>(1 + round % 2);
    fake::library.types[kDerived] = round % 3 + 12;
    const uint64_t bytes = 4 * (static_cast<uint64_t>(round) % 3 + 12), before = program.by_fast_path;
    for (int i = 0; i < 4; ++i) {
      sends(program, 7, kDerived);
      REQUIRE(newest().bytes == bytes);
      program.collective<CallId::kMPI_Allreduce>(kSite + 16, 0, 4, kDerived, 3, fake::kCommWorld, 0);
      REQUIRE(newest().bytes == bytes);
      // As what is received, whose type the call site keeps besides the one that is sent.
      program.blocks<CallId::kMPI_Alltoall>(kSite + 64, 0, {1, fake::kDouble}, {4, kDerived}, fake::kCommWorld, false,
                                            0);
      REQUIRE(signature_unpack(program.slots.watched.section->waits[0].signature).bytes == signature_bytes(bytes));
    }
    // Of another communicator last: the call sites' former envelopes have the type, too.
    sends(program, 7, kDerived, kOtherComm);
    REQUIRE(program.by_fast_path >= before + 6);
    other(7), other(8);
    REQUIRE((other(7) && other(8)));
    forget_type(current_thread, kDerived);
    REQUIRE(other(7) == (threads_made == 1));
    REQUIRE(other(8) == (threads_made == 1));
  }
  threads_made = 0;
}

TEST_CASE("fast path: what a call receives beside what it sends") {
  Program program(true);
  uint64_t expected = 0;
  const auto received = [] {
    for (const ring::PeerCounter& peer : runtime.traces[0].peers)
      if (peer.rank == 2) return peer.received_bytes;
    return uint64_t{0};
  };
  // Whether the call goes the fast path; it counts what it receives either way.
  const auto exchange = [&](uint64_t site, int64_t count, uint64_t type, int tag, uint64_t comm = fake::kCommWorld) {
    const uint64_t before = program.by_fast_path;
    program.exchange<CallId::kMPI_Sendrecv>(site, {4, fake::kDouble, 1, 7}, {count, type, 2, tag}, comm, 0);
    expected +=
        static_cast<uint64_t>(count) * static_cast<uint64_t>(type == fake::kDouble ? 8 : fake::library.types[type]);
    REQUIRE(received() == expected);
    return program.by_fast_path != before;
  };
  // The half of what is received is kept once it has come again, and shared between call sites.
  CHECK(!exchange(kSite, 4, fake::kDouble, 8));
  CHECK(!exchange(kSite, 4, fake::kDouble, 8));
  CHECK(!exchange(kSite, 4, fake::kDouble, 8));
  CHECK(exchange(kSite, 4, fake::kDouble, 8));
  // Another one takes it to the general way, and neither keeps the other out.
  for (const int64_t count : {5, 5, 5}) exchange(kSite, count, fake::kDouble, 8);
  CHECK(exchange(kSite, 5, fake::kDouble, 8));
  CHECK(!exchange(kSite, 5, fake::kDouble, 9));
  CHECK(exchange(kSite, 5, fake::kDouble, 8));
  // A type that was freed and made again with the same handle, by one site and by two that share the half.
  for (int round = 0; round < 20; ++round) {
    threads_made = static_cast<uint32_t>(1 + round % 2);
    fake::library.types[kDerived] = round % 3 + 12;
    const uint64_t before = program.by_fast_path;
    for (int i = 0; i < 5; ++i)
      for (const uint64_t site : {kSite, kSite + 16, kSite + 32}) exchange(site, 3, kDerived, 8);
    REQUIRE(program.by_fast_path >= before + 3);
    forget_type(current_thread, kDerived);
  }
  threads_made = 0;
  // More halves in turn than there is room for: each is counted, and they get their turn again.
  for (int round = 0; round < 40; ++round)
    for (int tag = 0; tag < 100; ++tag) exchange(kSite + 64 + static_cast<uint64_t>(tag) * 16, 1, fake::kDouble, tag);
  uint64_t before = program.by_fast_path;
  for (int i = 0; i < 200; ++i) exchange(kSite + 16, 6, fake::kDouble, 11);
  CHECK(program.by_fast_path > before + 100);
  CHECK(program.slots.watched.section->irregular == 0);
}

TEST_CASE("fast path: a request that was freed or cancelled, and its handle again") {
  for (const CallId end : {CallId::kMPI_Request_free, CallId::kMPI_Cancel}) {
    Program program(true);
    void* const handle = reinterpret_cast<void*>(0x55550000);
    for (int i = 0; i < 6; ++i) {
      program.message<CallId::kMPI_Irecv>(kSite, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, 0x55550000);
      CHECK(fake::pending_keys().size() == 1);
      if (i == 3) program.request(end, handle);
      if (i == 3 && end == CallId::kMPI_Request_free) {
        CHECK(fake::pending_keys().empty());
        continue;
      }
      program.wait<CallId::kMPI_Wait>(kSite + 16, {handle}, 0);
      CHECK(fake::pending_keys().empty());
    }
    CHECK(program.by_fast_path >= 9);
    CHECK(program.slots.watched.section->irregular == uint64_t{kCancelled});
  }
}

TEST_CASE("fast path: a persistent request that a call of the fast path completes stays, inactive") {
  Program program(true);
  void* const handle = reinterpret_cast<void*>(0x55550000);
  for (int i = 0; i < 3; ++i) {  // what the site has completed before is another kind
    program.message<CallId::kMPI_Irecv>(kSite, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, 0x55550000);
    program.wait<CallId::kMPI_Wait>(kSite + 16, {handle}, 0);
  }
  program.slots.start(CallId::kMPI_Recv_init, 0x55550000, 1, 7);
  for (int i = 0; i < 3; ++i) {
    program.request(CallId::kMPI_Start, handle);
    CHECK(!request_is_inactive(program.slots.thread(), 0x55550000));
    const uint64_t before = program.by_fast_path;
    program.wait<CallId::kMPI_Wait>(kSite + 16, {handle}, 0);
    CHECK(program.by_fast_path == before + 1);
    CHECK(request_is_inactive(program.slots.thread(), 0x55550000));
  }
  CHECK(fake::pending_keys().size() == 1);
}

TEST_CASE(
    "fast path: closed after an object was unloaded, in a thread that is cut off, and after a call that was left") {
  Program program(true);
  CHECK(!sends(program));
  CHECK(sends(program));
  // dlclose of what had made the call: something else may lie there now.
  objects_unloaded.fetch_add(1);
  forget_calls();
  CHECK(!sends(program));
  CHECK(sends(program));
  // An exception or longjmp out of the call: the next one comes from a frame above it.
  fast::Call left = {};
  REQUIRE(fast::message<CallId::kMPI_Send>(left, kSite, kFrame, nullptr, 4, fake::kDouble, 1, 7, fake::kCommWorld));
  fast::Call call = {};
  CHECK(!fast::message<CallId::kMPI_Send>(call, kSite, kFrame, nullptr, 4, fake::kDouble, 1, 7, fake::kCommWorld));
  Event e = program.make(CallId::kMPI_Send, 1, 7, 4);
  e.return_address = kSite;
  e.send.type = fake::kDouble;
  REQUIRE(fake::call(e));
  CHECK(program.slots.thread().depth == 0);
  CHECK(sends(program));
  CHECK(envelope(program, program.slots.world(), 1, 7)->sent == 7);
  // A forked child, and after MPI_Finalize.
  const uint64_t calls = program.slots.core->trace().calls;
  thread_disable();
  CHECK(!fast::message<CallId::kMPI_Send>(call, kSite, kFrame, nullptr, 4, fake::kDouble, 1, 7, fake::kCommWorld));
  CHECK(program.slots.core->trace().calls == calls);
  current_thread = &program.slots.thread();
  CHECK(sends(program));
}

TEST_CASE("fast path: an error that the call returns is recorded as one, and the next call goes on") {
  Program program(true);
  for (int i = 0; i < 3; ++i) sends(program);
  program.message<CallId::kMPI_Send>(kSite, 1, 7, 4, fake::kDouble, fake::kCommWorld, 15);
  CHECK((newest().flags & ring::kFailed) != 0);
  CHECK(newest().state == static_cast<uint8_t>(ring::RecordState::kDone));
  CHECK(program.slots.watched.section->irregular == uint64_t{kFailedCall});
  CHECK(sends(program));
  CHECK((newest().flags & ring::kFailed) == 0);
}

TEST_CASE("fast path: a site that threads reach one after the other, while another one reads") {
  Program program(true);
  // MPI_THREAD_SERIALIZED: the fast path is open. MPI_THREAD_MULTIPLE: closed.
  for (const bool multiple : {false, true}) {
    request_table_threads(multiple);
    envelopes.concurrent = multiple;
    std::mutex turn;
    std::atomic<int> running{3};
    std::atomic<uint64_t> by_fast_path{0};
    std::vector<std::thread> threads;
#ifdef __SANITIZE_THREAD__
    constexpr int kRounds = 1000;
#else
    constexpr int kRounds = 20000;
#endif
    const uint64_t before = [&] {
      const Envelope* posted = envelope(program, program.slots.world(), 1, 7);
      return posted != nullptr ? posted->posted : 0;
    }();
    for (uint32_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        const auto own = fake::make_thread(1 + t);
        own->host_ranges = {&HostRangeCache::kNever, HostRangeCache::kNever, 0, ~uintptr_t{0}};
        current_thread = own.get();
        const auto start = [&](uint64_t key) {
          void* handle = reinterpret_cast<void*>(key);
          if (fast::Call call; fast::message<CallId::kMPI_Irecv>(call, kSite, kFrame, nullptr, 4, fake::kDouble, 1, 7,
                                                                 fake::kCommWorld)) {
            ++by_fast_path;
            fast::started<CallId::kMPI_Irecv>(call, 0, &handle);
            return;
          }
          Event e = program.slots.make(CallId::kMPI_Irecv, 1, 7, 4);
          e.thread = own.get();
          e.return_address = kSite;
          e.receive.type = fake::kDouble;
          e.requests = &handle;
          e.request_count = 1;
          e.cookies = nullptr;
          if (enter(e)) e.result = 0, leave(e);
        };
        const auto complete = [&](void** handles) {
          void* saved[ring::kWaitedKeys];
          if (fast::Call call; fast::wait<CallId::kMPI_Waitall>(call, kSite + 16, kFrame, handles, 3, saved)) {
            ++by_fast_path;
            fast::waited<CallId::kMPI_Waitall>(call, 0, handles, 3, saved, nullptr);
            return;
          }
          Event e = program.slots.make(CallId::kMPI_Waitall);
          e.thread = own.get();
          e.return_address = kSite + 16;
          e.comm_handle = 0;
          e.requests = handles;
          e.request_count = 3;
          if (enter(e)) e.result = 0, leave(e);
        };
        for (int i = 0; i < kRounds; ++i) {
          std::unique_lock<std::mutex> mine(turn, std::defer_lock);
          // Handles of this thread's own, the same ones again and again.
          void* handles[3];
          for (uint64_t n = 0; n < 3; ++n) {
            if (!multiple) mine.lock();
            const uint64_t key = 0x55550000 + 0x1000 * t + 0x40 * n;
            start(key);
            handles[n] = reinterpret_cast<void*>(key);
            if (!multiple) mine.unlock();
          }
          if (!multiple) mine.lock();
          complete(handles);
        }
        current_thread = nullptr;
        --running;
      });
    State state;
    Watched watched = program.slots.watched;
    uint64_t looks = 0, wrong = 0;
    while (running != 0) {
      look(watched, ~uint64_t{0});
      wrong += snapshot(watched, state.room, sizeof(state.room)) == 0;
      ++looks;
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(looks > 0);
    CHECK(wrong == 0);
    if (multiple) CHECK(by_fast_path == 0);
    else CHECK(by_fast_path > 3 * 4 * kRounds / 2);
    CHECK(fake::pending_keys().empty());
    const Envelope* posted = envelope(program, program.slots.world(), 1, 7);
    CHECK((posted != nullptr && posted->posted - before == 3 * 3 * uint64_t{kRounds}));
    uint64_t calls = 0;
    for (uint32_t t = 1; t <= 3; ++t) calls += runtime.traces[t].calls;
    CHECK(calls == (multiple ? 2 : 1) * 3 * 4 * uint64_t{kRounds});
  }
}
