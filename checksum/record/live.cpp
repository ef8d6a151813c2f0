// SPDX-License-Identifier: Apache-2.0
//
// Replicas (docs/REPLICAS.md): what MPI chose in the leading part is noted as in a recording, and sent to the partners,
// which choose likewise as in verify, from what comes instead of a file. No data is compared here; the program's
// calls need not be the recorded ones either: where a part makes other choices than the leading one it has come apart,
// and MPI chooses there from then on.

#include "checksum/record/choices.h"
#include "checksum/record/messages.h"
#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::record {

namespace {

constinit PerThread lone = {};  // all threads': one at a time is in MPI
bool asked, begun;  // for parts; there are some, and choices can be sent
bool leads;  // what MPI chooses here is told to the others
uint64_t started;  // receives with wildcards so far
uint64_t told, taken, polls, matches;  // for the report
const char* lost_why;
uint64_t last_led = UINT64_MAX;  // the leader: matches of later receives are not told any more

int32_t source_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_peer : e.peer; }
int32_t tag_of(const Event& e) { return e.attributes & kCallBothWays ? e.receive_tag : e.tag; }

bool starts_wild(const Event& e) {
  return (data_flow_of(e.id) & kMatches) && (e.attributes & kCallStarts) && !(e.attributes & kCallPartitioned) &&
         is_wild(source_of(e), tag_of(e));
}

/// Does MPI choose in this call itself?
bool chooses(const Event& e) {
  const uint16_t is = data_flow_of(e.id);
  const bool polls_here = (e.attributes & kCallPoll) != 0;
  if (is & kProbes) return polls_here || is_wild(e.peer, e.tag);
  if (is & kMatches) return !(e.attributes & kCallStarts) && is_wild(source_of(e), tag_of(e));
  switch (class_of(e.id)) {
    case CallClass::kCompletion:
      return e.request_count > 0 && (polls_here || e.index != nullptr || e.outcount != nullptr);
    case CallClass::kGetStatus: return polls_here && call_info(e.id).completion == resil::Completion::kOne;
    case CallClass::kPartitionArrived: return polls_here;
    case CallClass::kWindow: return call_info(e.id).window == WindowCall::kTest;
    default: return false;
  }
}

/// The same in each part.
uint64_t name_of(const Event& e) {
  uint64_t name = hash_combine(static_cast<uint64_t>(call_info(e.id).plain), static_cast<uint32_t>(e.peer));
  const bool has_comm = e.comm_handle != 0 && e.comm != nullptr;
  const bool counts_requests = (e.attributes & kCallCompletes) != 0;
  name = hash_combine(name,
                      has_comm ? static_cast<uint64_t>(e.comm->size) << 32 | static_cast<uint32_t>(e.comm->rank) : 0);
  return hash_combine(
      name, static_cast<uint64_t>(counts_requests ? e.request_count : 0) << 32 | static_cast<uint32_t>(e.tag));
}

/// From here on MPI chooses in this rank.
void lose(PerThread& t, const char* why) {
  if (t.over) return;
  t.over = true;
  choices_follow = false;
  lost_why = why;
  parts_may_differ(why);
  add_note_format(messages::record::choices_lost, why);
}

void stop(const char* why) {
  if (lost_why != nullptr || part_place.parts == 0 || part_place.fed) return;
  lost_why = why;
  choices_follow = false;
  last_led = started;
  lone.over = true;
}

bool begin() {
  asked = true;
  if (part_place.parts == 0 || part_place.fed || backend->thread_multiple()) return false;
  leads = part_place.part == 0;
  lone.stream_id = 1;
  begun = choices_begin();
  choices_follow = begun && lost_why == nullptr;  // else the program has asked for its process id by now
  lone.over = leads || !choices_follow;
  if (!begun) parts_may_differ("choices of MPI's that do not follow the leading part");
  return begun;
}

/// From here on MPI chooses in this rank, and the others choose likewise.
void come_to_lead(PerThread& t) {
  leads = true;
  t.over = true;
}

/// The leader's choice in this call.
void take_choice(Event& e, PerThread& t, Call& call) {
  Thread& thread = *e.thread;
  const uint64_t name = name_of(e);
  if (const uint32_t polls_void = choices_void_polls(); polls_void != 0)
    t.run_left -= polls_void < t.run_left ? polls_void : t.run_left;
  if (t.run_left == 0) {
    const Choice* next = choices_next(thread);
    if (next == nullptr && choices_are_own()) return come_to_lead(t);
    if (next == nullptr) return lose(t, messages::record::choices_end);
    if (next->call != name) return lose(t, messages::record::choices_differ);
    taken += 1;
    t.run_left = next->polls;
    t.starting = name;
    if (next->polls == 0) {
      call.known = true;
      call.outcome = next->outcome;
      call.then.flags = next->failed ? kCallFailed : 0;
      call.listed = next->listed;
      call.indices = next->indices;
      if (next->indices != 0) {
        if (!memory::grow_array(&t.indices, &t.index_room, next->indices, 1024u))
          return lose(t, messages::record::choices_end);
        memcpy(t.indices, choices_indices(*next), next->indices * sizeof(int32_t));
      }
    }
    choices_taken();
    if (call.known) return;
  }
  if (t.starting != name) return lose(t, messages::record::choices_differ);
  t.run_left -= 1;
  counts.failing_polls += 1;
  call.fails = true;
}

void note_match(Event& e, int64_t place, bool freed, const Entry& entry) {
  Match match = {-1, -1, 0};
  StatusInfo status = {};
  if (!freed && e.result == 0 && e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses)) {
    backend->messages->status_read(e.given_statuses, place, &status);
    if (status.cancelled) match.flags = kCompletionCancelled;
    else match.source = status.source, match.tag = status.tag;
  }
  matches += 1;
  choices_send_match(*e.thread, entry.ordinal, match);
}

}  // namespace

Reading live_match(Event& e, PerThread& t, uint64_t ordinal, Match* match) {
  if (t.over) return Reading::kCut;
  if (choices_match(*e.thread, ordinal, match)) {
    matches += 1;
    // Freed before it was complete, or not followed: MPI chooses, as it did there.
    if (match->source < 0 && !(match->flags & kCompletionCancelled)) {
      parts_may_differ("a receive from any source whose request was freed");
      return Reading::kCut;
    }
    return Reading::kItem;
  }
  if (choices_are_own()) {
    choices_cut(*e.thread, ordinal, t.run_left);
    t.run_left = 0;
    come_to_lead(t);
  } else {
    lose(t, messages::record::choices_end);
  }
  return Reading::kCut;
}

void live_stuck() { lose(lone, messages::record::choices_stuck); }

namespace {

bool enabled() {
  mode.live = !config_has("RESIL_MODE", "record") && !config_has("RESIL_MODE", "verify") &&
              config_integer("RESIL_REPLICAS") > 1 && config_integer("RESIL_REPLICAS_FOLLOW") > 1;
  return mode.live;
}

void before_init() {
  mode.timeout = config_real("RESIL_REPLICAS_SECONDS");
  choices_stop = stop;
  prepare_threads();
  connect_staging();
}

void enter(Event& e) {
  if (!begun && (asked || !begin())) {
    // Before MPI_Init has returned there are no parts.
    asked = asked && part_place.parts != 0;
    return;
  }
  if (leads) choices_flush((e.attributes & kCallPoll) != 0);
  else if (choices_lead_changed()) [[unlikely]] choices_progress();
  if (e.nested) return;
  PerThread& t = lone;
  set_thread(*e.thread, &t);
  t.depth = 1;
  Call& call = t.calls[0];
  call.event = &e;
  call.known = call.late = call.fails = call.forced = call.listed = false;
  call.outcome.what = 0;
  call.then.flags = 0;
  call.told = call.indices = 0;
  call.ordinal = started + 1;
  const bool chosen = chooses(e);
  if (!leads && !t.over) {
    if (chosen) take_choice(e, t, call);
    else call.known = true;
  }
  if (((data_flow_of(e.id) & (kProbes | kTakes)) && !(e.attributes & (kCallStarts | kCallRma)) && chosen) ||
      (class_of(e.id) == CallClass::kCompletion && e.request_count > 0))
    give_statuses(e);
}

void leave(Event& e) {
  PerThread& t = lone;
  if (!begun || t.depth == 0 || t.calls[0].event != &e) return;
  Call& call = t.calls[0];
  if (leads && choices_follow && chooses(e)) {
    if (is_failing_poll(e)) {
      polls += 1;
      choices_send_poll(*e.thread, name_of(e));
    } else {
      Outcome outcome;
      const bool failed = e.result != 0 && backend->messages->error_kind(e.result) != ErrorKind::kInStatus;
      outcome.what = 0;
      if (!failed) choice_of(e, &outcome);
      told += 1;
      choices_send(*e.thread, name_of(e), outcome, failed, e.indices, given_indices(e));
    }
  }
  if (e.result == 0 && starts_wild(e)) {
    if (!(e.attributes & kCallPersistent)) ++started;
    if (e.cookies != nullptr) follow(e, t, call);
    const bool followed = e.cookies != nullptr && e.cookies[kCookie] != 0;
    if (leads && choices_follow && !followed && !(e.attributes & kCallPersistent))
      choices_send_match(*e.thread, call.ordinal, {-1, -1, 0});
  }
  started += call.told;
  if (leads) choices_flush((e.attributes & kCallPoll) != 0);
  t.noted_count = 0;
  t.depth = 0;
}

void completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  Entry* entry = entry_of(*cookie);
  const bool was_told = entry->forced;  // by a part that led before
  if (entry->forced) {
    entry->forced = false;
    forced_pending.fetch_sub(1, std::memory_order_relaxed);
  }
  if (leads && !was_told && entry->active && entry->ordinal <= last_led) note_match(e, place, freed, *entry);
  if (entry->persistent && !freed) entry->active = false;
  else entry_release(entry);
}

void progress(Thread&) {
  if (begun) choices_progress();
}

void before_finalize() {
  if (!begun || current_thread == nullptr) return;
  choices_follow = false;
  lone.over = true;
  choices_end(*current_thread);
  begun = false;
  lone.depth = 0;
}

void report(JsonWriter& json) {
  if (part_place.parts == 0 || part_place.fed) return;
  const auto number = [&json](const char* name, uint64_t value) { json.integer(name, static_cast<int64_t>(value)); };
  json.begin_object("choices");
  number(leads ? "told" : "taken", leads ? told : taken);
  number("failing_polls", leads ? polls : counts.failing_polls.value());
  number("matches", matches);
  if (!leads) number("forced", counts.forced);
  if (lost_why != nullptr) json.text("lost", lost_why);
  json.end_object();
}

void activating(Event& e, uint64_t* cookie) { request_activating(e, lone, *entry_of(*cookie)); }

void activated(Event& e, uint64_t* cookie) {
  if (Call* call = call_of(lone, e); call != nullptr && e.result == 0 && class_of(e.id) == CallClass::kStart)
    request_activated(lone, *call, *entry_of(*cookie));
}

constexpr Module kChoices = {
    .name = "choices",
    .description = "with RESIL_REPLICAS: MPI chooses in each part as in the leading one",
    .stage = Stage::kRecord,
    .enabled = enabled,
    .before_init = before_init,
    .before_finalize = before_finalize,
    .enter = enter,
    .leave = leave,
    .intercepts = replays,
    .execute_instead = replay,
    .asks_status = true,
    .activating = activating,
    .activated = activated,
    .completed = completed,
    .progress = progress,
    .report = report,
};
RESIL_MODULE(kChoices);

}  // namespace

}  // namespace resil::record
