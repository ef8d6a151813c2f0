// SPDX-License-Identifier: Apache-2.0
//
// Per-thread state of the shim: nesting depth, the flight recorder's lane, and small caches that make the usual
// lookup a compare. One is mapped for each thread on its first MPI call; nothing here is shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call_info.h"
#include "shim/ring_format.h"

namespace resil {

struct CommInfo;
struct Event;

enum class SiteClass : uint8_t { kUnknown, kApplication, kBinding, kInternal };

struct SiteEntry {
  uint64_t return_address;
  uint64_t module_start, module_end;  ///< bindings: range in which the caller's return address must lie
  uint32_t offset;                    ///< bindings: bytes above the frame at which the caller's return address lies
  SiteClass kind;
};

struct CommCacheEntry {
  uint64_t handle;
  CommInfo* info;
};

struct TypeCacheEntry {
  uint64_t handle;
  int64_t size;  ///< bytes of one element
};

constexpr unsigned kSiteCache = 256, kCommCache = 8, kTypeCache = 64, kMaxModules = 16;

struct Thread {
  uint32_t depth;        ///< 0 outside MPI; inside, calls from MPI's own text go straight through
  bool disabled;         ///< forked child, or after MPI_Finalize: nothing is looked at
  uint32_t comm_generation, type_generation;  ///< of the caches; compared with the tables'
  uint64_t outer_frame;  ///< frame of the innermost open call, to notice calls that were left by an exception
  ring::Lane* lane;      ///< null: no lane was free
  uint32_t lane_index;
  CommCacheEntry comms[kCommCache];
  TypeCacheEntry types[kTypeCache];
  SiteEntry sites[kSiteCache];
  void* module_data[kMaxModules];  ///< a module's own, by its index
  char* scratch;  ///< handle copies of completing calls, a stack
  size_t scratch_bytes, scratch_top;
};

extern constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));

/// The calling thread's state, made if needed. Null when resil is not attached to this process. May map memory.
Thread* thread_register();

/// Cuts the calling thread off for good (after MPI_Finalize, in a forked child).
void thread_disable();

/// `bytes` of scratch until the matching release; grows by mapping. Null when memory is refused.
void* scratch_acquire(Thread& thread, size_t bytes);
void scratch_release(Thread& thread, size_t bytes);

/// Classifies a return address and finds the application's call site (may call the dynamic loader; first time only).
SiteEntry& site_resolve(Thread& thread, uint64_t return_address, uint64_t frame);

inline SiteEntry& site_lookup(Thread& thread, uint64_t return_address, uint64_t frame) {
  SiteEntry& entry = thread.sites[(return_address ^ (return_address >> 8)) % kSiteCache];
  if (entry.return_address == return_address) [[likely]]
    return entry;
  return site_resolve(thread, return_address, frame);
}

/// The call site behind `entry`: the return address itself, or for a language binding its caller's.
inline uint64_t site_address(const SiteEntry& entry, uint64_t frame) {
  if (entry.offset == 0) [[likely]]
    return entry.return_address;
  uint64_t caller = *reinterpret_cast<const uint64_t*>(frame + entry.offset);
  return caller >= entry.module_start && caller < entry.module_end ? caller : entry.return_address;
}

}  // namespace resil
