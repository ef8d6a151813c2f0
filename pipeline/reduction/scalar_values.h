// SPDX-License-Identifier: Apache-2.0
//
// Values that no vector's lane holds, one at a time: long double, quadruple and half precision, 16-byte integers. Each
// knows how it lies in memory, and what NaN and zeros become.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#if defined(__FAST_MATH__)
#error "reductions are computed as IEEE 754 says"
#endif
static_assert(FLT_EVAL_METHOD == 0, "every operation is rounded to its own type");

namespace resil::reduction {

#if defined(__SIZEOF_FLOAT128__)
#define RESIL_QUAD 1
using Quad = __float128;
#elif LDBL_MANT_DIG == 113
#define RESIL_QUAD 1
using Quad = long double;
#endif
/// Is C's long double x86's 80-bit format in 16 bytes?
#if LDBL_MANT_DIG == 64 && __SIZEOF_LONG_DOUBLE__ == 16
#define RESIL_X87 1
#endif

template <class T>
struct IntegerValue {
  using Type = T;
  static constexpr bool kFloating = false;
  static T load(const char* from) {
    T value;
    memcpy(&value, from, sizeof(value));
    return value;
  }
  static void store(char* to, T value) { memcpy(to, &value, sizeof(value)); }
  static void copy(char* to, const char* from) { memmove(to, from, sizeof(T)); }
};

template <class T>
struct FloatingValue : IntegerValue<T> {
  static constexpr bool kFloating = true;
  /// A NaN becomes the canonical one: quiet, positive, no payload.
  static void store(char* to, T value) {
    if (value != value) value = static_cast<T>(__builtin_nan(""));
    memcpy(to, &value, sizeof(value));
  }
  static bool negative(T value) {
    char bytes[sizeof(T)];
    memcpy(bytes, &value, sizeof(value));
    return bytes[sizeof(T) - 1] < 0;
  }
};

#ifdef RESIL_X87
/// Ten bytes are the value; the six behind it are not read, and become zero.
struct ExtendedValue {
  using Type = long double;
  static constexpr bool kFloating = true;
  static long double load(const char* from) {
    using Unaligned [[gnu::aligned(1), gnu::may_alias]] = long double;
    return *reinterpret_cast<const Unaligned*>(from);  // one fld of ten bytes
  }
  static void store(char* to, long double value) {
    if (value != value) value = __builtin_nanl("");
    memcpy(to, &value, 10);
    memset(to + 10, 0, 6);
  }
  static void copy(char* to, const char* from) {
    memmove(to, from, 10);
    memset(to + 10, 0, 6);
  }
  static bool negative(long double value) {
    char bytes[16];
    memcpy(bytes, &value, 10);
    return bytes[9] < 0;
  }
};
#endif

/// IEEE half precision, computed in single: 24 bits are more than 2 * 11 + 1, so that rounding twice rounds once.
struct HalfValue {
  using Type = float;
  static constexpr bool kFloating = true;
  static float load(const char* from) {
    uint16_t half;
    memcpy(&half, from, sizeof(half));
    const uint32_t sign = uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7fffu;
    uint32_t bits;
    if (magnitude >= 0x7c00) {
      bits = magnitude << 13 | 0x7f800000;
    } else {
      // Its bits as those of a single are 2^-112 of the value; the product is exact and no single is subnormal then.
      const uint32_t scaled = magnitude << 13;
      float value;
      memcpy(&value, &scaled, sizeof(value));
      value *= 0x1p112f;
      memcpy(&bits, &value, sizeof(bits));
    }
    bits |= sign;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7e00;
    if (magnitude >= 0x477ff000)  // 65520, half-way beyond the largest
      return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude < 0x38800000) {  // below the least normal one: units of 2^-24, rounded by an addition
      float positive;
      memcpy(&positive, &magnitude, sizeof(positive));
      positive += 0.5f;
      memcpy(&bits, &positive, sizeof(bits));
      return static_cast<uint16_t>(sign | (bits - 0x3f000000));
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
  static void store(char* to, float value) {
    const uint16_t half = rounded(value);
    memcpy(to, &half, sizeof(half));
  }
  static void copy(char* to, const char* from) { memmove(to, from, 2); }
  static bool negative(float value) { return FloatingValue<float>::negative(value); }
};

}  // namespace resil::reduction
