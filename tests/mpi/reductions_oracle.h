// SPDX-License-Identifier: Apache-2.0
//
// What reductions.cpp reduces, and what must come of it: contributions, operators, and the oracle, the documented tree
// by plain recursion (order) or __float128 sums of values that it holds exactly (exact).
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "check.h"

namespace {

enum class Mode { kNative, kOrder, kExact } mode;
MPI_Comm comm;
int ranks, rank;
uint64_t delays;

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// Ranks arrive at different times, by work rather than by the clock.
void delay() {
  if (delays == 0) return;
  static uint64_t calls;
  volatile uint64_t work = mix(delays * 77 + static_cast<uint64_t>(rank) * 1000003 + ++calls) % 20000;
  while (work != 0) work = work - 1;
}

// --- Values ------------------------------------------------------------------------------------------------------

uint64_t bits_of(int from, int salt, long i) {
  return mix(mix(static_cast<uint64_t>(from) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(salt)) +
             static_cast<uint64_t>(i));
}

/// Signs and 40 binary orders of magnitude: sums differ with the association.
template <class F>
F real(uint64_t bits, int exponents = 40) {
  const F mantissa = 1 + static_cast<F>(bits >> 12 & 0xfffffffffff) / static_cast<F>(uint64_t{1} << 44);
  const F scale = std::ldexp(F(1), static_cast<int>(bits % static_cast<uint64_t>(exponents)) - exponents / 2);
  return (bits >> 63 ? -mantissa : mantissa) * scale;
}

template <class V, class I>
struct Pair {
  V value;
  I index;
};

template <class T>
struct Value {
  static T make(uint64_t bits) { return static_cast<T>(bits); }
};
template <>
struct Value<float> {
  static float make(uint64_t bits) { return real<float>(bits); }
};
template <>
struct Value<double> {
  static double make(uint64_t bits) { return real<double>(bits); }
};
template <>
struct Value<long double> {
  static long double make(uint64_t bits) { return real<long double>(bits); }
};
template <class F>
struct Value<std::complex<F>> {
  static std::complex<F> make(uint64_t bits) { return {real<F>(bits), real<F>(mix(bits))}; }
};
template <class V, class I>
struct Value<Pair<V, I>> {
  static Pair<V, I> make(uint64_t bits) {
    return {static_cast<V>(static_cast<int>(bits % 5) - 2), static_cast<I>(bits >> 8 & 63)};
  }
};

template <class T>
bool same(const T& a, const T& b) {
  return memcmp(&a, &b, sizeof(T)) == 0;
}
template <>
bool same(const long double& a, const long double& b) {
  return memcmp(&a, &b, 10) == 0;
}
template <>
bool same(const std::complex<long double>& a, const std::complex<long double>& b) {
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}
template <class V, class I>
bool same(const Pair<V, I>& a, const Pair<V, I>& b) {
  return a.value == b.value && a.index == b.index;
}

template <class T>
uint64_t digest(const T& v) {
  return fingerprint(&v, sizeof(T));
}
template <>
uint64_t digest(const long double& v) {
  return fingerprint(&v, 10);
}
template <>
uint64_t digest(const std::complex<long double>& v) {
  return digest(v.real()) * 3 + digest(v.imag());
}
template <class V, class I>
uint64_t digest(const Pair<V, I>& v) {
  return digest(v.value) * 3 + digest(v.index);
}

// --- Operators ---------------------------------------------------------------------------------------------------

template <class T>
using Naive = T (*)(const T& low, const T& high);

template <class T>
T sum(const T& a, const T& b) {
  return a + b;
}
template <class T>
T product(const T& a, const T& b) {
  return a * b;
}
template <class F>
std::complex<F> complex_product(const std::complex<F>& a, const std::complex<F>& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
template <class T>
T least(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
T most(const T& a, const T& b) {
  return b > a ? b : a;
}
template <class T>
T both(const T& a, const T& b) {
  return a && b;
}
template <class T>
T either(const T& a, const T& b) {
  return a || b;
}
template <class T>
T differ(const T& a, const T& b) {
  return !a != !b;
}
template <class T>
T bit_and(const T& a, const T& b) {
  return static_cast<T>(a & b);
}
template <class T>
T bit_or(const T& a, const T& b) {
  return static_cast<T>(a | b);
}
template <class T>
T bit_xor(const T& a, const T& b) {
  return static_cast<T>(a ^ b);
}
template <class P>
P max_at(const P& a, const P& b) {
  return a.value > b.value || (a.value == b.value && a.index <= b.index) ? a : b;
}
template <class P>
P min_at(const P& a, const P& b) {
  return a.value < b.value || (a.value == b.value && a.index <= b.index) ? a : b;
}

/// Neither commutative nor associative: shows the whole tree.
double skew(const double& a, const double& b) { return a * 0.5 - b * 1.25; }

struct Matrix {
  double at[4];
};
Matrix times(const Matrix& a, const Matrix& b) {
  return {{a.at[0] * b.at[0] + a.at[1] * b.at[2], a.at[0] * b.at[1] + a.at[1] * b.at[3],
           a.at[2] * b.at[0] + a.at[3] * b.at[2], a.at[2] * b.at[1] + a.at[3] * b.at[3]}};
}
template <>
struct Value<Matrix> {
  static Matrix make(uint64_t bits) {
    return {{real<double>(bits, 4), real<double>(mix(bits), 4), real<double>(mix(bits + 1), 4), 1}};
  }
};

/// x -> scale * x + shift: applied one after the other; associative, so that the order alone decides. With a gap.
struct Affine {
  uint32_t scale;
  char gap[12];
  uint64_t shift;
};
Affine after(const Affine& a, const Affine& b) {
  Affine result = {};
  result.scale = b.scale * a.scale;
  result.shift = static_cast<uint32_t>(b.scale * a.shift + b.shift);
  return result;
}
template <>
struct Value<Affine> {
  static Affine make(uint64_t bits) {
    Affine made = {};
    made.scale = static_cast<uint32_t>(bits | 1);
    made.shift = static_cast<uint32_t>(bits >> 5);
    return made;
  }
};
template <>
bool same(const Affine& a, const Affine& b) {
  return a.scale == b.scale && a.shift == b.shift;
}
template <>
uint64_t digest(const Affine& v) {
  return v.scale * uint64_t{31} + v.shift;
}

MPI_Datatype seen_type;
bool wrong_type;
template <class T, Naive<T> operation>
void user(void* in, void* inout, int* length, MPI_Datatype* type) {
  wrong_type = wrong_type || *type != seen_type;
  for (int i = 0; i < *length; ++i)
    static_cast<T*>(inout)[i] = operation(static_cast<T*>(in)[i], static_cast<T*>(inout)[i]);
}

// --- The oracle --------------------------------------------------------------------------------------------------

template <class T>
struct Case {
  MPI_Datatype type;
  MPI_Op op;
  Naive<T> naive;
  bool free_of_order;  ///< the library's own result is the same
  bool is_sum;
  int salt;
};

template <class T>
T contribution(const Case<T>& c, int from, long i) {
  return Value<T>::make(bits_of(from, c.salt, i));
}

template <class T>
T tree(const Case<T>& c, int low, int high, long i) {
  if (high - low == 1) return contribution(c, low, i);
  int half = 1;
  while (half * 2 < high - low) half *= 2;
  return c.naive(tree(c, low, low + half, i), tree(c, low + half, high, i));
}

template <class T>
T exact_sum(const Case<T>& c, int low, int high, long i) {
  return tree(c, low, high, i);
}
/// Holds the sums exactly. Where the compiler has no __float128 (aarch64), long double is that type.
#ifdef __SIZEOF_FLOAT128__
using Quad = __float128;
#else
using Quad = long double;
#endif

template <class F>
F exact_real(const Case<F>& c, int low, int high, long i) {
  Quad total = 0;
  for (int r = low; r < high; ++r) total += static_cast<Quad>(contribution(c, r, i));
  return static_cast<F>(total);
}
template <class F>
std::complex<F> exact_complex(const Case<std::complex<F>>& c, int low, int high, long i) {
  Quad re = 0, im = 0;
  for (int r = low; r < high; ++r) {
    re += static_cast<Quad>(contribution(c, r, i).real());
    im += static_cast<Quad>(contribution(c, r, i).imag());
  }
  return {static_cast<F>(re), static_cast<F>(im)};
}
template <>
float exact_sum(const Case<float>& c, int l, int h, long i) {
  return exact_real(c, l, h, i);
}
template <>
double exact_sum(const Case<double>& c, int l, int h, long i) {
  return exact_real(c, l, h, i);
}
template <>
long double exact_sum(const Case<long double>& c, int l, int h, long i) {
  return exact_real(c, l, h, i);
}
template <>
std::complex<float> exact_sum(const Case<std::complex<float>>& c, int l, int h, long i) {
  return exact_complex(c, l, h, i);
}
template <>
std::complex<double> exact_sum(const Case<std::complex<double>>& c, int l, int h, long i) {
  return exact_complex(c, l, h, i);
}
template <>
std::complex<long double> exact_sum(const Case<std::complex<long double>>& c, int l, int h, long i) {
  return exact_complex(c, l, h, i);
}

/// Products of many ranks overflow. Which NaN comes of it depends on the CPU; resil's is always the same one.
template <class T>
T one_nan(const T& v) {
  return v;
}
template <class F>
F one_real_nan(F v) {
  return v == v ? v : std::numeric_limits<F>::quiet_NaN();
}
template <>
float one_nan(const float& v) {
  return one_real_nan(v);
}
template <>
double one_nan(const double& v) {
  return one_real_nan(v);
}
template <>
long double one_nan(const long double& v) {
  return one_real_nan(v);
}
template <class F>
std::complex<F> one_nan(const std::complex<F>& v) {
  return {one_real_nan(v.real()), one_real_nan(v.imag())};
}

template <class T>
T expected(const Case<T>& c, int low, int high, long i) {
  if (high - low == 1) return contribution(c, low, i);
  return one_nan(mode == Mode::kExact && c.is_sum ? exact_sum(c, low, high, i) : tree(c, low, high, i));
}

}  // namespace
