// SPDX-License-Identifier: Apache-2.0
//
// Correctly rounded sums (Mode::kExact).
#pragma once

#include "pipeline/reduction/kernel.h"

namespace resil::reduction {

enum class Format : uint8_t { kNone, kHalf, kSingle, kDouble, kExtended, kQuad };
/// Of a floating-point type, or of the parts of a complex one.
Format exact_format(const BasicType& type);

/// `scratch`: kFoldScratch bytes.
/// result[i] = the rounded sum of three or more contributions, for `units` values. `result` may be one of them.
void exact_sums(Format format, const char* const* contributions, size_t ranks, char* result, size_t units,
                char* scratch);
/// results[r][i] = the rounded sum of contributions 0 to r, for `units` values. results[r] may be contributions[r].
void exact_prefixes(Format format, const char* const* contributions, size_t ranks, char* const* results, size_t units,
                    char* scratch);

/// One value, `offset` bytes into the contributions: what the vectors of exact_kernels.cpp could not decide.
void exact_single(const char* const* contributions, size_t ranks, size_t offset, char* result);
void exact_double(const char* const* contributions, size_t ranks, size_t offset, char* result);

}  // namespace resil::reduction
