// SPDX-License-Identifier: Apache-2.0
//
// What the parts of record and verify share: the stream of a thread, the calls that it is in, its pending requests.
// Everything here belongs to one thread, unless it says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/record/data.h"
#include "checksum/record/format.h"
#include "checksum/record/reader.h"
#include "checksum/record/writer.h"
#include "shim/base/hash.h"
#include "shim/call/stages.h"
#include "shim/model/event.h"
#include "shim/tables/tally.h"

namespace resil::record {

constexpr unsigned kCookie = request_word(Stage::kRecord);

/// A call that is under way, from `enter` to `leave`.
struct Call {
  Event* event;
  uint64_t comm;  ///< job-wide id of its communicator, taken before it may be freed
  CallRecord now;  ///< as this run makes it; complete in `leave`
  CallRecord then;  ///< verify: the recorded one, if `known`
  Outcome outcome;  ///< verify: the recorded one, if it has one (`what` != 0)
  uint64_t ordinal;  ///< of the first request that it starts
  uint64_t number;  ///< in the stream
  uint32_t told;  ///< persistent requests that it started so far
  uint32_t indices;  ///< verify: how many are in PerThread::indices
  bool known;  ///< verify: `then` holds
  bool late;  ///< verify: known in `leave` only, a nested call's record comes first
  bool listed;  ///< verify: an index list belongs to it
  bool written;  ///< record
  bool has_input;
  bool fails;  ///< verify: a poll that found nothing
  bool forced;  ///< verify: a receive that was posted with another source and tag
  uint64_t given;  ///< verify: the recorded number that it gives in place of the program's
};

constexpr unsigned kNesting = 6;

/// A place in the program: the last call that agreed with the recording.
struct LastCall {
  uint64_t number, site;
  CallId id;
};

/// What the program was last told by a clock, and what it was.
struct LastTime {
  uint64_t value, real;
  bool given;
};

struct Entry;

struct PerThread {
  Thread* thread;
  Stream* stream;  ///< record
  Cursor* cursor;  ///< verify
  uint32_t stream_id;
  bool over;  ///< verify: nothing more can be compared in this thread
  bool unsure;  ///< verify: other threads began in the same way, so this may be one's of them
  unsigned depth;
  Call calls[kNesting];
  uint64_t starting;  ///< what persistent sends give that are about to be started
  bool starting_any, starting_unread;
  uint32_t run_left;  ///< verify: failing polls still to come of the run `run`
  CallRecord run;
  LastCall last;  ///< verify
  bool reads_clock;  ///< in clocks.cpp
  LastTime last_times[kClocks];  ///< verify
  int32_t* indices;  ///< verify: of the current call
  uint32_t index_room;
  Entry** noted;  ///< verify: persistent requests of the MPI_Start that is entered next
  uint32_t noted_count, noted_room;
};

/// A pending request that this module follows.
struct Entry {
  enum Kind : uint8_t { kReceive, kSend, kCollective, kData };
  View view;  ///< kReceive, kSend (persistent), kData (file reads, MPI_Rget): the buffer
  FlatTransfer layout;  ///< kCollective: what comes in
  FlatTransfer gives;  ///< persistent collectives: what goes out
  uint64_t ordinal, site, comm_id;
  CommInfo* comm;
  Entry* next_free;
  uint32_t stream;
  int32_t source, tag;  ///< as posted
  CallId id;
  Kind kind;
  struct Substitute* substitute;  ///< verify: of a persistent receive with wildcards
  bool wild, persistent, active, forced, held, gives_any, takes_any, unread;
};

/// May MPI choose which message a receive takes? From MPI_PROC_NULL there is none, whatever the tag (halos at a
/// border).
inline bool is_wild(int32_t source, int32_t tag) {
  return source == ring::kAnySource || (source >= 0 && tag == ring::kAnyTag);
}

enum class Clocks : uint8_t { kNone, kMpi, kAll };

/// What the module does in this run.
struct Mode {
  bool recording, verifying;
  bool live;  ///< RESIL_REPLICAS: choices follow the leading part (live.cpp)
  bool stops;  ///< RESIL_ON_MISMATCH=abort
  bool heals;  ///< what is only suspected is taken from the recording: `stops`, and no other module looks at the data
  Clocks clocks;  ///< RESIL_RECORD_TIME
  bool multiple;  ///< MPI_THREAD_MULTIPLE
  bool native;  ///< reductions are MPI's own
  double timeout;  ///< seconds that a forced call waits
};
extern Mode mode;
extern Recording recording;

/// For the report; plain additions, exact below MPI_THREAD_MULTIPLE.
struct Counts {
  Tally calls, messages, values, unread, completions, forced, failing_polls, unforced, logged, unmatched, lost, ignored,
      from_recording;
  std::atomic<uint64_t> times, libc_times;  ///< given back: of MPI_Wtime and MPI_Wtick, of the program's other clocks
};
extern Counts counts;

// --- threads.cpp ---------------------------------------------------------------------------------------------------
void prepare_threads();
/// The thread's, null: it has no stream (yet; or recording failed, or the recording has none for it).
PerThread* per_thread(Thread& thread);
/// Opens its stream, which begins with a call from that site; once. `first`: that call, if it is known to be recorded.
PerThread* open_thread(Thread& thread, uint64_t site, const Event* first);
void set_thread(Thread& thread, PerThread* t);  ///< live.cpp: one for all
void forget_thread(Thread& thread);
uint32_t threads_seen();  ///< streams opened so far
/// The call of that event, null: it was not entered.
inline Call* call_of(PerThread& t, const Event& e) {
  for (unsigned i = t.depth; i > 0; --i)
    if (t.calls[i - 1].event == &e) return &t.calls[i - 1];
  return nullptr;
}

// --- capture.cpp: the call as a record -----------------------------------------------------------------------------
/// Everything but data and outcome, into `call.now`.
void describe(const Event& event, Call& call);
void put(CallRecord& record, const Value& value, bool input);
/// After the real call: what came out of a blocking one, and MPI's choices.
void finish_record(Event& event, CallRecord* record, Outcome* outcome, const CallRecord* then = nullptr);
bool is_failing_poll(const Event& event);
/// What MPI chose in a call that did not fail: flag, index, source and tag.
void choice_of(const Event& event, Outcome* outcome);
/// Which indices a Waitsome or Testsome gave; count -1: MPI_UNDEFINED or none of these calls.
int64_t given_indices(const Event& event);
void record_call(Event& event, PerThread& t, Call& call);  ///< writes the call once, with outcome and indices
void record_leave(Event& event, PerThread& t, Call& call);

// --- requests.cpp --------------------------------------------------------------------------------------------------
/// After a nonblocking or persistent call: follows its request.
void follow(Event& event, PerThread& t, Call& call);
void request_activating(Event& event, PerThread& t, Entry& entry);
void request_activated(PerThread& t, Call& call, Entry& entry);
/// What came by a request that is complete.
void describe_completion(Event& event, int64_t place, bool freed, Entry& entry, Completion* completion);
void entry_release(Entry* entry);
inline Entry* entry_of(uint64_t cookie) { return reinterpret_cast<Entry*>(cookie); }
extern std::atomic<uint32_t> forced_pending;  ///< receives posted with a forced source and tag

// --- substitute.cpp: persistent receives with wildcards in verify ---------------------------------------------------
void substitute_prepare(const Event& event, Entry& entry);  ///< after MPI_Recv_init
void substitute_drop(Entry& entry);
/// Carries out MPI_Start, Startall.
bool substitute_start(Event& event, PerThread& t, Call& call);
/// MPI_Cancel of a substituted receive.
bool substitute_cancel(Event& event);
/// MPI_Test on one of the call's requests, or on what stands for it.
int test_request(Event& event, int64_t index, int* flag, void* status);
bool substitutes_used();

// --- windows.cpp: what MPI_Get and the like bring, at the end of their epoch ----------------------------------------
void window_get(Event& event);
/// Everything that came by operations on the window that this call completes. `then`: the recorded call, or null.
Value window_sync(Event& event, const CallRecord* then);

// --- compare.cpp ---------------------------------------------------------------------------------------------------
void verify_enter(Event& event, PerThread& t, Call& call);
void verify_leave(Event& event, PerThread& t, Call& call);
void verify_completion(Event& event, PerThread& t, Call& call, const Entry& entry, const Completion& now);
void verify_logged(PerThread& t, LoggedKind kind, const char* name, ValueType type, uint64_t bits);
bool ended_early();  ///< some stream of the recording ended before this run did
/// The thread or the program ends: is there more in its stream?
void verify_end(PerThread& t, const char* what_ends);

// --- clocks.cpp ----------------------------------------------------------------------------------------------------
/// What MPI_Wtime or MPI_Wtick returns to the program; recorded, or from the recording.
double told_by_mpi(PerThread& t, CallId id, double value);
bool recording_is_open();  ///< module.cpp

// --- replay.cpp ----------------------------------------------------------------------------------------------------
bool replays(CallId id);
bool replay(Event& event);
/// What the receive of that number has got: as recorded, or in the leading part.
Reading match_of(Event& event, PerThread& t, uint64_t ordinal, Match* match);
void connect_staging();  ///< staged.h

// --- live.cpp: with RESIL_REPLICAS, in place of a recording; a module of its own ------------------------------------
/// What the receive of that number has got in the leading part.
Reading live_match(Event& event, PerThread& t, uint64_t ordinal, Match* match);
void live_stuck();  ///< what the leader got does not come

}  // namespace resil::record
