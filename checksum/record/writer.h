// SPDX-License-Identifier: Apache-2.0
//
// Writes one rank's recording. Threads encode items into buffers of their own; a helper thread of the rank
// ("resil-record") writes full buffers when they are full and all others once a second.
//
// Context: the functions of Stream on the thread that owns it, inside its MPI calls: no allocation, lock or system
// call, unless a thread's buffers (kBuffers times kSegmentBytes) are all full because the file system is slower than
// the program. Then the thread writes them itself, if nobody is writing, or waits; when nothing could be written for
// kTimeoutSeconds the recording ends and the job goes on. All other functions: application's thread, and they make
// system calls. Never calls MPI.
//
// After a fork only the parent records. After exec, _exit or a kill the file holds what had been written: at most the
// last second is missing, and it has no clean end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "checksum/record/channel.h"
#include "checksum/record/encoder.h"
#include "checksum/record/format.h"

namespace resil::record {

constexpr unsigned kMaxStreams = 1024;  ///< threads that record at the same time; later ones are not recorded
constexpr double kTimeoutSeconds = 30;

/// Makes `directory` ready for a recording of this launch. Every rank calls it with the same `launch` before PMPI_Init
/// (whose fence then assures that no rank opens its file before somebody has cleaned up); directories that are not
/// shared are made ready by their own ranks. An older recording in it is removed; anything else that is not record's
/// own makes it fail with kNotEmpty. `identity` needs launch, world_size, program only, and is for recording.json.
bool directory_lock(const char* directory, const Identity& identity, Problem* problem);

class Stream;

/// Makes the rank's file (it must not exist) and starts the helper thread. After PMPI_Init has returned. `names` must
/// stay. False: `problem` says why.
bool writer_open(const char* directory, const Identity& identity, const Names& names, Problem* problem);

/// A stream for the calling thread; `first_site`: its first call's. Threads that begin at the same place are told apart
/// by the order in which they come. Null: no more streams, no memory, or not recording. Maps memory.
Stream* stream_open(uint64_t first_site);
/// The thread ends. Its last items are written by the helper. Null is allowed.
void stream_close(Stream* stream);

/// How the recording ends.
enum class Ending : uint8_t {
  kFinished = 1,  ///< MPI_Finalize
  kAborted = 2,  ///< MPI_Abort, or resil stops the job
};

/// Writes what there is, marks the end, stops the helper. No thread may be in a function of a stream, except with
/// kAborted, where what they are writing is left out. Waits for the file system up to kTimeoutSeconds (kAborted: 1).
void writer_close(Ending ending);

/// Writes out everything recorded so far by all threads and, if asked, waits for the disk (fdatasync).
void writer_flush(bool to_disk);

/// Where the recording stands; any thread, any time.
struct WriterStatus {
  bool recording;  ///< open and not failed
  uint64_t calls, completions, polls;  ///< items encoded; polls: the calls folded in runs
  uint64_t bytes;  ///< written to the file
  uint32_t streams;  ///< opened so far
  uint32_t streams_refused;
  uint64_t times, times_left_out;  ///< values of clocks recorded; not recorded, there were too many
  uint64_t stalls;  ///< times that a thread had to write or wait
  double stalled_seconds;
  char failure[600];  ///< why the recording ended early, one line; "" if it did not
};
void writer_status(WriterStatus* status);

/// Called once, on whatever thread notices, when the recording ends early: the one message of it. May be null.
void writer_on_failure(void (*told)(const char* line));

/// One thread's. 334 KiB, of which a thread that records little touches 100.
class Stream {
 public:
  /// One call. Returns the ordinal of the first request that it started (kCallStarted), else 0. Completions, outcome
  /// and indices of the call come after it.
  uint64_t call(const CallRecord& record);
  /// A poll that found nothing: counted with those before it when it is from the same site, with the same call,
  /// communicator, peer, tag and step, and nothing else came in between. `record` as for call().
  void poll(const CallRecord& record);
  void completion(const Completion& completion);
  void outcome(const Outcome& outcome);
  /// All of a list at once, of any length.
  void indices(const int32_t* list, uint32_t count);
  void logged(LoggedKind kind, const char* name, ValueType type, uint64_t bits);
  void text(const char* text);
  /// What a clock said. False: left out, since there have been kFreeTimes, and kTimesPerCall for each call (runs of
  /// polls are none): a loop that waits by looking at the clock must not fill the file system.
  bool time(uint8_t clock, uint64_t bits);
  static constexpr uint64_t kFreeTimes = 4 << 20, kTimesPerCall = 64;

  uint32_t id() const { return id_; }  ///< from 1
  /// Number of the last call; a run of polls that may go on counts already.
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed) + (poll_count_ != 0); }
  uint64_t next_ordinal() const { return started_ + 1; }

 private:
  friend struct Streams;
  enum State : uint32_t { kIdle = 0, kLive = 1, kClosing = 2 };

  unsigned char* begin();
  unsigned char* more_room();
  void end_polls();

  std::atomic<uint32_t> state_;
  uint32_t id_;
  uint64_t started_;
  std::atomic<uint64_t> earlier_calls_;  // of streams that were here before
  std::atomic<uint64_t> calls_, completions_, polls_;  // the owner's; others read
  uint64_t poll_runs_;
  std::atomic<uint64_t> times_, times_left_out_;
  uint32_t poll_count_;
  CallRecord poll_;
  Encoder encoder_;
  Channel channel_;
};

}  // namespace resil::record
