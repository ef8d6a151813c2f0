// SPDX-License-Identifier: Apache-2.0
//
// Matching queues and sums of the ledger, without MPI: what a sender announced against what was received, in every
// order in which the two can become known.

#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/parts_internal.h"

namespace {
std::multiset<uint64_t> dropped;  // evidence that was given back
}

namespace resil::blame {
void drop(uint64_t evidence) { dropped.insert(evidence); }
void right(uint64_t evidence) { dropped.insert(evidence); }
}

namespace resil::ledger {
bool is_concurrent = false, is_full, is_strict;
SpinLock ledger_lock;
Coverage coverage;
}

using namespace resil::ledger;

namespace {

Peer fresh(int rank) {
  static const bool made = match_queues_create();
  REQUIRE(made);
  coverage = {};
  dropped.clear();
  Peer peer = {};
  peer.world_rank = rank;
  peer.sums_hold_in = peer.sums_hold_out = true;
  return peer;
}

Record packet(uint32_t tag, uint64_t digest, uint8_t flags = 0) {
  return {0xc0ffee, digest, 8, 0, tag, 0, static_cast<uint8_t>(Space::kMessage), flags};
}

/// What ledger::announce on one side and expect() on the other do.
struct Pair {
  Peer& peer;
  uint64_t ordinal = 0;
  std::vector<Difference> found;

  void sent(const Record& record) {
    Difference difference;
    match_queue_sent(peer, record, ordinal++, &difference);
    peer.total_there = ordinal;
    peer.sum_there += record_sum(record);
    peer.sums_hold_there = true;
    if (difference.found) found.push_back(difference);
  }
  void received(const Record& record, uint64_t evidence = 0) {
    Difference difference;
    peer.expected += 1;
    peer.sum_in += record_sum(record);
    match_queue_received(peer, record, evidence, &difference);
    if (difference.found) found.push_back(difference);
  }
};

/// What transport_append() does for one that is not plain.
bool announce_padded(Peer& to, const Record& record) {
  if (!to.out.put(record, to.announced, (to.summed + 1) | kSumsHold, to.sum_out + record_sum(record))) return false;
  to.announced += 1;
  to.summed += 1;
  to.sum_out += record_sum(record);
  return true;
}

int next_rank = 1;

}  // namespace

TEST_CASE("types: a difference unless one side goes with any, or nothing was sent; also against a queue, plainly") {
  constexpr uint32_t kInts = 0x104, kFloats = 0x304;
  auto typed = [](uint64_t digest, uint32_t type, uint64_t bytes = 8) {
    Record record = {0xc0ffee, digest, bytes, 0, 1, 0, static_cast<uint8_t>(Space::kMessage), 0};
    record.set_type(type);
    return record;
  };
  Peer peer = fresh(1);
  Pair pair = {peer, 0, {}};
  auto both = [&](const Record& sent, const Record& received) {
    pair.found.clear();
    pair.sent(sent);
    if (!expect_plain(peer, std::bit_cast<PlainRecord>(received))) pair.received(received);
    pair.received(received);
    pair.sent(sent);
    return pair.found.size();
  };
  CHECK(both(typed(1, kInts), typed(1, kInts)) == 0);
  CHECK(both(typed(1, 0), typed(1, kInts)) == 0);
  CHECK(both(typed(1, kInts), typed(1, 0)) == 0);
  CHECK(both(typed(1, kInts, 0), typed(1, kFloats, 0)) == 0);
  REQUIRE(both(typed(1, kInts), typed(1, kFloats)) == 2);
  CHECK(pair.found[0].calls);
  CHECK(pair.found[1].calls);
  REQUIRE(both(typed(1, kInts), typed(2, kFloats)) == 2);
  CHECK(!pair.found[0].calls);  // bytes differ: damage, whatever the types
  REQUIRE(both(typed(1, 0x80000001), typed(1, 0x80010001)) == 2);  // the halves lie apart
  REQUIRE(both(typed(1, 0x80000001), typed(1, 0x80000002)) == 2);
  CHECK(coverage.checked_messages == 8);
}

TEST_CASE("packets of a lane meet in order, lanes in any order") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Peer peer = fresh(next_rank++);
    Pair pair{peer, 0, {}};
    std::mt19937 random(seed);
    const uint32_t tags = 1 + random() % 5, count = 300 + random() % 1000;
    const bool usually_in_order = seed % 2;
    std::vector<Record> stream;
    std::map<uint32_t, std::deque<Record>> arriving;
    std::set<uint64_t> wrong;
    for (uint32_t i = 0; i < count; ++i) {
      Record record = packet(random() % tags, 1000 + i);
      stream.push_back(record);
      if (random() % 50 == 0) {
        wrong.insert(record.digest);
        record.digest += 1u << 20;
      }
      arriving[record.tag].push_back(record);
    }
    uint64_t said = 0, taken = 0;
    while (said < count || taken < count) {
      if (said < count && (taken == count || random() % 2)) {
        pair.sent(stream[said++]);
        continue;
      }
      if (taken == count) continue;
      uint32_t tag = usually_in_order && random() % 40 ? stream[taken].tag : random() % tags;
      for (uint32_t i = 0; arriving[tag].empty(); ++i) tag = (tag + 1) % tags;
      pair.received(arriving[tag].front(), ++taken);
      arriving[tag].pop_front();
    }
    INFO("seed " << seed);
    REQUIRE(pair.found.size() == wrong.size());
    for (const Difference& difference : pair.found) {
      CHECK(wrong.count(difference.sent.digest) == 1);
      CHECK(stream[difference.ordinal].digest == difference.sent.digest);
      CHECK(difference.received.digest == difference.sent.digest + (1u << 20));
      CHECK(dropped.count(difference.evidence) == 0);
    }
    CHECK(coverage.checked_messages == count - wrong.size());
    CHECK(peer.own_pending == 0);
    CHECK(peer.pending_bytes == 0);
    CHECK(peer.match_queue_nodes == 0);
    CHECK(dropped.size() == count - wrong.size());
  }
}

/// Messages, or blocks of collectives that also carry what the calls so far are.
template <Space space>
void taken_in_runs() {
  constexpr uint32_t kSlots = 64;
  for (unsigned seed = 0; seed < 200; ++seed) {
    static StreamControl control;
    static StreamSlot slots[kSlots];
    memset(static_cast<void*>(&control), 0, sizeof(control));
    memset(static_cast<void*>(slots), 0, sizeof(slots));
    Peer peer = fresh(next_rank++);
    peer.in.open(&control, slots, kSlots);
    Peer there = {};  // the sender's view of this rank
    there.out.open(&control, slots, kSlots);
    there.sums_hold_out = true;
    Pair pair{peer, 0, {}};
    std::mt19937 random(seed);
    const uint32_t tags = 1 + random() % 3, count = 200 + random() % 1000, rarely = 1 + random() % 60;
    std::vector<Record> stream;
    uint64_t said = 0, taken = 0, wrong = 0, quick = 0, run_records = 0, total = 0, sum = 0;
    auto take = [&](uint32_t most) {  // take_stream()
      while (most != 0) {
        const uint32_t run = match_queues_take(peer, most, &total, &sum);
        REQUIRE(run <= most);
        run_records += run;
        most -= run;
        const StreamSlot* slot = peer.in.next();
        if (most == 0 || slot == nullptr) break;
        total = slot->total;
        sum = slot->sum;
        pair.ordinal = peer.next_ordinal;
        pair.sent(slot->record);
        peer.next_ordinal += 1;
        peer.in.advance();
        --most;
      }
    };
    while (taken < count || said < count) {
      const unsigned what = random() % (4 + rarely);
      if (what < 2 && said < count) {
        Record record = packet(random() % tags, 1000 + said, random() % 100 == 0 ? kPadded : 0);
        record.space = static_cast<uint8_t>(space);
        record.upper = space != Space::kMessage ? said % 7 : record.upper;  // 0: left open
        if (record.flags == 0 ? announce_plain<space>(there, std::bit_cast<PlainRecord>(record))
                              : announce_padded(there, record)) {
          stream.push_back(record);
          ++said;
          REQUIRE(there.announced == said);
        }
      } else if (what < 4 && taken < stream.size()) {
        Record record = stream[taken];
        if (random() % 100 == 0) {
          record.digest += 1u << 20;
          ++wrong;
        } else if (space != Space::kMessage && record.upper != 0 && random() % 100 == 0) {
          record.upper += 16;  // the same data by another call
          ++wrong;
        }
        const bool quickly = record.flags == 0 && expect_plain<space>(peer, std::bit_cast<PlainRecord>(record));
        quick += quickly;
        if (!quickly) pair.received(record);
        ++taken;
      } else {
        take(1 + random() % 100);
      }
    }
    take(~0u);
    INFO("seed " << seed);
    CHECK(pair.found.size() == wrong);
    for (const Difference& difference : pair.found) {
      CHECK(stream[difference.ordinal].digest == difference.sent.digest);
      CHECK(difference.calls == (difference.sent.upper != difference.received.upper));
    }
    CHECK(coverage.checked_messages == count - wrong);
    CHECK(coverage.checked_bytes == 8 * (count - wrong));
    CHECK(peer.own_pending == 0);
    CHECK(peer.pending_bytes == 0);
    CHECK(peer.next_ordinal == count);
    CHECK((total & ~kSumsHold) == count);
    CHECK((total & kSumsHold) != 0);
    CHECK(sum == there.sum_out);
    CHECK(peer.expected == count);
    CHECK((wrong != 0 || sum == peer.sum_in));
    CHECK(quick > count / 4);
    CHECK(run_records > count / 4);
  }
}

TEST_CASE("records that come in a stream are taken in runs, as one by one") {
  taken_in_runs<Space::kMessage>();
  taken_in_runs<Space::kBlock>();
  taken_in_runs<Space::kAgreement>();
}

TEST_CASE("a lane that several threads use is compared as a multiset") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Peer peer = fresh(next_rank++);
    Pair pair{peer, 0, {}};
    std::mt19937 random(seed);
    const uint32_t count = 200;
    std::vector<Record> sent, received;
    for (uint32_t i = 0; i < count; ++i)
      sent.push_back(packet(3, 1000 + i / 2, random() % 3 || i == 0 ? kUnordered : 0));  // once one says so, it holds
    received = sent;
    for (Record& record : received) record.flags = 0;
    const bool damaged = seed % 2;
    if (damaged) received[random() % count].digest = 7;
    std::shuffle(received.begin(), received.end(), random);
    if (seed % 4 < 2)  // the receiver knows it first
      received[0].flags = kUnordered;
    pair.sent(sent[0]);
    for (uint32_t i = 0, j = 1; i < count || j < count;) {
      if (j < count && random() % 2) pair.sent(sent[j++]);
      else if (i < count) pair.received(received[i++]);
    }
    INFO("seed " << seed);
    CHECK(pair.found.empty());
    for (Difference difference; match_queues_pair_leftovers(peer, &difference);) {
      if (difference.found) pair.found.push_back(difference);
      difference.found = false;
    }
    REQUIRE(pair.found.size() == damaged);
    if (damaged) CHECK(pair.found[0].received.digest == 7);
    CHECK(peer.own_pending == 0);
    CHECK(coverage.checked_messages == count - damaged);
    CHECK(peer.match_queue_nodes == 0);
  }
}

TEST_CASE("leftovers of a multiset are not paired while something is on its way") {
  Peer peer = fresh(next_rank++);
  Pair pair{peer, 0, {}};
  pair.sent(packet(1, 10, kUnordered));
  pair.sent(packet(1, 11, kUnordered));
  pair.received(packet(1, 12));
  Difference difference;
  CHECK_FALSE(match_queues_pair_leftovers(peer, &difference));
  pair.received(packet(1, 11));
  CHECK(match_queues_pair_leftovers(peer, &difference));
  CHECK(difference.found);
}

TEST_CASE("what cannot be compared is counted and keeps its place") {
  Peer peer = fresh(next_rank++);
  Pair pair{peer, 0, {}};
  for (uint64_t i = 0; i < 10; ++i)
    pair.sent(i % 3 ? packet(1, i) : packet(1, static_cast<uint64_t>(Reason::kDeviceBuffer), kUnchecked));
  for (uint64_t i = 0; i < 10; ++i)
    pair.received(i == 5 ? packet(1, static_cast<uint64_t>(Reason::kError), kUnchecked) : packet(1, i));
  CHECK(pair.found.empty());
  CHECK(coverage.checked_messages == 5);
  CHECK(coverage.uncovered_messages[static_cast<int>(Reason::kDeviceBuffer)] == 4);
  CHECK(coverage.uncovered_messages[static_cast<int>(Reason::kError)] == 1);
}

TEST_CASE("a packet that is put back is the next one of its lane") {
  Peer peer = fresh(next_rank++);
  Pair pair{peer, 0, {}};
  pair.received(packet(1, 20), 1);
  pair.received(packet(1, 30), 2);
  pair.received(packet(2, 99), 3);
  pair.sent(packet(1, 10));  // withdrawn
  REQUIRE(pair.found.size() == 1);
  CHECK(peer.own_pending == 2);
  Difference difference;
  match_queue_put_back(peer, pair.found[0].received, pair.found[0].evidence, &difference);
  CHECK_FALSE(difference.found);
  CHECK(peer.own_pending == 3);
  pair.sent(packet(1, 20));
  pair.sent(packet(1, 30));
  pair.sent(packet(2, 99));
  CHECK(pair.found.size() == 1);
  CHECK(peer.own_pending == 0);
  CHECK(coverage.checked_messages == 3);

  // The matching queue's last one, with the sender's next record waiting: compared at once.
  pair.received(packet(5, 1));
  pair.sent(packet(5, 2));
  REQUIRE(pair.found.size() == 2);
  pair.sent(packet(5, 1));
  match_queue_put_back(peer, packet(5, 1), 0, &difference);
  CHECK_FALSE(difference.found);
  CHECK(peer.own_pending == 0);
}

TEST_CASE("lost records: the sums decide, and matching begins anew") {
  Peer peer = fresh(next_rank++);
  Pair pair{peer, 0, {}};
  for (uint64_t i = 0; i < 1000; ++i) pair.received(packet(i % 7, i * i), i + 1);
  for (uint64_t i = 0; i < 400; ++i) pair.sent(packet(i % 7, i * i));
  CHECK(coverage.checked_messages == 400);
  match_queues_abandon(peer);
  CHECK(dropped.size() == 1000);
  CHECK(peer.own_pending == 600);
  for (uint64_t i = 400; i < 1000; ++i) {
    pair.sent(packet(i % 7, i * i));
    sums_compare(peer);
    CHECK(peer.lost == (i != 999));
  }
  CHECK(coverage.checked_messages == 1000);
  CHECK(coverage.by_sum == 600);
  CHECK(peer.own_pending == 0);
  pair.received(packet(1, 5));
  pair.sent(packet(1, 6));
  CHECK(pair.found.size() == 1);
}

TEST_CASE("sums do not agree when a packet is wrong, missing, or in another lane") {
  for (int what = 0; what < 4; ++what) {
    Peer peer = fresh(next_rank++);
    Pair pair{peer, 0, {}};
    match_queues_abandon(peer);
    for (uint64_t i = 0; i < 10; ++i) {
      pair.sent(packet(1, i));
      Record record = packet(1, i);
      if (i == 4 && what == 1) record.digest ^= 1;
      if (i == 4 && what == 2) record.tag = 2;
      if (i != 4 || what != 3) pair.received(record, 100 + i);
    }
    sums_compare(peer);
    CHECK(peer.lost == (what != 0));
    CHECK(pair.found.empty());
    CHECK(coverage.checked_messages == (what == 0 ? 10 : 0));
    CHECK(dropped.size() == peer.expected);  // nothing keeps evidence of what only sums can tell
  }
}

TEST_CASE("a good-bye's sums count records for lanes only once") {
  CHECK(record_sum(packet(1, 5)) != record_sum(packet(2, 5)));
  CHECK(record_sum(packet(1, 5)) != record_sum(packet(1, 6)));
  Record longer = packet(1, 5);
  longer.bytes = 9;
  CHECK(record_sum(packet(1, 5)) != record_sum(longer));
  CHECK(record_sum(packet(1, 5, kUnordered)) == record_sum(packet(1, 5)));
}

TEST_CASE("many lanes: the table grows, drops empty ones, and keeps the order of the others") {
  Peer peer = fresh(next_rank++);
  Pair pair{peer, 0, {}};
  constexpr uint64_t kMatchQueues = 20000;
  for (uint64_t round = 0; round < 2; ++round)
    for (uint64_t i = 0; i < kMatchQueues; ++i)
      pair.sent(packet(static_cast<uint32_t>(i), round * kMatchQueues + i, i % 11 == 0 ? kUnordered : 0));
  for (uint64_t i = kMatchQueues; i-- > 0;) pair.received(packet(static_cast<uint32_t>(i), i));
  for (uint64_t i = 0; i < 100000; ++i) {  // short-lived ones
    pair.sent(packet(static_cast<uint32_t>(1000000 + i), i));
    pair.received(packet(static_cast<uint32_t>(1000000 + i), i));
  }
  for (uint64_t i = 0; i < kMatchQueues; ++i) pair.received(packet(static_cast<uint32_t>(i), kMatchQueues + i));
  CHECK(pair.found.empty());
  CHECK(coverage.checked_messages == 2 * kMatchQueues + 100000);
  CHECK(peer.own_pending == 0);
  CHECK(peer.match_queue_nodes == 0);
}

TEST_CASE("more unmatched records than there is memory for: no false difference, sums decide, others go on") {
  Peer peer = fresh(next_rank++), other = fresh(next_rank++);
  Pair pair{peer, 0, {}}, beside{other, 0, {}};
  beside.sent(packet(1, 1));
  const uint64_t count = uint64_t{kMaxNodes} + 1000;
  for (uint64_t i = 0; i < count; ++i) pair.sent(packet(1, i * 3));
  CHECK(peer.lost);
  CHECK_FALSE(other.lost);
  for (uint64_t i = 0; i < count; ++i) pair.received(packet(1, i * 3));
  sums_compare(peer);
  CHECK_FALSE(peer.lost);
  CHECK(pair.found.empty());
  CHECK(coverage.checked_messages == count);
  CHECK(coverage.by_sum == count);
  beside.received(packet(1, 1));
  CHECK(coverage.checked_messages == count + 1);
  pair.sent(packet(1, 4));
  pair.received(packet(1, 4));
  CHECK(coverage.checked_messages == count + 2);
}

TEST_CASE("lost records of a peer whose sums cannot agree: every packet has its column, nothing waits for ever") {
  for (bool at_sender : {false, true}) {
    Peer peer = fresh(next_rank++);
    Pair pair{peer, 0, {}};
    if (at_sender) {
      peer.total_there = 1;  // one without a digest has been announced
      peer.sums_hold_there = false;
    }
    pair.sent(packet(1, 0));
    pair.received(packet(1, 0));
    for (uint64_t i = 1; i < 10; ++i) pair.received(packet(1, i), i);
    if (at_sender) peer.sums_hold_there = false;
    else peer.sums_hold_in = false;
    match_queues_abandon(peer);
    CHECK(coverage.uncovered_messages[static_cast<int>(Reason::kMemory)] == 9);
    CHECK(coverage.uncovered_bytes[static_cast<int>(Reason::kMemory)] == 72);
    pair.received(packet(1, 10), 10);
    CHECK(coverage.uncovered_messages[static_cast<int>(Reason::kMemory)] == 10);
    CHECK(peer.own_pending == 0);
    CHECK(peer.pending_bytes == 0);
    CHECK(dropped.size() == 10);
    CHECK(coverage.checked_messages == 1);
    sums_compare(peer);
    CHECK(peer.lost);
  }
}
