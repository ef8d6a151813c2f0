// SPDX-License-Identifier: Apache-2.0
//
// Pending requests: what must be read when they are complete, and which number they have in the recording. Ends of
// sends are not recorded: nothing comes of them, and whether one is complete at once differs from run to run.

#include <cstring>

#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/model/calls.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/pool.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/tables.h"

namespace resil::record {

namespace {

memory::Pool<Entry, &Entry::next_free, 256, 1u << 20> entries;
SpinLock entries_lock;

constexpr View kNoView = {nullptr, 0, nullptr, 0, Reason::kNone};

Entry* take(const Event& e, const PerThread& t, Entry::Kind kind, uint64_t ordinal) {
  Entry* entry;
  {
    SpinGuard guard(entries_lock);
    entry = entries.allocate();
  }
  if (entry == nullptr) return nullptr;
  entry->view = kNoView;
  entry->ordinal = ordinal;
  entry->site = e.site;
  entry->comm = e.comm_handle != 0 ? e.comm : nullptr;
  entry->substitute = nullptr;
  entry->comm_id = entry->comm != nullptr ? entry->comm->ring->id : 0;
  entry->stream = t.stream_id;
  entry->source = e.attributes & kCallBothWays ? e.receive_peer : e.peer;
  entry->tag = e.attributes & kCallBothWays ? e.receive_tag : e.tag;
  entry->id = e.id;
  entry->kind = kind;
  entry->persistent = (e.attributes & kCallPersistent) != 0;
  entry->active = !entry->persistent;
  entry->wild = kind == Entry::kReceive && (data_flow_of(e.id) & kMatches) && is_wild(entry->source, entry->tag);
  entry->forced = entry->held = entry->gives_any = entry->takes_any = entry->unread = false;
  return entry;
}

/// For what is read when the operation ends. MPI wants arrays of counts left as they are until then (MPI 4.0 section
/// 6.12), but the libraries copy them, and programs free them at once.
void hold(Entry& entry) {
  if (entry.kind != Entry::kCollective) {
    if (entry.view.type != nullptr) type_map_hold(entry.view.type);
    return;
  }
  if (entry.takes_any && !flat_keep(&entry.layout)) entry.takes_any = false, entry.unread = true;
  if (entry.gives_any && !flat_keep(&entry.gives)) entry.gives_any = false, entry.unread = true;
}

void let_go(Entry& entry) {
  if (entry.kind != Entry::kCollective) {
    if (entry.view.type != nullptr) type_map_release(entry.view.type);
    return;
  }
  if (entry.takes_any) flat_drop(&entry.layout);
  if (entry.gives_any) flat_drop(&entry.gives);
}

/// What a nonblocking or persistent collective reads and fills. Arrays of datatypes may be the language binding's.
bool fill_collective(Event& e, Entry& entry) {
  const CallInfo& info = call_info(e.id);
  entry.takes_any = flat_received(e, &entry.layout);
  if (entry.persistent)  // each start reads it anew: but for reductions, not what the last start has overwritten
    entry.gives_any = flat_sent(e, &entry.gives) && (!entry.gives.in_place || is_reduction(info.collective));
  if (info.counts == resil::Counts::kTyped) entry.takes_any = entry.gives_any = false, entry.unread = true;
  return entry.takes_any || entry.gives_any || entry.unread;
}

void note(PerThread& t, Entry& entry) {
  if (!memory::grow_array(&t.noted, &t.noted_room, t.noted_count + 1, 512u)) return;
  t.noted[t.noted_count++] = &entry;
}

bool has_status(const Event& e) {
  return e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
}

}  // namespace

std::atomic<uint32_t> forced_pending;

void entry_release(Entry* entry) {
  if (entry->held) let_go(*entry);
  if (entry->substitute != nullptr) substitute_drop(*entry);
  SpinGuard guard(entries_lock);
  entries.release(entry);
}

void follow(Event& e, PerThread& t, Call& call) {
  const uint16_t is = data_flow_of(e.id);
  Entry::Kind kind;
  if (is & kCollects) kind = Entry::kCollective;
  else if (is & kTakes) kind = e.attributes & kCallP2P ? Entry::kReceive : Entry::kData;
  else if ((is & kGives) && (e.attributes & kCallPersistent)) kind = Entry::kSend;
  else return;
  if (e.cookies == nullptr && (kind != Entry::kCollective || e.request_key != 0))
    return;  // complete at once, without data; or the request table is full
  Entry* entry = take(e, t, kind, call.ordinal);
  if (entry == nullptr) {
    counts.unread += 1;
    return;
  }
  if (kind == Entry::kSend) {
    entry->view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
    entry->unread = (e.attributes & kCallPartitioned) != 0;  // partitions become ready one by one
  } else if (kind == Entry::kCollective) {
    if (!fill_collective(e, *entry)) return entry_release(entry);
  } else {
    entry->view = receive_view(e);
  }
  if (e.cookies == nullptr) {  // a collective that was complete at once
    Completion completion;
    describe_completion(e, 0, false, *entry, &completion);
    if (mode.recording) t.stream->completion(completion);
    else verify_completion(e, t, call, *entry, completion);
    return entry_release(entry);
  }
  entry->forced = call.forced;
  if (entry->forced) forced_pending.fetch_add(1, std::memory_order_relaxed);
  hold(*entry);
  entry->held = true;
  substitute_prepare(e, *entry);
  e.cookies[kCookie] = reinterpret_cast<uint64_t>(entry);
}

void request_activating(Event& e, PerThread& t, Entry& entry) {
  if (class_of(e.id) != CallClass::kStart) return;
  if (!mode.recording) note(t, entry);
  if (mode.live) return;
  Value value = {0, ValueType::kNone, entry.unread};
  if (entry.kind == Entry::kSend && !entry.unread && entry.source >= 0) value = read_view(entry.view, entry.view.bytes);
  else if (entry.kind == Entry::kCollective && entry.gives_any) value = read_blocks(e, entry.gives);
  if (value.unread) t.starting_unread = true;
  if (value.type == ValueType::kNone) return;
  t.starting = mix64(t.starting ^ mix64(value.bits + 1));
  t.starting_any = true;
}

void request_activated(PerThread& t, Call& call, Entry& entry) {
  const uint64_t first = mode.recording ? t.stream->next_ordinal() : call.ordinal;
  entry.ordinal = first + call.told++;
  entry.stream = t.stream_id;
  entry.active = true;
}

void describe_completion(Event& e, int64_t place, bool freed, Entry& entry, Completion* c) {
  *c = {entry.ordinal, 0, 0, entry.stream, 0, 0, ValueType::kNone, 0};
  if (freed) {
    c->flags = kCompletionFreed;
    if (entry.wild) {  // what it will get is not known: verify leaves the choice to MPI
      c->flags |= kCompletionMatch;
      c->source = c->tag = -1;
    }
    return;
  }
  StatusInfo status = {};
  const bool seen = has_status(e);
  if (seen) backend->messages->status_read(e.given_statuses, place, &status);
  // No program may cancel these. Open MPI 4.1 says at times that an MPI_File_iread_at was (a field left unset, it
  // seems).
  if (call_info(entry.id).attributes & (kCallRma | kCallIo)) status.cancelled = false;
  ErrorKind error = ErrorKind::kNone;
  if (e.result != 0) {
    error = backend->messages->error_kind(e.result);
    if (error == ErrorKind::kInStatus) error = seen ? backend->messages->error_kind(status.error) : ErrorKind::kOther;
  }
  if (error != ErrorKind::kNone) c->flags |= kCompletionFailed;
  Value value = {0, ValueType::kNone, entry.unread};
  if (entry.kind == Entry::kCollective) {
    if (error == ErrorKind::kNone && entry.takes_any) value = read_blocks(e, entry.layout);
  } else if (seen && status.cancelled) {
    c->flags |= kCompletionCancelled | (entry.wild ? kCompletionMatch : 0);
    c->source = c->tag = 0;
  } else if (entry.kind != Entry::kSend && entry.source != ring::kProcNull) {
    if (!seen) {
      value.unread = true;
    } else {
      if (entry.wild) {
        c->flags |= kCompletionMatch;
        c->source = status.source;
        c->tag = status.tag;
      }
      // MPICH 4.0 leaves the status of MPI_Isendrecv empty.
      const bool empty = (call_info(entry.id).attributes & kCallBothWays) && status.bytes == 0;
      const bool all = (call_info(entry.id).attributes & kCallRma) != 0;
      const uint64_t bytes = all ? entry.view.bytes : status.bytes;
      if (empty || error != ErrorKind::kNone) value.unread = entry.view.bytes != 0;
      else value = read_view(entry.view, bytes);
      if (bytes != entry.view.bytes && !empty) {
        c->flags |= kCompletionBytes;
        c->bytes = bytes;
      }
    }
  }
  c->digest = value.bits;
  c->type = value.type;
  if (value.unread) c->flags |= kCompletionUnread;
}

}  // namespace resil::record
