// SPDX-License-Identifier: Apache-2.0
//
// The modes record and verify: configuration, hooks, report. See docs/RECORD.md.

#include <errno.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/record/divergence.h"
#include "checksum/record/messages.h"
#include "checksum/record/sites.h"
#include "checksum/record/sources.h"
#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/base/own_stack.h"
#include "shim/call/attach.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/report/report.h"
#include "shim/tables/tables.h"

namespace resil::record {

Mode mode;
Recording recording;
constinit Counts counts = {};

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_MODE+", ConfigType::kChoices, "record", "",
     "writes down every call, what MPI chose and digests of all data"},
    {"RESIL_MODE+", ConfigType::kChoices, "verify", "",
     "runs the program as recorded and compares every call with the recording"},
    {"RESIL_RECORD", ConfigType::kText, "a directory", "./resil-record",
     "directory of the recording that record writes and verify reads"},
    {"RESIL_RECORD_TIME", ConfigType::kChoice, "none|mpi|all", "mpi",
     "which clocks are recorded, and give the recorded values in verify: MPI_Wtime, or the program's other clocks, "
     "too"},
    {"RESIL_VERIFY_IGNORE", ConfigType::kText, "call sites and functions, separated by commas", "",
     "calls whose data may differ in verify, as findings print them: object+0xoffset, or a function's name"},
    {"RESIL_VERIFY_SECONDS", ConfigType::kReal, "1..1000000", "600",
     "how long a call in verify waits for what came in the recorded run, before that is a divergence"},
};

bool ready;  // the file is open
bool opened;  // it was, for verify
Identity identity;
char directory[1100];  // of this world's recording

/// Spawned worlds have ranks of the same numbers.
void name_directory() {
  if (runtime.world > 0)
    snprintf(directory, sizeof(directory), "%s/world-%d", config_text("RESIL_RECORD"), runtime.world);
  else snprintf(directory, sizeof(directory), "%s", config_text("RESIL_RECORD"));
}

void refuse(const Problem& problem) {
  char line[1500];
  snprintf(line, sizeof(line), messages::record::unusable, problem.text);
  stop_unusable(line);
}

void on_failure(const char* line) {
  log_format(messages::record::recording_failed, line);
  add_note_format(messages::record::recording_failed, line);
}

/// What reductions do in this run: resil's own order unless the user wants something else.
const char* reduce_mode() {
  const char* wanted = config_text("RESIL_REDUCE");
  return wanted[0] == 0 ? "native" : config_is_default("RESIL_REDUCE") ? "order" : wanted;
}

bool enabled() {
  mode.recording = config_has("RESIL_MODE", "record");
  mode.verifying = config_has("RESIL_MODE", "verify");
  mode.clocks = static_cast<Clocks>(config_integer("RESIL_RECORD_TIME"));
  return mode.recording || mode.verifying;
}

void before_init() {
  if (mode.recording && mode.verifying) stop_unusable(messages::record::both_modes);
  mode.stops = strcmp(config_text("RESIL_ON_MISMATCH"), "log") != 0;
  mode.heals = mode.stops && !config_has("RESIL_MODE", "checksum");
  mode.timeout = config_real("RESIL_VERIFY_SECONDS");
  digest_prepare();
  prepare_threads();
  name_directory();
  identity_of_this_rank(&identity);
  if (mode.verifying) sources_count_threads();
  if (mode.verifying || mode.clocks == Clocks::kAll) sources_scan(false, mode.clocks == Clocks::kAll);
  Problem problem;
  if (mode.recording && !directory_lock(directory, identity, &problem)) refuse(problem);
}

void after_init() {
  if (ready) return;
  if (mode.verifying || mode.clocks == Clocks::kAll) sources_scan(true, mode.clocks == Clocks::kAll);
  mode.multiple = !runtime_has_world() || backend->thread_multiple();
  identity_of_this_rank(&identity);
  snprintf(identity.reduce, sizeof(identity.reduce), "%s", reduce_mode());
  mode.native = strcmp(identity.reduce, "native") == 0;
  if (mode.native) {
    add_note(messages::record::native_order);
    if (mode.recording && runtime.rank == 0 && !config_is_default("RESIL_REDUCE"))
      log_line(messages::record::native_order);
  }
  Problem problem;
  if (mode.recording) {
    writer_on_failure(on_failure);
    if (!writer_open(directory, identity, kLibraryNames, &problem)) refuse(problem);
  } else {
    if (!recording.open(directory, identity, kLibraryNames, &problem)) refuse(problem);
    opened = true;
    if (recording.end() == FileEnd::kCutOff) {
      snprintf(problem.text, sizeof(problem.text), "%s", recording.end_text());
      refuse(problem);
    }
    if (recording.differences()[0] != 0) add_note_format(messages::record::recorded_elsewhere, recording.differences());
    if (recording.end_text()[0] != 0) add_note_format(messages::record::recorded_elsewhere, recording.end_text());
  }
  if (mode.multiple && runtime_has_world()) add_note(messages::record::threads_unordered);
  if (mode.verifying) connect_staging();
  if (mode.verifying) refuse_foreign_entries();
  ready = true;
}

void enter(Event& e) {
  if (!ready) return;
  PerThread* t = per_thread(*e.thread);
  if (t == nullptr) [[unlikely]] {
    if ((t = open_thread(*e.thread, e.site, &e)) == nullptr) return;
  }
  // Calls that an exception or longjmp left lie below this one on the stack.
  while (t->depth > 0 && t->calls[t->depth - 1].event->frame <= e.frame) --t->depth;
  if (t->depth == kNesting) return;
  Call& call = t->calls[t->depth++];
  call.event = &e;
  call.written = call.has_input = call.forced = false;
  call.told = 0;
  call.comm = e.comm != nullptr ? e.comm->ring->id : 0;
  if (mode.verifying) {
    if (sources_stale()) [[unlikely]]
      sources_scan(false, mode.clocks == Clocks::kAll);
    verify_enter(e, *t, call);
  } else {
    call.now.flags = 0;
    if (e.attributes & kCallActivates) {
      put(call.now, {t->starting, t->starting_any ? ValueType::kDigest : ValueType::kNone, t->starting_unread}, true);
      call.has_input = true;
    } else if (overwrites_input(e) && !(e.attributes & kCallPersistent)) {
      put(call.now, input_of(e), true);
      call.has_input = true;
    }
  }
  t->starting = 0;
  t->starting_any = t->starting_unread = false;
  if ((data_flow_of(e.id) & (kProbes | kTakes)) && !(e.attributes & kCallStarts) && !(e.attributes & kCallRma))
    give_statuses(e);
  else if (class_of(e.id) == CallClass::kCompletion && e.request_count > 0) give_statuses(e);
}

void leave(Event& e) {
  if (!ready) return;
  PerThread* t = per_thread(*e.thread);
  if (t == nullptr) {
    // From here on the program may log values. Never behind MPI_Finalize, where MPI must not be called.
    if (call_info(e.id).lifecycle == LifecycleCall::kInit) open_thread(*e.thread, e.site, nullptr);
    return;
  }
  Call* call = call_of(*t, e);
  if (call == nullptr) return;
  if (mode.recording) {
    record_leave(e, *t, *call);
  } else {
    verify_leave(e, *t, *call);
    if ((e.attributes & kCallStarts) && e.result == 0 && call->known) follow(e, *t, *call);
  }
  t->depth = static_cast<unsigned>(call - t->calls);
  if (e.attributes & kCallActivates) t->noted_count = 0;
}

void activating(Event& e, uint64_t* cookie) {
  if (PerThread* t = per_thread(*e.thread); t != nullptr) request_activating(e, *t, *entry_of(*cookie));
}

void activated(Event& e, uint64_t* cookie) {
  PerThread* t = per_thread(*e.thread);
  Call* call = t != nullptr ? call_of(*t, e) : nullptr;
  if (call != nullptr && e.result == 0 && class_of(e.id) == CallClass::kStart)
    request_activated(*t, *call, *entry_of(*cookie));
}

void completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  Entry* entry = entry_of(*cookie);
  PerThread* t = per_thread(*e.thread);
  Call* call = t != nullptr ? call_of(*t, e) : nullptr;
  if (entry->forced) {
    entry->forced = false;
    forced_pending.fetch_sub(1, std::memory_order_relaxed);
  }
  if (call != nullptr && entry->active && entry->kind != Entry::kSend) {
    Completion completion;
    describe_completion(e, place, freed, *entry, &completion);
    if (mode.verifying) {
      verify_completion(e, *t, *call, *entry, completion);
    } else {
      record_call(e, *t, *call);
      if (completion.stream == t->stream_id) completion.stream = 0;
      t->stream->completion(completion);
    }
  }
  if (entry->persistent && !freed) entry->active = false;
  else entry_release(entry);
}

void thread_end(Thread& thread) {
  PerThread* t = per_thread(thread);
  if (t == nullptr || !ready) return;
  if (mode.recording) {
    stream_close(t->stream);
  } else if (!t->over) {
    // No MPI in this context: what is missing is said in the report.
    const Item* item;
    if (t->cursor->peek(&item) == Reading::kItem && item->kind == ItemKind::kCall)
      add_note_format(messages::record::thread_ends_early, t->stream_id,
                      static_cast<unsigned long long>(t->cursor->number()));
  }
  forget_thread(thread);
}

void after_finalize() {
  PerThread* t = current_thread != nullptr ? per_thread(*current_thread) : nullptr;
  if (ready && mode.recording) {
    if (t != nullptr) stream_close(t->stream);
    writer_close(Ending::kFinished);
  }
  ready = false;
}

void on_abort(int) {
  if (ready && mode.recording) writer_close(Ending::kAborted);
  ready = false;
}

void logged(Thread& thread, ring::RecordState what, const char* name, uint64_t value) {
  PerThread* t = per_thread(thread);
  if (t == nullptr || !ready) return;
  const bool norm = what == ring::RecordState::kNorm, checksum = what == ring::RecordState::kChecksum;
  const LoggedKind kind = norm ? LoggedKind::kNorm : checksum ? LoggedKind::kChecksum : LoggedKind::kCount;
  const ValueType type = norm ? ValueType::kDouble : checksum ? ValueType::kUnsigned : ValueType::kSigned;
  if (mode.recording) t->stream->logged(kind, name, type, value);
  else verify_logged(*t, kind, name, type, value);
}

double time(Thread& thread, CallId id, double value) {
  PerThread* t = ready ? per_thread(thread) : nullptr;
  return t != nullptr ? told_by_mpi(*t, id, value) : value;
}

bool times() { return mode.clocks != Clocks::kNone; }

/// Did verify have the whole run to compare with? A recording that a crash cut off ends somewhere.
bool complete() { return opened && recording.end_text()[0] == 0 && !ended_early(); }

void report(JsonWriter& json) {
  const auto number = [&json](const char* name, uint64_t value) { json.integer(name, static_cast<int64_t>(value)); };
  json.begin_object(mode.recording ? "record" : "verify");
  json.text("directory", directory);
  if (mode.recording) {
    WriterStatus status = {};
    writer_status(&status);
    json.boolean("recording", status.recording);
    number("calls", status.calls);
    number("completions", status.completions);
    number("failing_polls", status.polls);
    number("bytes", status.bytes);
    number("streams", status.streams);
    number("streams_refused", status.streams_refused);
    number("times", status.times);
    number("times_left_out", status.times_left_out);
    number("stalls", status.stalls);
    json.number("stalled_seconds", status.stalled_seconds);
    json.text("failure", status.failure);
  } else {
    number("calls", counts.calls);
    number("completions", counts.completions);
    number("messages", counts.messages);
    number("values", counts.values);
    number("bytes", data_bytes_read);
    number("logged", counts.logged);
    number("unread", counts.unread);
    number("forced", counts.forced);
    number("failing_polls", counts.failing_polls);
    number("unforced", counts.unforced);
    number("ignored", counts.ignored);
    number("addresses", address_values);
    json.boolean("complete", complete());
    number("unmatched", counts.unmatched);
    number("threads_lost", counts.lost);
    number("divergences", divergences());
    number("suspected", suspected_divergences());
    number("from_recording", counts.from_recording);
    number("times", counts.times.load(std::memory_order_relaxed) + counts.libc_times.load(std::memory_order_relaxed));
    number("times_not_recorded", clock_reads());
    sources_report(json);
    sites_report(json);
    static char ignore[4000];
    unsigned left;
    json.text("to_ignore", sites_to_ignore(ignore, sizeof(ignore), &left) ? ignore : "");
    char text[200];
    snprintf(text, sizeof(text),
             "rank %d compared %" PRIu64 " calls, %" PRIu64 " messages, %" PRIu64 " values of %" PRIu64
             " bytes with the recording%s",
             runtime.rank, counts.calls.value(), counts.messages.value(), counts.values.value(),
             data_bytes_read.value(), complete() ? "" : ", which ENDS EARLY");
    report_last_words(text, complete());
  }
  json.end_object();
}

/// What would have to be ignored, in one line. Ranks that would say the same say it once: the file in the report
/// directory belongs to the first of them.
void advise() {
  static char value[4000], line[4400], name[64];
  unsigned left;
  const bool some = sites_to_ignore(value, sizeof(value), &left);
  if (sites_are_too_many()) {
    sources_text(line, 300);
    add_note_format(messages::record::too_many_to_ignore, line);
    left = UINT32_MAX;  // a line of its own
  }
  if (left != 0 && left != UINT32_MAX) add_note_format(messages::record::may_not_be_ignored, left);
  if (!some && left == 0) return;
  snprintf(name, sizeof(name), "verify-ignore-%016" PRIx64 ".txt", hash_combine(hash_text(value), left));
  if (const int at = own_directory_to_write(runtime.directory); at >= 0) {
    const int file = own_file_create_at(at, name, 0666);
    const bool told = file < 0 && errno == EEXIST;
    if (file >= 0) {
      dprintf(file, "%s\n", value);
      close(file);
    }
    close(at);
    if (told) return;
  }
  if (some) {
    snprintf(line, 8, "resil: ");
    snprintf(line + 7, sizeof(line) - 7, messages::record::to_ignore, runtime.rank, suspected_divergences(), value);
    log_block(line);
  }
  if (left == UINT32_MAX) log_format(messages::record::too_many_to_ignore, line);
  else if (left != 0) log_format(messages::record::may_not_be_ignored, left);
}

/// MPI_Finalize is the program's last call: before the real one.
void before_finalize() {
  if (!ready || !mode.verifying || current_thread == nullptr) return;
  PerThread* t = per_thread(*current_thread);
  // The record of MPI_Finalize itself was taken in `enter`, unless calls of callbacks in it stand before it.
  if (t != nullptr && t->depth > 0 && !t->calls[t->depth - 1].late) verify_end(*t, "the program ends");
  if (suspected_divergences() != 0) on_own_stack([] { advise(); });
}

}  // namespace

bool recording_is_open() { return ready; }

namespace {

constexpr Module kModule = {
    .name = "record",
    .description = "records a run, and verifies another one against it",
    .stage = Stage::kRecord,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .before_finalize = before_finalize,
    .after_finalize = after_finalize,
    .on_abort = on_abort,
    .thread_end = thread_end,
    .enter = enter,
    .leave = leave,
    .intercepts = replays,
    .execute_instead = replay,
    .asks_status = true,
    .activating = activating,
    .activated = activated,
    .completed = completed,
    .logged = logged,
    .time = time,
    .times = times,
    .report = report,
};
RESIL_MODULE(kModule);

}  // namespace
}  // namespace resil::record
