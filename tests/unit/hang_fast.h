// SPDX-License-Identifier: Apache-2.0
//
// What tests of the fast path share: calls that go it where it is open, and the general way else.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "detectors/hang/slots/envelopes.h"
#include "detectors/hang/slots/writer.h"
#include "hang_slots.h"
#include "shim/call/fast_messages.h"
#include "shim/call/fast_path.h"
#include "shim/call/registry.h"

namespace fast_test {

using namespace slots_test;

constexpr uint64_t kFrame = 0x7000, kOtherComm = 0x84000555;
constexpr int64_t kBeyondInt = int64_t{1} << 32;

inline const Module kWithFastPath = [] {
  Module module = kModule;
  module.fast = writer_fast;
  return module;
}();

/// One rank's calls, of two threads that call in turns. `fast`: by the fast path where it is open.
struct Program {
  explicit Program(bool by_fast, bool multiple = false, int ranks = 4)
      : slots(ranks), fast(by_fast), threads(multiple) {
    if (by_fast) {
      fake::modules = {&kWithFastPath};
      registry_enable();
    }
    request_table_threads(threads);
    envelopes.concurrent = threads;
    flight::gap_ticks = ~uint64_t{0};  // a crowded machine: no time between two calls has to be settled
    for (Thread* thread : {&slots.thread(), second.get()})
      thread->host_ranges = {&HostRangeCache::kNever, HostRangeCache::kNever, 0, ~uintptr_t{0}};
    fake::Comm other;
    other.local = {2, 0, 1};
    fake::add_comm(kOtherComm, other);
  }

  Event make(CallId id, int32_t peer = ring::kNoPeer, int32_t tag = ring::kNoTag, int64_t count = 1,
             uint64_t comm = fake::kCommWorld) {
    Event e = slots.make(id, peer, tag, count, comm);
    e.thread = on;
    return e;
  }
  void switch_thread() { current_thread = on = on == second.get() ? &slots.thread() : second.get(); }

  /// What the program or a tool calls from inside the open call.
  void nested() {
    for (; inside != 0; --inside) {
      Event e = make(CallId::kMPI_Send, 2, 9);
      e.return_address = 0x5000;
      e.frame = kFrame - 0x100;
      REQUIRE(fake::call(e));
    }
  }
  bool call(Event& e, int result) {
    if (!enter(e)) return false;
    nested();
    e.result = result;
    leave(e);
    return true;
  }

  template <CallId id>
  void message(uint64_t site, int peer, int tag, int64_t count, uint64_t type, uint64_t comm, int result,
               uint64_t key = 0) {
    constexpr bool kStarts = (call_info(id).attributes & kCallStarts) != 0;
    void* handle = reinterpret_cast<void*>(key);
    const auto straight = [&](fast::Call& call) {
      if (!threads) return fast::message<id>(call, site, kFrame, nullptr, count, type, peer, tag, comm);
      if constexpr (fast::is_threaded(id))
        return fast::message<id, true>(call, site, kFrame, nullptr, count, type, peer, tag, comm);
      return false;
    };
    if (fast::Call call; fast && straight(call)) {
      ++by_fast_path;
      nested();
      if constexpr (kStarts) fast::started<id>(call, result, &handle);
      else if (fast::messages != nullptr) fast::message_sent<id>(call, result);
      else fast::message_done<id>(call, result);
      return;
    }
    Event e = make(id, peer, tag, count, comm);
    e.return_address = site;
    e.send.type = e.receive.type = type;
    e.requests = &handle;
    e.request_count = 1;
    e.cookies = nullptr;
    REQUIRE(call(e, result));
  }

  struct Side {
    int64_t count;
    uint64_t type;
    int peer, tag;
  };

  /// MPI_Sendrecv and MPI_Sendrecv_replace.
  template <CallId id>
  void exchange(uint64_t site, Side sent, Side received, uint64_t comm, int result) {
    if (id == CallId::kMPI_Sendrecv_replace) received.count = sent.count, received.type = sent.type;
    const auto straight = [&]<bool multiple>(fast::Call& call) {
      return fast::exchange<id, multiple>(call, site, kFrame, nullptr, sent.count, sent.type, sent.peer, sent.tag,
                                          nullptr, received.count, received.type, received.peer, received.tag, comm);
    };
    if (fast::Call call;
        fast && (threads ? straight.template operator()<true>(call) : straight.template operator()<false>(call))) {
      ++by_fast_path;
      nested();
      fast::message_done<id>(call, result);
      return;
    }
    Event e = make(id, sent.peer, sent.tag, sent.count, comm);
    e.return_address = site;
    e.send.type = sent.type;
    e.receive.count = received.count;
    e.receive.type = received.type;
    e.receive_peer = received.peer;
    e.receive_tag = received.tag;
    OpenMpiStatus status = {1, 7, 0, 0, 32};
    e.statuses = e.given_statuses = &status;
    REQUIRE(call(e, result));
  }

  template <CallId id>
  void wait(uint64_t site, std::vector<void*> handles, int result) {
    const auto count = static_cast<int64_t>(handles.size());
    void* saved[ring::kWaitedKeys];
    const auto answer = [&] {
      for (void*& handle : handles) handle = reinterpret_cast<void*>(backend->request_null());
    };
    if (fast::Call call; fast && !threads && fast::wait<id>(call, site, kFrame, handles.data(), count, saved)) {
      ++by_fast_path;
      nested();
      answer();
      fast::waited<id>(call, result, handles.data(), count, saved, nullptr);
      return;
    }
    Event e = make(id);
    e.return_address = site;
    e.comm_handle = 0;
    e.requests = handles.data();
    e.request_count = count;
    REQUIRE(enter(e));
    nested();
    answer();
    e.result = result;
    leave(e);
  }

  /// `handle`: of a nonblocking one.
  template <CallId id>
  void leave_collective(fast::Call call, int result, void* handle) {
    ++by_fast_path;
    nested();
    if constexpr (fast::starts_collective(id)) fast::started<id>(call, result, &handle);
    else fast::message_done<id>(call, result);
  }

  /// What readers see of a collective that has just been started, before another one takes its place.
  void look_at_started(uint64_t key) {
    for (uint32_t i = 0; i < runtime.request_count; ++i) {
      const ring::Request& entry = runtime.requests[i];
      const Pending& pending = reinterpret_cast<const Pending*>(slots.watched.section + 1)[i];
      if (entry.key != key || entry.kind != static_cast<uint8_t>(ring::RequestKind::kCollective)) continue;
      for (const uint64_t value :
           {entry.site, entry.bytes, uint64_t{entry.comm}, uint64_t{entry.call},
            uint64_t{entry.flags} & ~uint64_t{ring::kPostedLater}, static_cast<uint64_t>(pending.peer),
            uint64_t{pending.ordinal}, uint64_t{pending.mode}, uint64_t{pending.flags}, uint64_t{pending.both},
            static_cast<uint64_t>(pending.receive_tag), pending.sequence})
        started = started * 0x9e3779b97f4a7c15 + value + 1;
      ++started_count;
    }
  }

  /// `key`: of nonblocking ones.
  template <CallId id>
  void collective(uint64_t site, int root, int64_t count, uint64_t type, uint64_t op, uint64_t comm, int result,
                  uint64_t key = 0) {
    void* handle = reinterpret_cast<void*>(key);
    if (fast::Call call;
        fast && fast::collective<id>(call, site, kFrame, nullptr, nullptr, count, type, root, op, comm))
      return leave_collective<id>(call, result, handle);
    Event e = make(id, has_root(call_info(id).collective) ? root : ring::kNoPeer, ring::kNoTag, count, comm);
    e.return_address = site;
    e.send.type = e.receive.type = type;
    e.op = op;
    e.requests = &handle;
    e.request_count = 1;
    e.cookies = nullptr;
    REQUIRE(call(e, result));
  }

  struct Amount {
    int64_t count;
    uint64_t type;
  };
  static bool fits(int64_t count) { return static_cast<int>(count) == count; }

  /// One amount on each side. `in_place`, and counts beyond int: the wrappers send such calls the general way.
  template <CallId id>
  void blocks(uint64_t site, int root, Amount sent, Amount received, uint64_t comm, bool in_place, int result,
              uint64_t key = 0) {
    void* handle = reinterpret_cast<void*>(key);
    if (fast::Call call;
        fast && !in_place && fits(sent.count) && fits(received.count) &&
        fast::collective<id>(call, site, kFrame, nullptr, nullptr, both_counts(sent.count, received.count), sent.type,
                             root, received.type, comm))
      return leave_collective<id>(call, result, handle);
    Event e = make(id, has_root(call_info(id).collective) ? root : ring::kNoPeer, ring::kNoTag, sent.count, comm);
    e.return_address = site;
    e.send.type = sent.type;
    e.receive.count = received.count;
    e.receive.type = received.type;
    if (in_place) (id == CallId::kMPI_Scatter ? e.receive : e.send).buffer = fake::in_place();
    e.requests = &handle;
    e.request_count = 1;
    e.cookies = nullptr;
    REQUIRE(call(e, result));
  }

  /// `key`: MPI_Test's.
  template <CallId id>
  void poll(uint64_t site, uint64_t key, int peer, int tag, uint64_t comm, int flag, int result) {
    void *const before = reinterpret_cast<void*>(key), *handle = before;
    if (fast::Call call; fast && !threads && fast::poll<id>(call, site, kFrame, key, peer, tag, comm)) {
      ++by_fast_path;
      nested();
      fast::polled<id>(call, result, result != 0 || flag != 0, &handle, before, nullptr);
      return;
    }
    Event e = make(id, peer, tag, 1, comm);
    e.return_address = site;
    e.flag = &flag;
    e.requests = &handle;
    e.request_count = id == CallId::kMPI_Test;
    REQUIRE(call(e, result));
  }

  /// MPI_Request_free and MPI_Cancel.
  void request(CallId id, void* handle) {
    Event e = make(id);
    e.comm_handle = 0;
    e.requests = &handle;
    e.request_count = 1;
    REQUIRE(fake::call(e));
  }

  /// `steps` calls, those of one seed always the same.
  void run(uint32_t seed, int steps, int failing) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return random() % n; };
    std::vector<void*> open;
    uint64_t next_key = 0x55550000;
    for (int step = 0; step < steps; ++step) {
      // Mostly what the call site had last.
      const uint32_t what = below(16), variant = below(12) == 0 ? below(3) : 0;
      const int peer = static_cast<int>(variant), tag = 7 + static_cast<int>(below(20) == 0);
      const uint64_t comm = below(10) == 0 ? kOtherComm : fake::kCommWorld,
                     type = below(15) == 0 ? kInt : fake::kDouble, site = 0x1000 + what * 64 + below(2) * 16;
      const int64_t count = below(12) == 0 ? 0 : 4;
      const int result = below(static_cast<uint32_t>(failing)) == 0 ? 1 : 0;
      // Handles come again soon; some operations are complete at once.
      const uint64_t key =
          below(5) == 0 ? backend->request_null() : next_key + 0x40 * (random() % 4096 * 64 + open.size());
      if (below(24) == 0) switch_thread();
      inside = below(20) == 0 ? 1 + below(2) : 0;
      bool taken = false;
      for (void* handle : open) taken = taken || handle == reinterpret_cast<void*>(key);
      switch (what) {
        case 0:
          if (below(3) == 0) message<CallId::kMPI_Send_c>(site, peer, tag, count, type, comm, result);
          else message<CallId::kMPI_Send>(site, peer, tag, count, type, comm, result);
          break;
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
        case 10: {  // its handle comes again
          if (open.empty() || below(4) != 0) break;
          const bool cancels = below(2) == 0;
          request(cancels ? CallId::kMPI_Cancel : CallId::kMPI_Request_free, open.back());
          if (cancels) wait<CallId::kMPI_Wait>(site, {open.back()}, 0);
          const auto same = reinterpret_cast<uint64_t>(open.back());
          open.pop_back();
          if (same == backend->request_null()) break;
          message<CallId::kMPI_Irecv>(site + 32, peer, tag, count, type, comm, 0, same);
          wait<CallId::kMPI_Wait>(site, {reinterpret_cast<void*>(same)}, 0);
          break;
        }
        case 12:
        case 13: {
          const Amount sent = {count, type},
                       received = {below(12) == 0 ? 2 : count, below(15) == 0 ? kInt : fake::kDouble};
          const bool in_place = below(12) == 0;
          if (below(3) == 0)
            blocks<CallId::kMPI_Alltoall_c>(site, 0, {below(6) == 0 ? kBeyondInt + count : count, type}, received, comm,
                                            in_place, result);
          else if (what == 13 && below(2) == 0)
            blocks<CallId::kMPI_Alltoall>(site, 0, sent, received, comm, in_place, result);
          else if (what == 13) blocks<CallId::kMPI_Allgather>(site, 0, sent, received, comm, in_place, result);
          else if (below(2) == 0) blocks<CallId::kMPI_Gather>(site, peer, sent, received, comm, in_place, result);
          else blocks<CallId::kMPI_Scatter>(site, peer, sent, received, comm, in_place, result);
          break;
        }
        case 14:
        case 15: {
          const Side sent = {count, type, below(8) == 0 ? ring::kProcNull : peer, tag},
                     received = {below(12) == 0 ? 2 : count, below(15) == 0 ? kInt : fake::kDouble,
                                 below(12) == 0 ? (below(2) == 0 ? ring::kAnySource : ring::kProcNull) : 1 - peer % 2,
                                 below(30) == 0 ? ring::kAnyTag : 7};
          if (below(3) == 0) exchange<CallId::kMPI_Sendrecv_c>(site, sent, received, comm, result);
          else if (what == 14) exchange<CallId::kMPI_Sendrecv>(site, sent, received, comm, result);
          else exchange<CallId::kMPI_Sendrecv_replace>(site, sent, received, comm, result);
          break;
        }
        case 7:
          if (below(3) != 0) {
            collective<CallId::kMPI_Barrier>(site, 0, 0, 0, 0, comm, 0);
            break;
          }
          if (taken) break;
          switch (below(5)) {
            case 0: collective<CallId::kMPI_Ibarrier>(site + 8, 0, 0, 0, 0, comm, result, key); break;
            case 1: collective<CallId::kMPI_Ibcast>(site + 8, peer, count, type, 0, comm, result, key); break;
            case 2:
              blocks<CallId::kMPI_Ialltoall>(site + 8, 0, {count, type}, {count, type}, comm, false, result, key);
              break;
            default: collective<CallId::kMPI_Iallreduce>(site + 40, 0, count, type, 3 + variant, comm, result, key);
          }
          if (key != backend->request_null()) look_at_started(key);
          if (result == 0) open.push_back(reinterpret_cast<void*>(key));
          break;
        default:
          if (below(2) == 0) collective<CallId::kMPI_Allreduce>(site, 0, count, type, 3 + variant, comm, 0);
          else collective<CallId::kMPI_Bcast>(site + 32, peer, count, type, 0, comm, 0);
          break;
      }
      if (below(400) == 0) forget_calls();
      if (below(300) == 0) forget_type(on, below(2) == 0 ? kInt : fake::kDouble);
    }
  }

  template <class Add>
  static void show_trace(const ring::TraceBuffer& trace, const Add& add) {
    add(trace.head, trace.calls, trace.current);
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
  }

  /// All that readers see, but times.
  std::string shown() {
    std::string out;
    const auto add = [&](auto... values) { ((out += std::to_string(values) + " "), ...), out += "\n"; };
    show_trace(runtime.traces[0], add);
    show_trace(runtime.traces[1], add);
    add(slots.thread().depth, second->depth, started, started_count);
    for (uint32_t i = 0; i < runtime.request_count; ++i) {
      const ring::Request& entry = runtime.requests[i];
      const Pending& pending = reinterpret_cast<const Pending*>(slots.watched.section + 1)[i];
      if (entry.key != 0)
        add(i, entry.key, entry.site, entry.bytes, entry.comm, entry.peer, entry.tag, entry.call, int{entry.kind},
            entry.flags & ~ring::kPostedLater, entry.trace, pending.peer, pending.ordinal, int{pending.mode},
            int{pending.both});
      if (entry.key != 0 && entry.kind == static_cast<uint8_t>(ring::RequestKind::kCollective))
        add(int{pending.flags}, pending.receive_tag, pending.sequence);
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
    for (const CollectiveHistory& history : section.histories) {
      if (history.comm == 0) continue;
      add(history.comm, history.sequence, history.rolling, history.shape);
      for (uint32_t i = 0; i < ring::kRecent; ++i) add(history.recent[i], history.types[i]);
      for (const auto& level : history.points)
        for (const CheckPoint& point : level) add(point.sequence, point.rolling);
      for (const uint64_t early : history.early) add(early);
    }
    for (const uint32_t thread : {0u, 1u}) {
      const Wait& slot = section.waits[thread];
      add(slot.instance, slot.count, slot.kept, slot.peer, slot.receive_peer, slot.receive_tag, slot.send_ordinal,
          slot.receive_ordinal, static_cast<int>(slot.mode), int{slot.flags}, slot.signature, slot.sequence, slot.polls,
          slot.steps);
      for (uint32_t i = 0; i < slot.kept && i < ring::kWaitedKeys; ++i) add(slot.keys[i]);
      add(int{slot.probe_count}, slot.probes[0].comm, slot.probes[0].peer, slot.probes[0].tag);
    }
    return out;
  }

  Slots slots;
  std::unique_ptr<Thread> second = fake::make_thread(1);
  Thread* on = &slots.thread();
  bool fast, threads;  ///< threads: with MPI_THREAD_MULTIPLE
  uint32_t inside = 0;  ///< calls that the next one makes
  uint64_t by_fast_path = 0;
  uint64_t started = 0, started_count = 0;  ///< look_at_started()
};

}  // namespace fast_test
