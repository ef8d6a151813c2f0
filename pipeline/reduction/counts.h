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

/// One call, or one start of a persistent one; `bytes`: of this rank's contribution.
void count_way(Way way, uint64_t bytes);
void report_ways(JsonWriter& json, const char* mode, bool p2p);

}  // namespace resil::reduction
