// SPDX-License-Identifier: Apache-2.0
//
// resil_run_twice(): checkpoint, run, fingerprint, restore, run again, compare; and what is done about a difference.
#pragma once

#include <cstdint>

namespace resil::double_run {

/// As in resil.h.
enum class Policy : int { kDefault, kAbort, kRetry, kContinue };
constexpr int kLocalFlag = 16;

/// Runs `run(argument)` twice from the same protected state. Returns how many ranks found a difference (of this rank
/// alone with kLocalFlag), 0: none, or nothing could be compared. On an application thread, outside of MPI. May not
/// return: policy abort ends the job with exit status 90.
int run_twice(const char* step, void (*run)(void*), void* argument, int policy);

/// Double runs whose results differed so far.
uint64_t mismatches();

}  // namespace resil::double_run
