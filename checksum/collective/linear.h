// SPDX-License-Identifier: Apache-2.0
//
// Linear digests: L with L(x) + L(y) = L(x + y), so that the digest of an integer sum can be known without the summands
// (and that of an exclusive-or likewise). See docs/CHECKSUM.md for what they cannot tell.
//
//   Sums of w-byte integers: 16 / w independent sums of c_k * x_k mod 2^(8 w), side by side in 128 bits. The factors of
//   the first are odd: no change of a single element is ever missed. Four and eight bytes only: Open MPI 4.1 adds
//   shorter integers with saturating instructions, where such sums are not linear.
//   Exclusive-or: the remainder of the bytes as a polynomial over GF(2) (that of CRC-64/ECMA).
#pragma once

#include <cstdint>

namespace resil::collective {

enum class LinearMode : uint8_t { kNone, kWidth4, kWidth8, kXor };

struct Linear {
  uint64_t words[2];
  bool zero() const { return (words[0] | words[1]) == 0; }
};

/// Fills the tables of factors; before_init.
void linear_prepare();

/// `count` elements of `width` bytes at `data`, which are number `first` and following of `total`.
Linear linear_digest(LinearMode mode, const void* data, unsigned width, int64_t first, int64_t count, int64_t total);
Linear linear_add(LinearMode mode, const Linear& a, const Linear& b);
Linear linear_subtract(LinearMode mode, const Linear& a, const Linear& b);

}  // namespace resil::collective
