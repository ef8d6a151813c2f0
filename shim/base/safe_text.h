// SPDX-License-Identifier: Apache-2.0
//
// Text without stdio: numbers and strings into a preallocated buffer, written with write(2). Every function here is
// async-signal-safe and none is a cancellation point (raw system calls). SIGPIPE and SIGXFSZ must be blocked while
// anything is written; the one that a failed write raises is taken away. May touch: its buffer and its descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// Appends to a buffer; when it is full, writes it to the descriptor, or, without one, drops the rest.
class SafeText {
 public:
  /// `descriptor` -1: keep everything (cut at `capacity`). Does not own anything.
  SafeText(char* buffer, size_t capacity, int descriptor)
      : buffer_(buffer), capacity_(capacity), descriptor_(descriptor) {}

  SafeText& chr(char c);
  SafeText& str(const char* s);
  /// At most `limit` bytes of a string that may lack its NUL; bytes that do not print become '?'.
  SafeText& safe(const char* s, size_t limit);
  SafeText& u64(uint64_t value);
  SafeText& i64(int64_t value);
  /// With leading zeros up to `width` digits (at most 20).
  SafeText& padded(uint64_t value, int width);
  /// "0x…"
  SafeText& hex(uint64_t value);
  /// "400 us", "0.012 s", "12.4 s", "754 s (12 min 34 s)"; "an unknown time" when negative, infinite or absurd.
  SafeText& seconds(double value);
  /// "8 bytes", "1 byte"
  SafeText& bytes(uint64_t value);
  /// "2024-11-21 04:12:09.123 UTC" of nanoseconds since the epoch.
  SafeText& utc(uint64_t nanoseconds);

  /// Writes what is there. False once a write has failed; `error()` says why (an errno value).
  bool flush();
  int error() const { return error_; }
  const char* data() const { return buffer_; }
  size_t size() const { return used_; }

 private:
  char* buffer_;
  size_t capacity_;
  int descriptor_;
  size_t used_ = 0;
  int error_ = 0;
};

/// Writes everything to a descriptor that others may block (a pipe whose reader is stuck): waits at most `wait_ms` for
/// room before each piece of at most 4,096 bytes, then gives up. Returns 0 or an errno value (EAGAIN: no room).
int write_patiently(int descriptor, const char* data, size_t size, int wait_ms);

/// "ENOSPC" and the like, or "an error" for one without a name here.
const char* error_name(int error);

}  // namespace resil
