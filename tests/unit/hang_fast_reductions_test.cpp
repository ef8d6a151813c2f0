// SPDX-License-Identifier: Apache-2.0
//
// Reductions that a module has started in place of the library and whose requests the fast path (shim/call/fast_path.h)
// makes and completes: the module is told of each once, whatever ends it, and what it says is what the call returns.
#include "hang_fast.h"

using namespace fast_test;

namespace {

constexpr uint64_t kStart = 0x2000, kEnd = 0x2100, kKey = 0x55550000;
constexpr unsigned kWord = request_word(Stage::kReduction);

struct End {
  uint64_t word;
  bool freed, by_event;
};
std::vector<End> ended;
int says;  ///< MPI's code of the reductions that end

int over(Thread&, uint64_t word) {
  ended.push_back({word, false, false});
  return says;
}

void leaves(Event& e) {
  if (!(e.attributes & kCallStarts) || e.thread->started == 0) return;
  if (e.cookies != nullptr) e.cookies[kWord] = e.thread->started;
  else ended.push_back({e.thread->started, false, true});
  e.thread->started = 0;
}

void completes(Event& e, int64_t, uint64_t* cookie, bool freed) {
  ended.push_back({*cookie, freed, true});
  if (e.result == 0) e.result = says;
  *cookie = 0;
}

const Module kReduction = {.name = "reduction",
                           .description = "",
                           .stage = Stage::kReduction,
                           .leave = leaves,
                           .fast = [](Event&, SiteEntry&) { return true; },
                           .completed = completes};

struct Reductions {
  Reductions() : program(true) {
    fake::modules = {&kReduction, &kWithFastPath};
    registry_enable();
    fast::reduction_over = over;
    ended.clear();
    says = 0;
  }
  ~Reductions() { fast::reduction_over = nullptr; }

  /// MPI_Iallreduce that the module carries out; whether it went the fast path.
  bool start(uint64_t key, uint64_t word, int result = 0) {
    const uint64_t before = program.by_fast_path;
    program.slots.thread().started = result == 0 ? word : 0;
    program.collective<CallId::kMPI_Iallreduce>(kStart, 0, 1, fake::kDouble, 3, fake::kCommWorld, result, key);
    CHECK(program.slots.thread().started == 0);
    return program.by_fast_path != before;
  }
  /// Likewise MPI_Wait or MPI_Waitall; what it returns.
  template <CallId id>
  int wait(std::vector<uint64_t> keys, bool straight = true) {
    std::vector<void*> handles;
    for (const uint64_t key : keys) handles.push_back(reinterpret_cast<void*>(key));
    void* saved[ring::kWaitedKeys];
    fast::Call call = {};
    if (!fast::wait<id>(call, kEnd, kFrame, handles.data(), static_cast<int64_t>(handles.size()), saved)) {
      CHECK(!straight);
      Event e = program.make(id);
      e.return_address = kEnd;
      e.comm_handle = 0;
      e.requests = handles.data();
      e.request_count = static_cast<int64_t>(handles.size());
      REQUIRE(enter(e));
      for (void*& handle : handles) handle = reinterpret_cast<void*>(backend->request_null());
      e.result = 0;
      leave(e);
      return e.result;
    }
    CHECK(straight);
    program.nested();
    for (void*& handle : handles) handle = reinterpret_cast<void*>(backend->request_null());
    return fast::waited<id>(call, 0, handles.data(), static_cast<int64_t>(handles.size()), saved, nullptr);
  }
  template <CallId id>
  void open_wait() {
    wait<id>({backend->request_null()}, false);
  }

  Program program;
};

std::vector<uint64_t> words() {
  std::vector<uint64_t> all;
  for (const End& one : ended) all.push_back(one.word);
  return all;
}

}  // namespace

TEST_CASE("fast path: a reduction's request, and MPI_Wait, which returns what the reduction says") {
  Reductions r;
  CHECK(!r.start(kKey, 0x100));
  r.open_wait<CallId::kMPI_Wait>();
  CHECK(ended.empty());
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
  REQUIRE(words() == std::vector<uint64_t>{0x100});
  for (uint64_t i = 0; i < 50; ++i) {
    says = i % 5 == 2 ? 15 : 0;
    CHECK(r.start(kKey, 0x200 + i));
    CHECK(fake::pending_keys() == std::vector<uint64_t>{kKey});
    CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == says);
    CHECK(fake::pending_keys().empty());
    REQUIRE(ended.size() == 2 + i);
    CHECK((ended.back().word == 0x200 + i && !ended.back().by_event));
    // A request of the same handle with no reduction behind it.
    r.program.message<CallId::kMPI_Irecv>(0x3000, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, kKey);
    CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
    CHECK(ended.size() == 2 + i);
  }
}

TEST_CASE("fast path: reductions among messages in MPI_Waitall, the first error is what it returns") {
  Reductions r;
  r.open_wait<CallId::kMPI_Waitall>();
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<uint64_t> keys, wanted;
    for (uint64_t i = 0; i < ring::kWaitedKeys; ++i) {
      const uint64_t key = kKey + i * 0x40;
      keys.push_back(key);
      if (i % 3 == 0) {
        r.start(key, 0x100 + i);
        wanted.push_back(0x100 + i);
      } else if (i % 3 == 1) {
        r.program.message<CallId::kMPI_Irecv>(0x3000, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, key);
      } else {
        keys.back() = backend->request_null();
      }
    }
    ended.clear();
    says = turn % 2 == 0 ? 0 : 15;
    r.program.inside = static_cast<uint32_t>(turn);
    CHECK(r.wait<CallId::kMPI_Waitall>(keys) == says);
    CHECK(words() == wanted);
    CHECK(fake::pending_keys().empty());
  }
}

TEST_CASE("fast path: a reduction that MPI_Test finds complete") {
  Reductions r;
  r.program.poll<CallId::kMPI_Test>(kEnd, backend->request_null(), ring::kNoPeer, ring::kNoTag, 0, 1, 0);
  for (uint64_t i = 0; i < 8; ++i) {
    says = i % 2 == 0 ? 0 : 15;
    r.start(kKey, 0x100 + i);
    const auto test = [&](int flag) {
      void* handle = reinterpret_cast<void*>(kKey);
      void* const before = handle;
      fast::Call call = {};
      REQUIRE(fast::poll<CallId::kMPI_Test>(call, kEnd, kFrame, kKey, ring::kNoPeer, ring::kNoTag, 0));
      return fast::polled<CallId::kMPI_Test>(call, 0, flag, &handle, before, nullptr);
    };
    for (int again = 0; again < 3; ++again) CHECK(test(0) == 0);
    CHECK(ended.size() == i);
    CHECK(test(1) == says);
    REQUIRE(ended.size() == i + 1);
    CHECK(ended.back().word == 0x100 + i);
  }
}

TEST_CASE("fast path: reductions whose requests are freed, cancelled, or complete the general way") {
  Reductions r;
  r.open_wait<CallId::kMPI_Wait>();
  r.start(kKey, 0x100);
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
  ended.clear();
  CHECK(r.start(kKey, 0x101));
  r.program.request(CallId::kMPI_Request_free, reinterpret_cast<void*>(kKey));
  REQUIRE(words() == std::vector<uint64_t>{0x101});
  CHECK((ended[0].freed && ended[0].by_event));
  CHECK(r.start(kKey, 0x102));
  r.program.request(CallId::kMPI_Cancel, reinterpret_cast<void*>(kKey));
  CHECK(ended.size() == 1);
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
  REQUIRE(ended.size() == 2);
  CHECK((ended[1].word == 0x102 && !ended[1].freed));
  // MPI_Waitany of two, the second of which is complete.
  CHECK(r.start(kKey, 0x103));
  CHECK(r.start(kKey + 0x40, 0x104));
  void* both[] = {reinterpret_cast<void*>(kKey), reinterpret_cast<void*>(kKey + 0x40)};
  int index = 1;
  Event e = r.program.make(CallId::kMPI_Waitany);
  e.comm_handle = 0;
  e.requests = both;
  e.request_count = 2;
  e.index = &index;
  says = 15;
  REQUIRE(enter(e));
  e.result = 0;
  leave(e);
  CHECK(e.result == 15);
  REQUIRE(ended.size() == 3);
  CHECK((ended[2].word == 0x104 && ended[2].by_event));
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 15);
  REQUIRE(ended.size() == 4);
  CHECK((ended[3].word == 0x103 && !ended[3].by_event));
}

TEST_CASE("fast path: reductions that fail to start, that callbacks' calls hide, that find no place in the table") {
  Reductions r;
  r.open_wait<CallId::kMPI_Wait>();
  r.start(kKey, 0x100);
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
  ended.clear();
  CHECK(r.start(kKey, 0x101, 1));
  CHECK((ended.empty() && fake::pending_keys().empty()));
  // So many calls from inside the one that starts it that its record is theirs by now.
  r.program.inside = ring::kRecordsPerTrace + 1;
  CHECK(r.start(kKey, 0x102));
  CHECK(fake::pending_keys() == std::vector<uint64_t>{kKey});
  CHECK(r.wait<CallId::kMPI_Wait>({kKey}) == 0);
  CHECK(words() == std::vector<uint64_t>{0x102});
  ended.clear();
  std::vector<uint64_t> others;
  for (uint64_t key = kKey; fake::pending_keys().size() < runtime.request_count; key += 0x40 * 16)
    for (uint64_t i = 0; i < 16; ++i) {
      r.program.message<CallId::kMPI_Irecv>(0x3000, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, key + i * 0x40);
      others.push_back(key + i * 0x40);
    }
  const uint64_t late = uint64_t{1} << 44;
  CHECK(r.start(late, 0x103));
  says = 15;
  CHECK(r.wait<CallId::kMPI_Wait>({late}) == 15);
  REQUIRE(words() == std::vector<uint64_t>{0x103});
  CHECK(ended[0].by_event);
  says = 0;
  for (const uint64_t key : others) r.program.wait<CallId::kMPI_Wait>(kEnd, {reinterpret_cast<void*>(key)}, 0);
  CHECK(ended.size() == 1);
}
