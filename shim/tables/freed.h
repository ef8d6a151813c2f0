// SPDX-License-Identifier: Apache-2.0
//
// Handles that the program has freed and MPI has not given out since. MPI is never asked about one of these: what the
// program may do with it, and what it is told, is between the two, and an error of a question of resil's own would
// reach the program's error handler, which may end the job. The newest 1,024 or so of a kind, without locks; any
// thread, no MPI.
#pragma once

#include <cstdint>

namespace resil {

enum class HandleKind : uint8_t { kType, kComm, kOp };

/// What was done last with the handles that share a place: each the handle + 1, 0: none.
struct HandlePlace {
  uint64_t freed, given;
};
constexpr unsigned kFreedBits = 10;
inline constinit HandlePlace handle_places[3][1u << kFreedBits] = {};

inline HandlePlace& handle_place(HandleKind kind, uint64_t handle) {
  return handle_places[static_cast<unsigned>(kind)][handle * 0x9e3779b97f4a7c15 >> (64 - kFreedBits)];
}

/// Before MPI frees it: afterwards another thread may be given the same handle.
inline void handle_freed(HandleKind kind, uint64_t handle) {
  HandlePlace& place = handle_place(kind, handle);
  __atomic_store_n(&place.given, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&place.freed, handle + 1, __ATOMIC_RELAXED);
}
inline bool is_freed(HandleKind kind, uint64_t handle) {
  return __atomic_load_n(&handle_place(kind, handle).freed, __ATOMIC_RELAXED) == handle + 1;
}
/// Has a call that was seen here given it out, and none freed it? False also of older ones.
inline bool is_given(HandleKind kind, uint64_t handle) {
  return __atomic_load_n(&handle_place(kind, handle).given, __ATOMIC_RELAXED) == handle + 1;
}
/// While a datatype that MPI takes is looked into: its parts are valid, whoever has freed them, committed or not.
inline constinit thread_local bool type_is_taken __attribute__((tls_model("initial-exec"))) = false;
struct TakenType {
  TakenType() : before(type_is_taken) { type_is_taken = true; }
  ~TakenType() { type_is_taken = before; }
  TakenType(const TakenType&) = delete;
  const bool before;
};

/// MPI has given it out.
inline void handle_given(HandleKind kind, uint64_t handle) {
  HandlePlace& place = handle_place(kind, handle);
  __atomic_store_n(&place.given, handle + 1, __ATOMIC_RELAXED);
  if (__atomic_load_n(&place.freed, __ATOMIC_RELAXED) == handle + 1) [[unlikely]]
    __atomic_store_n(&place.freed, 0, __ATOMIC_RELAXED);
}
/// MPI has refused to free it, or has given it to resil alone.
inline void handle_kept(HandleKind kind, uint64_t handle) {
  if (is_freed(kind, handle)) __atomic_store_n(&handle_place(kind, handle).freed, 0, __ATOMIC_RELAXED);
}

}  // namespace resil
