// SPDX-License-Identifier: Apache-2.0
//
// Logarithm, exponential and normal quantile: the library is linked without libm. Good to 1e-6 (the quantile: 5e-4),
// which is far more than estimates from a few dozen intervals deserve.
#pragma once

#include <cstdint>

#include "shim/base/bit_cast.h"

namespace resil::hang::stats {

constexpr double kLn2 = 0.693147180559945309;

/// Natural logarithm of a normal positive number.
constexpr double ln(double x) {
  const uint64_t bits = bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (mantissa > 1.41421356237) {
    mantissa /= 2;
    ++exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1), square = z * z;
  double sum = 0;
  for (int i = 13; i >= 1; i -= 2) sum = sum * square + 1.0 / i;
  return exponent * kLn2 + 2 * z * sum;
}

/// e^x; below -700 it is 0, above 700 it is e^700.
constexpr double exponential(double x) {
  if (x < -700) return 0;
  x = x > 700 ? 700 : x;
  const int power = static_cast<int>(x / kLn2 + (x < 0 ? -.5 : .5));
  const double rest = x - power * kLn2;
  double sum = 1;
  for (int i = 12; i >= 1; --i) sum = 1 + sum * rest / i;
  return sum * bit_cast<double>(static_cast<uint64_t>(1023 + power) << 52);
}

constexpr double square_root(double x) { return x > 0 ? exponential(ln(x) / 2) : 0; }

/// x with P(X > x) = p for a standard normal X, 0 < p <= 1/2 (Abramowitz and Stegun 26.2.23: error below 4.5e-4).
constexpr double normal_quantile_above(double p) {
  const double t = square_root(-2 * ln(p));
  return t - (2.515517 + t * (.802853 + t * .010328)) / (1 + t * (1.432788 + t * (.189269 + t * .001308)));
}

}  // namespace resil::hang::stats
