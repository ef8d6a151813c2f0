// SPDX-License-Identifier: Apache-2.0
//
// How long a drain, and MPI_Finalize, may wait, by a clock of its own: ranks that never answer, and cases that are
// never answered.

#include <algorithm>

#include "check.h"
#include "checksum/collective/collective.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/parts_internal.h"
#include "checksum/ledger/setup.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace {

double now;
unsigned cases;
uint64_t in_collectives;
uint64_t leftover_disagreements, disagreements, decided;  // raised by the last records; open; decided without an answer
bool answers;
bool silent, says_bye;
unsigned byes, drains_asked, lasts_told, notes;
resil::ledger::Peer peer, self;

uint64_t fake_ticks() { return static_cast<uint64_t>(now * 1e9); }

}  // namespace

#define ticks ::fake_ticks
#include "checksum/ledger/drain.cpp"
#undef ticks

namespace resil {
Runtime runtime;
void add_note_format(const char*, ...) { ++notes; }
namespace ledger {
bool is_concurrent, is_full, is_strict;
SpinLock ledger_lock;
Coverage coverage;
bool connected() { return true; }
Peer* peer_by_index(uint32_t index) { return index == 0 ? &::peer : index == 1 ? &self : nullptr; }
bool peer_is_self(const Peer& one) { return &one == &self; }
bool post(Thread&, Peer&, Kind kind, const void*, size_t) {
  drains_asked += kind == Kind::kDrain;
  lasts_told += kind == Kind::kLast;
  return true;
}
void handle_kind(Kind, void (*)(Thread&, Peer&, const void*, size_t)) {}
bool transport_flush_peer(Thread&, Peer&) { return true; }
bool transport_say_bye(Peer&) {
  ++byes;
  return true;
}
bool transport_idle() { return true; }
void transport_records(uint64_t* shared, uint64_t* messages) { *shared = *messages = 0; }
bool match_queues_pair_leftovers(Peer&, Difference*) {
  disagreements += leftover_disagreements;
  leftover_disagreements = 0;
  return false;
}
void raise_difference(Thread&, Peer&, const Difference&) {}
bool match_queues_take_unanswered(Peer&, Record*, Record*, bool*) { return false; }
void calls_differ(const CallsDiffer&) {}
void flush(Thread&) {}
void progress(Thread&) {
  now += 1e-6;
  if (answers) disagreements = 0;
  if (!silent) ::peer.own_pending = 0;
  if (says_bye && ::peer.bye_sent) ::peer.bye_received = true;
}
bool progress_until(Thread& thread, double seconds, bool (*done)(void*), void* argument) {
  const double end = now + seconds;
  while (true) {
    if (done(argument)) return true;
    if (now >= end) return false;
    progress(thread);
    now = std::min(now + 0.001, std::max(end, now));
  }
}
}  // namespace ledger
namespace blame {
unsigned open_cases() { return cases; }
void settle(Thread&, double seconds) {
  now += seconds;
  cases = 0;
}
}  // namespace blame
namespace collective {
uint64_t unverified() { return in_collectives + disagreements; }
uint64_t agreement_pending() { return disagreements; }
void progress(Thread&) {}
uint32_t sums_awaited(int32_t*, uint32_t) { return 0; }
ledger::Peer* sums_take_unanswered(bool (*)(const ledger::Peer&), Name*) { return nullptr; }
void agreement_end(Thread&) {
  decided += disagreements;
  disagreements = 0;
}
}  // namespace collective
}  // namespace resil

namespace {

using namespace resil::ledger;

resil::Thread thread;

void begin(bool is_silent, bool with_bye, unsigned open) {
  static resil::ring::Header header = {};
  header.ticks_per_second = 1e9;
  resil::runtime.header = &header;
  now = 100;
  silent = is_silent;
  says_bye = with_bye;
  cases = open;
  leftover_disagreements = disagreements = decided = 0;
  answers = false;
  in_collectives = byes = drains_asked = lasts_told = notes = 0;
  peer = {};
  peer.world_rank = 1;
  peer.own_pending = peer.expected = 3;
  self = {};
  timed_out_before = finished = false;
  drains = {};
  leaving = {};
}

}  // namespace

TEST_CASE("a drain waits for records, answers and good-byes together no longer than it may") {
  for (double seconds : {0.0, 0.01, 0.5, 1.0, 5.0})
    for (unsigned open : {0u, 2u})
      for (bool finalize : {false, true}) {
        INFO("seconds " << seconds << ", cases " << open << (finalize ? ", MPI_Finalize" : ""));
        begin(true, false, open);
        if (finalize) finish(thread, seconds);
        else drain(thread, seconds, "here");
        CHECK(now - 100 <= seconds + 1e-3);
        CHECK(now - 100 >= 0.9 * seconds);  // and does not give up early
        CHECK(peer.own_pending == 3);
        CHECK(notes == 1);
        CHECK(drains_asked == 1);
        CHECK(byes == (finalize ? 1 : 0));
      }
}

TEST_CASE("after a drain in vain the next ones are short, until one succeeds") {
  begin(true, false, 0);
  drain(thread, 5, "first");
  const double first = now;
  drain(thread, 5, "second");
  CHECK(now - first <= 0.06);
  silent = false;
  drain(thread, 5, "third");
  CHECK(peer.own_pending == 0);
  silent = true;
  peer.own_pending = 1;
  const double fourth = now;
  drain(thread, 5, "fourth");
  CHECK(now - fourth >= 4.9);
}

TEST_CASE("a record that was waited for in vain is not waited for again") {
  begin(true, false, 0);
  drain(thread, 5, "first");
  const double first = now;
  for (int i = 0; i < 1000; ++i) drain(thread, 5, "again");
  CHECK(now - first < 0.01);
  CHECK(drains_asked == 1);
  peer.own_pending += 1;  // a new one, from a rank that does not answer: shortly
  const double second = now;
  drain(thread, 5, "new");
  CHECK(now - second > 0.045);
  CHECK(now - second < 0.06);
  finish(thread, 5);  // nor in MPI_Finalize, but for its good-byes
  CHECK(now - second <= 5.1);
}

TEST_CASE("what a rank in MPI_Finalize has not announced is not waited for") {
  for (bool finalize : {false, true}) {
    begin(true, false, 0);
    peer.next_ordinal = 7;
    const uint64_t last = 7;
    on_last(thread, peer, &last, sizeof(last));
    peer.bye_received = finalize;
    if (finalize) finish(thread, 5);
    else drain(thread, 5, "here");
    CHECK(now - 100 < 0.01);
    CHECK(peer.own_pending == 3);
    CHECK(notes == 1);  // but said
  }
  // Some of its records are still on their way.
  begin(true, false, 0);
  peer.next_ordinal = 6;
  const uint64_t last = 7;
  on_last(thread, peer, &last, sizeof(last));
  drain(thread, 5, "here");
  CHECK(now - 100 >= 4.9);
}

TEST_CASE("a rank in MPI_Finalize says how many records it has announced, once, when asked") {
  begin(true, true, 0);
  peer.own_pending = 0;
  on_drain(thread, peer, nullptr, 0);
  CHECK(lasts_told == 0);  // it is not there yet
  in_collectives = 1;  // a sum waits for that rank: it may have to be passed on
  finish(thread, 5);
  CHECK(lasts_told == 0);
  CHECK(drains_asked == 1);
  CHECK(now - 100 >= 4.9);
  in_collectives = 0;
  on_drain(thread, peer, nullptr, 0);
  on_drain(thread, peer, nullptr, 0);
  CHECK(lasts_told == 1);
  // Sums are not waited for when nobody can send any.
  begin(true, true, 0);
  peer.own_pending = 0;
  in_collectives = 1;
  const uint64_t last = 0;
  on_last(thread, peer, &last, sizeof(last));
  finish(thread, 5);
  CHECK(now - 100 < 0.1);
}

TEST_CASE("MPI_Finalize with ranks that answer does not wait") {
  begin(false, true, 0);
  finish(thread, 5);
  CHECK(now - 100 < 0.1);
  CHECK(peer.bye_received);
  CHECK(notes == 0);
  // Who was only sent to need not say good-bye: a second, within the limit.
  begin(false, false, 0);
  peer.own_pending = peer.expected = 0;
  peer.announced = 4;
  finish(thread, 5);
  CHECK(now - 100 <= 1.01);
}

TEST_CASE(
    "a disagreement that only the last records show is decided in MPI_Finalize, with the answers that come in a "
    "moment") {
  for (bool answered : {false, true}) {
    begin(false, true, 0);
    peer.own_pending = 0;
    leftover_disagreements = 1;
    answers = answered;
    finish(thread, 5);
    CHECK(decided == (answered ? 0 : 1));
    CHECK(notes == 0);  // nothing unverified
    CHECK(now - 100 < 0.4);
  }
}
