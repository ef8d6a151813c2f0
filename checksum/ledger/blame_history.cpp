// SPDX-License-Identifier: Apache-2.0
//
// What this process announced last: a ring of 8,192 packets, one cache line each. With RESIL_BLAME=full also the digest
// that each send buffer had at completion and a copy of the packet's start.
//
// sent() is on the way of every message: one line is stored, nothing is looked for. All else happens when a packet was
// wrong. The lock is there under MPI_THREAD_MULTIPLE only; it covers at most a copy of 4.5 KiB, or a search.

#include "checksum/ledger/blame_internal.h"
#include "shim/model/calls.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

History history;

namespace {

SpinLock lock;

Entry* entry_of(uint64_t serial) {
  if (serial == 0 || history.entries == nullptr) return nullptr;
  Entry& entry = history.entries[serial % kHistory];
  return entry.serial == serial ? &entry : nullptr;
}

constexpr uint64_t kOrdinalSlack = 64;

bool same_packet(const Record& a, const Record& b) {
  return a.digest == b.digest && a.bytes == b.bytes && a.comm == b.comm && a.tag == b.tag && a.space == b.space &&
         a.site == b.site;
}

/// How well does another packet explain what arrived? Higher is better.
int rank_of(const Entry& entry, int32_t peer, const Record& sent) {
  if (entry.peer != peer) return 1;
  return entry.record.comm == sent.comm && entry.record.tag == sent.tag && entry.record.space == sent.space ? 3 : 2;
}

/// By now the buffer holds what was received.
bool is_replaced(const Record& record) {
  return class_of(static_cast<CallId>(record.call)) == CallClass::kSendReceiveReplace;
}

/// With a copy, or with other threads.
[[gnu::noinline]] uint64_t sent_slow(int world_rank, uint64_t ordinal, const Record& record, const View& view) {
  if (history.entries == nullptr) return 0;
  if (!mode.full) {
    Guard guard(lock);
    history_write(record, ordinal, ++history.made, world_rank);
    return history.made;
  }
  Work<Content> room;
  Content& content = *room;
  content.bytes = content.leaves = 0;
  Rest rest = {};
  if (view.reason == ledger::Reason::kNone && view.type != nullptr && (record.flags & ledger::kUnchecked) == 0 &&
      !is_replaced(record)) {
    const uint64_t bytes = record.bytes < view.bytes ? record.bytes : view.bytes;
    capture(view, bytes, &content);
    rest = history.rest.put(view, bytes);
  }
  Guard guard(lock);
  history_write(record, ordinal, ++history.made, world_rank);
  history.extras[history.made % kHistory] = {0, history.store.put(content), rest};
  return history.made;
}

}  // namespace

bool history_create() {
  history.made = 0;
  history.entries = memory::map_array<Entry>(kHistory);
  history.extras = mode.full ? memory::map_array<Extra>(kHistory) : nullptr;
  return history.entries != nullptr &&
         (!mode.full || (history.extras != nullptr && history.store.create() && history.rest.create()));
}

uint64_t sent(int world_rank, uint64_t ordinal, const Record& record, const View& view) {
  if (mode.full || mode.concurrent || history.entries == nullptr) [[unlikely]]
    return sent_slow(world_rank, ordinal, record, view);
  return sent_plainly(world_rank, ordinal, record);
}

namespace {

void note_end(uint64_t handle, bool readable, uint64_t at_end) {
  Guard guard(lock);
  Entry* entry = entry_of(handle);
  if (entry == nullptr) return;
  history.extras[handle % kHistory].at_end = at_end;
  entry->flags |= kComplete | (readable ? kRead : 0u);
  const Record& sent = entry->record;
  const uint32_t attributes = sent.call < kCallCount ? call_info(static_cast<CallId>(sent.call)).attributes : 0;
  if (readable && at_end != sent.digest && (sent.flags & ledger::kUnchecked) == 0 && (entry->flags & kVoid) == 0 &&
      (attributes & (kCallStarts | kCallActivates | kCallPersistent)) != 0)
    touch::tell_send(sent.site, sent.call, sent.bytes);
}

}  // namespace

void sent_complete(uint64_t handle, const View& view) {
  if (!mode.full) return;
  uint64_t bytes = 0;
  {
    Guard guard(lock);
    Entry* entry = entry_of(handle);
    if (entry == nullptr) return;
    bytes = entry->record.bytes;
  }
  const bool readable = view.reason == ledger::Reason::kNone && view.type != nullptr && bytes <= view.bytes;
  note_end(handle, readable, readable ? view_digest(view, bytes) : 0);
}

void sent_complete(uint64_t handle, const View& view, uint64_t digest) {
  if (mode.full) note_end(handle, view.reason == ledger::Reason::kNone && view.type != nullptr, digest);
}

void history_void(uint64_t serial, bool is) {
  Guard guard(lock);
  if (Entry* entry = entry_of(serial))
    entry->flags = is ? entry->flags | kVoid : entry->flags & ~static_cast<uint32_t>(kVoid);
}

bool history_entry(uint64_t handle, Entry* entry) {
  Guard guard(lock);
  const Entry* found = entry_of(handle);
  if (found != nullptr) *entry = *found;
  return found != nullptr;
}

bool history_next_is(const Entry& entry, const Record& like) {
  Guard guard(lock);
  for (uint64_t serial = entry.serial + 1; serial <= history.made; ++serial) {
    const Entry& next = history.entries[serial % kHistory];
    if (next.serial == serial && next.peer == entry.peer && next.record.comm == entry.record.comm &&
        next.record.tag == entry.record.tag && next.record.space == entry.record.space && (next.flags & kVoid) == 0)
      return next.record.digest == like.digest && next.record.bytes == like.bytes;
  }
  return false;
}

void history_find(int32_t peer, uint64_t ordinal, const Record& sent, Known* known) {
  known->found = false;
  known->content.bytes = known->content.leaves = 0;
  known->rest = {};
  Guard guard(lock);
  known->oldest = history.made >= kHistory ? history.made - kHistory + 1 : 1;
  // Two threads that announce at once may have the ordinals of their packets interchanged; what the packet is decides.
  uint64_t nearest = 0, best = 0;
  for (uint64_t serial = history.made; serial >= known->oldest && serial != 0; --serial) {
    const Entry& entry = history.entries[serial % kHistory];
    if (entry.peer != peer || !same_packet(entry.record, sent)) continue;
    const uint64_t distance = entry.ordinal > ordinal ? entry.ordinal - ordinal : ordinal - entry.ordinal;
    if (distance != 0 && (!mode.concurrent || distance > kOrdinalSlack)) continue;
    if (best == 0 || distance < nearest) {
      best = serial;
      nearest = distance;
    }
  }
  if (best == 0) return;
  known->found = true;
  known->entry = history.entries[best % kHistory];
  if (mode.full) {
    const Extra& extra = history.extras[best % kHistory];
    known->at_end = extra.at_end;
    known->rest = extra.rest;
    history.store.get(extra.kept, &known->content);
  }
}

void history_search(const Known& known, int32_t peer, const Record& sent, uint64_t ordinal, const Record& received,
                    Likeness* likeness) {
  *likeness = {};
  int best = 0;
  uint64_t nearest = 0;
  Record counted = {};
  Guard guard(lock);
  const uint64_t oldest = history.made >= kHistory ? history.made - kHistory + 1 : 1;
  for (uint64_t serial = history.made; serial >= oldest && serial != 0; --serial) {
    const Entry& entry = history.entries[serial % kHistory];
    if (entry.record.digest != received.digest || entry.record.bytes != received.bytes || (entry.flags & kVoid) != 0 ||
        (entry.record.flags & (ledger::kUnchecked | ledger::kWithdraw)) != 0)
      continue;
    const bool same_stream = entry.peer == peer;
    if (known.found ? serial == known.entry.serial : same_stream && entry.ordinal == ordinal)
      continue;  // the packet itself
    const bool collective = entry.record.space == static_cast<uint8_t>(ledger::Space::kBlock);
    // One buffer for many ranks: one content.
    const bool counted_already =
        collective && likeness->found && counted.comm == entry.record.comm && counted.tag == entry.record.tag;
    counted = entry.record;
    likeness->total += !counted_already;
    // Without the packet itself the streams of other ranks have no order relative to it.
    const bool comparable = known.found || same_stream;
    const bool later = known.found ? serial > known.entry.serial : entry.ordinal > ordinal;
    if (comparable && !counted_already) ++(later ? likeness->later : likeness->earlier);
    const uint64_t here = known.found ? known.entry.serial : history.made;
    const uint64_t distance = serial > here ? serial - here : here - serial;
    const int rank = rank_of(entry, peer, sent);
    if (rank > best || (rank == best && distance < nearest)) {
      best = rank;
      nearest = distance;
      likeness->best = entry;
      likeness->found = true;
    }
  }
}

bool is_overwritten(const Entry& entry) {
  if (entry.record.call >= kCallCount || (call_info(static_cast<CallId>(entry.record.call)).attributes &
                                          (kCallStarts | kCallActivates | kCallPersistent)) != 0)
    return false;
  return is_replaced(entry.record) || (entry.record.space == static_cast<uint8_t>(ledger::Space::kBlock) &&
                                       (entry.flags & kComplete) != 0 && (entry.flags & kRead) == 0);
}

bool history_has(const Record& like) {
  Guard guard(lock);
  if (history.entries == nullptr) return false;
  for (uint64_t serial = history.made; serial != 0 && serial + kHistory > history.made; --serial) {
    const Entry& entry = history.entries[serial % kHistory];
    if (entry.record.digest == like.digest && entry.record.bytes == like.bytes &&
        (entry.record.flags & ledger::kUnchecked) == 0)
      return true;
  }
  return false;
}

}  // namespace resil::blame
