// SPDX-License-Identifier: Apache-2.0
//
// May eight bytes be read, without reading them? The kernel reads a signal mask before it looks at what shall be done
// with it, and is asked for nothing. Needs no permission, takes no lock for a page that is there. Async-signal-safe,
// any thread; keeps errno.
#pragma once

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace resil {

enum class Readable : uint8_t {
  kYes,
  kNo,  ///< nothing is mapped there, or not to be read
  kUnknown,  ///< a kernel, or what stands for one, that answers otherwise
};

inline Readable readable(uint64_t address) {
  const int kept = errno;
  const long result = syscall(SYS_rt_sigprocmask, ~0, address, nullptr, sizeof(uint64_t));
  const int told = errno;
  errno = kept;
  return result != -1     ? Readable::kUnknown
         : told == EINVAL ? Readable::kYes
         : told == EFAULT ? Readable::kNo
                          : Readable::kUnknown;
}

}  // namespace resil
