// SPDX-License-Identifier: Apache-2.0
//
// May the host touch this address? Where no accelerator runtime is in the process the answer is one load.
#pragma once

#include <atomic>
#include <cstddef>

namespace resil {

namespace host_memory_detail {
/// Times that the answer "no runtime is loaded" may still be given without looking again.
extern constinit thread_local unsigned unchecked_calls __attribute__((tls_model("initial-exec")));
bool ask(const void* address, size_t bytes);
}  // namespace host_memory_detail

/// False for device memory, managed memory and whatever is not certain. The host may then neither read nor write it;
/// count the message as uncovered, reason "device_buffer". Any thread; asks a runtime that is loaded and was
/// initialised by the program, never initialises one.
inline bool host_memory(const void* address, size_t bytes) {
  if (host_memory_detail::unchecked_calls != 0) [[likely]] {
    --host_memory_detail::unchecked_calls;
    return true;
  }
  return host_memory_detail::ask(address, bytes);
}

}  // namespace resil
