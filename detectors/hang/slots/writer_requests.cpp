// SPDX-License-Identifier: Apache-2.0
//
// The writing side of what belongs to requests: their Pending entries, which requests a call waits for or polls, and
// which messages receives with wildcards took.

#include <cstring>

#include "detectors/hang/slots/signature.h"
#include "detectors/hang/slots/writer.h"
#include "detectors/hang/slots/writer_internal.h"
#include "shim/call/dispatch.h"
#include "shim/call/fast_path.h"
#include "shim/call/runtime.h"

namespace resil::hang {

namespace {

// The word beside a request: bits 0-3 what it is, 4-14 index of its envelope, 17-63 address of its CommInfo.
constexpr uint64_t kWild = 1;  // its status must be read; envelope and communicator are there
constexpr uint64_t kPersistentWord = 2;
constexpr uint64_t kHidden = 4;  // a receive out of the readers' sight
constexpr uint64_t kActiveWord = 8;  // kWild: is pending

uint64_t word_of(const CommInfo& comm, const Envelope& envelope, uint64_t flags) {
  const auto index = static_cast<uint64_t>(&envelope - envelopes.table);
  return reinterpret_cast<uint64_t>(&comm) << 17 | index << 4 | flags;
}
CommInfo& comm_in(uint64_t word) { return *reinterpret_cast<CommInfo*>(word >> 17); }
Envelope& envelope_in(uint64_t word) { return envelopes.table[word >> 4 & (kEnvelopes - 1)]; }

void add(uint64_t& counter, uint64_t value) {
  if (envelopes.concurrent) __atomic_fetch_add(&counter, value, __ATOMIC_RELAXED);
  else __atomic_store_n(&counter, __atomic_load_n(&counter, __ATOMIC_RELAXED) + value, __ATOMIC_RELAXED);
}

void add_wild(uint32_t value) {
  if (envelopes.concurrent) __atomic_fetch_add(&fast::statuses_wanted, value, __ATOMIC_RELAXED);
  else
    __atomic_store_n(&fast::statuses_wanted, __atomic_load_n(&fast::statuses_wanted, __ATOMIC_RELAXED) + value,
                     __ATOMIC_RELAXED);
}

bool receives(Handling handling) {
  return handling == Handling::kPostReceive || handling == Handling::kPostBoth || handling == Handling::kMakeReceive;
}

/// Remembers a receive with a wildcard; false: nobody could tell what it took.
bool follow_wild(Event& e, int32_t peer, int32_t tag, uint64_t flags) {
  if (!can_be_counted(e.comm)) return false;
  const int32_t world = world_of(e.comm, peer);
  Envelope* envelope = world == kUnknownRank ? nullptr : envelope_of(e.comm->ring->id, world, tag);
  if (envelope == nullptr || reinterpret_cast<uint64_t>(e.comm) >> 47 != 0) return false;
  e.cookies[kHangCookie] = word_of(*e.comm, *envelope, flags);
  if (flags & kActiveWord) add_wild(1);
  return true;
}

/// The request has no entry that readers see.
[[gnu::noinline]] void note_hidden(Event& e, const CallMeaning& meaning, bool wild) {
  if (e.attributes & kCallPersistent) return set_irregular(kLostEnvelope);  // nobody will count its messages
  if (!receives(meaning.handling)) return;
  if (wild) return set_irregular(kUnknownSource);
  add(writer.section->hidden_receives, 1);
  e.cookies[kHangCookie] = kHidden;
}

/// Adds a key to those of a run of polls. True: it was not there yet.
bool add_key(Wait& wait, ThreadSlot& slot, uint64_t key) {
  if (slot.cursor >= wait.kept) slot.cursor = 0;
  if (wait.kept != 0 && wait.keys[slot.cursor] == key) [[likely]] {
    ++slot.cursor;
    return false;
  }
  for (uint32_t i = 0; i < wait.kept; ++i)
    if (wait.keys[i] == key) {
      slot.cursor = i + 1;
      return false;
    }
  if (wait.kept == kWaitedKeys) {
    __atomic_store_n(&wait.count, kWaitedKeys + 1, __ATOMIC_RELAXED);
    return true;
  }
  wait.keys[wait.kept] = key;
  slot.cursor = wait.kept + 1;
  __atomic_store_n(&wait.count, wait.kept + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&wait.kept, wait.kept + 1, __ATOMIC_RELEASE);
  return true;
}

void set_flag(Wait& wait, uint8_t flag) {
  __atomic_store_n(&wait.flags, static_cast<uint8_t>(wait.flags | flag), __ATOMIC_RELAXED);
}

[[gnu::always_inline]] inline void add_probe(Wait& wait, Probe wanted) {
  const uint32_t count = wait.probe_count < kProbes ? wait.probe_count : kProbes;
  for (uint32_t i = 0; i < count; ++i)
    if (wait.probes[i].comm == wanted.comm && wait.probes[i].peer == wanted.peer && wait.probes[i].tag == wanted.tag)
      return;
  if (count < kProbes) wait.probes[count] = wanted;
  __atomic_store_n(&wait.probe_count, static_cast<uint8_t>(count + 1), __ATOMIC_RELEASE);
}

void add_tested(Event& e, ThreadSlot& slot, bool first) {
  Wait& wait = *slot.wait;
  uint32_t live = 0, added = 0;
  for (int64_t i = 0; i < e.request_count && live <= kWaitedKeys; ++i) {
    const uint64_t key = request_handle(e.requests, i);
    if (request_is_shared(key)) {
      if (key != shared_requests.null_key) set_flag(wait, kSatisfied);
      continue;
    }
    ++live;
    added += add_key(wait, slot, key);
  }
  const bool all = call_info(e.id).completion == Completion::kAll;
  if (first && all) set_flag(wait, kTestAll);
  else if ((wait.flags & kTestAll) && (!all || added != 0 || live != wait.count))
    __atomic_store_n(&wait.flags, static_cast<uint8_t>(wait.flags & ~kTestAll), __ATOMIC_RELAXED);
}

}  // namespace

void note_pending(Event& e, const CallMeaning& meaning, const Wait& wait) {
  const bool both = meaning.handling == Handling::kPostBoth;
  const bool wild = receives(meaning.handling) && is_wild(both ? e.receive_peer : e.peer, both ? e.receive_tag : e.tag);
  if (e.cookies == nullptr) {  // complete at once, or there is no memory for one more
    if (wild) set_irregular(kUnknownSource);
    return;
  }
  const int64_t index = request_index(e.cookies);
  if (index < 0) [[unlikely]]
    return note_hidden(e, meaning, wild);
  Pending& pending = writer.pending[index];
  pending.peer = wait.peer;
  pending.mode = static_cast<uint8_t>(call_info(e.id).mode);
  pending.flags = pending.both = 0;
  const bool persistent = (e.attributes & kCallPersistent) != 0;
  if (persistent) {
    e.cookies[kHangCookie] = kPersistentWord;
    persistent_made(e);
  }
  switch (meaning.handling) {
    case Handling::kPostSend: pending.ordinal = wait.send_ordinal; return;
    case Handling::kPostBoth:
      pending.ordinal = wait.send_ordinal;
      pending.both = 1;
      pending.receive_tag = wait.receive_tag;
      pending.sequence = uint64_t{static_cast<uint32_t>(wait.receive_peer)} << 32 | wait.receive_ordinal;
      break;
    case Handling::kPostReceive: pending.ordinal = wait.receive_ordinal; break;
    case Handling::kPostMatched:
      pending.peer = ring::kNoPeer;
      pending.ordinal = 0;
      return;
    case Handling::kPostCollective:
    case Handling::kMakeCollective:
      if (!persistent) return ring::keep_collective(pending, wait, wait.sequence);
      ring::keep_collective(pending, wait, 0, wait.sequence <= INT32_MAX ? static_cast<int32_t>(wait.sequence) : 0);
      return add(writer.section->persistent_collectives, 1);
    default:  // persistent messages
      pending.ordinal = 0;
      pending.receive_tag = static_cast<int32_t>(message_type(e, receives(meaning.handling) ? e.receive : e.send));
      break;
  }
  if (wild && !follow_wild(e, both ? e.receive_peer : e.peer, both ? e.receive_tag : e.tag,
                           persistent ? kWild | kPersistentWord : kWild | kActiveWord | (both ? kHidden : 0)))
    set_irregular(kUnknownSource);
}

void writer_activated(Event& e, uint64_t* cookie) {
  if (writer.section == nullptr || class_of(e.id) != CallClass::kStart) return;
  const int64_t index = request_index(cookie - kHangCookie);
  if (index < 0) return;
  const ring::Request& entry = runtime.requests[index];
  Pending& pending = writer.pending[index];
  if (entry.kind == static_cast<uint8_t>(ring::RequestKind::kCollective)) {
    bump(pending.sequence);
    return;
  }
  pending.ordinal = 0;
  if (entry.comm < 2 || (pending.peer < 0 && pending.peer != ring::kAnySource)) return;
  const bool receive = entry.kind == static_cast<uint8_t>(ring::RequestKind::kReceive);
  Envelope* envelope =
      *cookie & kWild ? &envelope_in(*cookie) : envelope_of(runtime.comms[entry.comm].id, pending.peer, entry.tag);
  if (envelope == nullptr) return;
  const uint64_t number = count_one(receive ? envelope->posted : envelope->sent);
  note_type(*envelope, !receive, static_cast<uint32_t>(pending.receive_tag));
  if (counts_exactly(*envelope)) pending.ordinal = static_cast<uint32_t>(number);
  if (*cookie & kWild) {
    *cookie |= kActiveWord;
    add_wild(1);
  }
}

void writer_completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  const uint64_t word = *cookie;
  if (word == kHidden) return add(writer.section->hidden_receives, ~uint64_t{0});
  if ((word & (kWild | kActiveWord)) != (kWild | kActiveWord)) return;
  *cookie = word & ~kActiveWord;
  add_wild(~0u);
  if (freed) return set_irregular(kCancelled);
  CommInfo& comm = comm_in(word);
  Envelope& wild = envelope_in(word);
  if (!can_be_counted(&comm) || comm.ring->id != wild.comm)
    return set_irregular(kUnknownSource);  // the communicator was freed meanwhile
  took(comm, &wild, e.given_statuses, place, (word & kHidden) != 0);
}

Envelope* took(CommInfo& comm, Envelope* wild, const void* statuses, int64_t place, bool both_ways) {
  StatusInfo status = {};
  if (!status_glance(statuses, place, &status.source, &status.tag, &status.bytes)) {
    if (statuses == nullptr || backend->messages == nullptr || backend->messages->status_ignored(statuses))
      return set_irregular(kUnknownSource), nullptr;
    backend->messages->status_read(statuses, place, &status);
  }
  if (wild != nullptr) count_one(wild->told);
  // A probe cannot be cancelled; MPICH 4.0 leaves that bit of its status as it was.
  if ((wild != nullptr && status.cancelled) || status.source == ring::kProcNull) return nullptr;
  // MPICH 4.0 leaves the status of MPI_Isendrecv empty.
  const int32_t world =
      status.source >= 0 && !(both_ways && status.bytes == 0) ? world_of(&comm, status.source) : kUnknownRank;
  if (world < 0) return set_irregular(kUnknownSource), nullptr;
  Envelope* envelope = envelope_of(comm.ring->id, world, status.tag);
  if (envelope == nullptr) return nullptr;
  count_one(envelope->taken);
  if (status.bytes == 0) return nullptr;
  if (wild != nullptr) note_type(*envelope, false, __atomic_load_n(&wild->types.posted, __ATOMIC_RELAXED));
  return envelope;
}

void freeing(Event& e) {
  const uint64_t key = request_handle(e.requests, 0);
  const uint64_t* words = request_cookies(*e.thread, key);
  const int64_t index = words != nullptr ? request_index(words) : -1;
  if (index < 0) return;
  const ring::Request& entry = runtime.requests[index];
  if ((entry.flags & ring::kActive) && entry.kind == static_cast<uint8_t>(ring::RequestKind::kReceive))
    set_irregular(kCancelled);  // its message will come, and nobody will be told
}

namespace {

template <class Handle>
void keep(Event& e, Wait& wait) {
  auto* handles = static_cast<const Handle*>(e.requests);
  const uint64_t null_key = shared_requests.null_key, empty_key = shared_requests.empty_key,
                 first = backend->shared_first, span = backend->shared_span;
  uint32_t kept = 0, count = 0;
  uint8_t flags = 0;
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t key = handles[i];
    if (key == null_key) continue;
    if (key == empty_key || key - first < span) {
      flags = kSatisfied;
      continue;
    }
    count = kept + 1;
    if (kept == kWaitedKeys) break;
    wait.keys[kept++] = key;
  }
  wait.count = count;
  wait.kept = kept;
  wait.flags = flags;
}

}  // namespace

void keep_keys(Event& e, Wait& wait) { writer.handle_bytes == 4 ? keep<uint32_t>(e, wait) : keep<uint64_t>(e, wait); }

void poll_enter(Event& e, ThreadSlot& slot, Handling handling) {
  Wait& wait = *slot.wait;
  const uint64_t run = kRun | wait.steps;
  const bool first = wait.instance != run;
  if (first) {
    wait_begin(wait);
    wait.count = wait.kept = 0;
    wait.probe_count = 0;
    wait.flags = 0;
    slot.cursor = 0;
  }
  if (handling == Handling::kTest) {
    add_tested(e, slot, first);
    if ((e.attributes & kCallCompletes) && __atomic_load_n(&fast::statuses_wanted, __ATOMIC_RELAXED) != 0)
      give_statuses(e);
  } else if (handling == Handling::kProbePoll) {
    add_probe(wait, {e.comm != nullptr ? e.comm->ring->id : 0, world_of(e.comm, e.peer), e.tag});
    if (class_of(e.id) == CallClass::kMatchedProbe) give_statuses(e);
  } else if (Probe probe; handling == Handling::kSyncPoll && sync_polled(e, &probe)) {
    add_probe(wait, probe);
  } else {
    set_flag(wait, kUnjudged);
  }
  if (first) wait_publish(wait, run);
}

void poll_leave(Event& e, Wait& wait) {
  const int* told = e.flag != nullptr ? e.flag : e.outcount;
  if (e.result == 0 && told != nullptr && *told == 0) bump(wait.polls);
  else bump(wait.steps);
}

}  // namespace resil::hang
