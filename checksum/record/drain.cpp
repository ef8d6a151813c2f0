// SPDX-License-Identifier: Apache-2.0
//
// From the threads' buffers into the file, and what happens when the file is slower than the threads.
//
// THREAD: "resil-record", one in a process that records, from MPI_Init to MPI_Finalize. Blocks all signals, allocates
// nothing, never calls MPI, sleeps on a futex between passes. A child of fork() has none and records nothing.
//
// It is not told when a buffer is full, which would be a system call on the way of the program: it comes back so often
// that two of a thread's four buffers stay free, and is woken only by a thread that is about to run out.
#include "checksum/record/writer_internal.h"
#include "shim/base/clock.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"

namespace resil::record {

namespace {

constexpr double kShortestPause = 0.0005, kLongestPause = 0.25;
constexpr double kPartialEvery = 0.5;  // a second at most, with the longest pause and some delay

void help() {
  double pause = 0.01, last_partial = monotonic_seconds();
  while (!writer.helper_stop.load(std::memory_order_acquire)) {
    const uint32_t heard = writer.bell.load(std::memory_order_acquire);
    writer.helper_sleeps.store(true, std::memory_order_seq_cst);
    futex_wait(&writer.bell, heard, pause);
    writer.helper_sleeps.store(false, std::memory_order_relaxed);
    if (writer.helper_stop.load(std::memory_order_acquire) || !writer.recording.load(std::memory_order_relaxed)) break;
    if (!writer.file_lock.lock(kLongestPause)) continue;
    const double now = monotonic_seconds();
    const bool partial = now - last_partial >= kPartialEvery;
    if (partial) last_partial = now;
    const int full = write_streams(partial);
    writer.file_lock.unlock();
    pause = full < 0 ? kLongestPause : full > 1 ? pause / 2 : full == 1 ? pause : pause * 1.25;
    pause = pause < kShortestPause ? kShortestPause : pause > kLongestPause ? kLongestPause : pause;
  }
  writer.helper_runs.store(0, std::memory_order_release);
  futex_wake(&writer.helper_runs);
}

void wake_helper() {
  writer.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&writer.bell);
}

}  // namespace

/// Under file_lock. Returns whether there may be more of them; full buffers are counted.
bool Streams::write(Channel* channel, uint32_t id, bool partial, int* full_ones) {
  uint32_t end;
  bool full;
  while (Buffer* buffer = channel->oldest(partial, &end, &full)) {
    if (end > buffer->written) {
      BlockHead head = {};
      head.payload_bytes = end - buffer->written;
      head.stream = id;
      head.flags = static_cast<uint16_t>((buffer->written == 0 ? kBlockFirst : 0) |
                                         (buffer->written == 0 && buffer->segment == 0 ? kBlockOpens : 0));
      head.segment = buffer->segment;
      head.offset = buffer->written;
      head.number = buffer->number;
      head.ordinal = buffer->ordinal;
      if (const int error = writer.file.append(head, buffer->data + buffer->written)) {
        recording_failed(error, "cannot be written");
        return false;
      }
      buffer->written = end;
    }
    if (!full) break;
    ++*full_ones;
    channel->release(buffer);
    writer.space.fetch_add(1, std::memory_order_release);
    if (writer.waiting.load(std::memory_order_acquire) != 0) futex_wake(&writer.space);
  }
  return true;
}

bool Streams::write_closed(Stream* stream) {
  int full_ones = 0;
  if (!write(&stream->channel_, stream->id_, true, &full_ones)) return false;
  BlockHead head = {};
  head.stream = stream->id_;
  head.flags = kBlockCloses;
  head.segment = stream->channel_.segments();
  head.number = stream->calls();
  head.ordinal = stream->started_;
  if (const int error = writer.file.append(head, "")) {
    recording_failed(error, "cannot be written");
    return false;
  }
  stream->state_.store(Stream::kIdle, std::memory_order_release);
  return true;
}

bool Streams::write_all(bool partial, int* full_ones) {
  // Matches first: who reads a call of which the match is missing would take it for the end.
  Channel* matches = writer.matches.load(std::memory_order_acquire);
  if (matches != nullptr && !write(matches, kMatchStream, partial, full_ones)) return false;
  const uint32_t count = writer.stream_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    Stream* stream = writer.streams[i];
    const uint32_t state = stream->state_.load(std::memory_order_acquire);
    if (state == Stream::kIdle) continue;
    if (!(state == Stream::kClosing ? write_closed(stream) : write(&stream->channel_, stream->id_, partial, full_ones)))
      return false;
  }
  return true;
}

int write_streams(bool partial) {
  int full_ones = 0;
  if (!writer.recording.load(std::memory_order_relaxed) || !Streams::write_all(partial, &full_ones)) return -1;
  return full_ones;
}

void buffer_taken(const Channel& channel) {
  if (channel.in_use() >= kBuffers - 1 && writer.helper_sleeps.load(std::memory_order_seq_cst)) wake_helper();
}

bool wait_for_space(Channel* channel, uint32_t stream) {
  SizeSignalShield shield;
  const double begin = monotonic_seconds();
  double last_progress = begin;
  uint64_t written = writer.file.bytes();
  writer.stalls.fetch_add(1, std::memory_order_relaxed);
  writer.waiting.fetch_add(1, std::memory_order_acq_rel);
  while (writer.recording.load(std::memory_order_relaxed)) {
    const uint32_t space = writer.space.load(std::memory_order_acquire);
    if (channel->in_use() < kBuffers) break;
    if (writer.file_lock.try_lock()) {  // the helper sleeps, or does not exist, or waits for a core
      int full_ones = 0;
      if (writer.recording.load(std::memory_order_relaxed)) Streams::write(channel, stream, false, &full_ones);
      writer.file_lock.unlock();
      continue;
    }
    futex_wait(&writer.space, space, 0.02);
    const double now = monotonic_seconds();
    if (writer.file.bytes() != written) {
      written = writer.file.bytes();
      last_progress = now;
    } else if (now - last_progress > writer.timeout) {
      recording_failed(0, "the file system takes nothing");
    }
  }
  writer.waiting.fetch_sub(1, std::memory_order_acq_rel);
  writer.stalled_ns.fetch_add(static_cast<uint64_t>((monotonic_seconds() - begin) * 1e9), std::memory_order_relaxed);
  return writer.recording.load(std::memory_order_relaxed);
}

bool helper_start() {
  writer.helper_stop.store(false, std::memory_order_relaxed);
  writer.helper_runs.store(1, std::memory_order_relaxed);
  const bool made = helper_thread_start("resil-record", help);
  if (!made) writer.helper_runs.store(0, std::memory_order_relaxed);
  return made;
}

void helper_end(double timeout) {
  const double deadline = monotonic_seconds() + timeout;
  writer.helper_stop.store(true, std::memory_order_release);
  wake_helper();
  while (writer.helper_runs.load(std::memory_order_acquire) != 0 && monotonic_seconds() < deadline)
    futex_wait(&writer.helper_runs, 1, deadline - monotonic_seconds());
}

}  // namespace resil::record
