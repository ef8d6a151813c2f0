// SPDX-License-Identifier: Apache-2.0
//
// Verify: call by call against the recording. What a call gives is compared before it leaves this rank, what it got
// right after it.

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/record/callers.h"
#include "checksum/record/divergence.h"
#include "checksum/record/messages.h"
#include "checksum/record/sites.h"
#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/call/site_text.h"
#include "shim/call/thread.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::record {

namespace {

void number_text(const char* what, int32_t value, char* text, size_t bytes) {
  const char* name = value == ring::kAnySource  ? "any"
                     : value == ring::kProcNull ? "null"
                     : value == ring::kRootSelf ? "root"
                                                : nullptr;
  const size_t used = strlen(text);
  if (value == ring::kNoPeer) return;
  if (name != nullptr) snprintf(text + used, bytes - used, " %s %s", what, name);
  else snprintf(text + used, bytes - used, " %s %d", what, value);
}

/// "MPI_Send rank 1 tag 7, 800 bytes, at app+0x1234".
void call_text(const CallRecord& record, const char* name, const char* site, char* text, size_t bytes) {
  snprintf(text, bytes, "%s", name);
  number_text("rank", record.peer, text, bytes);
  number_text("tag", record.tag, text, bytes);
  const size_t used = strlen(text);
  snprintf(text + used, bytes - used, ", %" PRIu64 " bytes, comm %" PRIx64 ", at %s", record.bytes, record.comm, site);
}

void found_text(const CallRecord& record, char* text, size_t bytes) {
  char site[112];
  site_text(record.site, site, sizeof(site));
  call_text(record, call_info(static_cast<CallId>(record.call)).name, site, text, bytes);
}

void recorded_text(const Cursor& cursor, const CallRecord& record, char* text, size_t bytes) {
  const SiteName name = cursor.site();
  const char* slash = strrchr(name.object, '/');
  char site[112];
  snprintf(site, sizeof(site), "%.60s+0x%" PRIx64, slash != nullptr ? slash + 1 : name.object, name.offset);
  call_text(record, cursor.call_name(), site, text, bytes);
}

bool same_call(const CallRecord& then, const CallRecord& now) {
  return then.call == now.call && then.comm == now.comm && then.peer == now.peer && then.tag == now.tag &&
         (then.site == now.site || then.site == 0);
}

/// Not a part of the call before it.
bool stands_alone(const Item& item) {
  return item.kind == ItemKind::kCall || (item.kind == ItemKind::kLogged && item.logged != LoggedKind::kTime);
}

/// A difference in the call itself: nothing can take the place of it.
void other_way(const Event* e, PerThread& t, const Call* call, const Difference& d) { diverged(e, t, call, d); }

std::atomic<bool> early_end;

/// The recording ends here without the program's doing.
void end_of_recording(PerThread& t) {
  add_note_format(messages::record::stream_ends, t.stream_id, t.cursor->number(), recording.end_text());
  recording_ended();
  end_of_comparing(t);
}

/// The next item that is not a remark; the recording's end is dealt with here. Null: nothing more to compare.
const Item* next_item(const Event* e, PerThread& t, const Call* call) {
  const Item* item;
  for (;;) {
    switch (t.cursor->peek(&item)) {
      case Reading::kItem: break;
      case Reading::kEnd: {
        Difference d = difference(What::kEnd);
        snprintf(d.expected_text, sizeof(d.expected_text), "the recorded thread makes no further call");
        if (call != nullptr) found_text(call->now, d.found_text, sizeof(d.found_text));
        diverged(e, t, call, d);
        return nullptr;
      }
      case Reading::kCut: end_of_recording(t); return nullptr;
      case Reading::kDamaged:
        log_format(messages::record::damaged, t.cursor->problem());
        add_note_format(messages::record::damaged, t.cursor->problem());
        recording_ended();
        end_of_comparing(t);
        return nullptr;
    }
    if (item->kind != ItemKind::kText) return item;
    Item skipped;
    t.cursor->next(&skipped);
  }
}

/// What MPI chose in the recorded call, which follows it.
void take_outcome(PerThread& t, Call& call) {
  const Item* item;
  Item taken;
  bool open = false;
  Reading reading;
  call.outcome.what = 0;
  call.indices = 0;
  call.listed = false;
  while ((reading = t.cursor->peek(&item)) == Reading::kItem) {
    if (item->kind == ItemKind::kOutcome) {
      call.outcome = item->outcome;
    } else if (item->kind == ItemKind::kIndices && (open || !call.listed)) {
      if (!memory::grow_array(&t.indices, &t.index_room, call.indices + item->indices, 1024u)) return;
      memcpy(t.indices + call.indices, item->index_list, item->indices * sizeof(int32_t));
      call.indices += item->indices;
      call.listed = true;
      open = item->indices == kMaxIndices;
    } else if (item->kind != ItemKind::kText) {
      return;
    }
    t.cursor->next(&taken);
  }
  if (reading == Reading::kCut || reading == Reading::kDamaged) {
    end_of_recording(t);  // the call's own outcome may be missing
    call.known = false;
  }
}

/// The program asked less often for the time than in the recorded run.
void skip_times(PerThread& t) {
  const Item* item;
  while (t.cursor->peek(&item) == Reading::kItem && item->kind == ItemKind::kTime) t.cursor->skip();
}

/// Is this poll one of the recorded run that found nothing?
bool in_failing_run(const Event& e, PerThread& t, Call& call) {
  if (t.run_left == 0) {
    if (!(e.attributes & kCallPoll)) return false;
    skip_times(t);
    const Item* item;
    if (t.cursor->peek(&item) != Reading::kItem || item->kind != ItemKind::kCall || !(item->call.flags & kCallPolls) ||
        !same_call(item->call, call.now))
      return false;
    Item taken;
    t.cursor->next(&taken);
    t.run = taken.call;
    t.run_left = taken.call.count;
  }
  if (!same_call(t.run, call.now) || t.run_left == 0) return false;
  t.run_left -= 1;
  counts.failing_polls += 1;
  call.fails = true;
  return true;
}

/// Takes the recorded call that this one should be.
void take_call(Event& e, PerThread& t, Call& call) {
  const Item* item;
  Item taken;
  if (t.run_left != 0) {
    Difference d = difference(What::kCall);
    snprintf(d.expected_text, sizeof(d.expected_text), "%u further calls of %s that find nothing", t.run_left,
             t.cursor->call_name());
    found_text(call.now, d.found_text, sizeof(d.found_text));
    return other_way(&e, t, &call, d);
  }
  while ((item = next_item(&e, t, &call)) != nullptr && !stands_alone(*item)) {
    counts.unmatched += item->kind == ItemKind::kCompletion;  // e.g. of requests beyond the request table
    t.cursor->next(&taken);
  }
  if (item == nullptr) return;
  if (item->kind == ItemKind::kLogged) {
    Difference d = difference(What::kCall);
    snprintf(d.expected_text, sizeof(d.expected_text), "the program logs \"%.60s\"", item->text);
    found_text(call.now, d.found_text, sizeof(d.found_text));
    return other_way(&e, t, &call, d);
  }
  if ((item->call.flags & kCallNested) && !e.nested && !call.late) {
    call.late = true;  // a callback's calls stand before the call that calls back
    return;
  }
  t.cursor->next(&taken);
  call.then = taken.call;
  call.ordinal = taken.ordinal;
  call.number = taken.number;
  call.known = true;
  if (!same_call(call.then, call.now) || call.then.bytes != call.now.bytes) {
    Difference d = difference(What::kCall);
    recorded_text(*t.cursor, call.then, d.expected_text, sizeof(d.expected_text));
    found_text(call.now, d.found_text, sizeof(d.found_text));
    if (call.then.flags & kCallPolls)
      snprintf(d.expected_text, sizeof(d.expected_text), "%u calls of %s that find nothing", call.then.count,
               t.cursor->call_name());
    return other_way(&e, t, &call, d);
  }
  take_outcome(t, call);
}

void compare_input(Event& e, PerThread& t, Call& call) {
  if (e.attributes & kCallActivates) {
    put(call.now, {t.starting, t.starting_any ? ValueType::kDigest : ValueType::kNone, t.starting_unread}, true);
  } else if ((data_flow_of(e.id) & (kGives | kCollects | kBlind)) && !(e.attributes & kCallPersistent)) {
    put(call.now, input_of(e), true);
  }
  if ((call.now.flags | call.then.flags) & kCallUnread) return;
  bool doubted = false;
  if (call.now.in_type != ValueType::kNone) {
    counts.values += 1;
    doubted = site_compared(e.site);
  }
  if (call.now.in == call.then.in && call.now.in_type == call.then.in_type) {
    if (doubted) [[unlikely]]
      callers_agree(e);
    return;
  }
  Difference d = difference(What::kOutput);
  d.expected = call.then.in, d.expected_type = call.then.in_type;
  d.found = call.now.in, d.found_type = call.now.in_type;
  if (diverged(&e, t, &call, d) && d.expected_type == d.found_type &&
      give_recorded(e, d.expected_type, d.expected, &call.given))
    counts.from_recording += 1;
  else went_on();
}

int32_t world_rank(CommInfo* comm, int32_t rank) {
  return comm != nullptr && rank >= 0 ? comm_world_rank(*comm, rank) : -1;
}

void choice_text(const Outcome& outcome, char* text, size_t bytes) {
  snprintf(text, bytes, "%s", outcome.what & kOutcomeFlag ? outcome.flag ? "flag true" : "flag false" : "");
  if (outcome.what & kOutcomeIndex) snprintf(text + strlen(text), bytes - strlen(text), " index %d", outcome.index);
  if (outcome.what & kOutcomeMatch)
    snprintf(text + strlen(text), bytes - strlen(text), " source %d tag %d", outcome.source, outcome.tag);
  if (outcome.what & kOutcomeBytes)
    snprintf(text + strlen(text), bytes - strlen(text), " %" PRIu64 " bytes", outcome.bytes);
}

bool same_choice(const Outcome& a, const Outcome& b) {
  return a.what == b.what && (!(a.what & kOutcomeFlag) || a.flag == b.flag) &&
         (!(a.what & kOutcomeIndex) || a.index == b.index) &&
         (!(a.what & kOutcomeMatch) || (a.source == b.source && a.tag == b.tag)) &&
         (!(a.what & kOutcomeBytes) || a.bytes == b.bytes);
}

/// A value that came differs: was it replaced by the recorded one?
void take_in(bool replaced) {
  if (replaced) counts.from_recording += 1;
  else diverged_input_stays();
}

/// Return code, MPI's choices, and what came.
void compare_result(Event& e, PerThread& t, Call& call) {
  Outcome now;
  const uint16_t given = call.now.flags;
  finish_record(e, &call.now, &now, &call.then);
  if ((call.now.flags ^ call.then.flags) & kCallFailed) {
    Difference d = difference(What::kResult);
    snprintf(d.expected_text, sizeof(d.expected_text), "the call %s",
             call.then.flags & kCallFailed ? "fails" : "succeeds");
    snprintf(d.found_text, sizeof(d.found_text), "return code %d", e.result);
    return other_way(&e, t, &call, d);
  }
  if (call.now.flags & kCallUnread & ~given) counts.unread += 1;
  const int64_t indices = given_indices(e);
  const bool listed = indices >= 0;
  if (!same_choice(call.outcome, now) || listed != call.listed ||
      (listed && (indices != call.indices || memcmp(e.indices, t.indices, call.indices * sizeof(int)) != 0))) {
    const bool length_only = now.what == call.outcome.what && (now.what & kOutcomeBytes);
    Difference d = difference(length_only ? What::kInput : What::kChoice);
    choice_text(call.outcome, d.expected_text, sizeof(d.expected_text));
    choice_text(now, d.found_text, sizeof(d.found_text));
    if (listed || call.listed) {
      snprintf(d.expected_text, sizeof(d.expected_text), "%u requests complete", call.indices);
      snprintf(d.found_text, sizeof(d.found_text), "%d requests complete, or others", static_cast<int>(indices));
    }
    return other_way(&e, t, &call, d);
  }
  const bool readable = !((call.now.flags | call.then.flags) & kCallUnread);
  bool doubted = false;
  if (call.now.out_type != ValueType::kNone && readable) {
    counts.values += 1;
    doubted = site_compared(e.site);
    counts.messages += (data_flow_of(e.id) & kTakes) != 0 && (e.attributes & kCallP2P) != 0;
  }
  if (!readable || (call.now.out == call.then.out && call.now.out_type == call.then.out_type)) {
    if (doubted) [[unlikely]]
      callers_agree(e);
    return;
  }
  Difference d = difference(What::kInput);
  d.expected = call.then.out, d.expected_type = call.then.out_type;
  d.found = call.now.out, d.found_type = call.now.out_type;
  if (data_flow_of(e.id) & kMatches)
    d.source = world_rank(e.comm, now.what & kOutcomeMatch       ? now.source
                                  : e.attributes & kCallBothWays ? e.receive_peer
                                                                 : e.peer);
  take_in(diverged(&e, t, &call, d) && d.expected_type == d.found_type &&
          take_recorded(e, d.expected_type, d.expected));
}

}  // namespace

/// Its receives from any source take what comes, and what it sends to ranks whose recordings go on may differ without
/// anybody's fault.
void end_of_comparing(PerThread& t) {
  early_end.store(true, std::memory_order_relaxed);
  t.over = true;
  went_on();
}

bool ended_early() { return early_end.load(std::memory_order_relaxed); }

void verify_enter(Event& e, PerThread& t, Call& call) {
  call.known = call.late = call.fails = call.forced = false;
  call.told = 0;
  if (t.over) return;
  describe(e, call);
  if (in_failing_run(e, t, call)) return;
  take_call(e, t, call);
  if (t.over) return;
  if (call.known || call.late) {
    if (call.late) {
      // Its input may be overwritten: read now, compared when the record is there.
      put(call.now, input_of(e), true);
      return;
    }
    compare_input(e, t, call);
  }
}

void verify_leave(Event& e, PerThread& t, Call& call) {
  if (t.over || call.fails) return;
  if (call.late) {
    const CallRecord now = call.now;
    take_call(e, t, call);
    if (t.over || !call.known) return;
    if (!((now.flags | call.then.flags) & kCallUnread) &&
        (now.in != call.then.in || now.in_type != call.then.in_type)) {
      Difference d = difference(What::kOutput);
      d.expected = call.then.in, d.expected_type = call.then.in_type;
      d.found = now.in, d.found_type = now.in_type;
      diverged(&e, t, &call, d);
      went_on();
    }
  }
  if (!call.known) return;
  compare_result(e, t, call);
  counts.calls += 1;
  if (call.then.flags & kCallUnforced) counts.unforced += 1;
  if (call.now.flags & kCallUnread) counts.unread += 1;
  t.last = {call.number, e.site, e.id};
}

void verify_completion(Event& e, PerThread& t, Call& call, const Entry& entry, const Completion& now) {
  if (t.over || !call.known) return;
  const Item* item;
  Item taken;
  for (;;) {
    const Reading reading = t.cursor->peek(&item);
    if (reading == Reading::kCut || reading == Reading::kDamaged) return end_of_recording(t);
    if (reading != Reading::kItem || (item->kind != ItemKind::kCompletion && item->kind != ItemKind::kText)) {
      counts.unmatched += 1;
      return;
    }
    t.cursor->next(&taken);
    if (taken.kind == ItemKind::kText) continue;
    const uint32_t stream = taken.completion.stream != 0 ? taken.completion.stream : t.stream_id;
    if (taken.completion.ordinal == now.ordinal && stream == now.stream) break;
    counts.unmatched += 1;
  }
  const Completion& then = taken.completion;
  counts.completions += 1;
  if (now.flags & kCompletionUnread) counts.unread += 1;
  constexpr uint8_t kMeans = kCompletionCancelled | kCompletionFailed | kCompletionFreed;
  const bool bytes_differ = (then.flags & kCompletionBytes) != (now.flags & kCompletionBytes) ||
                            ((then.flags & kCompletionBytes) && then.bytes != now.bytes);
  const bool matched = (then.flags & now.flags & kCompletionMatch) != 0;
  const bool match_differs = matched && (then.source != now.source || then.tag != now.tag);
  const int32_t source = now.flags & kCompletionMatch ? now.source : entry.source;
  const bool known = entry.kind == Entry::kReceive && entry.comm != nullptr && entry.comm->ring->id == entry.comm_id;
  CommInfo* comm = known ? entry.comm : nullptr;
  if (((then.flags ^ now.flags) & kMeans) || bytes_differ || match_differs) {
    Difference d = difference(((then.flags ^ now.flags) & kMeans) || match_differs ? What::kChoice : What::kInput);
    d.source = world_rank(comm, source);
    const auto text = [](const Completion& c, char* to, size_t room) {
      snprintf(to, room, "request %" PRIu64 "%s%s, source %d, tag %d, %s %" PRIu64, c.ordinal,
               c.flags & kCompletionCancelled ? " cancelled" : "", c.flags & kCompletionFailed ? " failed" : "",
               c.source, c.tag, c.flags & kCompletionBytes ? "bytes" : "all bytes;", c.bytes);
    };
    text(then, d.expected_text, sizeof(d.expected_text));
    text(now, d.found_text, sizeof(d.found_text));
    return other_way(&e, t, &call, d);
  }
  if (now.type != ValueType::kNone && !((then.flags | now.flags) & (kCompletionUnread | kCompletionFailed))) {
    counts.values += 1;
    site_compared(e.site);
    counts.messages += entry.kind == Entry::kReceive;
  }
  if (((then.flags | now.flags) & (kCompletionUnread | kCompletionFailed)) ||
      (then.type == now.type && then.digest == now.digest))
    return;
  Difference d = difference(What::kInput);
  d.expected = then.digest, d.expected_type = then.type;
  d.found = now.digest, d.found_type = now.type;
  d.source = world_rank(comm, source);
  bool replaced = diverged(&e, t, &call, d) && then.type == now.type;
  if (replaced && entry.kind == Entry::kReceive) replaced = write_value(entry.view, then.type, then.digest);
  else if (replaced && entry.kind == Entry::kCollective)
    replaced = write_value(only_block(e, entry.layout), then.type, then.digest);
  else replaced = false;
  take_in(replaced);
}

void verify_logged(PerThread& t, LoggedKind kind, const char* name, ValueType type, uint64_t bits) {
  if (t.over) return;
  const Item* item;
  Item taken;
  while ((item = next_item(nullptr, t, nullptr)) != nullptr && !stands_alone(*item)) {
    counts.unmatched += item->kind == ItemKind::kCompletion;
    t.cursor->next(&taken);
  }
  if (item == nullptr) return;
  Difference d = difference(What::kLogged);
  if (item->kind != ItemKind::kLogged || item->logged != kind || strncmp(item->text, name, kMaxName - 1) != 0) {
    d.what = What::kCall;
    if (item->kind == ItemKind::kLogged)
      snprintf(d.expected_text, sizeof(d.expected_text), "the program logs \"%.60s\"", item->text);
    else recorded_text(*t.cursor, item->call, d.expected_text, sizeof(d.expected_text));
    snprintf(d.found_text, sizeof(d.found_text), "the program logs \"%.60s\"", name);
    return other_way(nullptr, t, nullptr, d);
  }
  t.cursor->next(&taken);
  counts.logged += 1;
  if (taken.bits == bits) return;
  d.expected = taken.bits, d.found = bits;
  d.expected_type = taken.type, d.found_type = type;
  diverged(nullptr, t, nullptr, d);
}

void verify_end(PerThread& t, const char* what_ends) {
  if (t.over) return;
  const Item* item;
  Item taken;
  while (t.cursor->peek(&item) == Reading::kItem && !stands_alone(*item)) t.cursor->next(&taken);
  if (t.cursor->peek(&item) != Reading::kItem) return;
  Difference d = difference(What::kEnd);
  if (item->kind == ItemKind::kCall) recorded_text(*t.cursor, item->call, d.expected_text, sizeof(d.expected_text));
  else snprintf(d.expected_text, sizeof(d.expected_text), "the program logs \"%.60s\"", item->text);
  snprintf(d.found_text, sizeof(d.found_text), "%s", what_ends);
  diverged(nullptr, t, nullptr, d);
}

}  // namespace resil::record
