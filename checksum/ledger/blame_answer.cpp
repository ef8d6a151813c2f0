// SPDX-License-Identifier: Apache-2.0
//
// The sender's side of a case: what this process still knows of a packet that it announced, told to the rank that got
// something else. Answers that find no room on the private communicator wait in a short list.
//
// Context: handlers inside ledger::progress() on an application's thread.

#include <cstdio>
#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/model/calls.h"

namespace resil::blame {

namespace {

constexpr uint32_t kOwed = 64;  // further ones are lost: the rank that asked asks again

struct Owed {
  Peer* to;
  Query query;
};

SpinLock lock;
Owed owed[kOwed];
uint32_t owed_count;

/// Will sent_complete() be called for it, and has not been? Blocking calls are complete before anything is asked,
/// partitioned sends are announced when they are; the sending half of MPI_Isendrecv is not followed.
bool is_pending(const Entry& entry) {
  if (!mode.full || (entry.flags & kComplete) != 0 || entry.record.call >= kCallCount ||
      (entry.record.space != static_cast<uint8_t>(ledger::Space::kMessage) &&
       entry.record.space != static_cast<uint8_t>(ledger::Space::kBlock)))
    return false;
  const uint32_t attributes = call_info(static_cast<CallId>(entry.record.call)).attributes;
  return (attributes & (kCallStarts | kCallActivates | kCallPersistent)) != 0 && (attributes & kCallBothWays) == 0;
}

void owe(Peer& to, const Query& query) {
  Guard guard(lock);
  for (uint32_t i = 0; i < owed_count; ++i)
    if (owed[i].to == &to && owed[i].query.id == query.id) {
      owed[i].query = query;
      return;
    }
  if (owed_count < kOwed) {
    owed[owed_count].to = &to;
    owed[owed_count].query = query;
    __atomic_store_n(&owed_count, owed_count + 1, __ATOMIC_RELAXED);
  }
}

bool reply(Thread& thread, Peer& to, const Query& query) {
  Work<WorkLeaf> room;
  const size_t bytes = make_answer(query, ledger::world_rank_of(to), room->bytes);
  return ledger::post(thread, to, ledger::Kind::kAnswer, room->bytes, bytes);
}

}  // namespace

size_t make_answer(const Query& query, int32_t asker, char* message) {
  Work<Known> room;
  Known& known = *room;
  history_find(asker, query.ordinal, query.sent, &known);
  Likeness likeness;
  history_search(known, asker, query.sent, query.ordinal, query.received, &likeness);

  Answer answer = {};
  answer.id = query.id;
  answer.concurrent = mode.concurrent;
  answer.history_whole = known.oldest == 1;
  memcpy(answer.host, runtime.host, sizeof(answer.host));
  answer.host[sizeof(answer.host) - 1] = 0;
  const Entry& entry = known.entry;
  answer.found = known.found;
  if (known.found) {
    answer.own = entry.record;
    answer.called = ledger::calls_find(entry.record.comm, entry.record.tag);
  }
  if (!known.found) {
    answer.state = SenderState::kUnknown;
    site_text(query.sent.site, answer.site, sizeof(answer.site));
  } else {
    answer.state = cancel_state(asker, entry, query.received);
    if (answer.state == SenderState::kKnown)
      answer.state = (entry.flags & kVoid) != 0 ? SenderState::kVoid
                     : is_pending(entry)        ? SenderState::kPending
                                                : SenderState::kKnown;
    answer.read_again = (entry.flags & kRead) != 0;
    answer.overwritten = is_overwritten(entry);
    answer.at_end = answer.read_again ? known.at_end : 0;
    answer.known_before = entry.serial - known.oldest;
    site_text(entry.record.site, answer.site, sizeof(answer.site));
  }
  answer.same_total = likeness.total;
  answer.same_earlier = likeness.earlier;
  answer.same_later = likeness.later;
  if (likeness.found) {
    answer.other = likeness.best.record;
    answer.other_ordinal = likeness.best.ordinal;
    answer.other_peer = likeness.best.peer;
    site_text(likeness.best.record.site, answer.other_site, sizeof(answer.other_site));
  }
  answer.copy_bytes = static_cast<uint16_t>(known.content.bytes);
  answer.window = query.window;
  answer.leaf_count = static_cast<uint16_t>(known.content.leaves);
  size_t used = sizeof(Answer);
  memcpy(message + used, known.content.leaf, answer.leaf_count * sizeof(uint64_t));
  used += answer.leaf_count * sizeof(uint64_t);
  if (query.window < known.content.bytes) {
    const uint32_t left = known.content.bytes - query.window;
    answer.window_bytes = left < kWindow ? left : kWindow;
    memcpy(message + used, known.content.data + query.window, answer.window_bytes);
  } else if (query.window >= kKeptBytes) {
    answer.window_bytes = history.rest.get(known.rest, query.window, kWindow, message + used);
  }
  memcpy(message, &answer, sizeof(answer));
  return used + answer.window_bytes;
}

void on_query(Thread& thread, Peer& from, const void* payload, size_t bytes) {
  if (bytes != sizeof(Query)) return;
  Query query;
  memcpy(&query, payload, sizeof(query));
  answer_owed(thread);  // in their order
  if (!reply(thread, from, query)) owe(from, query);
}

bool answers_owed() { return __atomic_load_n(&owed_count, __ATOMIC_RELAXED) != 0; }

void answer_owed(Thread& thread) {
  for (;;) {
    Owed next;
    {
      Guard guard(lock);
      if (owed_count == 0) return;
      next = owed[0];
    }
    if (!reply(thread, *next.to, next.query)) return;
    Guard guard(lock);
    for (uint32_t i = 0; i < owed_count; ++i)
      if (owed[i].to == next.to && owed[i].query.id == next.query.id) {
        owed[i] = owed[owed_count - 1];
        __atomic_store_n(&owed_count, owed_count - 1, __ATOMIC_RELAXED);
        break;
      }
  }
}

}  // namespace resil::blame
