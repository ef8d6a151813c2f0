// SPDX-License-Identifier: Apache-2.0
//
// The request table against a model (an unordered multimap of what is pending): random starts and completions of all
// kinds, reused handles, overflow, and many threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <unordered_map>

#include "check.h"
#include "request_fixture.h"
#include "shim/model/request_class.h"
#include "shim/report/log.h"

using namespace requests;

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
  struct {
    CallId id;
    ring::RequestKind kind;
  } kinds[] = {
      {CallId::kMPI_Isend, ring::RequestKind::kSend},
      {CallId::kMPI_Ibarrier, ring::RequestKind::kCollective},
      {CallId::kMPI_Rput, ring::RequestKind::kRma},
      {CallId::kMPI_File_iwrite, ring::RequestKind::kIo},
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

TEST_CASE("requests: waits are carried out by tests for the kinds in the list, on either level of the table") {
  using resil::RequestClass;
  for (bool full : {false, true}) {
    INFO((full ? "second level" : "first level"));
    fake::Core core;
    Program program{core.thread()};
    Verifier verifier;
    if (full) fill_first_level(program);
    struct {
      CallId id;
      RequestClass of;
    } kinds[] = {
        {CallId::kMPI_Isend, RequestClass::kMessage},
        {CallId::kMPI_Imrecv, RequestClass::kMessage},
        {CallId::kMPI_Send_init, RequestClass::kPersistentMessage},
        {CallId::kMPI_Isendrecv, RequestClass::kExchange},
        {CallId::kMPI_Iallreduce, RequestClass::kCollective},
        {CallId::kMPI_Ibarrier, RequestClass::kCollective},
        {CallId::kMPI_Allreduce_init, RequestClass::kPersistentCollective},
        {CallId::kMPI_Rput, RequestClass::kRma},
        {CallId::kMPI_File_iwrite_at_all, RequestClass::kFile},
        {CallId::kMPI_Psend_init, RequestClass::kPartitioned},
        {CallId::kMPI_Precv_init, RequestClass::kPartitioned},
        {CallId::kMPI_Grequest_start, RequestClass::kGeneralized},
    };
    uint64_t key = 0x7777770;
    for (auto& [id, of] : kinds) {
      INFO(resil::call_info(id).name);
      program.start(id, ++key);
      REQUIRE((entry_of(key) == nullptr) == full);
      CHECK(resil::request_class(core.thread(), key) == of);
      uint64_t both[] = {fake::kRequestNull, key};
      Event e = fake::make_event(core.thread(), CallId::kMPI_Waitall);
      e.requests = both;
      e.request_count = 2;
      const bool harmless = of == RequestClass::kMessage || of == RequestClass::kPersistentMessage ||
                            of == RequestClass::kExchange || of == RequestClass::kCollective;
      CHECK(resil::requests_may_be_tested(e) == harmless);
    }
    CHECK(resil::request_class(core.thread(), 0x6666) == RequestClass::kUnknown);
    CHECK(resil::request_class(core.thread(), fake::kRequestNull) == RequestClass::kNothing);
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

// Open MPI 6's second empty request, and MPICH's array of them under the standard ABI: two staged sends with one handle
// took each other out of the list, and the process crashed.
TEST_CASE("requests: those within the backend's span are shared") {
  fake::Core core;
  auto* table = const_cast<resil::Backend*>(resil::backend);
  const uint64_t first = table->shared_first, span = table->shared_span;
  table->shared_first = 0x7000, table->shared_span = 3 * 0x168;
  CHECK(!resil::request_is_shared(0x7000 - 1));
  CHECK(resil::request_is_shared(0x7000));
  CHECK(resil::request_is_shared(0x7000 + 2 * 0x168));
  CHECK(!resil::request_is_shared(0x7000 + 3 * 0x168));
  Program program{core.thread()};
  CHECK(program.start(CallId::kMPI_Isend, 0x7000 + 0x168).request_key == 0);
  CHECK(fake::pending_keys().empty());
  table->shared_first = first, table->shared_span = span;
  CHECK(!resil::request_is_shared(0x7000));
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
    if (handle != fake::kRequestNull) program.start(CallId::kMPI_Irecv, handle);
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

TEST_CASE("requests: a handle that MPI gives again while its completion is under way: each call ends its own") {
  struct Case {
    const char* what;
    unsigned starts_old, ends_old, starts_new, ends_new;  // threads
  };
  const Case tried = GENERATE(Case{"each its own", 0, 0, 1, 1}, Case{"the new one handed over", 0, 0, 1, 2},
                              Case{"the old one handed over", 0, 2, 1, 1}, Case{"both handed over", 0, 1, 2, 3},
                              Case{"the new one to who started the old one", 0, 1, 2, 0});
  const bool full = GENERATE(false, true), new_first = GENERATE(false, true);
  INFO(tried.what << (full ? ", on the second level" : ", on the first level")
                  << (new_first ? ", the new one first" : ""));
  fake::Core core;
  Verifier verifier;
  constexpr uint64_t kHandle = 0x5555;
  const std::unique_ptr<resil::Thread> others[] = {fake::make_thread(1), fake::make_thread(2), fake::make_thread(3)};
  Program programs[] = {{core.thread()}, {*others[0]}, {*others[1]}, {*others[2]}};
  if (full) fill_first_level(programs[0]);
  const auto ends = [&](Program& program, auto inside) {
    Keys one = {kHandle};
    program.complete(CallId::kMPI_Wait, one, [&](Event&) {
      one[0] = fake::kRequestNull;
      inside();
      told.clear();
    });
    return told.size() == 1 ? told[0].cookie : 0;
  };
  programs[tried.starts_old].start(CallId::kMPI_Irecv, kHandle).cookies[0] = 1;
  uint64_t told_new = 0;
  CHECK(ends(programs[tried.ends_old], [&] {
          programs[tried.starts_new].start(CallId::kMPI_Isend, kHandle).cookies[0] = 2;
          if (new_first) told_new = ends(programs[tried.ends_new], [] {});
        }) == 1);
  if (!new_first) told_new = ends(programs[tried.ends_new], [] {});
  CHECK(told_new == 2);
  CHECK(entry_of(kHandle) == nullptr);
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
        if (what == 7 || chosen.size() == 1 || random() % 2 == 0) done.push_back(static_cast<int>(i));
      int outcount = static_cast<int>(done.size());
      const bool freed = what == 6;
      const CallId id = freed ? CallId::kMPI_Request_free : what == 8 ? CallId::kMPI_Waitsome : CallId::kMPI_Waitall;
      program.complete(id, chosen, [&](Event& e) {
        if (what == 8) e.outcount = &outcount, e.indices = done.data();
        else if (what == 9 && done.size() != chosen.size() && chosen.size() > 1) e.result = 18;
        for (int i : done) {
          uint64_t& request = chosen[static_cast<size_t>(i)];
          auto found = model.find(request);
          if (found->second && !freed) continue;
          live.erase(std::find(live.begin(), live.end(), request));
          model.erase(found);
          request = fake::kRequestNull;
        }
      });
    }
    if (step % 50 == 0) {
      Keys wanted;
      for (auto& [key, persistent] : model) wanted.push_back(key);
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
    for (uint64_t key = 1; key <= places + 1000; ++key) program.start(CallId::kMPI_Irecv, key << 8);
    uint64_t tracked = fake::pending_keys().size(), untracked = resil::runtime.header->untracked_requests;
    CHECK(tracked + untracked == places + 1000);
    CHECK(untracked >= 1000);
    CHECK(tracked > places * 3 / 4);
    for (uint64_t key = places + 1000; key >= 1; --key) program.wait(key << 8);
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
    program.complete(
        CallId::kMPI_Waitall, inner, [](Event&) {}, 0x6100);
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
  FreeHandles handles(24);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto state = fake::make_thread(t);
      Program program{*state};
      std::mt19937 random(t);
      Keys mine;
      for (int step = 0; step < 4000 || !mine.empty(); ++step) {
        if (step < 4000 && mine.size() < 4 && random() % 2 == 0) {
          if (uint64_t handle = handles.take(); handle != 0) {
            program.start(CallId::kMPI_Irecv, handle);
            mine.push_back(handle);
          }
        } else if (!mine.empty()) {
          program.complete(CallId::kMPI_Waitall, mine, [&](Event&) { handles.give(mine); });
          mine.clear();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(fake::pending_keys().empty());
  CHECK(resil::runtime.header->untracked_requests == 0);
  // No key was left behind unseen either: every place can be taken again.
  Program program{core.thread()};
  for (uint64_t key = 1; key <= resil::runtime.request_count; ++key) program.start(CallId::kMPI_Irecv, key << 20 | 1);
  CHECK(fake::pending_keys().size() + resil::runtime.header->untracked_requests == resil::runtime.request_count);
}

TEST_CASE("requests: MPI_Comm_idup's communicator is known once its request completes") {
  fake::Core core;
  Program program{core.thread()};
  for (int round = 0; round < 100; ++round)
    duplicate_world(core, program, [](const ring::Request* entry) {
      REQUIRE(entry != nullptr);
      CHECK(entry->kind == static_cast<uint8_t>(ring::RequestKind::kCommunicator));
    });
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
    e.site = e.return_address;
    e.time = time;
    resil::request_started(e);
  };
  auto name = [&](uint64_t comm) { return std::string(resil::comm_lookup(core.thread(), comm)->ring->name); };
  for (uint64_t handle : {first_comm, third_comm}) fake::add_comm(handle, fake::library.comms[fake::kCommWorld]);
  Program mine{core.thread()}, theirs{*other};
  // A third one in front, gone before the last one comes: places in the list say nothing about age. Nor does the time
  // of the call, which is taken on the way into MPI, where a thread may have to wait for others.
  idup(core.thread(), 0x10, &third_comm, 300);
  idup(core.thread(), 0x20, &first_comm, 200);
  mine.wait(0x10);
  CHECK(name(third_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  // Inside MPI the first one is complete and its request handle is free again: the other thread gets it.
  const auto wait = [&](auto inside) {
    Keys one = {0x20};
    mine.complete(CallId::kMPI_Wait, one, [&](Event&) {
      one[0] = fake::kRequestNull;
      idup(*other, 0x20, &second_comm, 100);
      inside();
    });
  };
  SECTION("the older one is told first") {
    wait([] {});
    CHECK(fake::library.unknown_handles == 0);  // the other communicator does not exist yet
    CHECK(name(first_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
    second_comm = 0x84000102;
    fake::add_comm(second_comm, fake::library.comms[fake::kCommWorld]);
    theirs.wait(0x20);
  }
  SECTION("the newer one is told first") {
    wait([&] {
      second_comm = 0x84000102;
      fake::add_comm(second_comm, fake::library.comms[fake::kCommWorld]);
      first_comm = 0xdead;  // a variable of the other thread's: it may be gone any time
      theirs.wait(0x20);
      CHECK(fake::library.unknown_handles == 0);
      first_comm = 0x84000101;
    });
  }
  CHECK(name(first_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  CHECK(name(second_comm) == "MPI_Comm_idup of MPI_COMM_WORLD");
  CHECK(fake::pending_keys().empty());
}
