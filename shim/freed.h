// SPDX-License-Identifier: Apache-2.0
//
// Handles that the program has freed and MPI has not given out since. MPI is never asked about one of these: what the
// program may do with it, and what it is told, is between the two, and an error of a question of resil's own would reach
// the program's error handler, which may end the job. The newest 1,024 or so, without locks; any thread, no MPI.
#pragma once

#include <cstdint>

#include "shim/hash.h"

namespace resil {

enum class HandleKind : uint8_t { kType = 1, kComm, kOp };

constexpr uint32_t kFreedHandles = 1024;
inline constinit uint64_t freed_handles[kFreedHandles] = {};

inline uint64_t freed_word(HandleKind kind, uint64_t handle) { return hash_combine(static_cast<uint64_t>(kind), handle) | 1; }

/// Before MPI frees it: afterwards another thread may be given the same handle.
inline void handle_freed(HandleKind kind, uint64_t handle) {
  const uint64_t word = freed_word(kind, handle);
  __atomic_store_n(&freed_handles[(word >> 8) % kFreedHandles], word, __ATOMIC_RELAXED);
}
inline bool is_freed(HandleKind kind, uint64_t handle) {
  const uint64_t word = freed_word(kind, handle);
  return __atomic_load_n(&freed_handles[(word >> 8) % kFreedHandles], __ATOMIC_RELAXED) == word;
}
/// While a datatype that MPI takes is looked into: its parts are valid, whoever has freed them, committed or not.
inline constinit thread_local bool type_is_taken __attribute__((tls_model("initial-exec"))) = false;
struct TakenType {
  TakenType() : before(type_is_taken) { type_is_taken = true; }
  ~TakenType() { type_is_taken = before; }
  TakenType(const TakenType&) = delete;
  const bool before;
};

/// MPI has given it out, or has not freed it.
inline void handle_valid(HandleKind kind, uint64_t handle) {
  if (is_freed(kind, handle))
    __atomic_store_n(&freed_handles[(freed_word(kind, handle) >> 8) % kFreedHandles], 0, __ATOMIC_RELAXED);
}

}  // namespace resil
