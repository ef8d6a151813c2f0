// SPDX-License-Identifier: Apache-2.0
//
// An MPI in memory for the unit tests of the shim's core: communicators, datatypes and groups as plain values behind
// the core's function table, and the state that shim/call/attach.cpp would hold. One simulated rank at a time (`Core`);
// asking for a handle that does not exist is counted, because a real MPI would end the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/tables/tables.h"

namespace fake {

constexpr uint64_t kCommWorld = 0x44000000, kCommSelf = 0x44000001, kCommNull = 0x04000000;
constexpr uint64_t kRequestNull = 0x2c000000, kRequestEmpty = 0x6c000000;
constexpr uint64_t kByte = 0x4c00010d, kDouble = 0x4c00080b, kPair = 0x8c000003;  // 1, 8 and 12 bytes
constexpr intptr_t kInPlace = 1;
inline const void* in_place() { return reinterpret_cast<const void*>(kInPlace); }

/// A communicator as its owner rank sees it. Ranks are world ranks.
struct Comm {
  std::vector<int> local, remote;
  bool inter = false;
  int degree_in = -1, degree_out = -1;  ///< -1: no topology
  std::string name;
  void* attribute = nullptr;
};

/// What the fake library does and counts. `reset` starts over.
struct Library {
  std::map<uint64_t, Comm> comms;
  std::map<uint64_t, std::vector<int>> groups;
  std::map<uint64_t, int64_t> types;
  bool attach_works = true, initialized = true, finalized = false;
  std::atomic<int> unknown_handles, type_questions, degree_questions, shape_questions;
};
extern Library library;

/// MPI_Comm_free and a creating call's effect on this rank. Thread-safe.
void add_comm(uint64_t handle, Comm comm);
void free_comm(uint64_t handle);

/// Bytes of a handle as the core shall see it: 4 (MPICH) or 8 (Open MPI).
void set_handle_bytes(size_t bytes);

/// Modules of this test program; before `Core`.
extern std::vector<const resil::Module*> modules;
extern std::atomic<bool> attached, has_world;
extern std::atomic<int> late_attachments;

/// One simulated rank: ring (in memory only), tables, predefined communicators, and a thread state made by hand for
/// the calling thread. The next one starts over.
class Core {
 public:
  explicit Core(int rank = 0, int size = 4);
  ~Core();
  Core(const Core&) = delete;
  resil::Thread& thread() { return *thread_; }
  resil::ring::TraceBuffer& trace() { return *thread_->trace; }

 private:
  std::unique_ptr<resil::Thread> thread_;
};

/// Such a state for another thread of the test, with trace buffer number `trace buffer`.
std::unique_ptr<resil::Thread> make_thread(uint32_t trace);

/// An event as a wrapper would hand it over, all other bytes garbage: nothing that is not significant may be looked at.
resil::Event make_event(resil::Thread& thread, resil::CallId id, uint64_t site = 0x1000, uint64_t frame = 0x7000);

/// Would a call be seen, when its thread is new or inside MPI?
bool admitted(resil::CallId id, uint64_t site = 0x1000, uint64_t frame = 0x7000);

/// enter() and leave() around nothing; the event as it was in between.
bool call(resil::Event& event, int result = 0);

/// Live entries of the request table, as a reader of the ring sees them.
std::vector<uint64_t> pending_keys();

}  // namespace fake
