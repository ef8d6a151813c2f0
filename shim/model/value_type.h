// SPDX-License-Identifier: Apache-2.0
//
// Kinds of values that are compared or recorded.
#pragma once

#include <cstdint>

namespace resil {

/// What the eight bytes of a value are. A single number is kept itself, so that a divergence can
/// show it; everything else as the digest of shim/base/digest/digest.h.
enum class ValueType : uint8_t {
  kNone = 0,  ///< nothing is kept: not known, or the call has none; takes no room
  kDigest = 1,
  kDouble = 2,  ///< bits of a double
  kFloat = 3,  ///< bits of a float in the lower half
  kSigned = 4,  ///< integer of any width, sign-extended
  kUnsigned = 5,  ///< integer of any width, zero-extended
  kBytes = 6,  ///< up to eight bytes as they lay in memory, the rest zero
};

}  // namespace resil
