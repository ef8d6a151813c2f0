// SPDX-License-Identifier: Apache-2.0
//
// Drains: before anything leaves the program, what it received is verified, or it is said what was not. Bounded, never
// a collective: flush, ask the ranks that owe records, wait.
//
// A record that a drain has waited for in vain is not waited for again, and new ones shortly until a drain has
// succeeded, so that one silent rank does not cost every drain its full time. Nor is one that cannot come: a rank in
// MPI_Finalize has made all its calls, and tells who asks how many records it has announced in all (kLast). Collectives
// that did not match leave records that nobody will ever send.

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/collective/agreement.h"
#include "checksum/collective/collective.h"
#include "checksum/collective/sums.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/parts_internal.h"
#include "checksum/ledger/setup.h"
#include "checksum/messages.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil::ledger {

namespace {

constexpr double kLastAnswers = 0.25;  // seconds that MPI_Finalize waits for answers about results that differ
constexpr double kOneWay = 1;  // seconds, for the good-bye of a rank that only received

struct Drains {
  uint64_t count, timeouts, unverified_at_end;
  double seconds;
  DrainResult last;
} drains;
bool timed_out_before;
bool finished;

template <class Use>
void each_peer(Use use) {
  Peer* peer;
  for (uint32_t i = 0; (peer = peer_by_index(i)) != nullptr; ++i) use(*peer);
}

uint64_t own_pending() {
  uint64_t sum = 0;
  each_peer([&](Peer& peer) { sum += peer.own_pending; });
  return sum;
}

bool everything_verified() { return own_pending() == 0 && blame::open_cases() == 0 && collective::unverified() == 0; }

/// All that it will ever announce is here.
bool has_all(const Peer& peer) { return peer.gone || (peer.last_known && peer.next_ordinal >= peer.last); }

/// Packets from that rank whose record may still come, and was not waited for.
uint64_t awaited(const Peer& peer) {
  return peer.own_pending <= peer.given_up || has_all(peer) ? 0 : peer.own_pending - peer.given_up;
}

/// Collectives wait for records of any rank that this one has met.
bool collectives_settled() {
  if (collective::unverified() == 0) return true;
  bool all = finished;
  each_peer([&](Peer& peer) { all = all && (has_all(peer) || peer_is_self(peer)); });
  return all;
}

bool nothing_awaited(void*) {
  uint64_t sum = 0;
  each_peer([&](Peer& peer) { sum += awaited(peer); });
  return sum == 0 && blame::open_cases() == 0 && collectives_settled();
}

/// In MPI_Finalize, when no sum of a collective waits here any more for what it will be told on: nothing follows.
void tell_last(Thread& thread, Peer& peer) {
  if (!peer.asks || peer.last_told || !finished || !collectives_settled()) return;
  const uint64_t last = peer.announced;
  peer.last_told = post(thread, peer, Kind::kLast, &last, sizeof(last));
}

void on_last(Thread&, Peer& from, const void* payload, size_t bytes) {
  if (bytes != sizeof(from.last)) return;
  memcpy(&from.last, payload, bytes);
  from.last_known = true;
}

void ask(Thread& thread, Peer& peer) { post(thread, peer, Kind::kDrain, nullptr, 0); }

/// All that a drain does shares one limit.
class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds), begin_(ticks()) {}
  double passed() const { return static_cast<double>(ticks() - begin_) / runtime.header->ticks_per_second; }
  double left() const { return seconds_ > passed() ? seconds_ - passed() : 0; }

 private:
  double seconds_;
  uint64_t begin_;
};

/// Multiset matching queues and sums: what can be decided only when nothing is on its way.
void decide_leftovers(Thread& thread) {
  each_peer([&](Peer& peer) {
    for (bool again = true; again;) {
      Difference difference;
      {
        Guard guard;
        again = match_queues_pair_leftovers(peer, &difference);
      }
      if (difference.found) raise_difference(thread, peer, difference);
    }
  });
}

/// In MPI_Finalize: what waits for a rank that has told all is answered by nobody. Its calls were others.
void tell_unanswered() {
  each_peer([&](Peer& peer) {
    if (!has_all(peer) || peer.gone || peer.dropped) return;
    for (;;) {
      CallsDiffer differ = {};
      differ.there = &peer;
      bool has_other = false;
      {
        Guard guard;
        if (!match_queues_take_unanswered(peer, &differ.own, &differ.other, &has_other)) return;
      }
      differ.absent = !has_other;
      differ.confirmed = has_other;
      if (!has_other) differ.other = differ.own, differ.other.digest = ~differ.own.digest;
      calls_differ(differ);
    }
  });
  collective::Name name;
  while (Peer* peer = collective::sums_take_unanswered(has_all, &name)) {
    CallsDiffer differ = {};
    differ.there = peer;
    differ.own = {name.comm,
                  0,
                  name.bytes,
                  name.site,
                  name.tag,
                  static_cast<uint16_t>(name.id),
                  static_cast<uint8_t>(Space::kSum),
                  0};
    differ.other = differ.own;
    differ.other.digest = ~differ.own.digest;
    differ.absent = true;
    calls_differ(differ);
  }
}

/// The last records may show that results of a collective differ. Others may be out of reach already, in MPI_Finalize's
/// own code: who is right is asked for a moment, and told as not known after it.
void settle_disagreements(Thread& thread, double limit) {
  if (collective::agreement_pending() == 0) return;
  progress_until(
      thread, limit < kLastAnswers ? limit : kLastAnswers, [](void*) { return collective::agreement_pending() == 0; },
      nullptr);
  if (collective::agreement_pending() != 0) collective::agreement_end(thread);
}

DrainResult what_is_left() {
  DrainResult result = {own_pending() + collective::unverified(), 0, {}};
  each_peer([&](Peer& peer) {
    if (peer.own_pending != 0 && result.silent_count++ < 8)
      result.silent_ranks[result.silent_count - 1] = peer.world_rank;
  });
  if (result.silent_count == 0) result.silent_count = collective::sums_awaited(result.silent_ranks, 8);
  return result;
}

void on_drain(Thread& thread, Peer& from, const void*, size_t) {
  from.asks = true;
  transport_flush_peer(thread, from);
  tell_last(thread, from);
}

/// Waits for what may come. False: in vain.
bool wait_for_records(Thread& thread, double limit) {
  each_peer([&](Peer& peer) {
    if (awaited(peer) != 0 && !peer_is_self(peer)) ask(thread, peer);
  });
  // Multiset matching queues settle only once the other side's records are here, so they are looked at now and then.
  const Deadline records(limit);
  bool everybody_asked = false;
  do {
    const double turn = limit / 64;
    progress_until(thread, turn < records.left() ? turn : records.left(), nothing_awaited, nullptr);
    decide_leftovers(thread);
    each_peer([&](Peer& peer) { tell_last(thread, peer); });
    if (finished && !everybody_asked && collective::unverified() != 0) {
      everybody_asked = true;
      each_peer([&](Peer& peer) {
        if (!peer_is_self(peer)) ask(thread, peer);
      });
    }
  } while (!nothing_awaited(nullptr) && records.left() > 0);
  return nothing_awaited(nullptr);
}

/// The good-byes of MPI_Finalize. Each look goes on where the last one stopped: with many ranks on few cores there are
/// many looks.
class Leaving {
 public:
  /// `one_way`: those of ranks that this one has only sent to, too.
  bool all_gone(bool one_way) {
    if (!all_told_ || peer_by_index(told_) != nullptr) tell();
    for (Peer* peer; (peer = peer_by_index(gone_)) != nullptr; ++gone_) {
      const bool owes = peer->expected != 0 || peer->heard || (one_way && (peer->announced != 0 || peer->addressed));
      if (owes && !peer_is_self(*peer) && !peer->gone && !peer->bye_received) return false;
    }
    return all_told_ && transport_idle();
  }

 private:
  /// Again as long as there is no memory or no credit for one.
  void tell() {
    all_told_ = true;
    told_ = 0;
    each_peer([&](Peer& peer) {
      ++told_;
      if (peer_is_self(peer) || peer.gone) return;
      peer.bye_sent = peer.bye_sent || transport_say_bye(peer);
      all_told_ = all_told_ && peer.bye_sent;
    });
  }

  bool all_told_;
  uint32_t told_, gone_;  ///< peers
} leaving;

}  // namespace

void drain_connect() {
  handle_kind(Kind::kDrain, on_drain);
  handle_kind(Kind::kLast, on_last);
}

uint64_t unverified() { return own_pending() + blame::open_cases() + collective::unverified(); }

DrainResult drain(Thread& thread, double seconds, const char* where) {
  if (!connected()) return {};
  const Deadline all(seconds);
  flush(thread);
  progress(thread);
  each_peer([](Peer& peer) {
    if (peer.given_up > peer.own_pending) peer.given_up = peer.own_pending;
  });
  if (!nothing_awaited(nullptr)) {
    const bool came = wait_for_records(thread, timed_out_before && seconds > kShortTimeout ? kShortTimeout : seconds);
    drains.timeouts += !came;
    timed_out_before = !came;
    each_peer([](Peer& peer) { peer.given_up = peer.own_pending; });
  }
  if (finished) {  // no more receives here, and what is here of others is all
    decide_leftovers(thread);
    settle_disagreements(thread, all.left());
  }
  timed_out_before = timed_out_before && !everything_verified();
  if (blame::open_cases() != 0) blame::settle(thread, all.left());
  if (finished) tell_unanswered();  // last: what the others said themselves says more
  DrainResult result = what_is_left();
  drains.count += 1;
  drains.seconds += all.passed();
  drains.last = result;
  if (result.unverified != 0) {
    char ranks[80] = "";
    int used = 0;
    for (uint32_t i = 0; i < result.silent_count && i < 8; ++i)
      used += snprintf(ranks + used, sizeof(ranks) - static_cast<size_t>(used), "%s%d", i != 0 ? ", " : "",
                       result.silent_ranks[i]);
    if (result.silent_count == 0)
      add_note_format(messages::checksum::not_verified_yet, static_cast<unsigned long long>(result.unverified), where);
    else
      add_note_format(messages::checksum::not_verified, static_cast<unsigned long long>(result.unverified), where,
                      result.silent_count, result.silent_count == 1 ? "" : "s", ranks,
                      result.silent_count > 8 ? ", ..." : "");
  }
  return result;
}

void finish(Thread& thread, double seconds) {
  if (!connected() || finished) return;
  finished = true;
  timed_out_before = false;
  const Deadline all(seconds);
  // The good-byes keep a short time.
  drain(thread, seconds > 2 * kShortTimeout ? seconds - kShortTimeout : seconds / 2, "MPI_Finalize");
  // After its good-bye a rank sends nothing more: then the posted receives can be taken back with nothing on its way.
  // Whoever received from a rank hears its good-bye; who only sent to it is sure to hear one only if it was received,
  // and waits shorter.
  auto all_gone = [](void* one_way) { return leaving.all_gone(one_way != nullptr); };
  if (!progress_until(thread, all.left() < kOneWay ? all.left() : kOneWay, all_gone, &drains))
    progress_until(thread, all.left(), all_gone, nullptr);
  decide_leftovers(thread);
  if (blame::open_cases() != 0) blame::settle(thread, all.left());
  collective::progress(thread);  // ends the job where what was decided last asks for it
  drains.unverified_at_end = unverified();
}

bool coverage_in_words(char* text, size_t bytes) {
  uint64_t uncovered = 0;
  for (unsigned i = 1; i < static_cast<unsigned>(Reason::kCount); ++i) uncovered += coverage.uncovered_messages[i];
  const uint64_t pending = unverified();
  const uint64_t all = coverage.checked_messages + uncovered + pending + coverage.mismatches;
  snprintf(text, bytes, "rank %d checked %" PRIu64 " of %" PRIu64 " messages%s", runtime.rank,
           coverage.checked_messages, all, pending != 0 ? ", some are NOT VERIFIED" : "");
  return pending == 0;
}

void report(JsonWriter& json) {
  uint64_t pending_bytes = 0;
  each_peer([&](Peer& peer) { pending_bytes += peer.pending_bytes; });
  json.boolean("connected", connected() || finished);
  json.integer("messages_checked", coverage.checked_messages);
  json.integer("bytes_checked", coverage.checked_bytes);
  const uint64_t uncovered = report_reasons(json, "messages_uncovered", coverage.uncovered_messages);
  const uint64_t uncovered_bytes = report_reasons(json, "bytes_uncovered", coverage.uncovered_bytes);
  const uint64_t pending = own_pending() + collective::unverified() + blame::open_cases();
  json.integer("messages_total", coverage.checked_messages + uncovered + pending + coverage.mismatches);
  json.integer("bytes_total", coverage.checked_bytes + uncovered_bytes + pending_bytes);
  json.integer("unverified", pending);
  json.integer("deferred", coverage.deferred);
  json.integer("verified_by_sum", coverage.by_sum);
  json.integer("untracked_receives", coverage.untracked);
  uint64_t shared, messages;
  transport_records(&shared, &messages);
  json.begin_object("records");
  json.integer("shared_memory", shared);
  json.integer("messages", messages);
  json.end_object();
  json.begin_object("drains");
  json.integer("count", drains.count);
  json.number("seconds", drains.seconds);
  json.integer("timeouts", drains.timeouts);
  json.begin_array("silent_ranks");
  for (uint32_t i = 0; i < drains.last.silent_count && i < 8; ++i) json.integer(nullptr, drains.last.silent_ranks[i]);
  json.end_array();
  json.end_object();
}

}  // namespace resil::ledger
