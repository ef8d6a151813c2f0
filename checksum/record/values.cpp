// SPDX-License-Identifier: Apache-2.0
//
// Values of a recording as people read them. Pure functions; see data.h.

#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "checksum/record/data.h"
#include "shim/base/bit_cast.h"

namespace resil::record {

bool distance_in_ulps(ValueType type, uint64_t one, uint64_t other, uint64_t* ulps) {
  // Floating-point numbers in their order are integers in theirs, but for the sign.
  if (type == ValueType::kDouble) {
    if (std::isnan(bit_cast<double>(one)) || std::isnan(bit_cast<double>(other))) return false;
    const auto ordered = [](uint64_t bits) { return bits >> 63 ? ~bits + 1 : bits | uint64_t{1} << 63; };
    const uint64_t a = ordered(one), b = ordered(other);
    *ulps = a > b ? a - b : b - a;
    return true;
  }
  if (type != ValueType::kFloat) return false;
  const auto a = static_cast<uint32_t>(one), b = static_cast<uint32_t>(other);
  if (std::isnan(bit_cast<float>(a)) || std::isnan(bit_cast<float>(b))) return false;
  const auto ordered = [](uint32_t bits) { return bits >> 31 ? ~bits + 1 : bits | uint32_t{1} << 31; };
  *ulps = ordered(a) > ordered(b) ? ordered(a) - ordered(b) : ordered(b) - ordered(a);
  return true;
}

void value_text(ValueType type, uint64_t bits, char* text, size_t bytes) {
  switch (type) {
    case ValueType::kNone: snprintf(text, bytes, "nothing"); break;
    case ValueType::kDigest: snprintf(text, bytes, "digest %016" PRIx64, bits); break;
    case ValueType::kDouble: {
      const double value = bit_cast<double>(bits);
      snprintf(text, bytes, "%a (%.17g)", value, value);
      break;
    }
    case ValueType::kFloat: {
      const double value = bit_cast<float>(static_cast<uint32_t>(bits));
      snprintf(text, bytes, "%a (%.9g)", value, value);
      break;
    }
    case ValueType::kSigned: snprintf(text, bytes, "%" PRId64, static_cast<int64_t>(bits)); break;
    case ValueType::kUnsigned: snprintf(text, bytes, "%" PRIu64, bits); break;
    case ValueType::kBytes: snprintf(text, bytes, "bytes %016" PRIx64 " (first lowest)", bits); break;
  }
}

}  // namespace resil::record
