// SPDX-License-Identifier: Apache-2.0
//
// The formatter of safe_text.h. May touch: the buffer it was given and its descriptor.
#include "shim/base/safe_text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

namespace resil {
namespace {

// A failed write raises a signal as well (a reader that left, a file-size limit), which would kill the program as soon
// as the handler returns. All signals are blocked here, so it is pending for this thread: take it away.
int failed_write() {
  const int error = errno;
  const int signal = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
  if (signal != 0) {
    uint64_t set = uint64_t{1} << (signal - 1);
    timespec now{0, 0};
    syscall(SYS_rt_sigtimedwait, &set, nullptr, &now, sizeof set);
  }
  return error;
}

// write(2) is a cancellation point in libc: a cancelled thread would leave from within the handler. A regular file
// only; what may block goes through write_patiently.
int write_all(int descriptor, const char* data, size_t size) {
  while (size > 0) {
    const long done = syscall(SYS_write, descriptor, data, size);
    if (done < 0) {
      if (errno == EINTR) continue;
      return failed_write();
    }
    if (done == 0) return EIO;
    data += done;
    size -= static_cast<size_t>(done);
  }
  return 0;
}

}  // namespace

SafeText& SafeText::chr(char c) {
  if (used_ == capacity_) {
    if (descriptor_ < 0) return *this;
    flush();
  }
  buffer_[used_++] = c;
  return *this;
}

SafeText& SafeText::str(const char* s) {
  while (*s != 0) chr(*s++);
  return *this;
}

SafeText& SafeText::safe(const char* s, size_t limit) {
  for (size_t i = 0; i < limit && s[i] != 0; ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    chr(c < 0x20 || c == 0x7f ? '?' : s[i]);
  }
  return *this;
}

SafeText& SafeText::padded(uint64_t value, int width) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  for (int i = count; i < width; ++i) chr('0');
  while (count > 0) chr(digits[--count]);
  return *this;
}

SafeText& SafeText::u64(uint64_t value) { return padded(value, 1); }

SafeText& SafeText::i64(int64_t value) {
  if (value >= 0) return u64(static_cast<uint64_t>(value));
  return chr('-').u64(~static_cast<uint64_t>(value) + 1);
}

SafeText& SafeText::hex(uint64_t value) {
  str("0x");
  int shift = 60;
  while (shift > 0 && (value >> shift) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) chr("0123456789abcdef"[(value >> shift) & 15]);
  return *this;
}

SafeText& SafeText::seconds(double value) {
  // Also catches NaN. Clocks of two cores may differ by a little: not a negative age.
  if (!(value > -1e-3 && value < 1e10)) return str("an unknown time");
  if (value < 0) value = 0;
  if (value < 1e-3) return u64(static_cast<uint64_t>(value * 1e6 + 0.5)).str(" us");
  if (value < 10) {
    const auto ms = static_cast<uint64_t>(value * 1e3 + 0.5);
    return u64(ms / 1000).chr('.').padded(ms % 1000, 3).str(" s");
  }
  if (value < 120) {
    const auto tenths = static_cast<uint64_t>(value * 10 + 0.5);
    return u64(tenths / 10).chr('.').u64(tenths % 10).str(" s");
  }
  const auto whole = static_cast<uint64_t>(value + 0.5);
  u64(whole).str(" s (");
  if (whole >= 3600) u64(whole / 3600).str(" h ");
  return u64(whole / 60 % 60).str(" min ").u64(whole % 60).str(" s)");
}

SafeText& SafeText::bytes(uint64_t value) { return u64(value).str(value == 1 ? " byte" : " bytes"); }

SafeText& SafeText::utc(uint64_t nanoseconds) {
  const uint64_t seconds = nanoseconds / 1000000000;
  // Days since 0000-03-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms"): the leap day ends the year.
  const uint64_t days = seconds / 86400 + 719468;
  const uint64_t era = days / 146097;
  const uint64_t of_era = days % 146097;
  const uint64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const uint64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const uint64_t shifted = (5 * of_year + 2) / 153;
  const uint64_t day = of_year - (153 * shifted + 2) / 5 + 1;
  const uint64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
  const uint64_t year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
  const uint64_t of_day = seconds % 86400;
  padded(year, 4).chr('-').padded(month, 2).chr('-').padded(day, 2).chr(' ');
  padded(of_day / 3600, 2).chr(':').padded(of_day / 60 % 60, 2).chr(':').padded(of_day % 60, 2);
  return chr('.').padded(nanoseconds / 1000000 % 1000, 3).str(" UTC");
}

bool SafeText::flush() {
  if (descriptor_ >= 0) {
    if (error_ == 0 && used_ > 0) {
      // Standard error (a dump without a directory) may be a pipe that nobody reads.
      error_ = descriptor_ == 2 ? write_patiently(2, buffer_, used_, 500) : write_all(descriptor_, buffer_, used_);
    }
    used_ = 0;
  }
  return error_ == 0;
}

int write_patiently(int descriptor, const char* data, size_t size, int wait_ms) {
  // A pipe that polls as writable takes 4,096 bytes without blocking, unless another writer is faster.
  constexpr size_t kPiece = 4096;
  while (size > 0) {
    pollfd target{descriptor, POLLOUT, 0};
    timespec wait{wait_ms / 1000, (wait_ms % 1000) * 1000000L};
    const long ready = syscall(SYS_ppoll, &target, 1, &wait, nullptr, 8);
    if (ready < 0 && errno != EINTR) return errno;
    if (ready == 0) return EAGAIN;
    if (ready < 0) continue;
    if ((target.revents & POLLOUT) == 0 || (target.revents & (POLLERR | POLLHUP)) != 0) return EPIPE;
    const size_t piece = size < kPiece ? size : kPiece;
    const long done = syscall(SYS_write, descriptor, data, piece);
    if (done < 0 && errno != EINTR) return failed_write();
    if (done > 0) {
      data += done;
      size -= static_cast<size_t>(done);
    }
  }
  return 0;
}

const char* error_name(int error) {
  switch (error) {
    case EACCES: return "EACCES, permission denied";
    case EAGAIN: return "EAGAIN, nobody reads it";
    case EDQUOT: return "EDQUOT, quota exceeded";
    case EIO: return "EIO, input/output error";
    case EFBIG: return "EFBIG, file size limit";
    case EMFILE: return "EMFILE, too many open files";
    case ENFILE: return "ENFILE, too many open files on the node";
    case ENOENT: return "ENOENT, no such directory";
    case ENOSPC: return "ENOSPC, no space left";
    case ENOTDIR: return "ENOTDIR, not a directory";
    case EPIPE: return "EPIPE, its reader is gone";
    case EROFS: return "EROFS, read-only file system";
    case ESTALE: return "ESTALE, stale file handle";
    default: return "an error";
  }
}

}  // namespace resil
