// SPDX-License-Identifier: Apache-2.0
//
// Helper threads for digests of large buffers. Used by digest.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// Tries to share `leaves` whole leaves of kDigestLeaf bytes with helper threads; returns whether it did, and then
/// adds the sum of their terms to *sum. False: none are allowed, none could be made, or another thread is using them.
/// Returns only after no helper reads the buffer any more. May create threads, so not for signal handlers.
bool share_with_helpers(const char* data, size_t leaves, uint64_t* sum);

/// How many helpers there may be: `cpus` in the affinity mask, `ranks` on the node with `threads` OpenMP threads each.
int helper_count(int cpus, int ranks, int threads);

/// For tests: allows this many, whatever the machine; at most kMostHelpers. Threads that exist stay.
void allow_helpers(int count);
constexpr int kMostHelpers = 3;
/// For tests: chunks that helpers have digested in this process.
uint64_t helper_chunks();

}  // namespace resil
