// SPDX-License-Identifier: Apache-2.0
//
// The fast path of the call path (shim/call/fast_path.h) against the general one: the same calls, drawn at random, must
// leave the same ring file, whichever way each of them goes.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "detectors/hang/slots/envelopes.h"
#include "detectors/hang/slots/writer.h"
#include "hang_slots.h"
#include "shim/call/fast_path.h"
#include "shim/call/registry.h"

namespace {

using namespace slots_test;

constexpr uint64_t kFrame = 0x7000, kOtherComm = 0x84000555;

const Module kWithFastPath = [] {
  Module module = kModule;
  module.fast = writer_fast;
  return module;
}();

/// One rank's calls. `fast`: by the fast path where it is open.
struct Program {
  explicit Program(bool fast) : fast(fast) {
    if (fast) {
      fake::modules = {&kWithFastPath};
      registry_enable();
    }
    request_table_threads(false);
    envelopes.concurrent = false;
    slots.thread().host_ranges = {&HostRangeCache::kNever, HostRangeCache::kNever, 0, ~uintptr_t{0}};
    fake::Comm other;
    other.local = {2, 0, 1};
    fake::add_comm(kOtherComm, other);
  }

  template <CallId id>
  void message(uint64_t site, int peer, int tag, int64_t count, uint64_t type, uint64_t comm, int result,
               uint64_t key = 0) {
    constexpr bool kStarts = (call_info(id).attributes & kCallStarts) != 0;
    void* handle = reinterpret_cast<void*>(key);
    if (fast::Call call; fast && fast::message<id>(call, site, kFrame, nullptr, count, type, peer, tag, comm)) {
      ++by_fast_path;
      if constexpr (kStarts) fast::message_started<id>(call, result, &handle);
      else fast::message_done<id>(call, result);
      return;
    }
    Event e = slots.make(id, peer, tag, count, comm);
    e.return_address = site;
    e.send.type = e.receive.type = type;
    e.requests = &handle;
    e.request_count = 1;
    e.cookies = nullptr;
    REQUIRE(fake::call(e, result));
  }

  template <CallId id>
  void wait(uint64_t site, std::vector<void*> handles, int result) {
    const auto count = static_cast<int64_t>(handles.size());
    void* saved[ring::kWaitedKeys];
    const auto answer = [&] {
      for (void*& handle : handles) handle = reinterpret_cast<void*>(backend->request_null());
    };
    if (fast::Call call; fast && fast::wait<id>(call, site, kFrame, handles.data(), count, saved)) {
      ++by_fast_path;
      answer();
      fast::waited<id>(call, result, handles.data(), count, saved, nullptr);
      return;
    }
    Event e = slots.make(id);
    e.return_address = site;
    e.comm_handle = 0;
    e.requests = handles.data();
    e.request_count = count;
    REQUIRE(enter(e));
    answer();
    e.result = result;
    leave(e);
  }

  template <CallId id>
  void collective(uint64_t site, int root, int64_t count, uint64_t type, uint64_t op, uint64_t comm, int result) {
    if (fast::Call call;
        fast && fast::collective<id>(call, site, kFrame, nullptr, nullptr, count, type, root, op, comm)) {
      ++by_fast_path;
      fast::message_done<id>(call, result);
      return;
    }
    Event e = slots.make(id, has_root(call_info(id).collective) ? root : ring::kNoPeer, ring::kNoTag, count, comm);
    e.return_address = site;
    e.send.type = e.receive.type = type;
    e.op = op;
    REQUIRE(fake::call(e, result));
  }

  /// `key`: MPI_Test's.
  template <CallId id>
  void poll(uint64_t site, uint64_t key, int peer, int tag, uint64_t comm, int flag, int result) {
    void *const before = reinterpret_cast<void*>(key), *handle = before;
    if (fast::Call call; fast && fast::poll<id>(call, site, kFrame, key, peer, tag, comm)) {
      ++by_fast_path;
      fast::polled<id>(call, result, result != 0 || flag != 0, &handle, before, nullptr);
      return;
    }
    Event e = slots.make(id, peer, tag, 1, comm);
    e.return_address = site;
    e.flag = &flag;
    e.requests = &handle;
    e.request_count = id == CallId::kMPI_Test;
    REQUIRE(fake::call(e, result));
  }

  /// `steps` calls, those of one seed always the same.
  void run(uint32_t seed, int steps, int failing) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return random() % n; };
    std::vector<void*> open;
    uint64_t next_key = 0x55550000;
    for (int step = 0; step < steps; ++step) {
      // Mostly what the call site had last.
      const uint32_t what = below(11), variant = below(12) == 0 ? below(3) : 0;
      const int peer = static_cast<int>(variant), tag = 7 + static_cast<int>(below(20) == 0);
      const uint64_t comm = below(10) == 0 ? kOtherComm : fake::kCommWorld,
                     type = below(15) == 0 ? kInt : fake::kDouble, site = 0x1000 + what * 64 + below(2) * 16;
      const int64_t count = below(12) == 0 ? 0 : 4;
      const int result = below(static_cast<uint32_t>(failing)) == 0 ? 1 : 0;
      // Handles come again soon; some operations are complete at once.
      const uint64_t key =
          below(5) == 0 ? backend->request_null() : next_key + 0x40 * (random() % 4096 * 64 + open.size());
      bool taken = false;
      for (void* handle : open) taken = taken || handle == reinterpret_cast<void*>(key);
      switch (what) {
        case 0: message<CallId::kMPI_Send>(site, peer, tag, count, type, comm, result); break;
        case 1: message<CallId::kMPI_Ssend>(site, peer, tag, count, type, comm, result); break;
        case 2: message<CallId::kMPI_Recv>(site, peer, tag, count, type, comm, result); break;
        case 3:
        case 4:
          if (taken) break;
          if (what == 3) message<CallId::kMPI_Isend>(site, peer, tag, count, type, comm, result, key);
          else message<CallId::kMPI_Irecv>(site, peer, tag, count, type, comm, result, key);
          if (result == 0) open.push_back(reinterpret_cast<void*>(key));
          break;
        case 5:
          if (open.empty()) break;
          wait<CallId::kMPI_Wait>(site, {open.back()}, 0);
          open.pop_back();
          break;
        case 6: {
          if (open.size() < 3) break;
          wait<CallId::kMPI_Waitall>(site, open, below(static_cast<uint32_t>(failing)) == 0 ? 1 : 0);
          open.clear();
          break;
        }
        case 8: {
          const uint64_t asked = open.empty() ? backend->request_null() : reinterpret_cast<uint64_t>(open.back());
          const uint32_t times = below(5);
          for (uint32_t i = 0; i < times; ++i)
            poll<CallId::kMPI_Test>(site, asked, ring::kNoPeer, ring::kNoTag, 0, 0, 0);
          const int last = static_cast<int>(below(2));
          poll<CallId::kMPI_Test>(site, asked, ring::kNoPeer, ring::kNoTag, 0, last, result);
          if (last != 0 && result == 0 && !open.empty()) open.pop_back();
          break;
        }
        case 9: {
          const int from = below(2) == 0 ? ring::kAnySource : peer;
          const uint32_t times = below(5);
          for (uint32_t i = 0; i <= times; ++i)
            poll<CallId::kMPI_Iprobe>(site, 0, from, tag, comm, i == times && below(2) == 0, result);
          break;
        }
        case 7: collective<CallId::kMPI_Barrier>(site, 0, 0, 0, 0, comm, 0); break;
        default:
          if (below(2) == 0) collective<CallId::kMPI_Allreduce>(site, 0, count, type, 3 + variant, comm, 0);
          else collective<CallId::kMPI_Bcast>(site + 32, peer, count, type, 0, comm, 0);
          break;
      }
      if (below(400) == 0) forget_types();
    }
  }

  /// All that readers see, but times.
  std::string shown() {
    std::string out;
    const auto add = [&](auto... values) { ((out += std::to_string(values) + " "), ...), out += "\n"; };
    const ring::TraceBuffer& trace = slots.core->trace();
    add(trace.head, trace.calls, trace.current, slots.thread().depth);
    for (unsigned id = 0; id < kCallCount; ++id)
      if (trace.counters[id].count != 0) add(id, trace.counters[id].count, trace.counters[id].bytes);
    for (const ring::PeerCounter& peer : trace.peers)
      if (peer.rank >= 0)
        add(peer.rank, peer.sent_messages, peer.sent_bytes, peer.received_messages, peer.received_bytes);
    for (uint64_t i = trace.head > ring::kRecordsPerTrace ? trace.head - ring::kRecordsPerTrace : 0; i < trace.head;
         ++i) {
      const ring::Record& record = trace.records[i % ring::kRecordsPerTrace];
      add(i, record.call, int{record.state}, record.flags & ~ring::kUntimed, record.comm, record.peer, record.tag,
          record.repeat, record.bytes, record.site, record.sequence, record.aux);
    }
    for (uint32_t i = 0; i < runtime.request_count; ++i) {
      const ring::Request& entry = runtime.requests[i];
      const Pending& pending = reinterpret_cast<const Pending*>(slots.watched.section + 1)[i];
      if (entry.key != 0)
        add(i, entry.key, entry.site, entry.bytes, entry.comm, entry.peer, entry.tag, entry.call, int{entry.kind},
            entry.flags & ~ring::kPostedLater, entry.trace, pending.peer, pending.ordinal, int{pending.mode},
            int{pending.both});
    }
    for (uint32_t i = 0; i < runtime.comm_count; ++i)
      if (const ring::Comm& comm = runtime.comms[i]; comm.id != 0)
        add(i, comm.id, comm.collectives, comm.ordered, comm.last_collective);
    const Section& section = *slots.watched.section;
    add(section.irregular);
    for (const Envelope& envelope : section.envelopes)
      if (envelope.comm != 0)
        add(envelope.comm, envelope.peer, envelope.tag, envelope.sent, envelope.posted, envelope.types.sent,
            envelope.types.posted, envelope.handles.sent, envelope.handles.posted);
    for (const Track& track : section.tracks) {
      if (track.comm == 0) continue;
      add(track.comm, track.sequence, track.rolling, track.shape);
      for (uint32_t i = 0; i < ring::kRecent; ++i) add(track.recent[i], track.types[i]);
      for (const auto& level : track.points)
        for (const CheckPoint& point : level) add(point.sequence, point.rolling);
      for (const uint64_t early : track.early) add(early);
    }
    const Wait& slot = section.waits[0];
    add(slot.instance, slot.count, slot.kept, slot.peer, slot.send_ordinal, slot.receive_ordinal,
        static_cast<int>(slot.mode), int{slot.flags}, slot.signature, slot.sequence, slot.polls, slot.steps);
    for (uint32_t i = 0; i < slot.kept && i < ring::kWaitedKeys; ++i) add(slot.keys[i]);
    add(int{slot.probe_count}, slot.probes[0].comm, slot.probes[0].peer, slot.probes[0].tag);
    return out;
  }

  Slots slots;
  bool fast;
  uint64_t by_fast_path = 0;
};

}  // namespace

TEST_CASE("fast path: calls leave in the ring file what the general way leaves") {
  for (const uint32_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    const int steps = 300 << seed / 2, failing = seed % 2 == 0 ? 40 : 1 << 30;
    std::string general, straight;
    {
      Program program(false);
      program.run(seed, steps, failing);
      general = program.shown();
    }
    uint64_t by_fast_path = 0;
    {
      Program program(true);
      program.run(seed, steps, failing);
      straight = program.shown();
      by_fast_path = program.by_fast_path;
    }
    INFO("seed " << seed << ", " << by_fast_path << " of " << steps << " by the fast path");
    CHECK(by_fast_path > static_cast<uint64_t>(steps) / 5);
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
  forget_types();
  CHECK(!send(5));
  CHECK(send(5));
  request_table_threads(true);
  CHECK(!send(5));
  CHECK(!send(5));
  request_table_threads(false);
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
