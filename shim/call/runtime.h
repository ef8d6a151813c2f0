// SPDX-License-Identifier: Apache-2.0
//
// The one global state of the preloaded library: where the ring file's sections lie and who this process is.
// Zero-initialised, filled once on the first route into MPI_Init, then constant but for what the ring holds.
#pragma once

#include <cstdint>

#include "shim/ring/ring_format.h"

namespace resil {

struct Runtime {
  ring::Header* header;  ///< null until the first MPI_Init (any route); afterwards never null
  ring::TraceBuffer* traces;
  ring::Comm* comms;
  ring::Request* requests;
  ring::Module* modules;
  ring::CallName* calls;
  ring::Name* names;
  uint32_t trace_count, comm_count, request_count, module_count, call_count, name_count;
  int32_t pid;  ///< of the process that attached; a forked child has another one and stays out
  int32_t rank;  ///< in MPI_COMM_WORLD (launcher's rank until MPI_Init has returned), -1 unknown
  int32_t size;
  int32_t world;  ///< 0, or N for the Nth spawned world
  int32_t local_size;  ///< ranks of this job on this node, as the launcher says; 0 unknown
  char launch_key[17];  ///< 16 hexadecimal digits, unique to this launch: rank 0's nonce, this rank's own until agreed
  bool launch_agreed;  ///< after MPI_Init: all ranks of this world that are preloaded have this key
  char host[64];
  char directory[1024];  ///< absolute report directory of this rank; "" when files cannot be written
};

extern Runtime runtime;

/// Ticks of the constant-rate CPU counter (x86-64: TSC; aarch64: CNTVCT). Async-signal-safe. About 10 ns.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
#error "no tick counter for this architecture"
#endif
}

}  // namespace resil
