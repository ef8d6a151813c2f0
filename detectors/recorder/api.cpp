// SPDX-License-Identifier: Apache-2.0
//
// The exported half of resil.h. Any thread of the application, not signal handlers.

#include <bit>

#include "detectors/recorder/recorder.h"
#include "shim/version.h"

#pragma GCC visibility push(default)
extern "C" {

void resil_step(const char* name) { resil::record_user(resil::ring::RecordState::kStep, name, 0); }

void resil_norm(const char* name, double value) {
  resil::record_user(resil::ring::RecordState::kNorm, name, std::bit_cast<uint64_t>(value));
}

void resil_checksum(const char* name, uint64_t value) {
  resil::record_user(resil::ring::RecordState::kChecksum, name, value);
}

void resil_count(const char* name, int64_t value) {
  resil::record_user(resil::ring::RecordState::kCount, name, static_cast<uint64_t>(value));
}

/// Watch mode verifies nothing, so nothing is left unverified.
int resil_drain() { return 0; }

const char* resil_version() { return resil::kVersionText; }

}  // extern "C"
#pragma GCC visibility pop
