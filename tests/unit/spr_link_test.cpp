// SPDX-License-Identifier: Apache-2.0
//
// Messages of particle replication between ranks that are threads here: who named whom is known after log2(ranks)
// rounds, sums reach everybody, large parcels arrive, and a rank that never comes is waited for as long as was said and
// no longer.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "check.h"
#include "detectors/spr/link.h"
#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/thread.h"

namespace {

thread_local int me;

/// An MPI of threads: what is sent is kept until it is received.
struct World {
  struct Receive {
    void* data;
    size_t bytes;
    std::tuple<int, int, int> way;
  };
  std::mutex lock;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> under_way;  // from, to, tag
  std::map<uint64_t, Receive> receives;
  uint64_t next = 1;
} world;

bool fake_send(uint64_t, const void* data, size_t bytes, int to, resil::PrivateTag tag, uint64_t* request) {
  std::lock_guard guard(world.lock);
  const char* const from = static_cast<const char*>(data);
  world.under_way[{me, to, tag.value()}].emplace_back(from, from + bytes);
  *request = 0;
  return true;
}

bool fake_receive(uint64_t, void* data, size_t bytes, int from, resil::PrivateTag tag, uint64_t* request) {
  std::lock_guard guard(world.lock);
  world.receives[*request = world.next++] = {data, bytes, {from, me, tag.value()}};
  return true;
}

bool fake_test(uint64_t* request) {
  if (*request == 0) return true;
  std::lock_guard guard(world.lock);
  const World::Receive receive = world.receives.at(*request);
  auto& coming = world.under_way[receive.way];
  if (coming.empty()) return false;
  if (coming.front().size() > receive.bytes) std::abort();
  if (!coming.front().empty()) memcpy(receive.data, coming.front().data(), coming.front().size());
  coming.pop_front();
  world.receives.erase(*request);
  *request = 0;
  return true;
}

bool fake_cancel(uint64_t* request) {
  std::lock_guard guard(world.lock);
  world.receives.erase(*request);
  return true;
}

const resil::MessageFunctions messages = [] {
  resil::MessageFunctions functions = {};
  functions.cancel = fake_cancel;
  return functions;
}();

const resil::Backend fake = [] {
  resil::Backend functions = {};
  functions.send = fake_send;
  functions.receive = fake_receive;
  functions.test = fake_test;
  functions.messages = &messages;
  return functions;
}();

const resil::PrivateTag tag = resil::tags::kExample[0];

template <class Body>
void on_ranks(int ranks, Body body) {
  resil::backend = &fake;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([rank, &body] {
      me = rank;
      auto thread = std::make_unique<resil::Thread>();
      body(*thread, rank);
    });
  for (std::thread& thread : threads) thread.join();
  std::lock_guard guard(world.lock);
  for (auto& [way, left] : world.under_way) CHECK(left.empty());
  CHECK(world.receives.empty());
}

}  // namespace

namespace resil {
const Backend* backend;
uint64_t private_comm() { return 1; }
}  // namespace resil

TEST_CASE("everybody learns who has named it", "[threads]") {
  using namespace resil::spr;
  for (int ranks : {1, 2, 3, 5, 6, 7, 8, 13}) {
    std::vector<int> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    std::vector<std::vector<int>> names(members.size());
    std::mt19937 random(static_cast<unsigned>(ranks));
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        if (to != from && random() % 3 == 0) names[static_cast<size_t>(from)].push_back(to);
    std::vector<std::vector<int>> named(members.size());
    on_ranks(ranks, [&](resil::Thread& thread, int rank) {
      Buffer<int> by;
      int count = 0;
      const auto& own = names[static_cast<size_t>(rank)];
      if (who_named_me(thread, members.data(), ranks, rank, own.data(), static_cast<int>(own.size()), by, &count, tag,
                       {60, nullptr, 0}) == Waited::kDone)
        named[static_cast<size_t>(rank)].assign(by.data(), by.data() + count);
    });
    for (int to = 0; to < ranks; ++to) {
      std::vector<int> wanted;
      for (int from = 0; from < ranks; ++from)
        if (std::count(names[static_cast<size_t>(from)].begin(), names[static_cast<size_t>(from)].end(), to) != 0)
          wanted.push_back(from);
      std::sort(named[static_cast<size_t>(to)].begin(), named[static_cast<size_t>(to)].end());
      CHECK(named[static_cast<size_t>(to)] == wanted);
    }
  }
}

TEST_CASE("a sum reaches every member, whatever their ranks", "[threads]") {
  using namespace resil::spr;
  for (int ranks : {1, 2, 3, 6, 9}) {
    std::vector<int> members;
    for (int i = 0; i < ranks; ++i) members.push_back((i * 5 + 2) % ranks);
    if (std::set<int>(members.begin(), members.end()).size() != members.size()) continue;
    std::vector<int64_t> sums(members.size());
    on_ranks(ranks, [&](resil::Thread& thread, int rank) {
      const auto position = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
      int64_t value = 1 << position;
      if (sum_over(thread, members.data(), ranks, position, &value, tag, {60, nullptr, 0}) == Waited::kDone)
        sums[static_cast<size_t>(rank)] = value;
    });
    for (int64_t sum : sums) CHECK(sum == (1 << ranks) - 1);
  }
}

TEST_CASE("a rank that never comes is waited for as long as was said", "[threads]") {
  using namespace resil::spr;
  const int members[] = {0, 1};
  on_ranks(1, [&](resil::Thread& thread, int) {
    int64_t value = 1;
    CHECK(sum_over(thread, members, 2, 0, &value, tag, {0.05, nullptr, 0}) == Waited::kTimeout);
    Buffer<int> by;
    int count = 0;
    Parcel parcel = {};
    CHECK(swap_parcels(thread, nullptr, 0, -1, 1, parcel, tag, {0.05, nullptr, 0}) == Waited::kTimeout);
    CHECK(who_named_me(thread, members, 1, 0, nullptr, 0, by, &count, tag, {0.05, nullptr, 0}) == Waited::kDone);
    CHECK(count == 0);
  });
}
