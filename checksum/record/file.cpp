// SPDX-License-Identifier: Apache-2.0
//
// Writing whole blocks to a file that may be full, limited or slow.
#include "checksum/record/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "shim/base/clock.h"
#include "shim/base/futex.h"

namespace resil::record {

namespace {

sigset_t only_size_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool size_signal_pending() {
  sigset_t set;
  return sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 1;
}

/// All of `count` parts, or errno. Parts are consumed.
int write_parts(int descriptor, iovec* parts, int count, uint64_t offset) {
  while (count > 0) {
    const ssize_t done = pwritev(descriptor, parts, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return ENOSPC;
    offset += static_cast<uint64_t>(done);
    size_t left = static_cast<size_t>(done);
    while (count > 0 && left >= parts->iov_len) {
      left -= parts->iov_len;
      ++parts;
      --count;
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + left;
      parts->iov_len -= left;
    }
  }
  return 0;
}

FileState state_of(FilePhase phase, int error, uint64_t bytes, uint64_t blocks, uint64_t calls) {
  FileState state = {};
  state.magic = kStateMagic;
  state.phase = static_cast<uint32_t>(phase);
  state.error = error;
  state.file_bytes = bytes;
  state.blocks = blocks;
  state.calls = calls;
  state.seconds = realtime_ns() / 1000000000;
  state.crc = state_crc(state);
  return state;
}

}  // namespace

SizeSignalShield::SizeSignalShield() : pending_(size_signal_pending()) {
  const sigset_t set = only_size_signal();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

SizeSignalShield::~SizeSignalShield() {
  const int kept = errno;
  const sigset_t set = only_size_signal();
  const timespec none = {};
  if (!pending_ && size_signal_pending()) sigtimedwait(&set, nullptr, &none);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = kept;
}

bool TimedLock::try_lock() {
  uint32_t none = 0;
  return word_.compare_exchange_strong(none, 1, std::memory_order_acquire, std::memory_order_relaxed);
}

bool TimedLock::lock(double seconds) {
  if (try_lock()) return true;
  const double deadline = monotonic_seconds() + seconds;
  while (word_.exchange(2, std::memory_order_acquire) != 0) {
    const double left = deadline - monotonic_seconds();
    if (left <= 0) return false;
    futex_wait(&word_, 2, left);
  }
  return true;
}

void TimedLock::unlock() {
  if (word_.exchange(0, std::memory_order_release) == 2) futex_wake(&word_);
}

int BlockFile::create(const char* path, const Identity& identity) {
  descriptor_ = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return errno;
  alignas(8) unsigned char page[kHeadBytes] = {};
  FileHead head = {};
  head.magic = kFileMagic;
  head.version = kFormatVersion;
  head.head_bytes = kHeadBytes;
  head.identity_bytes = sizeof(Identity);
  head.identity = identity;
  const FileState state = state_of(FilePhase::kRunning, 0, 0, 0, 0);
  memcpy(page, &head, sizeof(head));
  memcpy(page + kStateAt, &state, sizeof(state));
  head.crc = head_crc(page);
  memcpy(page, &head, sizeof(head));
  iovec part = {page, sizeof(page)};
  const int error = write_parts(descriptor_, &part, 1, 0);
  if (error != 0) {
    ::close(descriptor_);
    unlink(path);
    descriptor_ = -1;
    return error;
  }
  bytes_.store(kHeadBytes, std::memory_order_relaxed);
  blocks_ = 0;
  return 0;
}

int BlockFile::append(BlockHead head, const void* payload) {
  head.magic = kBlockMagic;
  head.payload_crc = compat_crc32(payload, head.payload_bytes);
  head.reserved = 0;
  head.sequence = blocks_;
  head.time = realtime_ns();
  head.crc = block_crc(head);
  iovec parts[2] = {{&head, sizeof(head)}, {const_cast<void*>(payload), head.payload_bytes}};
  const uint64_t at = bytes();
  const int error = write_parts(descriptor_, parts, head.payload_bytes == 0 ? 1 : 2, at);
  if (error != 0) {
    // What went in of the block goes; a reader of a file that cannot be cut takes it for one of a killed program.
    while (ftruncate(descriptor_, static_cast<off_t>(at)) != 0 && errno == EINTR) {}
    return error;
  }
  ++blocks_;
  bytes_.store(at + sizeof(head) + head.payload_bytes, std::memory_order_relaxed);
  return 0;
}

int BlockFile::set_state(FilePhase phase, int error, uint64_t calls) {
  FileState state = state_of(phase, error, bytes(), blocks_, calls);
  iovec part = {&state, sizeof(state)};
  return write_parts(descriptor_, &part, 1, kStateAt);
}

int BlockFile::close() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  return descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR ? errno : 0;
}

bool BlockFile::removed() const {
  struct stat status;
  return fstat(descriptor_, &status) == 0 && status.st_nlink == 0;
}

void BlockFile::sync() { fdatasync(descriptor_); }

}  // namespace resil::record
