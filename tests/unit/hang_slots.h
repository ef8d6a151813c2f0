// SPDX-License-Identifier: Apache-2.0
//
// What tests of the state slots share: the hooks on the call path over an MPI in memory, rank 0 of 4 if not told
// otherwise, and a reader.
#pragma once

#include <unistd.h>

#include <memory>
#include <vector>

#include "check.h"
#include "detectors/hang/reader/reader.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/writer.h"
#include "fake_backend.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"

namespace slots_test {

using namespace resil;
using namespace resil::hang;

inline const Module kModule = {.name = "hang",
                               .description = "",
                               .stage = Stage::kHang,
                               .ring_bytes = writer_ring_bytes,
                               .thread_start = writer_thread_start,
                               .enter = writer_enter,
                               .leave = writer_leave,
                               .activated = writer_activated,
                               .completed = writer_completed};

struct State {
  alignas(8) char room[kStateRoom];
  const RankState& head() const { return *reinterpret_cast<const RankState*>(room); }
  const ThreadWait& thread(uint32_t i = 0) const { return reinterpret_cast<const ThreadWait*>(&head() + 1)[i]; }
  const Part& part(uint32_t i = 0) const { return reinterpret_cast<const Part*>(&thread(head().thread_count))[i]; }
  const Membership& comm(uint32_t i = 0) const {
    return reinterpret_cast<const Membership*>(&part(head().part_count))[i];
  }
};

inline bool ignores(const void* statuses) { return statuses == nullptr; }
constexpr uint64_t kInt = 0x4c000405, kDerived = 0x8c000007;
inline BasicType basic(uint64_t type) {
  BasicType of = {};
  of.kind = type == kInt            ? BasicKind::kSigned
            : type == fake::kDouble ? BasicKind::kFloating
            : type == fake::kByte   ? BasicKind::kByte
                                    : BasicKind::kUnknown;
  return of;
}
inline OpKind op_kind(uint64_t op) { return op == 3 ? OpKind::kSum : OpKind::kUser; }

struct Slots {
  explicit Slots(int ranks = 4) {
    fake::modules = {&kModule};
    core = std::make_unique<fake::Core>(0, ranks);
    usual = backend;
    table = *backend;
    messages.status_ignored = ignores;
    types.op_kind = op_kind;
    types.basic = basic;
    table.messages = &messages;
    table.types = &types;
    table.status_layout = StatusLayout::kOpenMpi;
    table.status_bytes = sizeof(OpenMpiStatus);
    backend = &table;
    REQUIRE(writer_start());
    const int32_t self = 0;
    REQUIRE(watched_open(&watched, &self, 1) == 1);
    REQUIRE(watched.section != nullptr);
    core->trace().state = static_cast<uint32_t>(ring::TraceState::kLive);  // the fixture makes its thread by hand
    core->trace().tid = static_cast<int32_t>(gettid());
  }
  ~Slots() {
    backend = usual;
    core.reset();
    fake::modules.clear();
  }

  Thread& thread() { return core->thread(); }
  uint64_t world() { return comm_lookup(thread(), fake::kCommWorld)->ring->id; }

  Event make(CallId id, int32_t peer = ring::kNoPeer, int32_t tag = ring::kNoTag, int64_t count = 1,
             uint64_t comm = fake::kCommWorld) {
    Event e = fake::make_event(thread(), id, 0x1000 + static_cast<uint64_t>(id) * 16);
    e.comm_handle = comm;
    e.peer = peer;
    e.tag = tag;
    e.send = e.receive = {nullptr, count, fake::kDouble, nullptr, nullptr, nullptr};
    e.statuses = e.given_statuses = nullptr;
    e.op = 3;
    return e;
  }
  void send(int32_t peer, int32_t tag, uint64_t comm = fake::kCommWorld) {
    Event e = make(CallId::kMPI_Send, peer, tag, 1, comm);
    REQUIRE(fake::call(e));
  }
  void receive(int32_t peer, int32_t tag) {
    Event e = make(CallId::kMPI_Recv, peer, tag);
    REQUIRE(fake::call(e));
  }
  /// The request handle that a nonblocking or persistent call makes.
  void start(CallId id, uint64_t key, int32_t peer, int32_t tag) {
    Event e = make(id, peer, tag);
    e.requests = &key;
    e.request_count = 1;
    REQUIRE(fake::call(e));
  }
  Event wait(CallId id, std::vector<uint64_t>& keys) {
    Event e = make(id);
    e.comm_handle = 0;
    e.requests = keys.data();
    e.request_count = static_cast<int64_t>(keys.size());
    return e;
  }
  void poll(uint64_t key, int flag = 0, uint64_t site = 0x9000) {
    Event e = make(CallId::kMPI_Test);
    e.return_address = site;
    e.comm_handle = 0;
    e.requests = &key;
    e.request_count = 1;
    e.flag = &flag;
    REQUIRE(fake::call(e));
  }

  void read(State& state) { REQUIRE(snapshot(watched, state.room, sizeof(state.room)) == state.head().bytes); }
  /// So many ns after the last one.
  QuickLook quick(uint64_t later = 500000000) { return look(watched, looked_at += later); }
  uint64_t looked_at = uint64_t{1} << 62;  ///< later than any record
  /// The open call's state.
  void during(Event& e, State& state) {
    REQUIRE(enter(e));
    read(state);
    e.result = 0;
    leave(e);
  }
  Answer ask(int32_t source, int32_t destination, int32_t tag, uint64_t comm = ~uint64_t{0}) {
    const Question question = {comm == ~uint64_t{0} ? world() : comm, source, destination, tag, 0};
    Answer made = {};
    REQUIRE(answer(&watched, 1, &question, 1, &made, 1) == 1);
    return made;
  }

  std::unique_ptr<fake::Core> core;
  const Backend* usual;
  Backend table;
  MessageFunctions messages = {};
  TypeFunctions types = {};
  Watched watched = {};
};
}  // namespace slots_test
