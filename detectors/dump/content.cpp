// SPDX-License-Identifier: Apache-2.0
//
// The sections that come from the ring. May touch: the ring, read only.
#include "detectors/dump/content.h"

#include <algorithm>
#include <cmath>

#include "shim/call/module.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"

namespace resil::dump {
namespace {

using ring::Record;
using ring::TraceBuffer;
using ring::TraceState;

bool is_live(const TraceBuffer& trace) { return trace.state == static_cast<uint32_t>(TraceState::kLive); }

uint32_t trace_count() { return runtime.traces != nullptr ? runtime.trace_count : 0; }

/// First record (counted from 0) that the ring still holds.
uint64_t first_record(const TraceBuffer& trace, uint64_t head) {
  const uint64_t held = ring::records_of(trace);
  return head > held ? head - held : 0;
}

/// The newest record that is an MPI call, among the last few.
bool last_call(const TraceBuffer& trace, Record* record) {
  const uint64_t head = __atomic_load_n(&trace.head, __ATOMIC_ACQUIRE);
  const uint64_t first = first_record(trace, head);
  for (uint64_t n = head; n > first && head - n < kListedRecords;) {
    if (copy_record(trace, --n, record) && is_call(*record)) return true;
  }
  return false;
}

/// Number of the outermost open record; false outside MPI, or when it is overwritten (a callback with many calls).
bool open_call(const TraceBuffer& trace, Record* record) {
  const uint64_t current = __atomic_load_n(&trace.current, __ATOMIC_ACQUIRE);
  return current != 0 && copy_record(trace, current - 1, record);
}

void put_rank(SafeText& text) {
  text.str("rank ");
  if (runtime.rank >= 0) {
    text.i64(runtime.rank);
  } else {
    text.chr('?');
  }
  if (runtime.size > 0) text.str(" of ").i64(runtime.size);
  if (runtime.world > 0) text.str(" of spawned world ").i64(runtime.world);
  text.str(" (").safe(runtime.host, sizeof runtime.host).str(", pid ").i64(runtime.pid).chr(')');
}

bool older(const ring::Request& a, const ring::Request& b) {
  // Ticks of two threads may be equal; the serial number wraps.
  return a.time != b.time ? a.time < b.time : static_cast<int32_t>(a.serial - b.serial) < 0;
}

bool is_pending(const ring::Request& request) {
  return request.key != 0 && ((request.flags & ring::kPersistent) == 0 || (request.flags & ring::kActive) != 0);
}

}  // namespace

const char* phase_name(uint32_t phase) {
  switch (static_cast<ring::Phase>(phase)) {
    case ring::Phase::kStarting: return "starting (in MPI_Init)";
    case ring::Phase::kRunning: return "running";
    case ring::Phase::kFinalizing: return "finalizing (in MPI_Finalize)";
    case ring::Phase::kFinished: return "finished (after MPI_Finalize)";
    case ring::Phase::kAborted: return "aborting";
    case ring::Phase::kStopped: return "stopped by resil";
  }
  return "unknown";
}

void find_pending(Pending* pending, uint32_t most) {
  pending->listed = pending->total = 0;
  if (runtime.requests == nullptr) return;
  for (uint32_t i = 0; i < std::min(runtime.request_count, most); ++i) {
    const ring::Request request = runtime.requests[i];
    if (!is_pending(request)) continue;
    ++pending->total;
    uint32_t at = pending->listed;
    while (at > 0 && older(request, runtime.requests[pending->oldest[at - 1]])) --at;
    if (at == kListedRequests) continue;
    if (pending->listed < kListedRequests) ++pending->listed;
    for (uint32_t j = pending->listed - 1; j > at; --j) pending->oldest[j] = pending->oldest[j - 1];
    pending->oldest[at] = i;
  }
}

void Content::trace_sentence(const TraceBuffer& trace) const {
  Record record;
  const bool inside = __atomic_load_n(&trace.current, __ATOMIC_ACQUIRE) != 0;
  if (inside && !open_call(trace, &record)) {
    text.str("in an MPI call whose record has been overwritten by calls from its callbacks");
  } else if (inside) {
    text.str("in ");
    put_call(text, record, own_communicators(), true);
    text.str(", for ").str(record.flags & ring::kUntimed ? "at most " : "").seconds(age(moment, record.time));
    if (trace.depth > 1) text.str(", now in a callback of it");
    if (record.site != 0) {
      text.str(", called at ");
      symbols.put_site(text, record.site);
    }
  } else if (runtime.header->phase == static_cast<uint32_t>(ring::Phase::kStarting)) {
    text.str("in MPI_Init for ").seconds(age(moment, runtime.header->ticks_start));
  } else if (!last_call(trace, &record)) {
    text.str("in user code, has called nothing in MPI yet");
  } else if (record.repeat > 1 && (record.flags & ring::kFolded) != 0) {
    text.str("polling: ");
    put_call(text, record, own_communicators(), true);
    text.str(", ").u64(record.repeat).str(" times in a row since ").seconds(age(moment, record.time)).str(" ago, at ");
    symbols.put_site(text, record.site);
  } else {
    const double since = age(moment, record.time);
    const bool timed = record.duration > 0 && moment.ticks_per_second > 0;
    const double took = timed ? record.duration / moment.ticks_per_second : 0;
    text.str("in user code, not in MPI, for ").seconds(took <= since ? since - took : since);
    text.str("; last call ");
    put_call(text, record, own_communicators(), true);
    text.str(", returned; called at ");
    symbols.put_site(text, record.site);
  }
}

void Content::what_it_waits_for(const char* prefix, uint32_t most) const {
  uint32_t put = 0;
  uint32_t live = 0;
  for (uint32_t i = 0; i < trace_count(); ++i) {
    const TraceBuffer& trace = runtime.traces[i];
    if (!is_live(trace) || ++live > most) continue;
    text.str(prefix);
    if (put++ == 0) put_rank(text);
    else text.str("  and");
    if (trace.tid != runtime.pid) {
      text.str(" thread ").i64(trace.tid).str(" (").safe(trace.name, sizeof trace.name).chr(')');
    }
    text.str(": ");
    trace_sentence(trace);
    text.chr('\n');
  }
  if (put == 0) {
    text.str(prefix);
    put_rank(text);
    text.str(": no thread with MPI calls on record; phase ").str(phase_name(runtime.header->phase));
    if (runtime.header->phase == 0) text.str(" for ").seconds(age(moment, runtime.header->ticks_start));
    text.chr('\n');
  }
  if (live > most) text.str(prefix).str("  and ").u64(live - most).str(" more threads that call MPI\n");
}

void Content::header(uint32_t number, const char* reason) const {
  const ring::Header& header = *runtime.header;
  text.str("resil ").safe(header.resil_version, sizeof header.resil_version).str(" dump ").u64(number).str(" of ");
  put_rank(text);
  text.str(", ").utc(moment.realtime_ns).str(", phase ").str(phase_name(header.phase)).str(", because of ");
  text.str(reason).chr('\n');
  text.str("program ").safe(header.executable, sizeof header.executable).str(", ").safe(header.mpi, sizeof header.mpi);
  text.str(", launch ").safe(runtime.launch_key, sizeof runtime.launch_key).chr('\n');
}

void Content::progress(const char* prefix) const {
  for (uint32_t i = 0; i < trace_count(); ++i) {
    const TraceBuffer& trace = runtime.traces[i];
    if (!is_live(trace)) continue;
    text.str(prefix);
    if (trace.step != 0) {
      text.str("step ").u64(trace.step);
      if (trace.step_name != 0 && trace.step_name < runtime.name_count && runtime.names != nullptr) {
        text.str(" \"").safe(runtime.names[trace.step_name].name, sizeof(ring::Name::name)).chr('"');
      }
      text.str(", ");
    }
    text.u64(trace.calls).str(" MPI calls so far; ");
    break;  // the first thread's; the others are in the file
  }
  if (pending.total == 0) {
    text.str("no pending requests\n");
    return;
  }
  text.u64(pending.total).str(pending.total == 1 ? " pending request: " : " pending requests, the oldest: ");
  put_request(text, symbols, moment, runtime.requests[pending.oldest[0]]);
  text.chr('\n');
}

void Content::modules(const char* prefix) const {
  for (const Module* module : enabled_modules())
    if (module->dump != nullptr) module->dump(text, prefix);
}

void Content::records() const {
  uint32_t put = 0;
  for (uint32_t i = 0; i < trace_count(); ++i) {
    const TraceBuffer& trace = runtime.traces[i];
    if (!is_live(trace)) continue;
    if (++put > kListedTraces) continue;
    text.str("\nThread ").i64(trace.tid).str(" (").safe(trace.name, sizeof trace.name).str("): ").u64(trace.calls);
    text.str(" MPI calls, step ").u64(trace.step != 0 ? trace.step : trace.calls);
    if (trace.step != 0 && trace.step_name < runtime.name_count && runtime.names != nullptr) {
      text.str(" \"").safe(runtime.names[trace.step_name].name, sizeof(ring::Name::name)).chr('"');
    }
    text.str(trace.step != 0 ? "" : " (the program names no steps: MPI calls)").str(". Last records, newest first:\n");
    const uint64_t head = __atomic_load_n(&trace.head, __ATOMIC_ACQUIRE);
    const uint64_t first = first_record(trace, head);
    for (uint64_t n = head; n > first && head - n < kListedRecords;) {
      Record record;
      text.str("  ");
      if (copy_record(trace, --n, &record)) put_record(text, symbols, moment, record);
      else text.str("(overwritten while it was read)");
      text.chr('\n');
    }
    if (head == 0) text.str("  none\n");
  }
  if (put > kListedTraces) text.chr('\n').u64(put - kListedTraces).str(" more threads that call MPI are not listed\n");
}

void Content::requests() const {
  text.str("\nPending requests: ").u64(pending.total).str(pending.total > 1 ? ", oldest first\n" : "\n");
  for (uint32_t i = 0; i < pending.listed; ++i) {
    const ring::Request request = runtime.requests[pending.oldest[i]];
    text.str("  ");
    if (is_pending(request)) put_request(text, symbols, moment, request);
    else text.str("(completed meanwhile)");
    text.chr('\n');
  }
  if (pending.total > pending.listed) text.str("  and ").u64(pending.total - pending.listed).str(" more\n");
  if (runtime.header->untracked_requests != 0) {
    text.str("  Not tracked, because the table was full: ").u64(runtime.header->untracked_requests).chr('\n');
  }
}

void Content::communicators() const {
  text.str("\nCommunicators (collectives are calls entered by this rank):\n");
  uint32_t put = 0;
  for (uint32_t i = 1; runtime.comms != nullptr && i < std::min(runtime.comm_count, most_communicators); ++i) {
    const ring::Comm& comm = runtime.comms[i];
    const bool unused = comm.size <= 0 && comm.collectives == 0;
    if (comm.id == 0 || unused || ++put > kListedComms) continue;
    text.str("  ").safe(comm.name, sizeof comm.name).str(" (id ").hex(comm.id);
    text.str("): rank ").i64(comm.rank).str(" of ").i64(comm.size);
    if (comm.remote_size >= 0) text.str(", ").i64(comm.remote_size).str(" on the other side");
    text.str(", ").u64(comm.collectives).str(" collectives");
    if (comm.collectives != 0) {
      text.str(", the last ");
      put_call_name(text, comm.last_collective);
    }
    text.str("\n");
  }
  if (put == 0) text.str("  none known\n");
  if (put > kListedComms) text.str("  and ").u64(put - kListedComms).str(" more\n");
}

}  // namespace resil::dump
