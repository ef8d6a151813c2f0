// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the request table share: a program's requests, and a module that is told of their ends.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "check.h"
#include "fake_backend.h"
#include "shim/call/registry.h"
#include "shim/tables/request_serial.h"

namespace requests {

using resil::CallId;
using resil::Event;
namespace ring = resil::ring;
using Keys = std::vector<uint64_t>;

constexpr int kUndefined = -32766;

/// Serial numbers tell calls apart that are some 25 ns apart, as those of two threads are that hand a handle over.
inline void wait_for_another_serial() {
  const uint32_t now = resil::request_serial(resil::ticks());
  while (resil::request_serial(resil::ticks()) == now) {}
}

/// Requests as the program holds them; completing one makes it null, as MPI does.
struct Program {
  resil::Thread& thread;

  /// A call that creates a request with this handle.
  Event start(CallId id, uint64_t handle) {
    wait_for_another_serial();
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
    wait_for_another_serial();
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

inline Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

inline const ring::Request* entry_of(uint64_t key) {
  for (uint32_t i = 0; i < resil::runtime.request_count; ++i)
    if (resil::runtime.requests[i].key == key) return &resil::runtime.requests[i];
  return nullptr;
}

/// A verifying module: what it is told, in one thread's or all threads' order.
struct Told {
  uint64_t cookie;
  bool freed;
};
inline thread_local std::vector<Told> told;  // by `completed`
inline thread_local Keys told_active, told_activating;

inline void completed(Event&, int64_t, uint64_t* cookie, bool freed) { told.push_back({*cookie, freed}); }
inline void activated(Event&, uint64_t* cookie) { told_active.push_back(*cookie); }
inline void activating(Event&, uint64_t* cookie) { told_activating.push_back(*cookie); }

/// Makes the second level take part for one test case, as a verifying module does.
struct Verifier {
  Verifier() {
    resil::hook_lists[0].completed[0] = completed;
    resil::hook_lists[0].activated[0] = activated;
    resil::hook_lists[0].activating[0] = activating;
    resil::hook_lists[0].statuses_wanted = true;
    told.clear();
    told_active.clear();
    told_activating.clear();
  }
  ~Verifier() { resil::hook_lists[0] = {}; }
};

/// Fills the first level to the last place; what found none is on the second level.
inline Keys fill_first_level(Program& program) {
  Keys keys;
  uint64_t key = uint64_t{1} << 40;
  while (fake::pending_keys().size() < resil::runtime.request_count)
    for (int i = 0; i < 1000; ++i, key += 64) {
      program.start(CallId::kMPI_Irecv, key);
      keys.push_back(key);
    }
  return keys;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)  // ten to a hundred times slower
constexpr bool kManyAllowed = false;
#else
constexpr bool kManyAllowed = true;
#endif

/// Handles as the libraries make them.
inline uint64_t handle_number(unsigned kind, uint64_t i) {
  switch (kind) {
    case 0: return 0x98000000 + i;  // MPICH: small integers in a row
    case 1: return 0x7f0000000000 + i * 432;  // Open MPI: elements of arrays
    default: return (i * 0x9e3779b97f4a7c15) | 1;
  }
}

/// The library's free list: a handle goes back to it inside MPI, before the completing call has told the table, so that
/// another thread may have started an operation with it meanwhile.
class FreeHandles {
 public:
  explicit FreeHandles(uint64_t count) {
    for (uint64_t i = 1; i <= count; ++i) free_.push_back(0x98000000 + i);
  }
  /// 0: none is free. The last one freed is the next one used.
  uint64_t take() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (free_.empty()) return 0;
    const uint64_t handle = free_.back();
    free_.pop_back();
    return handle;
  }
  void give(Keys& handles) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (uint64_t& handle : handles) {
      free_.push_back(handle);
      handle = fake::kRequestNull;
    }
  }

 private:
  std::mutex mutex_;
  Keys free_;
};

/// MPI_Comm_idup of MPI_COMM_WORLD with request handle 0x555, looked at while pending, and completed. `by_binding`: the
/// place of the handle is a Fortran binding's, something else when the request completes.
template <class Look>
void duplicate_world(fake::Core& core, Program& program, Look look, bool by_binding = false) {
  constexpr uint64_t kNew = 0x84000100;
  uint64_t new_comm = fake::kCommNull, request = 0x555;
  Event e = fake::make_event(core.thread(), CallId::kMPI_Comm_idup);
  ring::Record record = {};
  e.record = &record;
  e.comm = resil::comm_lookup(core.thread(), fake::kCommWorld);
  e.derived_id = resil::comm_derive_id(e);
  e.new_comm = &new_comm;
  e.requests = &request;
  e.request_count = 1;
  e.site = by_binding ? e.return_address + 8 : e.return_address;
  if (by_binding) new_comm = kNew;
  resil::request_started(e);
  look(entry_of(0x555));
  new_comm = by_binding ? 0xdead : kNew;
  fake::add_comm(kNew, fake::library.comms[fake::kCommWorld]);
  program.wait(0x555);
  resil::CommInfo* info = resil::comm_lookup(core.thread(), kNew);
  REQUIRE(info != nullptr);
  CHECK(std::string(info->ring->name) == "MPI_Comm_idup of MPI_COMM_WORLD");
  fake::free_comm(kNew);
}

}  // namespace requests
