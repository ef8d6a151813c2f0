// SPDX-License-Identifier: Apache-2.0
//
// Binary floating-point formats taken apart into integers and put together again, without floating-point arithmetic.
// A finite value is significand * 2^(exponent - c), c being the format's own constant, with the exponent that is stored
// (1 for subnormals, which store 0). So the unit of exponent 1 is the least of all values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace resil::reduction {

__extension__ typedef unsigned __int128 Wide;

enum class Class : uint8_t { kFinite, kInfinite, kNan };

template <class S>
struct Parts {
  Class kind;
  bool negative;
  uint32_t exponent;  ///< 1 ... Format::kMostExponent
  S significand;  ///< 0 is a zero
};

/// IEEE 754's formats: the leading bit is not stored. `Bits` holds the value, `S` its significand.
template <class Bits, class S, unsigned kDigits>
struct IeeeFormat {
  using Significand = S;
  static constexpr unsigned kPrecision = kDigits;  ///< bits of the significand
  static constexpr size_t kBytes = sizeof(Bits);
  static constexpr unsigned kExponentBits = 8 * sizeof(Bits) - kDigits;
  static constexpr uint32_t kMostExponent = (1u << kExponentBits) - 2;

  static Parts<S> take_apart(const char* from) {
    Bits bits;
    memcpy(&bits, from, sizeof(bits));
    const uint32_t exponent = static_cast<uint32_t>(bits >> (kDigits - 1)) & (kMostExponent + 1);
    const bool negative = static_cast<bool>(bits >> (8 * sizeof(Bits) - 1));
    const S fraction = bits & static_cast<Bits>((Bits{1} << (kDigits - 1)) - 1);
    if (exponent > kMostExponent) return {fraction == 0 ? Class::kInfinite : Class::kNan, negative, 0, 0};
    if (exponent == 0) return {Class::kFinite, negative, 1, fraction};
    return {Class::kFinite, negative, exponent, fraction | S{1} << (kDigits - 1)};
  }
  static void infinity(char* to, bool negative) { put(to, negative, kMostExponent + 1, 0); }
  static void nan(char* to) { put(to, false, kMostExponent + 1, static_cast<Bits>(Bits{1} << (kDigits - 2))); }
  /// `significand` has kPrecision bits, fewer only with exponent 1.
  static void put_together(char* to, bool negative, uint32_t exponent, Wide significand) {
    const Bits leading = static_cast<Bits>(Bits{1} << (kDigits - 1));
    const Bits bits = static_cast<Bits>(significand);
    put(to, negative, (bits & leading) != 0 ? exponent : 0, static_cast<Bits>(bits & ~leading));
  }

 private:
  static void put(char* to, bool negative, uint32_t exponent, Bits fraction) {
    const Bits bits = static_cast<Bits>(Bits{negative} << (8 * sizeof(Bits) - 1) |
                                        static_cast<Bits>(exponent) << (kDigits - 1) | fraction);
    memcpy(to, &bits, sizeof(bits));
  }
};

using HalfFormat = IeeeFormat<uint16_t, uint64_t, 11>;
using SingleFormat = IeeeFormat<uint32_t, uint64_t, 24>;
using DoubleFormat = IeeeFormat<uint64_t, uint64_t, 53>;
using QuadFormat = IeeeFormat<Wide, Wide, 113>;

/// x86's 80-bit format: the leading bit is stored; where it contradicts the exponent, the CPU takes it for a NaN.
/// Padding up to 16 bytes becomes zero.
struct ExtendedFormat {
  using Significand = uint64_t;
  static constexpr unsigned kPrecision = 64;
  static constexpr size_t kBytes = 16;
  static constexpr uint32_t kMostExponent = 0x7ffe;

  static Parts<uint64_t> take_apart(const char* from) {
    uint64_t significand;
    uint16_t head;
    memcpy(&significand, from, 8);
    memcpy(&head, from + 8, 2);
    const bool negative = head >> 15, leading = significand >> 63;
    const uint32_t exponent = head & 0x7fff;
    if (exponent > kMostExponent)
      return {significand == uint64_t{1} << 63 ? Class::kInfinite : Class::kNan, negative, 0, 0};
    if (exponent == 0) return {Class::kFinite, negative, 1, significand};
    if (!leading) return {Class::kNan, negative, 0, 0};
    return {Class::kFinite, negative, exponent, significand};
  }
  static void infinity(char* to, bool negative) { put(to, negative, kMostExponent + 1, uint64_t{1} << 63); }
  static void nan(char* to) { put(to, false, kMostExponent + 1, uint64_t{3} << 62); }
  static void put_together(char* to, bool negative, uint32_t exponent, Wide significand) {
    const uint64_t bits = static_cast<uint64_t>(significand);
    put(to, negative, bits >> 63 != 0 ? exponent : 0, bits);
  }

 private:
  static void put(char* to, bool negative, uint32_t exponent, uint64_t significand) {
    const uint16_t head = static_cast<uint16_t>(static_cast<uint32_t>(negative) << 15 | exponent);
    memcpy(to, &significand, 8);
    memcpy(to + 8, &head, 2);
    memset(to + 10, 0, 6);
  }
};

}  // namespace resil::reduction
