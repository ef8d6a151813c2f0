// SPDX-License-Identifier: Apache-2.0
//
// The way of the records over both media: an MPI in memory that brings every message back as if the other rank had sent
// it, and a stream that does the same. So what is announced to rank 1 must be taken as coming from rank 1, in order.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "checksum/ledger/inbox.h"
#include "checksum/ledger/parts_internal.h"
#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"

namespace {

std::mutex wire_lock;
std::deque<std::string> wire;  // messages under way
std::deque<uint64_t> receives;  // posted, oldest first
std::vector<char*> buffers(1);  // by request - 1; null: a send
bool wire_stands;  // nothing is sent or delivered
resil::Backend the_backend;
resil::ledger::Peer peer;
uint32_t stream_slots;  // 0: no stream
bool stream_seen;
std::vector<resil::ledger::StreamSlot> slots;
resil::ledger::StreamControl control;

std::atomic<uint64_t> next_expected;  // ordinal
std::vector<uint64_t> digests;  // in the order in which records were taken
uint64_t abandoned, out_of_order, queries, taken_at_query;

bool send(uint64_t, const void* data, size_t bytes, int, resil::PrivateTag, uint64_t* request) {
  std::lock_guard<std::mutex> guard(wire_lock);
  std::string message(static_cast<const char*>(data), bytes);
  const int32_t from = 1;
  memcpy(message.data() + offsetof(resil::ledger::MessageHeader, source), &from, sizeof(from));
  wire.push_back(message);
  buffers.push_back(nullptr);
  *request = buffers.size() - 1;
  return true;
}

bool receive(uint64_t, void* data, size_t, int, resil::PrivateTag, uint64_t* request) {
  std::lock_guard<std::mutex> guard(wire_lock);
  buffers.push_back(static_cast<char*>(data));
  receives.push_back(*request = buffers.size() - 1);
  return true;
}

bool test(uint64_t* request) {
  std::lock_guard<std::mutex> guard(wire_lock);
  if (buffers[*request] == nullptr) return !wire_stands;
  if (wire_stands || wire.empty() || receives.front() != *request) return false;
  memcpy(buffers[*request], wire.front().data(), wire.front().size());
  wire.pop_front();
  receives.pop_front();
  return true;
}

}  // namespace

namespace resil {
Runtime runtime;
const Backend* backend;
PartPlace part_place;
uint64_t private_comm() { return 1; }
namespace ledger {
bool is_concurrent, is_full, is_strict;
SpinLock ledger_lock;
Coverage coverage;
void (*space_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&);
void (*mismatch_handlers[static_cast<int>(Space::kCount)])(Thread&, Peer&, const Record&, const Record&);
void (*kind_handlers[16])(Thread&, Peer&, const void*, size_t);
Peer* peer_of(int) { return &::peer; }
Peer* peer_find(int) { return &::peer; }
Peer* peer_by_index(uint32_t index) { return index == 0 ? &::peer : nullptr; }
bool peer_is_self(const Peer&) { return false; }
bool inbox_open(Peer& to) {
  if (stream_slots == 0) return false;
  to.out.open(&control, slots.data(), stream_slots);
  return true;
}
Peer* inbox_next_sender() {
  if (stream_seen || stream_slots == 0) return nullptr;
  stream_seen = true;
  ::peer.in.open(&control, slots.data(), stream_slots);
  return &::peer;
}
void match_queue_sent(Peer& from, const Record& record, uint64_t ordinal, Difference*) {
  if (from.lost) return;
  out_of_order += ordinal != next_expected;
  next_expected = ordinal + 1;
  digests.push_back(record.digest);
}
uint32_t match_queues_take(Peer&, uint32_t, uint64_t*, uint64_t*) { return 0; }
void match_queues_abandon(Peer& from) {
  from.lost = true;
  ++abandoned;
}
void sums_compare(Peer& from) {  // everything has been received, and is right
  if (from.lost && from.total_there == from.summed && from.sum_there == from.sum_out && from.sums_hold_there) {
    from.lost = false;
    next_expected = from.next_ordinal;
  }
}
void raise_difference(Thread&, Peer&, const Difference&) {}
}  // namespace ledger
}  // namespace resil

using namespace resil::ledger;

namespace {

resil::Thread thread_state;

void begin(uint32_t with_slots) {
  static bool started;
  the_backend.send = send;
  the_backend.receive = receive;
  the_backend.test = test;
  resil::backend = &the_backend;
  resil::runtime.rank = 0;
  if (!started) {
    REQUIRE(transport_create());
    REQUIRE(transport_start());
    started = true;
  }
  is_concurrent = wire_stands = false;
  for (unsigned turn = 0; turn < 20 || (turn < 3000 && transport_dirty() != 0); ++turn) {  // left by the case before
    transport_flush(thread_state);
    transport_poll(thread_state, 1000);
  }
  REQUIRE((wire.empty() && transport_dirty() == 0));
  peer = {};
  peer.world_rank = 1;
  peer.sums_hold_out = peer.sums_hold_in = true;
  stream_slots = with_slots;
  stream_seen = false;
  slots = std::vector<StreamSlot>(with_slots);
  new (&control) StreamControl{};
  next_expected = 0;
  digests.clear();
  abandoned = out_of_order = queries = taken_at_query = 0;
  kind_handlers[static_cast<int>(Kind::kQuery)] = [](resil::Thread&, Peer&, const void* payload, size_t bytes) {
    uint64_t announced;
    REQUIRE(bytes == sizeof(announced));
    memcpy(&announced, payload, bytes);
    ++queries;
    taken_at_query += digests.size() >= announced;
  };
}

Record packet(uint64_t number) { return {1, number, 8, 0, 7, 0, 0, 0}; }

void announce(uint64_t number, bool at_once = false) { transport_append(thread_state, peer, packet(number), at_once); }

void finish() {
  for (unsigned turn = 0; turn < 3000 && digests.size() != peer.announced && !peer.lost; ++turn) {
    transport_flush(thread_state);
    transport_poll(thread_state, 1000);
  }
}

bool in_sequence() {
  for (uint64_t i = 0; i < digests.size(); ++i)
    if (digests[i] != i) return false;
  return true;
}

}  // namespace

TEST_CASE("records keep their order, whichever way each of them takes") {
  for (uint32_t with : {0u, 8u, 64u, 1024u})
    for (unsigned seed = 0; seed < 20; ++seed) {
      INFO("slots " << with << ", seed " << seed);
      begin(with);
      std::mt19937 random(seed);
      uint64_t number = 0;
      for (unsigned step = 0; step < 400; ++step) {
        const unsigned burst = 1 + random() % (random() % 8 == 0 ? 500 : 12);
        switch (random() % 6) {
          case 0: transport_poll(thread_state, random() % 4); break;
          case 1: transport_take_streams(thread_state); break;
          case 2: transport_flush(thread_state); break;
          case 3: wire_stands = random() % 2; break;
          default:
            for (unsigned k = 0; k < burst; ++k) announce(number++, seed % 2 != 0);
        }
        REQUIRE((with == 0 || digests.size() <= number));
      }
      wire_stands = false;
      finish();
      CHECK(digests.size() == number);
      CHECK(in_sequence());
      CHECK((abandoned == 0 && out_of_order == 0));
      CHECK((peer.total_there == number && peer.sum_there == peer.sum_out && peer.sums_hold_there));
      uint64_t shared, messages;
      transport_records(&shared, &messages);
      CHECK((with != 0) == (shared != 0));
      CHECK(shared == peer.out.count());
      if (with == 8 || with == 64) CHECK(shared < number);  // it was full now and then
    }
}

TEST_CASE("a stream that is read in time takes everything") {
  begin(64);
  for (uint64_t number = 0; number < 10000; ++number) {
    announce(number);
    if (number % 32 == 31) transport_take_streams(thread_state);
  }
  CHECK(transport_dirty() == 0);
  finish();
  CHECK((digests.size() == 10000 && in_sequence()));
  CHECK(peer.out.count() == 10000);
  CHECK(wire.empty());
}

TEST_CASE("credit counts what went by messages, however much went through the stream before") {
  begin(64);
  uint64_t number = 0;
  for (; number < 20000; ++number) {
    announce(number);
    if (number % 32 == 31) transport_take_streams(thread_state);
  }
  REQUIRE(peer.out.count() == number);
  for (; number < 20000 + 4 * kCreditRecords; ++number)  // the stream is full: the rest by messages
    announce(number);
  finish();
  CHECK((digests.size() == number && in_sequence()));
  CHECK(abandoned == 0);
  transport_flush(thread_state);  // it may have had no credit when it was last looked at
  CHECK(transport_dirty() == 0);
}

TEST_CASE("what is asked for is taken from the stream, and no more") {
  begin(64);
  for (uint64_t number = 0; number < 10; ++number) announce(number);
  CHECK(transport_take_stream(thread_state, peer, 3));
  CHECK(digests.size() == 3);
  begin(0);
  announce(0);
  CHECK(!transport_take_stream(thread_state, peer, 3));
}

TEST_CASE("a message comes after the records that were announced before it") {
  for (uint32_t with : {0u, 8u, 64u}) {
    begin(with);
    for (uint64_t number = 0; number < 300; ++number) {
      announce(number);
      if (number % 10 == 9) {
        transport_flush_peer(thread_state, peer);
        REQUIRE(post(thread_state, peer, Kind::kQuery, &peer.announced, sizeof(peer.announced)));
      }
      if (number % 50 == 49) transport_poll(thread_state, 1000);
    }
    finish();
    CHECK((queries == 30 && taken_at_query == 30));
    REQUIRE(transport_say_bye(peer));
    transport_poll(thread_state, 1000);
    CHECK((peer.bye_received && abandoned == 0));
  }
}

TEST_CASE("a good-bye is a record, where no message can come after it") {
  begin(64);
  for (uint64_t number = 0; number < 10; ++number) announce(number);
  REQUIRE(transport_say_bye(peer));
  CHECK(wire.empty());
  transport_take_streams(thread_state);
  CHECK((digests.size() == 10 && in_sequence()));
  CHECK((peer.bye_received && peer.last_known && peer.last == peer.next_ordinal));
  CHECK((peer.total_there == 10 && peer.sum_there == peer.sum_out && peer.sums_hold_there));
  uint64_t shared, messages;
  transport_records(&shared, &messages);
  CHECK(shared == 10);
  for (const bool asked : {false, true}) {  // a message before it; a stream that is full
    begin(8);
    if (asked) REQUIRE(post(thread_state, peer, Kind::kQuery, &peer.announced, sizeof(peer.announced)));
    for (uint64_t number = 0; number < (asked ? 1 : 8); ++number) announce(number);
    REQUIRE(transport_say_bye(peer));
    CHECK(wire.size() == (asked ? 2 : 1));
    transport_poll(thread_state, 1000);
    CHECK((peer.bye_received && peer.last == peer.announced && abandoned == 0 && in_sequence()));
  }
}

TEST_CASE("a rank that takes nothing costs a bounded number of pages; then sums decide, and records go on") {
  for (uint32_t with : {0u, 64u}) {
    begin(with);
    constexpr uint64_t kMany = (kMaxPages + 64) * kBatchRecords;
    wire_stands = true;
    for (uint64_t number = 0; number < kMany; ++number) announce(number);
    CHECK(peer.dropped);
    wire_stands = false;
    for (unsigned turn = 0; turn < 3000 && (abandoned == 0 || peer.lost); ++turn) {
      transport_flush(thread_state);
      transport_poll(thread_state, 1000);
    }
    CHECK(abandoned == 1);
    CHECK(!peer.lost);
    CHECK((peer.total_there == kMany && peer.sum_there == peer.sum_out));
    const uint64_t in_stream = peer.out.count(), taken = digests.size();
    for (uint64_t number = 0; number < 40; ++number) announce(number);
    transport_flush(thread_state);
    transport_poll(thread_state, 1000);
    CHECK(digests.size() == taken + 40);
    CHECK(out_of_order == 0);
    if (with != 0) CHECK(peer.out.count() > in_stream);  // back in the stream
  }
}

TEST_CASE("unchecked records end the sums, records of other kinds are none of theirs") {
  begin(64);
  announce(1);
  Record other = packet(2);
  other.flags = kNotMatchQueues;
  transport_append(thread_state, peer, other, false);
  transport_take_streams(thread_state);
  CHECK((peer.total_there == 1 && peer.sums_hold_there));
  Record blind = packet(3);
  blind.flags = kUnchecked;
  transport_append(thread_state, peer, blind, false);
  transport_take_streams(thread_state);
  CHECK((peer.total_there == 2 && !peer.sums_hold_there));
}

TEST_CASE("several threads announce, one takes") {
  begin(64);
  is_concurrent = true;
  constexpr uint64_t kEach = 4000;
  std::vector<std::thread> threads;
  for (unsigned who = 0; who < 2; ++who)
    threads.emplace_back([who] {
      resil::Thread mine = {};
      mine.last_time = 1;
      for (uint64_t i = 0; i < kEach; ++i) transport_append(mine, peer, packet(who * kEach + i), i % 3 == 0);
    });
  std::atomic<bool> done = false;
  uint64_t glances = 0;
  threads.emplace_back([&] {  // as every call does, without the lock
    while (!done) glances += transport_dirty() <= 1 && transport_oldest() <= resil::ticks();
  });
  while (next_expected < 2 * kEach) {
    transport_flush(thread_state);
    transport_poll(thread_state, 10);
  }
  done = true;
  for (auto& one : threads) one.join();
  transport_flush(thread_state);
  CHECK(transport_dirty() == 0);
  CHECK(transport_oldest() == 0);
  CHECK(out_of_order == 0);
  std::vector<bool> seen(2 * kEach);
  for (uint64_t digest : digests) seen[digest] = true;
  CHECK(std::count(seen.begin(), seen.end(), true) == 2 * kEach);
}

// Tag 32003 was verify's "nobody" and one of the reductions' 28,000: one reduction in 28,000 waited for ever.
TEST_CASE("no two users of the private communicator share a tag") {
  namespace tags = resil::tags;
  using resil::TagRange;
  int users[tags::kUpperBound + 1] = {};
  for (const TagRange& range : tags::kAll)
    for (int i = 0; i < range.count; ++i) {
      const int tag = range[static_cast<uint32_t>(i)].value();
      REQUIRE(tag >= 0);
      REQUIRE(tag <= tags::kUpperBound);
      REQUIRE(++users[tag] == 1);
    }
  REQUIRE(tags::kReduction[~0u].value() < tags::kReduction.end());  // any hash
  constexpr TagRange overlap[] = {{1, 5}, {5, 1}}, beyond[] = {{tags::kUpperBound, 2}};
  REQUIRE_FALSE(tags::disjoint(overlap, 2));
  REQUIRE_FALSE(tags::disjoint(beyond, 1));
}
