// SPDX-License-Identifier: Apache-2.0
//
// The fast path of the call path (shim/call/fast_path.h) against the general one: the same calls, drawn at random, must
// leave the same ring file, whichever way each of them goes.
#include "hang_fast.h"
#include "shim/call/objects.h"

using namespace fast_test;

TEST_CASE("fast path: calls leave in the ring file what the general way leaves") {
  const bool threads = GENERATE(false, true);
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    const int steps = 300 << seed / 2, failing = seed % 2 == 0 ? 40 : 1 << 30;
    std::string general, straight;
    {
      Program program(false, threads);
      program.run(seed, steps, failing);
      general = program.shown();
    }
    uint64_t by_fast_path = 0;
    {
      Program program(true, threads);
      program.run(seed, steps, failing);
      straight = program.shown();
      by_fast_path = program.by_fast_path;
    }
    INFO("seed " << seed << ", " << by_fast_path << " of " << steps << " by the fast path");
    CHECK(by_fast_path > static_cast<uint64_t>(steps) / (threads ? 20 : 5));
    CHECK(general == straight);
  }
}

TEST_CASE("fast path: what a call has in its state slot while it is open") {
  Program program(true);
  const auto send = [&] { program.message<CallId::kMPI_Ssend>(0x2000, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0); };
  send();
  send();
  REQUIRE(program.by_fast_path == 1);
  fast::Call call = {};
  REQUIRE(fast::message<CallId::kMPI_Ssend>(call, 0x2000, kFrame, nullptr, 4, fake::kDouble, 1, 7, fake::kCommWorld));
  State state;
  program.slots.read(state);
  REQUIRE(state.head().part_count == 1);
  CHECK(state.part().needed == 3);  // messages of this envelope that the other side must have received
  fast::message_done<CallId::kMPI_Ssend>(call, 0);
  program.slots.read(state);
  CHECK(state.head().part_count == 0);
}

TEST_CASE("fast path: closed with threads, for wildcards, after a change and while a module wants the next call") {
  Program program(true);
  const auto send = [&](int count = 4, int tag = 7) {
    const uint64_t before = program.by_fast_path;
    program.message<CallId::kMPI_Send>(0x2000, 1, tag, count, fake::kDouble, fake::kCommWorld, 0);
    return program.by_fast_path != before;
  };
  CHECK(!send());
  CHECK(send());
  CHECK(!send(5));  // another envelope, looked up
  CHECK(send(5));
  CHECK(send());  // what came before it still holds
  forget_calls();
  CHECK(!send(5));
  CHECK(send(5));
  request_table_threads(true);
  program.threads = true;
  CHECK(!send(5));
  CHECK(send(5));
  for (int i = 0; i < 3; ++i) {  // requests are the general way's
    const uint64_t before = program.by_fast_path;
    program.message<CallId::kMPI_Isend>(0x4000, 1, 7, 5, fake::kDouble, fake::kCommWorld, 0, 0x55550000);
    program.wait<CallId::kMPI_Wait>(0x4010, {reinterpret_cast<void*>(0x55550000)}, 0);
    CHECK(program.by_fast_path == before);
  }
  request_table_threads(false);
  program.threads = false;
  CHECK(!send(5));
  CHECK(send(5));
  // Where the clock is read, it is asked whether a module wants the call.
  const uint32_t wanted = 0;
  fast::gate = &wanted;
  int general = 0;
  for (int i = 0; i < 16; ++i) general += !send(5);
  CHECK(general >= 1);
  fast::open();
  CHECK(send(5));
  // A wildcard's site stays with the general way.
  for (int i = 0; i < 3; ++i) {
    fast::Call call = {};
    CHECK(!fast::message<CallId::kMPI_Recv>(call, 0x3000, kFrame, nullptr, 4, fake::kDouble, 1, ring::kAnyTag,
                                            fake::kCommWorld));
    OpenMpiStatus status = {1, 7, 0, 0, 32};
    Event e = program.slots.make(CallId::kMPI_Recv, 1, ring::kAnyTag, 4);
    e.return_address = 0x3000;
    e.statuses = e.given_statuses = &status;
    REQUIRE(fake::call(e));
  }
}

TEST_CASE("fast path: counts beyond int are not taken for those that they end in") {
  Program program(true);
  const auto alltoall = [&](int64_t sent, int64_t received) {
    const uint64_t before = program.by_fast_path;
    program.blocks<CallId::kMPI_Alltoall_c>(0x2000, 0, {sent, fake::kDouble}, {received, fake::kDouble},
                                            fake::kCommWorld, false, 0);
    const ring::TraceBuffer& trace = runtime.traces[0];
    const int64_t members = 4;
    REQUIRE(trace.records[(trace.head - 1) % ring::kRecordsPerTrace].bytes ==
            static_cast<uint64_t>(sent) * 8 * static_cast<uint64_t>(members));
    return program.by_fast_path != before;
  };
  CHECK(!alltoall(4, 4));
  CHECK(alltoall(4, 4));
  for (int i = 0; i < 3; ++i) {
    CHECK(!alltoall(kBeyondInt + 4, 4));
    CHECK(!alltoall(kBeyondInt + 4, kBeyondInt + 4));
    CHECK(!alltoall(kBeyondInt + 5, 4));
  }
  CHECK(!alltoall(5, 4));
  CHECK(alltoall(5, 4));
}

TEST_CASE("fast path: a loop over partners, and roots, types and operators that take turns") {
  for (const bool special : {false, true}) {
    Program program(true);
    uint64_t rounds = 0;
    const auto round = [&] {
      const uint64_t before = program.by_fast_path;
      for (int peer = 0; peer < 3; ++peer) {
        program.message<CallId::kMPI_Send>(0x2000, peer, 7, 4, fake::kDouble, fake::kCommWorld, 0);
        program.message<CallId::kMPI_Send>(0x2000, peer, 7, 4 + peer, kInt, kOtherComm, 0);
        program.collective<CallId::kMPI_Bcast>(0x2010, peer, 4, fake::kDouble, 0, fake::kCommWorld, 0);
        program.collective<CallId::kMPI_Allreduce>(0x2020, 0, 1 + peer, fake::kDouble, 3, fake::kCommWorld, 0);
      }
      program.collective<CallId::kMPI_Barrier>(0x2030, 0, 0, 0, 0, fake::kCommWorld, 0);
      program.collective<CallId::kMPI_Barrier>(0x2030, 0, 0, 0, 0, kOtherComm, 0);
      ++rounds;
      return program.by_fast_path - before;
    };
    if (special) {  // of a language binding: the program's calls behind it are told apart by the general way alone
      SiteEntry& site = site_lookup(program.slots.thread(), 0x2000, kFrame);
      site.special = true;
      site.shift = 0x10;
    }
    CHECK(round() == 0);
    CHECK(round() >= 12);  // of 14: three that share both their places may take them from each other
    CHECK(round() >= 12);
    for (int peer = 0; peer < 3; ++peer)
      for (const Envelope& one : program.slots.watched.section->envelopes)
        if (one.peer == peer && one.tag == 7 && one.comm == program.slots.world()) CHECK(one.sent == rounds);
    // Equal but for the operator, which is not what they are kept by.
    CHECK(program.slots.watched.section->irregular == 0);
    const uint64_t before = program.by_fast_path;
    program.collective<CallId::kMPI_Allreduce>(0x2020, 0, 1, fake::kDouble, 4, fake::kCommWorld, 0);
    CHECK(program.by_fast_path == before);
    forget_calls();
    CHECK(round() == 0);
    CHECK(round() >= 12);
    objects_unloaded.fetch_add(1);
    forget_calls();
    program.message<CallId::kMPI_Send>(0x2000, 0, 7, 4, fake::kDouble, fake::kCommWorld, 0);
    for (const SiteEntry& one : program.slots.thread().former) CHECK(one.return_address == 0);
  }
}

TEST_CASE("fast path: more envelopes than there are places at first") {
  Program program(true);
  constexpr int kEnvelopes = 90;
  uint64_t rounds = 0;
  const auto round = [&] {
    const uint64_t before = program.by_fast_path;
    for (int i = 0; i < kEnvelopes; ++i)
      program.message<CallId::kMPI_Send>(0x2000 + static_cast<uint64_t>(i % 3) * 16, i % 4, i, 1 + i, fake::kDouble,
                                         fake::kCommWorld, 0);
    ++rounds;
    return program.by_fast_path - before;
  };
  const Thread& thread = program.slots.thread();
  REQUIRE(thread.former_more == 0);
  CHECK(round() == 0);
  for (int i = 0; i < 4; ++i) round();
  CHECK(thread.former_more == kFormerMore);
  CHECK(round() > kEnvelopes * 8 / 10);
  // Each by its own envelope, whichever of the places it lay in; and what is freed is gone from all.
  for (int i = 0; i < kEnvelopes; ++i)
    for (const Envelope& one : program.slots.watched.section->envelopes)
      if (one.peer == i % 4 && one.tag == i && one.comm == program.slots.world()) CHECK(one.sent == rounds);
  forget_type(current_thread, fake::kDouble);
  CHECK(round() == 0);
  CHECK(program.slots.watched.section->irregular == 0);
}

TEST_CASE("fast path: a loop over more ranks than there are places, and messages with another tag each time") {
  constexpr int kRanks = 200;
  Program program(true, false, kRanks);
  const Thread& thread = program.slots.thread();
  int next_tag = 1000;
  for (int i = 0; i < 400; ++i)
    program.message<CallId::kMPI_Send>(0x3000, 1 + i % 9, next_tag++, 4, fake::kDouble, fake::kCommWorld, 0);
  CHECK(thread.former_more == kFormerMore);
  uint64_t rounds = 0;
  const auto round = [&] {
    const uint64_t before = program.by_fast_path;
    for (int peer = 1; peer < kRanks; ++peer) {
      program.message<CallId::kMPI_Send>(0x2000, peer, 7, 4, fake::kDouble, fake::kCommWorld, 0);
      program.message<CallId::kMPI_Recv>(0x2010, peer, 8, 4, fake::kDouble, fake::kCommWorld, 0);
    }
    ++rounds;
    return program.by_fast_path - before;
  };
  for (int i = 0; i < 4; ++i) round();
  CHECK(thread.former_more == kFormerMost);
  CHECK(round() > kRanks);  // of 398: some share both their places with others
  for (const Envelope& one : program.slots.watched.section->envelopes)
    if (one.comm == program.slots.world() && one.tag == 7) CHECK(one.sent == rounds);
  forget_type(current_thread, fake::kDouble);
  CHECK(round() == 0);
  CHECK(round() > 0);
  CHECK(program.slots.watched.section->irregular == 0);
}
