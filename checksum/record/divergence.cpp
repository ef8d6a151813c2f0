// SPDX-License-Identifier: Apache-2.0
//
// See divergence.h. Who is named: data is compared before it leaves its rank. So the rank whose own output differs
// while all that it had received agrees is where it began; a rank that receives something else is a victim.

#include "checksum/record/divergence.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "checksum/record/callers.h"
#include "checksum/record/data_says.h"
#include "checksum/record/messages.h"
#include "checksum/record/sites.h"
#include "checksum/record/sources.h"
#include "shim/base/clock.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/report/report.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/stacks/symbols.h"

namespace resil::record {

namespace {

constexpr uint64_t kMostFollowed = 2000;  // differences at a call site whose callers are looked at

std::atomic<uint64_t> found, suspected, suspected_told;
constexpr char kWentOn[] = "verify-went-on", kEnded[] = "verify-ended";  // in the report directory
std::atomic<bool> said_went_on;
std::atomic<uint64_t> inputs_left;  // values that differ and could not be taken from the recording

/// The program's frames from the call site on, three to a line.
void add_backtrace(Finding& finding, uint64_t site) {
  static stacks::Symbols symbols;  // 14 KiB; one finding a process
  const Frames trace = frames_from(site);
  symbols.reset();
  symbols.limit_names(40);
  for (unsigned i = 0; i < trace.count; i += 2) {
    char line[260];
    SafeText text(line, sizeof(line) - 1, -1);
    for (unsigned k = i; k < i + 2 && k < trace.count; ++k) {
      text.str(k > i ? ", " : "");
      symbols.put_site(text, trace.at[k]);
    }
    line[text.size()] = 0;
    char name[24];
    snprintf(name, sizeof(name), "backtrace_%u", i);
    finding.add(name, "%s", line);
  }
}

const char* name_of(CallId id) { return call_info(id).name; }

template <class Is>
uint64_t calls_of(const PerThread& t, Is is) {
  uint64_t sum = 0;
  for (unsigned id = 0; id < kCallCount; ++id)
    if (is(kCallInfo[id])) sum += t.thread->trace->counters[id].count;
  return sum;
}

/// Calls whose outcomes are not recorded, by what they are.
void add_unforced(const PerThread& t, Phrases& sources) {
  const uint64_t files = calls_of(t, [](const CallInfo& info) {
    return info.pointer == FilePointer::kShared || info.file == FileCall::kSeekShared;
  });
  const uint64_t worlds = calls_of(t, [](const CallInfo& info) {
    return info.comm == CommCall::kConnect || info.plain == CallId::kMPI_Lookup_name;
  });
  if (files != 0)
    sources.add("%" PRIu64 " calls used a shared file pointer: which rank comes first there is not recorded", files);
  if (worlds != 0)
    sources.add("%" PRIu64 " calls had to do with other worlds (spawn, connect, names), which are not recorded",
                worlds);
  if (files + worlds == 0)
    sources.add("%" PRIu64 " calls before had outcomes that are not recorded (one-sided atomics)",
                counts.unforced.value());
}

/// Sources that stay open once they are: whatever this rank computes may depend on them.
void find_standing_sources(const PerThread& t, Phrases& sources) {
  if (const uint64_t reads = clock_reads(); reads != 0)
    sources.add("MPI_Wtime was read %" PRIu64 " times without a recorded value", reads);
  if (sources_open()) {
    char text[300];
    sources_text(text, sizeof(text));
    sources.add("%s", text);
  }
  if (const uint64_t left = inputs_left.load(std::memory_order_relaxed); left != 0)
    sources.add("%" PRIu64 " values that it had received before differ", left);
  if (counts.unforced != 0) add_unforced(t, sources);
  if (mode.multiple && t.stream_id > 1)
    sources.add("several threads call MPI, and the order between threads is not recorded");
  if (counts.unread != 0)
    sources.add("%" PRIu64 " calls before brought data that was not read (device memory, addresses or the like)",
                counts.unread.value());
  if (mode.native) sources.add("RESIL_REDUCE=native: MPI may sum in another order each time");
}

bool standing_source(const PerThread& t) {
  return clock_reads() != 0 || sources_open() || inputs_left.load(std::memory_order_relaxed) != 0 ||
         counts.unforced != 0 || (mode.multiple && t.stream_id > 1) || counts.unread != 0 || mode.native;
}

void say(Finding& finding, const Event* e, const PerThread& t, const Call* call, const Difference& d, const char* where,
         const char* before) {
  const char* name = e != nullptr ? name_of(e->id) : "resil.h";
  const uint64_t number = call != nullptr && call->known ? call->number : t.cursor->number();
  const int rank = runtime.rank;
  namespace text = messages::record;
  switch (d.what) {
    case What::kOutput:
      finding.culprit(rank);
      finding.say(text::output_differs, rank, runtime.host, name, number, where, before);
      finding.to_do(text::output_differs_to_do);
      break;
    case What::kLogged:
      finding.culprit(rank);
      finding.say(text::logged_differs, rank, runtime.host, number, before);
      finding.to_do(text::logged_differs_to_do);
      break;
    case What::kInput: {
      char from[40] = "elsewhere";
      if (d.source >= 0 && d.source != rank) snprintf(from, sizeof(from), "rank %d", d.source);
      finding.victim(rank);
      if (finding.confidence == Confidence::kProved) finding.culprit(rank);
      finding.say(text::input_differs, rank, runtime.host, from, name, number, where);
      finding.to_do(text::input_differs_to_do);
      break;
    }
    case What::kStuck:
      finding.victim(rank);
      if (d.source >= 0) finding.culprit(d.source);
      finding.say(text::stuck, rank, runtime.host, name, number, where, mode.timeout, d.expected_text);
      finding.to_do(text::stuck_to_do);
      break;
    default:
      finding.culprit(rank);
      finding.say(text::call_differs, rank, runtime.host,
                  d.what == What::kEnd && e == nullptr ? "the end of the thread" : name, where, before);
      finding.to_do(text::call_differs_to_do);
      break;
  }
}

void add_values(Finding& finding, const Difference& d) {
  if (d.expected_type == ValueType::kNone && d.found_type == ValueType::kNone) {
    finding.add("expected", "%s", d.expected_text);
    finding.add("found", "%s", d.found_text);
    return;
  }
  char text[100];
  value_text(d.expected_type, d.expected, text, sizeof(text));
  finding.add("expected", "%s", text);
  value_text(d.found_type, d.found, text, sizeof(text));
  finding.add("found", "%s", text);
  uint64_t ulps;
  if (d.expected_type == d.found_type && d.expected_type != ValueType::kDigest) {
    finding.add("xor", "%016" PRIx64 " (%d bits)", d.expected ^ d.found, __builtin_popcountll(d.expected ^ d.found));
    if (distance_in_ulps(d.expected_type, d.expected, d.found, &ulps))
      finding.add("distance", "%" PRIu64 " units in the last place", ulps);
  }
}

}  // namespace

uint64_t divergences() { return found.load(std::memory_order_relaxed) + suspected.load(std::memory_order_relaxed); }
uint64_t suspected_divergences() { return suspected.load(std::memory_order_relaxed); }
void diverged_input_stays() {
  inputs_left.fetch_add(1, std::memory_order_relaxed);
  went_on();
}

static void mark(const char* name) {
  const int at = own_directory_to_write(runtime.directory);
  if (at < 0) return;
  if (const int file = own_file_create_at(at, name, 0666); file >= 0) close(file);
  close(at);
}

static bool is_marked(const char* name) {
  char path[1200];
  snprintf(path, sizeof(path), "%.1100s/%s", runtime.directory, name);
  return own_file_exists(path);
}

void went_on() {
  if (!said_went_on.exchange(true, std::memory_order_relaxed)) mark(kWentOn);
}

void recording_ended() {
  static std::atomic<bool> said;
  if (!said.exchange(true, std::memory_order_relaxed)) mark(kEnded);
}

/// Every sender of this job compared what it sent, and would have stopped the job or said that it went on: what differs
/// here changed on the way, or in this rank's memory.
static bool nobody_went_on(const Event* e, const PerThread& t) {
  if (!mode.stops || e == nullptr || (data_flow_of(e->id) & (kFile | kWindow | kSync)) || runtime.directory[0] == 0 ||
      runtime.local_size != runtime.size || !mailbox::is_open() || inputs_left.load(std::memory_order_relaxed) != 0 ||
      counts.unforced != 0 || counts.unread != 0 || counts.lost != 0 || mode.native || t.unsure ||
      (mode.multiple && threads_seen() > 1))
    return false;
  return !is_marked(kWentOn);
}

uint64_t clock_reads() {
  uint64_t reads = 0;
  for (uint32_t i = 0; i < trace_total(); ++i)
    for (const CallId id : {CallId::kMPI_Wtime, CallId::kMPI_Wtick})
      reads += trace_at(i).counters[static_cast<unsigned>(id)].count;
  const uint64_t given = counts.times.load(std::memory_order_relaxed);
  return reads > given ? reads - given : 0;
}

void function_text(uint64_t site, char* name, size_t bytes) {
  static stacks::Symbols symbols;
  static SpinLock lock;  // threads that differ at the same moment: rare, and off the call path
  char line[300];
  {
    SpinGuard guard(lock);
    symbols.reset();
    symbols.limit_names(static_cast<unsigned>(bytes - 1));
    SafeText text(line, sizeof(line) - 1, -1);
    symbols.put_site(text, site);
    line[text.size()] = 0;
  }
  const char* begin = strchr(line, '(');
  const char* end = begin != nullptr ? strrchr(begin, '+') : nullptr;
  snprintf(name, bytes, "%.*s", end != nullptr ? static_cast<int>(end - begin - 1) : 0,
           end != nullptr ? begin + 1 : "");
}

/// May the cause be something that no recording holds? Then the job goes on.
static bool only_suspected(const Event* e, const PerThread& t, const Difference& d, const Phrases& sources) {
  if (d.what == What::kInput) return !nobody_went_on(e, t);
  return sources.count != 0 || d.what == What::kStuck;
}

static void count_suspected(SiteCount* site, const Event* e) {
  suspected.fetch_add(1, std::memory_order_relaxed);
  if (site == nullptr) return;
  if (!site->told) site->call = static_cast<uint16_t>(e->id);
  site->told = true;
}

static bool say_diverged(const Event* e, PerThread& t, const Call* call, const Difference& d, SiteCount* site) {
  if (d.what == What::kCall || d.what == What::kEnd || d.what == What::kResult) t.over = true;
  char where[112] = "the end", last_site[112], before[220] = "the beginning";
  if (e != nullptr) site_text(e->site, where, sizeof(where));
  const bool of_data = e != nullptr && (d.what == What::kOutput || d.what == What::kInput);
  if (of_data && (site_ignored(site, e->site) || caller_ignored(*e))) {
    counts.ignored += 1;
    return mode.heals;
  }
  // Who of several threads takes a piece of work is decided by their order, which is not recorded; and threads that
  // begin alike cannot be told apart: this may well be another one's stream.
  const bool way = d.what == What::kCall || d.what == What::kEnd || d.what == What::kChoice || d.what == What::kResult;
  if ((t.unsure && d.what != What::kStuck) || (mode.multiple && threads_seen() > 1 && way)) {
    add_note_format(messages::record::thread_given_up, t.stream_id, t.cursor->number(),
                    t.unsure ? messages::record::threads_alike : messages::record::thread_went_elsewhere);
    counts.lost += !t.over || way;
    t.over = true;
    went_on();
    return false;
  }
  Phrases sources = {"", 0}, looks = {"", 0};
  char text[64];
  const View data = differing_data(e, d);
  text_of(data, text, sizeof(text));
  data_says(d, data, text, looks);
  if (looks.count != 0) sources.add("%s", looks.text);
  find_standing_sources(t, sources);
  const bool is_suspected = only_suspected(e, t, d, sources);
  const bool ends = d.what == What::kStuck || (mode.stops && !is_suspected);
  if (is_suspected && d.what != What::kStuck) count_suspected(of_data ? site : nullptr, e);
  if (is_suspected && site != nullptr) callers_differ(*e, site->compared);
  if (!ends && (t.over || d.what == What::kChoice)) went_on();
  // Told once: what follows comes from the first one. What ends the job is told whatever came before.
  if (is_suspected && !ends) {
    if (suspected_told.fetch_add(1, std::memory_order_relaxed) != 0 || found.load(std::memory_order_relaxed) != 0)
      return mode.heals;
  } else if (found.fetch_add(1, std::memory_order_relaxed) != 0 && d.what != What::kStuck) {
    return false;
  }
  if (t.last.number != 0) {
    site_text(t.last.site, last_site, sizeof(last_site));
    snprintf(before, sizeof(before), "call %" PRIu64 " (%s at %s)", t.last.number, name_of(t.last.id), last_site);
  }
  Finding finding;
  finding.start(d.what == What::kInput   ? "divergent_input"
                : d.what == What::kStuck ? "replay_stuck"
                                         : "divergence",
                is_suspected ? Confidence::kSuspected : Confidence::kProved);
  say(finding, e, t, call, d, where, before);
  const ring::TraceBuffer& trace = *t.thread->trace;
  if (trace.step != 0)
    finding.add(
        "step", "%" PRIu64 " (%s)", trace.step,
        trace.step_name != 0 && trace.step_name < runtime.name_count ? runtime.names[trace.step_name].name : "");
  finding.add("call", "number %" PRIu64 " of stream %u, %s at %s",
              call != nullptr && call->known ? call->number : t.cursor->number(), t.stream_id,
              e != nullptr ? name_of(e->id) : "none", where);
  finding.add("after", "%s", before);
  if (d.what == What::kInput && d.source >= 0) finding.add("source", "rank %d", d.source);
  const timespec now = clock_now(CLOCK_REALTIME);  // the report puts the first of all ranks first
  finding.add("time", "%lld.%06ld", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000);
  const bool agreed = d.what != What::kInput && inputs_left.load(std::memory_order_relaxed) == 0;
  finding.add("inputs_agreed", "%s",
              agreed                   ? "yes"
              : d.what == What::kInput ? "no: this is the first one that differs"
                                       : "no: values that it had received before differ");
  if (agreed && d.what != What::kStuck) finding.add("place", "%s", messages::record::place_proved);
  else if (d.what == What::kInput && !is_suspected) finding.add("place", "%s", messages::record::input_proved);
  add_values(finding, d);
  if (text[0] != 0) finding.add("text", "\"%s\"", text);
  if (looks.count != 0) finding.add("data", "%s", looks.text);
  finding.add("unrecorded", "%s",
              sources.count != 0 ? sources.text
                                 : "no unrecorded source is known: a fault, or a program that uses "
                                   "random seeds, clocks, addresses or uninitialised memory");
  if (is_suspected && sources.count != 0) sources_add(finding, 6);
  if (is_suspected && !ends)
    finding.add("goes_on", "%s",
                !way && d.what != What::kLogged ? messages::record::goes_on : messages::record::goes_on_unlike);
  if (of_data) {
    if (const char* why = site_would_blind(e->site)) finding.add("may_not_be_ignored", "%s", why);
    else finding.add("if_it_may_differ", "RESIL_VERIFY_IGNORE=%s", where);
  }
  if (e != nullptr) add_backtrace(finding, e->return_address);
  finding_publish(finding);
  if (!ends) {
    report_write("running");  // it must be on disk when another rank ends the job
    return mode.heals && is_suspected;
  }
  t.thread->depth = 1;  // what follows is resil's own
  t.thread->outer_frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  stop_job(91);
}

bool diverged(const Event* e, PerThread& t, const Call* call, const Difference& d) {
  if (!t.over && d.what != What::kStuck && runtime.directory[0] != 0 && is_marked(kEnded)) {
    add_note_format(messages::record::others_ended, t.stream_id, t.cursor->number());
    end_of_comparing(t);
    return false;
  }
  const bool of_data = e != nullptr && (d.what == What::kOutput || d.what == What::kInput);
  SiteCount* site = of_data ? site_count(e->site) : nullptr;
  if (site != nullptr) {
    site->differed += 1;
    if (site->differed == 1) site->call = static_cast<uint16_t>(e->id);
    // A place that is known, and what was open there is open still.
    if (site->ignored == SiteCount::kYes || (site->told && caller_ignored(*e))) {
      counts.ignored += 1;
      return mode.heals;
    }
    if (site->told && !t.unsure && (d.what == What::kInput ? !nobody_went_on(e, t) : standing_source(t))) {
      suspected.fetch_add(1, std::memory_order_relaxed);
      if (site->differed < kMostFollowed) callers_differ(*e, site->compared);
      return mode.heals;
    }
  }
  bool recorded = false;
  on_own_stack([&] { recorded = say_diverged(e, t, call, d, site); });
  return recorded;
}

}  // namespace resil::record
