// SPDX-License-Identifier: Apache-2.0
//
// What the writer's files share. Internal to checksum/record/.
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/record/channel.h"
#include "checksum/record/file.h"
#include "checksum/record/writer.h"
#include "shim/base/spinlock.h"

namespace resil::record {

struct Writer {
  std::atomic<bool> recording;
  const Names* names;
  BlockFile file;
  double timeout;  ///< kTimeoutSeconds, but for tests
  TimedLock file_lock;  ///< who writes blocks: the helper, a stalled thread, or whoever closes
  void (*told)(const char* line);

  SpinLock stream_lock;  ///< opening of streams
  std::atomic<uint32_t> stream_count;
  Stream* streams[kMaxStreams];
  uint32_t next_id, refused;

  SpinLock match_lock;
  std::atomic<Channel*> matches;
  uint64_t last_match;
  std::atomic<uint64_t> match_count;

  std::atomic<uint32_t> space;  ///< futex: a buffer became free
  std::atomic<uint32_t> waiting;  ///< threads that wait for that
  std::atomic<uint32_t> bell;  ///< futex: the helper is wanted
  std::atomic<bool> helper_sleeps, helper_stop;
  std::atomic<uint32_t> helper_runs;  ///< futex: 1 while it exists
  std::atomic<uint64_t> stalls, stalled_ns;
  SpinLock failure_lock;
  char failure[600];
  char path[1100];
};
extern Writer writer;

/// The writer's way into streams.
struct Streams {
  static Stream* idle();  ///< one that nobody uses, or null
  static Stream* open(uint64_t first_site);
  static void close(Stream* stream);
  /// Makes all streams idle for a new recording in the same process; no thread may be in one.
  static void forget();
  static void end_all_polls();
  static void count(WriterStatus* status);
  // Under file_lock; false: the recording has ended. Full buffers that were written are counted.
  static bool write(Channel* channel, uint32_t id, bool partial, int* full_ones);
  static bool write_closed(Stream* stream);
  static bool write_all(bool partial, int* full_ones);
};

/// Under file_lock: writes what all threads have complete; of buffers that are not full only when `partial`. Returns
/// how many full buffers there were, -1 when the recording ended.
int write_streams(bool partial);
/// A thread without a free buffer. False: the recording has ended.
bool wait_for_space(Channel* channel, uint32_t stream);
/// A buffer was taken; wakes the helper when few are left.
void buffer_taken(const Channel& channel);
/// Ends the recording, once. `error` errno, 0: `why` says everything.
void recording_failed(int error, const char* why);

bool helper_start();
void helper_end(double timeout);

}  // namespace resil::record
