// SPDX-License-Identifier: Apache-2.0
//
// What the root of the overlay does with records and frames that came from anywhere, up to the verdict. Shared by the
// targets `ring`, `states` and `mismatch`.
#pragma once

#include "fuzz.h"

namespace fuzz {

/// `bytes` of RankState records of a world of that size; questions and answers are taken from `in`.
void judge_states(const char* records, uint32_t bytes, uint32_t world, Input& in);
/// One merged answer: collectives, or accounts at the end.
void judge_frames(const void* frame, uint32_t bytes, bool collectives);

}  // namespace fuzz
