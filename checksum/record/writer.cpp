// SPDX-License-Identifier: Apache-2.0
//
// Beginning and end of a recording, and how it ends early.
#include "checksum/record/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "checksum/record/directory_lock.h"
#include "checksum/record/writer_internal.h"
#include "shim/runtime/memory.h"

namespace resil::record {

constinit Writer writer{};

namespace {

bool fork_handled;

/// The file is the parent's, and its lock may be held by a thread that the child does not have.
void after_fork_in_child() {
  writer.recording.store(false, std::memory_order_relaxed);
  writer.file.close();
}

}  // namespace

bool writer_open(const char* directory, const Identity& identity, const Names& names, Problem* problem) {
  SizeSignalShield shield;
  if (!directory_is_locked(directory, identity.launch, problem)) return false;
  snprintf(writer.path, sizeof(writer.path), "%.1000s/rank-%05d.rec", directory, identity.rank);
  if (const int error = writer.file.create(writer.path, identity)) {
    problem->kind =
        error == EACCES || error == EPERM || error == EROFS ? ProblemKind::kPermission : ProblemKind::kSystem;
    snprintf(
        problem->text, sizeof(problem->text), "%s: %s", writer.path,
        error == EEXIST ? "is there already, from a launch of the same name; remove the directory" : strerror(error));
    return false;
  }
  if (writer.matches.load(std::memory_order_relaxed) == nullptr) {
    auto* channel = memory::map_array<Channel>();
    if (channel == nullptr) {
      problem->kind = ProblemKind::kSystem;
      snprintf(problem->text, sizeof(problem->text), "%s: no memory for recording", writer.path);
      writer.file.close();
      return false;
    }
    writer.matches.store(channel, std::memory_order_relaxed);
  }
  if (!fork_handled) fork_handled = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
  writer.names = &names;
  writer.timeout = kTimeoutSeconds;
  writer.failure[0] = 0;
  writer.stalls.store(0, std::memory_order_relaxed);
  writer.stalled_ns.store(0, std::memory_order_relaxed);
  Streams::forget();
  writer.recording.store(true, std::memory_order_release);
  helper_start();  // without it threads write for themselves as their buffers fill
  return true;
}

Stream* stream_open(uint64_t first_site) {
  return writer.recording.load(std::memory_order_acquire) ? Streams::open(first_site) : nullptr;
}

void stream_close(Stream* stream) {
  if (stream != nullptr) Streams::close(stream);
}

void writer_close(Ending ending) {
  if (!writer.file.is_open()) return;
  SizeSignalShield shield;
  const double timeout = ending == Ending::kAborted && writer.timeout > 1 ? 1 : writer.timeout;
  if (ending == Ending::kFinished && writer.recording.load(std::memory_order_relaxed)) Streams::end_all_polls();
  helper_end(timeout);
  if (!writer.file_lock.lock(timeout)) {
    recording_failed(0, "the file system takes nothing");
    return;  // the file stays open in whoever is stuck in it
  }
  if (writer.recording.load(std::memory_order_relaxed) && write_streams(true) >= 0) {
    WriterStatus status;
    writer_status(&status);
    const int error =
        writer.file.set_state(ending == Ending::kAborted ? FilePhase::kAborted : FilePhase::kFinished, 0, status.calls);
    if (error != 0) recording_failed(error, "cannot be written");
    else if (writer.file.removed())
      recording_failed(0, "was removed meanwhile; does another job record in this directory?");
  }
  const bool complete = writer.recording.exchange(false, std::memory_order_relaxed);
  const int error = writer.file.close();
  if (error != 0 && complete)  // a remote file system may say only now that it is full
    recording_failed(error, "cannot be written");
  writer.file_lock.unlock();
}

void writer_flush(bool to_disk) {
  if (!writer.file.is_open()) return;
  SizeSignalShield shield;
  if (!writer.file_lock.lock(writer.timeout)) return;
  if (write_streams(true) >= 0 && to_disk) writer.file.sync();
  writer.file_lock.unlock();
}

void recording_failed(int error, const char* why) {
  {
    SpinGuard guard(writer.failure_lock);
    if (writer.failure[0] != 0) return;
    if (error != 0)
      snprintf(writer.failure, sizeof(writer.failure), "recording ended: %.400s %s (%s)", writer.path, why,
               strerror(error));
    else snprintf(writer.failure, sizeof(writer.failure), "recording ended: %.400s: %s", writer.path, why);
  }
  writer.recording.store(false, std::memory_order_relaxed);
  if (writer.file.is_open() && error != 0) {
    WriterStatus status;
    writer_status(&status);
    writer.file.set_state(FilePhase::kFailed, error, status.calls);
  }
  if (writer.told != nullptr) writer.told(writer.failure);
}

void writer_on_failure(void (*told)(const char* line)) { writer.told = told; }

void writer_status(WriterStatus* status) {
  *status = {};
  status->recording = writer.recording.load(std::memory_order_relaxed);
  Streams::count(status);
  status->bytes = writer.file.bytes();
  {
    SpinGuard guard(writer.stream_lock);
    status->streams = writer.next_id;
    status->streams_refused = writer.refused;
  }
  status->stalls = writer.stalls.load(std::memory_order_relaxed);
  status->stalled_seconds = 1e-9 * static_cast<double>(writer.stalled_ns.load(std::memory_order_relaxed));
  SpinGuard guard(writer.failure_lock);
  memcpy(status->failure, writer.failure, sizeof(status->failure));
}

}  // namespace resil::record
