// SPDX-License-Identifier: Apache-2.0
//
// What was checked and what was not, for the report. Any thread.
#pragma once

#include <cstdint>

#include "detectors/gpu_runtime/words.h"

namespace resil {
class JsonWriter;
}

namespace resil::gpu_runtime {

enum class Kind : uint8_t { kStreamWait, kDeviceWait, kEventWait, kStreamQuery, kEventQuery, kCount };

void count_call(Kind kind);
/// Its word was there, or was not; `late_seconds` after the runtime had returned (0: it was there).
void count_checked(Kind kind, double late_seconds);
/// Late enough to be a finding?
bool worth_claiming(double late_seconds);
void count_uncovered(Kind kind, Uncovered why);
void count_lost();
uint64_t calls_so_far();

void counts_report(JsonWriter& json);

}  // namespace resil::gpu_runtime
