// SPDX-License-Identifier: Apache-2.0
//
// The exported half of resil.h. Any thread of the application, not signal handlers; resil_drain may call MPI.

#include <limits.h>

#include "shim/base/bit_cast.h"
#include "shim/base/version.h"
#include "shim/call/attach.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/registry.h"
#include "shim/call/thread.h"
#include "shim/call/user_records.h"

#pragma GCC visibility push(default)
extern "C" {

void resil_step(const char* name) { resil::record_user(resil::ring::RecordState::kStep, name, 0); }

void resil_norm(const char* name, double value) {
  resil::record_user(resil::ring::RecordState::kNorm, name, resil::bit_cast<uint64_t>(value));
}

void resil_checksum(const char* name, uint64_t value) {
  resil::record_user(resil::ring::RecordState::kChecksum, name, value);
}

void resil_count(const char* name, int64_t value) {
  resil::record_user(resil::ring::RecordState::kCount, name, static_cast<uint64_t>(value));
}

int resil_drain() {
  resil::Thread* thread = resil::current_thread;
  if (thread == nullptr || thread->disabled || thread->depth != 0 || !resil::runtime_has_world())
    return 0;  // no MPI here and now: nothing was received by this thread, or a callback of MPI's is calling
  resil::InsideMpi inside(*thread);
  uint64_t unverified = 0;
  for (const resil::Module* module : resil::enabled_modules())
    if (module->drain != nullptr) unverified += module->drain();
  return unverified < INT_MAX ? static_cast<int>(unverified) : INT_MAX;
}

const char* resil_version() { return resil::kVersionText; }

}  // extern "C"
#pragma GCC visibility pop
