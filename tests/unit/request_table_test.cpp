// SPDX-License-Identifier: Apache-2.0
//
// The request table against a model (an unordered multimap of what is pending): random starts and completions of all
// kinds, reused handles, overflow, and many threads.
#include <catch2/catch.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>

#include "fake_backend.h"
#include "shim/log.h"
#include "shim/registry.h"
#include "shim/request_overflow.h"

namespace {

using resil::CallId;
using resil::Event;
namespace ring = resil::ring;
using Keys = std::vector<uint64_t>;

constexpr int kUndefined = -32766;

/// Requests as the program holds them; completing one makes it null, as MPI does.
struct Program {
  resil::Thread& thread;

  /// A call that creates a request with this handle.
  Event start(CallId id, uint64_t handle) {
    Event e = fake::make_event(thread, id);
    uint64_t array[1] = {handle};
    ring::Record record = {};
    e.record = &record;
    e.comm = nullptr;
    e.bytes = 8;
    e.time = clock += 128;
    e.peer = 1;
    e.requests = array;
    e.request_count = 1;
    e.cookies = nullptr;
    resil::request_started(e);
    e.record = nullptr;
    e.requests = nullptr;
    return e;
  }

  /// A completing call over `handles`: `carry_out` plays MPI between the two halves.
  template <class CarryOut>
  void complete(CallId id, Keys& handles, CarryOut carry_out, uint64_t frame = 0x7000) {
    Event e = fake::make_event(thread, id, 0x1000, frame);
    e.requests = handles.data();
    e.request_count = static_cast<int64_t>(handles.size());
    resil::request_remember(e);
    e.result = 0;
    carry_out(e);
    resil::request_completed(e);
    resil::request_forget(e);
  }

  void wait(uint64_t handle) {
    Keys one = {handle};
    complete(CallId::kMPI_Wait, one, [&](Event&) { one[0] = fake::kRequestNull; });
  }
  void activate(uint64_t handle, CallId id = CallId::kMPI_Start) {
    Event e = fake::make_event(thread, id);
    e.requests = &handle;
    e.request_count = 1;
    e.time = clock += 128;
    resil::request_activated(e);
  }

  uint64_t clock = 100;
};

Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

const ring::Request* entry_of(uint64_t key) {
  for (uint32_t i = 0; i < resil::runtime.request_count; ++i)
    if (resil::runtime.requests[i].key == key)
      return &resil::runtime.requests[i];
  return nullptr;
}

}  // namespace

namespace {

/// A verifying module: what it is told, in one thread's or all threads' order.
struct Told {
  uint64_t cookie;
  bool freed;
};
thread_local std::vector<Told> told;  // by `completed`
thread_local Keys told_active, told_activating;

void completed(Event&, int64_t, uint64_t* cookie, bool freed) { told.push_back({*cookie, freed}); }
void activated(Event&, uint64_t* cookie) { told_active.push_back(*cookie); }
void activating(Event&, uint64_t* cookie) { told_activating.push_back(*cookie); }

/// Makes the second level take part for one test case, as a verifying module does.
struct Verifier {
  Verifier() {
    resil::hooks.completed[0] = completed;
    resil::hooks.activated[0] = activated;
    resil::hooks.activating[0] = activating;
    told.clear();
    told_active.clear();
    told_activating.clear();
  }
  ~Verifier() { resil::hooks.completed[0] = nullptr, resil::hooks.activated[0] = resil::hooks.activating[0] = nullptr; }
};

/// Fills the first level to the last place; what found none is on the second level.
Keys fill_first_level(Program& program) {
  Keys keys;
  uint64_t key = uint64_t{1} << 40;
  while (fake::pending_keys().size() < resil::runtime.request_count)
    for (int i = 0; i < 1000; ++i, key += 64) {
      program.start(CallId::kMPI_Irecv, key);
      keys.push_back(key);
    }
  return keys;
}

#ifdef __SANITIZE_THREAD__  // a hundred times slower, and one thread is not what it is for
constexpr bool kManyAllowed = false;
#else
constexpr bool kManyAllowed = true;
#endif

/// Handles as the libraries make them.
uint64_t handle_number(unsigned kind, uint64_t i) {
  switch (kind) {
    case 0: return 0x98000000 + i;            // MPICH: small integers in a row
    case 1: return 0x7f0000000000 + i * 432;  // Open MPI: elements of arrays
    default: return (i * 0x9e3779b97f4a7c15) | 1;
  }
}

}  // namespace

TEST_CASE("requests: what is posted is there with its envelope until it completes") {
  fake::Core core;
  Program program{core.thread()};
  program.start(CallId::kMPI_Irecv, 0x1111);
  const ring::Request* entry = entry_of(0x1111);
  REQUIRE(entry != nullptr);
  CHECK(entry->kind == static_cast<uint8_t>(ring::RequestKind::kReceive));
  CHECK(entry->flags == ring::kActive);
  CHECK(entry->peer == 1);
  CHECK(entry->bytes == 8);
  CHECK(entry->call == static_cast<uint16_t>(CallId::kMPI_Irecv));
  program.wait(0x1111);
  CHECK(fake::pending_keys().empty());
  program.wait(0x1111);  // again, as a program that ignores the null it got back: nothing happens
  CHECK(fake::pending_keys().empty());
  struct { CallId id; ring::RequestKind kind; } kinds[] = {
      {CallId::kMPI_Isend, ring::RequestKind::kSend},         {CallId::kMPI_Ibarrier, ring::RequestKind::kCollective},
      {CallId::kMPI_Rput, ring::RequestKind::kRma},           {CallId::kMPI_File_iwrite, ring::RequestKind::kIo},
      {CallId::kMPI_Grequest_start, ring::RequestKind::kGeneralized},
      {CallId::kMPI_Imrecv, ring::RequestKind::kReceive},
  };
  for (auto& [id, kind] : kinds) {
    INFO(resil::call_info(id).name);
    program.start(id, 0x2222);
    CHECK(entry_of(0x2222)->kind == static_cast<uint8_t>(kind));
    program.wait(0x2222);
  }
}

TEST_CASE("requests: operations that are complete at once are not entered") {
  fake::Core core;
  Program program{core.thread()};
  Event e = program.start(CallId::kMPI_Isend, fake::kRequestEmpty);
  CHECK(e.request_key == 0);
  program.start(CallId::kMPI_Irecv, fake::kRequestNull);
  CHECK(fake::pending_keys().empty());
  program.wait(fake::kRequestEmpty);
  CHECK(resil::runtime.header->untracked_requests == 0);
}

TEST_CASE("requests: persistent ones stay until they are freed") {
  fake::Core core;
  Program program{core.thread()};
  program.start(CallId::kMPI_Recv_init, 0x77);
  CHECK(entry_of(0x77)->flags == ring::kPersistent);
  for (int round = 0; round < 3; ++round) {
    program.activate(0x77);
    CHECK(entry_of(0x77)->flags == (ring::kPersistent | ring::kActive));
    Keys one = {0x77};
    program.complete(CallId::kMPI_Wait, one, [](Event&) {});
    CHECK(entry_of(0x77)->flags == ring::kPersistent);
  }
  program.start(CallId::kMPI_Psend_init, 0x78);
  CHECK(entry_of(0x78)->flags == (ring::kPersistent | ring::kPartitioned));
  uint64_t posted = entry_of(0x78)->time;
  program.activate(0x78, CallId::kMPI_Pready);  // one partition of many: not a start
  CHECK(entry_of(0x78)->time == posted);
  for (uint64_t handle : {0x77, 0x78}) {
    Keys one = {handle};
    program.complete(CallId::kMPI_Request_free, one, [&](Event&) { one[0] = fake::kRequestNull; });
  }
  CHECK(fake::pending_keys().empty());
}

TEST_CASE("requests: Waitany, Waitsome, Testany, Testsome, Testall and errors complete exactly what they say") {
  fake::Core core;
  Program program{core.thread()};
  Keys all = {1001, 1002, fake::kRequestNull, 1003, 1004, 1005, 1006};
  for (uint64_t handle : all)
    if (handle != fake::kRequestNull)
      program.start(CallId::kMPI_Irecv, handle);
  int index = 0, flag = 0, outcount = 0, indices[8] = {};
  auto any = [&](Event& e) { e.index = &index, e.flag = nullptr; };
  auto some = [&](Event& e) { e.outcount = &outcount, e.indices = indices; };
  auto test = [&](Event& e) { e.flag = &flag; };

  program.complete(CallId::kMPI_Testall, all, test);  // flag 0
  program.complete(CallId::kMPI_Testany, all, [&](Event& e) { e.flag = &flag, e.index = &index; });
  index = kUndefined;
  program.complete(CallId::kMPI_Waitany, all, any);
  outcount = kUndefined;
  program.complete(CallId::kMPI_Waitsome, all, some);
  outcount = 0;
  program.complete(CallId::kMPI_Testsome, all, some);
  CHECK(fake::pending_keys().size() == 6);

  index = 4;
  program.complete(CallId::kMPI_Waitany, all, [&](Event& e) { any(e), all[4] = fake::kRequestNull; });
  CHECK(sorted(fake::pending_keys()) == Keys{1001, 1002, 1003, 1005, 1006});
  outcount = 2, indices[0] = 6, indices[1] = 0;
  program.complete(CallId::kMPI_Waitsome, all, [&](Event& e) { some(e), all[0] = all[6] = fake::kRequestNull; });
  CHECK(sorted(fake::pending_keys()) == Keys{1002, 1003, 1005});
  // MPI_ERR_IN_STATUS: one failed and is gone, one is still pending.
  program.complete(CallId::kMPI_Waitall, all, [&](Event& e) {
    e.result = 18;
    all[1] = fake::kRequestNull;
  });
  CHECK(sorted(fake::pending_keys()) == Keys{1003, 1005});
  flag = 1;
  program.complete(CallId::kMPI_Testall, all, [&](Event& e) {
    test(e);
    std::fill(all.begin(), all.end(), fake::kRequestNull);
  });
  CHECK(fake::pending_keys().empty());

  // The same calls over one request take the short way.
  Keys one = {2001};
  program.start(CallId::kMPI_Irecv, 2001);
  flag = 0, outcount = 0;
  program.complete(CallId::kMPI_Test, one, test);
  program.complete(CallId::kMPI_Waitsome, one, some);
  outcount = kUndefined;
  program.complete(CallId::kMPI_Testsome, one, some);
  program.complete(CallId::kMPI_Wait, one, [](Event& e) { e.result = 15; });  // failed, and MPI kept the request
  CHECK(fake::pending_keys() == Keys{2001});
  program.complete(CallId::kMPI_Wait, one, [&](Event& e) { e.result = 15, one[0] = fake::kRequestNull; });
  CHECK(fake::pending_keys().empty());
  Keys none;
  program.complete(CallId::kMPI_Waitall, none, [](Event&) {});
}

TEST_CASE("requests: a reused handle removes the older entry first") {
  fake::Core core;
  Program program{core.thread()};
  program.start(CallId::kMPI_Irecv, 5);
  program.start(CallId::kMPI_Isend, 5);
  program.wait(5);
  REQUIRE(fake::pending_keys().size() == 1);
  CHECK(entry_of(5)->kind == static_cast<uint8_t>(ring::RequestKind::kSend));
  program.wait(5);
  CHECK(fake::pending_keys().empty());
}

TEST_CASE("requests: random operations agree with the model") {
  const uint32_t seed = GENERATE(range(1u, 7u));
  fake::Core core;
  fake::set_handle_bytes(8);
  Program program{core.thread()};
  std::mt19937_64 random(seed);
  std::unordered_multimap<uint64_t, bool> model;  // handle -> persistent
  Keys live;
  // Few distinct handles (collisions and reuse), pointers, or consecutive small integers.
  auto handle = [&]() -> uint64_t {
    switch (seed % 3) {
      case 0: return 1 + random() % 300;
      case 1: return 0x7f0000000000 + random() % 2000 * 0x150;
      default: return 0x98000000 + random() % 4000;
    }
  };
  for (int step = 0; step < 4000; ++step) {
    unsigned what = random() % 10;
    if (what < 4) {
      uint64_t key = handle();
      bool persistent = random() % 8 == 0;
      if (model.count(key) != 0)  // twins only of one kind: MPI never has more than one live
        continue;
      program.start(persistent ? CallId::kMPI_Send_init : CallId::kMPI_Irecv, key);
      model.emplace(key, persistent);
      live.push_back(key);
      if (random() % 16 == 0 && !persistent) {
        program.start(CallId::kMPI_Isend, key);
        model.emplace(key, false);
        live.push_back(key);
      }
    } else if (!live.empty()) {
      Keys chosen;
      unsigned count = what < 7 ? 1 : 1 + random() % 40;
      for (unsigned i = 0; i < count && i < live.size(); ++i) {
        std::swap(live[i], live[i + random() % (live.size() - i)]);
        chosen.push_back(live[i]);
      }
      std::vector<int> done;
      for (size_t i = 0; i < chosen.size(); ++i)
        if (what == 7 || chosen.size() == 1 || random() % 2 == 0)
          done.push_back(static_cast<int>(i));
      int outcount = static_cast<int>(done.size());
      const bool freed = what == 6;
      const CallId id = freed ? CallId::kMPI_Request_free : what == 8 ? CallId::kMPI_Waitsome : CallId::kMPI_Waitall;
      program.complete(id, chosen,
                       [&](Event& e) {
                         if (what == 8)
                           e.outcount = &outcount, e.indices = done.data();
                         else if (what == 9 && done.size() != chosen.size() && chosen.size() > 1)
                           e.result = 18;
                         for (int i : done) {
                           uint64_t& request = chosen[static_cast<size_t>(i)];
                           auto found = model.find(request);
                           if (found->second && !freed)
                             continue;
                           live.erase(std::find(live.begin(), live.end(), request));
                           model.erase(found);
                           request = fake::kRequestNull;
                         }
                       });
    }
    if (step % 50 == 0) {
      Keys wanted;
      for (auto& [key, persistent] : model)
        wanted.push_back(key);
      REQUIRE(sorted(fake::pending_keys()) == sorted(wanted));
    }
  }
  CHECK(resil::runtime.header->untracked_requests == 0);
  CHECK(core.thread().scratch_top == 0);
}

TEST_CASE("requests: what finds no place is counted, and the table works on afterwards") {
  fake::Core core;
  Program program{core.thread()};
  const uint64_t places = resil::runtime.request_count;
  for (int round = 0; round < 2; ++round) {
    resil::runtime.header->untracked_requests = 0;
    for (uint64_t key = 1; key <= places + 1000; ++key)
      program.start(CallId::kMPI_Irecv, key << 8);
    uint64_t tracked = fake::pending_keys().size(), untracked = resil::runtime.header->untracked_requests;
    CHECK(tracked + untracked == places + 1000);
    CHECK(untracked >= 1000);
    CHECK(tracked > places * 3 / 4);
    for (uint64_t key = places + 1000; key >= 1; --key)
      program.wait(key << 8);
    CHECK(fake::pending_keys().empty());
  }
}

TEST_CASE("requests: handles of four bytes are read as such") {
  fake::Core core;
  fake::set_handle_bytes(4);
  Program program{core.thread()};
  program.start(CallId::kMPI_Irecv, 0x98000001);
  program.start(CallId::kMPI_Irecv, 0x98000002);
  uint32_t handles[] = {0x98000001, 0x98000002, 0xffffffff};
  Event e = fake::make_event(core.thread(), CallId::kMPI_Waitall);
  e.requests = handles;
  e.request_count = 2;
  resil::request_remember(e);
  handles[0] = handles[1] = static_cast<uint32_t>(fake::kRequestNull);
  e.result = 0;
  resil::request_completed(e);
  resil::request_forget(e);
  CHECK(fake::pending_keys().empty());
}

TEST_CASE("requests: completing calls that never return do not use up the scratch memory") {
  fake::Core core;
  Program program{core.thread()};
  // An error handler that leaves by longjmp or an exception: the second half never runs.
  for (int i = 0; i < 1000; ++i) {
    Keys abandoned(100, fake::kRequestNull);
    Event e = fake::make_event(core.thread(), CallId::kMPI_Waitall, 0x1000, 0x7000);
    e.requests = abandoned.data();
    e.request_count = 100;
    resil::request_remember(e);
    REQUIRE(e.saved_requests != nullptr);
  }
  // A live call around one from a callback keeps its copy. (More handles than fit into the event itself.)
  Keys outer, inner, nulls(20, fake::kRequestNull);
  for (uint64_t key = 101; key <= 120; ++key) {
    outer.push_back(key);
    inner.push_back(key + 100);
    program.start(CallId::kMPI_Irecv, key);
    program.start(CallId::kMPI_Irecv, key + 100);
  }
  const Keys still = outer;
  program.complete(CallId::kMPI_Waitall, outer, [&](Event&) {
    for (int i = 0; i < 3; ++i) {
      Keys abandoned(50, 99);
      Event e = fake::make_event(core.thread(), CallId::kMPI_Waitall, 0x2000, 0x6000);
      e.requests = abandoned.data();
      e.request_count = 50;
      resil::request_remember(e);
    }
    program.complete(CallId::kMPI_Waitall, inner, [](Event&) {}, 0x6100);
    CHECK(sorted(fake::pending_keys()) == still);
    outer = nulls;
  });
  CHECK(fake::pending_keys().empty());
  CHECK(core.thread().scratch_top == 0);
}

TEST_CASE("requests: a vector larger than the scratch memory so far") {
  fake::Core core;
  Program program{core.thread()};
  Keys many(200000, fake::kRequestNull);
  many[199999] = 5;
  program.start(CallId::kMPI_Irecv, 5);
  program.complete(CallId::kMPI_Waitall, many, [&](Event&) { many[199999] = fake::kRequestNull; });
  CHECK(fake::pending_keys().empty());
}

TEST_CASE("requests: threads that hand handles to each other through MPI lose and invent nothing") {
  fake::Core core;
  constexpr unsigned kThreads = 8;
  // The library's free list: a handle goes back to it inside MPI, before the completing call has told the table, so
  // that another thread may have started an operation with it meanwhile.
  std::mutex mutex;
  Keys free_handles;
  for (uint64_t i = 1; i <= 24; ++i)
    free_handles.push_back(0x98000000 + i);
  auto allocate = [&]() -> uint64_t {
    std::lock_guard<std::mutex> guard(mutex);
    if (free_handles.empty())
      return 0;
    uint64_t handle = free_handles.back();  // the last one freed is the next one used
    free_handles.pop_back();
    return handle;
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto state = fake::make_thread(t);
      Program program{*state};
      std::mt19937 random(t);
      Keys mine;
      for (int step = 0; step < 4000 || !mine.empty(); ++step) {
        if (step < 4000 && mine.size() < 4 && random() % 2 == 0) {
          if (uint64_t handle = allocate(); handle != 0) {
            program.start(CallId::kMPI_Irecv, handle);
            mine.push_back(handle);
          }
        } else if (!mine.empty()) {
          program.complete(CallId::kMPI_Waitall, mine, [&](Event&) {
            std::lock_guard<std::mutex> guard(mutex);
            for (uint64_t& handle : mine) {
              free_handles.push_back(handle);
              handle = fake::kRequestNull;
            }
          });
          mine.clear();
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(fake::pending_keys().empty());
  CHECK(resil::runtime.header->untracked_requests == 0);
  // No key was left behind unseen either: every place can be taken again.
  Program program{core.thread()};
  for (uint64_t key = 1; key <= resil::runtime.request_count; ++key)
    program.start(CallId::kMPI_Irecv, key << 20 | 1);
  CHECK(fake::pending_keys().size() + resil::runtime.header->untracked_requests == resil::runtime.request_count);
}

TEST_CASE("requests: MPI_Comm_idup's communicator is known once its request completes") {
  fake::Core core;
  Program program{core.thread()};
  for (int round = 0; round < 100; ++round) {
    uint64_t new_comm = fake::kCommNull, request = 0x555;
    Event e = fake::make_event(core.thread(), CallId::kMPI_Comm_idup);
    ring::Record record = {};
    e.record = &record;
    e.comm = resil::comm_lookup(core.thread(), fake::kCommWorld);
    e.derived_id = resil::comm_derive_id(e);
    e.new_comm = &new_comm;
    e.requests = &request;
    e.request_count = 1;
    resil::request_started(e);
    CHECK(entry_of(0x555)->kind == static_cast<uint8_t>(ring::RequestKind::kCommunicator));
    new_comm = 0x84000100;
    fake::add_comm(new_comm, fake::library.comms[fake::kCommWorld]);
    program.wait(0x555);
    resil::CommInfo* info = resil::comm_lookup(core.thread(), new_comm);
    REQUIRE(info != nullptr);
    CHECK(std::string(info->ring->name) == "MPI_Comm_idup of MPI_COMM_WORLD");
    fake::free_comm(new_comm);
  }
}

TEST_CASE("requests: two pending MPI_Comm_idup with one request handle each find their own communicator") {
  fake::Core core;
  auto other = fake::make_thread(1);
  uint64_t first_comm = 0x84000101, second_comm = 0xdead, third_comm = 0x84000103;
  auto idup = [](resil::Thread& thread, uint64_t request, uint64_t* new_comm, uint64_t time) {
    Event e = fake::make_event(thread, CallId::kMPI_Comm_idup);
    ring::Record record = {};
    e.record = &record;
    e.comm = resil::comm_lookup(thread, fake::kCommWorld);
    e.derived_id = resil::comm_derive_id(e);
    e.new_comm = new_comm;
    e.requests = &request;
    e.request_count = 1;
    e.time = time;
    resil::request_started(e);
  };
  auto name = [&](uint64_t comm) { return std::string(resil::comm_lookup(core.thread(), comm)->ring->name); };
  for (uint64_t handle : {first_comm, third_comm})
    fake::add_comm(handle, fake::library.comms[fake::kCommWorld]);
  Program mine{core.thread()}, theirs{*other};
  // A third one in front, gone before the last one comes: places in the list say nothing about age. Nor does the time
  // of the call, which is taken on the way into MPI, where a thread may have to wait for others.
  idup(core.thread(), 0x10, &third_comm, 300);
  idup(core.thread(), 0x20, &first_comm, 200);
  mine.wait(0x10);
  CHECK(name(third_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  // Inside MPI the first one is complete and its request handle is free again: the other thread gets it.
  idup(*other, 0x20, &second_comm, 100);
  SECTION("the older one is told first") {
    mine.wait(0x20);
    CHECK(fake::library.unknown_handles == 0);  // the other communicator does not exist yet
    CHECK(name(first_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
    second_comm = 0x84000102;
    fake::add_comm(second_comm, fake::library.comms[fake::kCommWorld]);
    theirs.wait(0x20);
  }
  SECTION("the newer one is told first") {
    second_comm = 0x84000102;
    fake::add_comm(second_comm, fake::library.comms[fake::kCommWorld]);
    first_comm = 0xdead;  // a variable of the other thread's: it may be gone any time
    theirs.wait(0x20);
    CHECK(fake::library.unknown_handles == 0);
    first_comm = 0x84000101;
    mine.wait(0x20);
  }
  CHECK(name(first_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  CHECK(name(second_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  CHECK(fake::pending_keys().empty());
}

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
      if (persistent(i))
        program.activate(key);
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
  for (uint64_t key = 1; key <= 3 * resil::runtime.request_count; ++key)
    program.start(CallId::kMPI_Irecv, key << 8);
  CHECK(resil::overflow_in_use == 0);
  CHECK(fake::pending_keys().size() + resil::runtime.header->untracked_requests == 3 * resil::runtime.request_count);
}

#ifndef __SANITIZE_THREAD__
TEST_CASE("second level: the bound is reached, what is beyond it goes without a cookie, and places come back") {
  fake::Core core;
  Verifier verifier;
  resil::request_table_threads(GENERATE(true, false));
  Program program{core.thread()};
  const uint64_t far = resil::runtime.request_count + resil::kMaxOverflow + 5000;
  uint64_t kept = 0;
  for (uint64_t i = 1; i <= far; ++i) {
    Event e = program.start(CallId::kMPI_Irecv, handle_number(1, i));
    if (e.cookies == nullptr)
      continue;
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

TEST_CASE("second level: of two requests with one handle the thread's own, else the older one, on whichever level") {
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
    for (uint64_t key : filling)
      mine.wait(key);
    begin(theirs);
    begin(mine);
    REQUIRE(resil::overflow_in_use == 1);
  }
  CHECK(end(theirs) == 2);
  CHECK(end(theirs) == 1);  // not its own: the older of the two that are left
  CHECK(end(mine) == 3);
  CHECK(end(mine) == 0);
}

TEST_CASE("second level: MPI_Comm_idup's communicator is known once its request completes") {
  fake::Core core;
  Verifier verifier;
  Program program{core.thread()};
  fill_first_level(program);
  for (int round = 0; round < 100; ++round) {
    uint64_t new_comm = fake::kCommNull, request = 0x555;
    Event e = fake::make_event(core.thread(), CallId::kMPI_Comm_idup);
    ring::Record record = {};
    e.record = &record;
    e.comm = resil::comm_lookup(core.thread(), fake::kCommWorld);
    e.derived_id = resil::comm_derive_id(e);
    e.new_comm = &new_comm;
    e.requests = &request;
    e.request_count = 1;
    resil::request_started(e);
    REQUIRE(entry_of(0x555) == nullptr);
    new_comm = 0x84000100;
    fake::add_comm(new_comm, fake::library.comms[fake::kCommWorld]);
    program.wait(0x555);
    CHECK(std::string(resil::comm_lookup(core.thread(), new_comm)->ring->name) == "MPI_Comm_idup of MPI_COMM_WORLD");
    fake::free_comm(new_comm);
  }
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
  std::mutex mutex;
  Keys free_handles;  // the library's, as above
  for (uint64_t i = 1; i <= kHandles; ++i)
    free_handles.push_back(0x98000000 + i);
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
          uint64_t handle;
          {
            std::lock_guard<std::mutex> guard(mutex);
            if (free_handles.empty())
              continue;
            handle = free_handles.back();  // the last one freed is the next one used
            free_handles.pop_back();
          }
          Event e = program.start(CallId::kMPI_Irecv, handle);
          const uint64_t cookie = uint64_t{t + 1} << 32 | step;
          if (e.cookies == nullptr)
            wrong.fetch_add(1);
          else
            e.cookies[0] = cookie;
          mine.push_back({handle, cookie});
          started.fetch_add(1);
        } else if (!mine.empty()) {
          std::swap(mine[random() % mine.size()], mine.back());
          auto [handle, cookie] = mine.back();
          mine.pop_back();
          Keys one = {handle};
          program.complete(CallId::kMPI_Wait, one, [&](Event&) {
            std::lock_guard<std::mutex> guard(mutex);
            free_handles.push_back(handle);
            one[0] = fake::kRequestNull;
          });
          if (told.size() != 1 || told[0].cookie != cookie)
            wrong.fetch_add(1);
          completions.fetch_add(told.size());
          told.clear();
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(wrong == 0);
  CHECK(started == completions);
  CHECK(resil::overflow_in_use == before);
  CHECK(fake::pending_keys().size() == resil::runtime.request_count);
  for (uint64_t key : filling)
    filler.wait(key);
  CHECK(resil::overflow_in_use == 0);
  CHECK(fake::pending_keys().empty());
}
