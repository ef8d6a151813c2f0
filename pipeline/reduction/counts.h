// SPDX-License-Identifier: Apache-2.0
//
// How many reductions went which way, and the object `reductions` of the rank's report. Any thread.
#pragma once

#include <cstdint>

#include "pipeline/reduction/call.h"

namespace resil {
class JsonWriter;
}

namespace resil::reduction {

/// One call, or one start of a persistent one; `bytes`: of this rank's contribution. `mine`: the calling thread's.
void count_algorithm(PerThread& mine, Algorithm algorithm, uint64_t bytes);
/// A thread's counts, before its memory goes.
void counts_enter(PerThread& mine);
void counts_leave(PerThread& mine);
void report_ways(JsonWriter& json, const char* mode, bool p2p);

}  // namespace resil::reduction
