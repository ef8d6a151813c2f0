// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of reductions without MPI: folds the contributions of all ranks to one result, in one association that is
// the same for every variant, size and MPI library. Compiled without contraction; no allocation, no lock, any thread;
// under 2 KiB of stack where the caller gives scratch memory: threads of programs may have 16 KiB. The program's
// floating-point environment (rounding, traps, flushed subnormals, exception flags) neither matters nor changes.
// docs/REDUCTIONS.md has the rules for NaN, zeros and ties.
//
// The canonical association (`order`): contributions x_0 ... x_{P-1} are folded by a binary tree over the ranks,
//   T(lo, hi) = x_lo                              if hi - lo == 1
//   T(lo, hi) = T(lo, mid) op T(mid, hi)          mid = lo + the largest power of two below hi - lo
// which keeps the order of operators that do not commute, and whose subtrees over aligned groups of 2^k consecutive
// ranks are subtrees of it again, so that groups may be folded first (two levels, point-to-point trees).
// Prefixes (Scan, Exscan) of ranks 0..r are T(0, r + 1): each the result that a reduction over r + 1 ranks would have.
//
// `exact`: sums of floating-point values are the correctly rounded sum of all contributions: independent of order and
// grouping. What it does not define falls back to `order` (see fold_exact_defined).
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/abi/backend_types.h"

namespace resil::reduction {

enum class Mode : uint8_t { kOrder, kExact };

/// Are op and type a predefined pair that fold() has arithmetic for? False: user operators, derived types, and pairs
/// that MPI does not allow. (Such calls go another way: MPI_Reduce_local, or the library itself.)
bool fold_defined(OpKind op, const BasicType& type);
/// Is the result of op on this type the same in whatever order and grouping it is computed, in any MPI library that
/// follows the standard? (Logical and bitwise operators, most of those on integers.) Then nothing need be done. False
/// for those that libraries in use get wrong in their own ways: sums and products of 1 and 2 bytes, minima and maxima
/// of unsigned and of 8-byte integers.
bool fold_is_native(OpKind op, const BasicType& type);
/// Does `exact` give more than `order` for it? (Sums of floating and complex values.)
bool fold_exact_defined(OpKind op, const BasicType& type);

/// low[i] = low[i] op high[i], in `order`, for `count` elements laid out one behind the other as in memory (extent
/// apart), low being the contribution of the lower ranks. `low` and `high` do not overlap.
void combine(OpKind op, const BasicType& type, void* low, const void* high, size_t count);
/// The other way round: high[i] = low[i] op high[i].
void combine_into_high(OpKind op, const BasicType& type, const void* low, void* high, size_t count);

/// What fold() and fold_prefixes() need besides, aligned to 64. Without it they take it from the stack.
constexpr size_t kFoldScratch = 16 << 10;

/// result[i] = the fold of contributions[0][i] ... contributions[ranks - 1][i]. `result` may be one of the
/// contributions. ranks >= 1; one contribution is copied as it is. Of op, type and mode only a pair that is
/// fold_defined; kExact means kOrder where fold_exact_defined says no. Gaps inside a pair (MPI_SHORT_INT) are not
/// written; padding of a long double is, with zeros.
void fold(OpKind op, const BasicType& type, Mode mode, const void* const* contributions, size_t ranks, void* result,
          size_t count, char* scratch = nullptr);
/// results[r][i] = the fold of contributions[0][i] ... contributions[r][i] for r < ranks. results[r] may be
/// contributions[r] (all of them, or none).
void fold_prefixes(OpKind op, const BasicType& type, Mode mode, const void* const* contributions, size_t ranks,
                   void* const* results, size_t count, char* scratch = nullptr);

/// Bytes from one element to the next: the extent of the predefined type.
size_t element_extent(const BasicType& type);

}  // namespace resil::reduction
