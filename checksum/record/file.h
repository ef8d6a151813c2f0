// SPDX-License-Identifier: Apache-2.0
//
// The file of one rank as its writer sees it: whole blocks at its end, one state in its head. Makes system calls.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>

#include "checksum/record/layout.h"

namespace resil::record {

/// While it lives, a write beyond a file-size limit fails with EFBIG instead of killing the program by SIGXFSZ, whose
/// disposition is the application's. For the application's threads.
class SizeSignalShield {
 public:
  SizeSignalShield();
  ~SizeSignalShield();
  SizeSignalShield(const SizeSignalShield&) = delete;

 private:
  sigset_t before_;
  bool pending_;
};

/// A lock that may be held while the file system is slow, and waited for only so long. Not for signal handlers.
class TimedLock {
 public:
  bool try_lock();
  /// False: not got within that time.
  bool lock(double seconds);
  void unlock();

 private:
  std::atomic<uint32_t> word_{0};  // 0 free, 1 held, 2 held and waited for
};

class BlockFile {
 public:
  /// Makes the file, which must not exist, with its head. 0, or errno; then nothing is left.
  int create(const char* path, const Identity& identity);
  /// One block; all of it or none of it. Sets magic, checksums, sequence and time. 0 or errno. Under the lock.
  int append(BlockHead head, const void* payload);
  /// Rewrites the state. Any thread. 0 or errno.
  int set_state(FilePhase phase, int error, uint64_t calls);
  int close();  ///< 0 or errno
  bool removed() const;  ///< it has no name any more
  void sync();

  bool is_open() const { return descriptor_ >= 0; }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  int descriptor_ = -1;
  std::atomic<uint64_t> bytes_{0};
  uint64_t blocks_ = 0;
};

}  // namespace resil::record
