// SPDX-License-Identifier: Apache-2.0
//
// The request table's second level: more requests than the ring file shows.
#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <unordered_map>

#include "check.h"
#include "request_fixture.h"
#include "shim/report/log.h"
#include "shim/tables/request_overflow.h"

using namespace requests;

TEST_CASE("second level: hundreds of thousands pending, each told once with its own cookie, in any order") {
  const unsigned kind = GENERATE(0u, 1u, 2u);
  const bool threads = GENERATE(true, false);
  INFO("handles of kind " << kind << (threads ? ", threads" : ""));
  fake::Core core;
  Verifier verifier;
  resil::request_table_threads(threads);
  Program program{core.thread()};
  std::mt19937_64 random(kind);
  constexpr uint64_t kCount = kManyAllowed ? 300000 : 16000;
  // Every 16th is persistent and stays over its completions.
  auto persistent = [](uint64_t i) { return i % 16 == 5; };
  uint64_t wrong = 0;  // counted, since that many assertions take their time
  auto expect = [&](uint64_t cookie, bool freed) {
    wrong += told.size() != 1 || told[0].cookie != cookie || told[0].freed != freed;
    told.clear();
  };
  for (int round = 0; round < 2; ++round) {
    Keys order;
    for (uint64_t i = 1; i <= kCount; ++i) {
      const uint64_t key = handle_number(kind, i);
      Event e = program.start(persistent(i) ? CallId::kMPI_Recv_init : CallId::kMPI_Irecv, key);
      REQUIRE((e.cookies != nullptr && e.cookies[0] == 0));
      e.cookies[0] = i;
      if (persistent(i)) program.activate(key);
      order.push_back(i);
    }
    CHECK(resil::overflow_in_use + fake::pending_keys().size() == kCount);
    CHECK(told_active.size() == kCount / 16);
    told_active.clear();
    std::shuffle(order.begin(), order.end(), random);
    for (uint64_t i : order) {
      program.wait(handle_number(kind, i));
      expect(i, false);
      program.wait(handle_number(kind, i));  // inactive, or gone: nothing was completed
      wrong += !told.empty();
      if (persistent(i) && i % 3 == 0) {
        program.activate(handle_number(kind, i));
        program.wait(handle_number(kind, i));
        expect(i, false);
      }
    }
    CHECK(resil::overflow_in_use + fake::pending_keys().size() == kCount / 16);
    std::shuffle(order.begin(), order.end(), random);
    for (uint64_t i : order)
      if (persistent(i)) {
        Keys one = {handle_number(kind, i)};
        program.complete(CallId::kMPI_Request_free, one, [&](Event&) { one[0] = fake::kRequestNull; });
        expect(i, true);
      }
    CHECK(wrong == 0);
    CHECK(resil::overflow_in_use == 0);
    CHECK(fake::pending_keys().empty());
    told_active.clear();
  }
}

TEST_CASE("second level: without a module that waits for completions it is not used") {
  fake::Core core;
  Program program{core.thread()};
  for (uint64_t key = 1; key <= 3 * resil::runtime.request_count; ++key) program.start(CallId::kMPI_Irecv, key << 8);
  CHECK(resil::overflow_in_use == 0);
  CHECK(fake::pending_keys().size() + resil::runtime.header->untracked_requests == 3 * resil::runtime.request_count);
}

#ifndef __SANITIZE_THREAD__
TEST_CASE("second level: the bound is reached, what is beyond it goes without a cookie, and places come back",
          "[slow]") {
  fake::Core core;
  Verifier verifier;
  resil::request_table_threads(GENERATE(true, false));
  Program program{core.thread()};
  const uint64_t far = resil::runtime.request_count + resil::kMaxOverflow + 5000;
  uint64_t kept = 0;
  for (uint64_t i = 1; i <= far; ++i) {
    Event e = program.start(CallId::kMPI_Irecv, handle_number(1, i));
    if (e.cookies == nullptr) continue;
    e.cookies[0] = i;
    ++kept;
  }
  CHECK(resil::overflow_in_use == resil::kMaxOverflow);
  CHECK(kept == resil::kMaxOverflow + fake::pending_keys().size());
  CHECK(resil::runtime.header->untracked_requests == far - fake::pending_keys().size());
  uint64_t right = 0;
  for (uint64_t i = far; i >= 1; --i) {
    program.wait(handle_number(1, i));
    right += told.size() == 1 && told[0].cookie == i;
    told.clear();
  }
  CHECK(right == kept);
  CHECK(resil::overflow_in_use == 0);
  CHECK(fake::pending_keys().empty());
  const Keys again = fill_first_level(program);
  CHECK(resil::overflow_in_use + resil::runtime.request_count == again.size());
}
#endif

TEST_CASE("second level: of requests with one handle the newest that is older than the call, on whichever level") {
  fake::Core core;
  Verifier verifier;
  auto other = fake::make_thread(1);
  Program mine{core.thread()}, theirs{*other};
  constexpr uint64_t kHandle = 0x5555;
  uint64_t cookies = 0;
  auto begin = [&](Program& program) { program.start(CallId::kMPI_Irecv, kHandle).cookies[0] = ++cookies; };
  auto end = [&](Program& program) -> uint64_t {
    told.clear();
    program.wait(kHandle);
    return told.size() == 1 ? told[0].cookie : 0;
  };
  SECTION("both on the second level") {
    fill_first_level(mine);
    const uint32_t before = resil::overflow_in_use;
    begin(mine);
    begin(theirs);
    begin(mine);
    REQUIRE(resil::overflow_in_use == before + 3);
  }
  SECTION("the older one on the first level") {
    begin(mine);
    fill_first_level(mine);
    const uint32_t before = resil::overflow_in_use;
    begin(theirs);
    begin(mine);
    REQUIRE(resil::overflow_in_use == before + 2);
  }
  SECTION("the older one on the second level") {
    const Keys filling = fill_first_level(mine);
    const uint32_t before = resil::overflow_in_use;
    begin(mine);
    REQUIRE(resil::overflow_in_use == before + 1);
    for (uint64_t key : filling) mine.wait(key);
    begin(theirs);
    begin(mine);
    REQUIRE(resil::overflow_in_use == 1);
  }
  CHECK(end(theirs) == 3);
  CHECK(end(mine) == 2);
  CHECK(end(theirs) == 1);
  CHECK(end(mine) == 0);
}

TEST_CASE("second level: MPI_Comm_idup's communicator is known once its request completes") {
  fake::Core core;
  Verifier verifier;
  Program program{core.thread()};
  fill_first_level(program);
  for (int round = 0; round < 100; ++round)
    duplicate_world(
        core, program, [](const ring::Request* entry) { REQUIRE(entry == nullptr); }, round % 2 == 0);
}

TEST_CASE("second level: starting and activating tell the cookie; one partition of many is not a start") {
  fake::Core core;
  Verifier verifier;
  resil::request_table_threads(GENERATE(true, false));
  Program program{core.thread()};
  fill_first_level(program);
  program.start(CallId::kMPI_Psend_init, 0x88).cookies[0] = 7;
  program.activate(0x88, CallId::kMPI_Pready);
  CHECK(told_active == Keys{7});
  program.wait(0x88);
  CHECK(told.empty());  // inactive
  uint64_t handle = 0x88;
  Event e = fake::make_event(core.thread(), CallId::kMPI_Start);
  e.requests = &handle;
  e.request_count = 1;
  resil::request_activating(e);
  CHECK(told_activating == Keys{7});
  program.activate(0x88);
  CHECK(told_active == Keys{7, 7});
  program.wait(0x88);
  REQUIRE(told.size() == 1);
  CHECK(told[0].cookie == 7);
}

TEST_CASE("second level: threads that hand handles to each other through MPI lose and invent nothing") {
  fake::Core core;
  Verifier verifier;
  constexpr unsigned kThreads = 8;
  constexpr uint64_t kHandles = 3000;
  Program filler{core.thread()};
  const Keys filling = fill_first_level(filler);
  const uint32_t before = resil::overflow_in_use;
  FreeHandles handles(kHandles);
  std::atomic<uint64_t> started{0}, completions{0}, wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto state = fake::make_thread(t);
      Program program{*state};
      std::mt19937 random(t);
      std::vector<std::pair<uint64_t, uint64_t>> mine;  // handle, cookie
      told.clear();
      for (uint64_t step = 0; step < 6000 || !mine.empty(); ++step) {
        if (step < 6000 && mine.size() < 600 && random() % 8 < 5) {
          const uint64_t handle = handles.take();
          if (handle == 0) continue;
          Event e = program.start(CallId::kMPI_Irecv, handle);
          const uint64_t cookie = uint64_t{t + 1} << 32 | step;
          if (e.cookies == nullptr) wrong.fetch_add(1);
          else e.cookies[0] = cookie;
          mine.push_back({handle, cookie});
          started.fetch_add(1);
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          auto [handle, cookie] = mine.back();
          mine.pop_back();
          Keys one = {handle};
          program.complete(CallId::kMPI_Wait, one, [&](Event&) { handles.give(one); });
          if (told.size() != 1 || told[0].cookie != cookie) wrong.fetch_add(1);
          completions.fetch_add(told.size());
          told.clear();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(started == completions);
  CHECK(resil::overflow_in_use == before);
  CHECK(fake::pending_keys().size() == resil::runtime.request_count);
  for (uint64_t key : filling) filler.wait(key);
  CHECK(resil::overflow_in_use == 0);
  CHECK(fake::pending_keys().empty());
}
