// SPDX-License-Identifier: Apache-2.0
//
// The exported half of resil.h that looks at arrays: fingerprints, protected state, double runs. Any thread of the
// application, not signal handlers; protected state and double runs by one thread at a time.

#include <atomic>

#include "checksum/double_run/double_run.h"
#include "checksum/double_run/messages.h"
#include "checksum/double_run/state.h"
#include "shim/base/digest/compat.h"
#include "shim/base/digest/digest.h"
#include "shim/base/spinlock.h"
#include "shim/call/user_records.h"
#include "shim/report/log.h"
#include "shim/runtime/accelerators/host_memory.h"

namespace {

resil::SpinLock protect_lock;

/// Of the processor's variants: in processes that want it alone, since asking a virtual processor takes 15 us.
void prepare_digests() {
  static std::atomic<bool> done;
  if (!done.exchange(true, std::memory_order_relaxed)) resil::digest_prepare();
}

uint64_t fingerprint(const char* name, const void* data, size_t bytes, uint64_t (*of)(const void*, size_t)) {
  if (bytes != 0 && !resil::host_memory(data, bytes)) {
    resil::add_note(resil::messages::double_run::array_left_out);
    return 0;
  }
  prepare_digests();
  const uint64_t value = of(data, bytes);
  resil::record_user(resil::ring::RecordState::kChecksum, name, value);
  return value;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint64_t resil_fingerprint(const char* name, const void* data, size_t bytes) {
  return fingerprint(name, data, bytes, resil::digest);
}

uint64_t resil_fingerprint_crc32(const char* name, const void* data, size_t bytes) {
  return fingerprint(name, data, bytes, resil::compat_fingerprint);
}

int resil_protect(const char* name, void* data, size_t bytes) {
  // Mapping memory under the lock is rare and short; nobody waits for it inside MPI.
  resil::SpinGuard guard(protect_lock);
  switch (resil::double_run::state_protect(name, data, bytes)) {
    case resil::double_run::Added::kDone: return 0;
    case resil::double_run::Added::kDeviceMemory: return 1;
    case resil::double_run::Added::kFull: break;
  }
  return 2;
}

int resil_unprotect(const char* name) {
  resil::SpinGuard guard(protect_lock);
  return resil::double_run::state_unprotect(name) ? 0 : 1;
}

int resil_run_twice(const char* step, void (*run)(void*), void* argument, int policy) {
  prepare_digests();
  resil::record_user(resil::ring::RecordState::kStep, step, 0);
  return resil::double_run::run_twice(step, run, argument, policy);
}

int64_t resil_mismatches() { return static_cast<int64_t>(resil::double_run::mismatches()); }

}  // extern "C"
#pragma GCC visibility pop
