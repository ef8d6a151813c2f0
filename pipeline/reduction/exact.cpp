// SPDX-License-Identifier: Apache-2.0
//
// See exact.h. Floats and doubles go through vectors (exact_kernels.cpp); long double, quadruple and half precision are
// summed as integers, one value at a time.
#include "pipeline/reduction/exact.h"

#include <limits>
#include <new>

#include "pipeline/reduction/exact_sum.h"
#include "pipeline/reduction/fold.h"
#include "pipeline/reduction/scalar_values.h"

namespace resil::reduction {

namespace {

template <class F>
void one_sum(const char* const* contributions, size_t ranks, size_t offset, char* result, ExactSum<F>& sum) {
  if (short_sum<F>(contributions, ranks, offset, result)) return;
  sum.clear();
  for (size_t r = 0; r < ranks; ++r) sum.add(contributions[r] + offset);
  sum.round(result);
}

template <class F>
void integer_sums(const char* const* contributions, size_t ranks, char* result, size_t units, char* scratch) {
  auto& sum = *new (scratch) ExactSum<F>;
  for (size_t i = 0; i < units; ++i) one_sum<F>(contributions, ranks, i * F::kBytes, result + i * F::kBytes, sum);
}

/// T(0, 1): nothing is added to it.
template <class F>
void copy(char* to, const char* from) {
  constexpr size_t kValue = sizeof(typename F::Significand) == 8 && F::kPrecision == 64 ? 10 : F::kBytes;
  memmove(to, from, kValue);
  if constexpr (kValue != F::kBytes) memset(to + kValue, 0, F::kBytes - kValue);
}

template <class F>
void integer_prefixes(const char* const* contributions, size_t ranks, char* const* results, size_t units,
                      char* scratch) {
  static_assert(sizeof(ExactSum<F>) <= kFoldScratch);
  auto& sum = *new (scratch) ExactSum<F>;
  for (size_t at = 0; at < units * F::kBytes; at += F::kBytes) {
    sum.clear();
    sum.add(contributions[0] + at);
    copy<F>(results[0] + at, contributions[0] + at);
    for (size_t r = 1; r < ranks; ++r) {
      sum.add(contributions[r] + at);
      sum.round(results[r] + at);
    }
  }
}

template <class T>
T two_sum(T a, T b, T* error) {
  const T sum = a + b;
  const T from_b = sum - a;
  *error = (a - (sum - from_b)) + (b - from_b);
  return sum;
}

/// As long as the sum of all contributions so far is that of two numbers, one addition rounds it. Where it no longer
/// is, or something is infinite or not a number, the two go into the integers that add up the rest.
template <class T, class F>
void floating_prefixes(const char* const* contributions, size_t ranks, char* const* results, size_t units) {
  using V = FloatingValue<T>;
  ExactSum<F> exact;
  for (size_t at = 0; at < units * sizeof(T); at += sizeof(T)) {
    T sum = V::load(contributions[0] + at), error = 0;
    V::copy(results[0] + at, contributions[0] + at);
    size_t r = 1;
    for (; r < ranks; ++r) {
      T lost, rest;
      const T next_sum = two_sum(sum, V::load(contributions[r] + at), &lost);
      const T next_error = two_sum(error, lost, &rest);
      if (!(rest == 0)) break;
      sum = next_sum;
      error = next_error;
      const T total = sum + error;
      V::store(results[r] + at, total == 0 && sum == 0 ? sum : total);  // of zeros alone: `sum` has the sign
    }
    if (r == ranks) continue;
    exact.clear();
    char seed[sizeof(T)];
    memcpy(seed, &sum, sizeof(T));
    exact.add(seed);
    if (error != 0) {
      memcpy(seed, &error, sizeof(T));
      exact.add(seed);
    }
    for (; r < ranks; ++r) {
      exact.add(contributions[r] + at);
      exact.round(results[r] + at);
    }
  }
}

/// With more, the error bound of single precision would not hold.
constexpr size_t kMostRanks = size_t{1} << 20;

}  // namespace

Format exact_format(const BasicType& type) {
  const bool complex = type.kind == BasicKind::kComplex || type.kind == BasicKind::kLongDoubleComplex;
  const unsigned width = complex ? type.width / 2u : type.width;
#ifdef RESIL_X87
  if (type.kind == BasicKind::kLongDouble || type.kind == BasicKind::kLongDoubleComplex)
    return width == 16 ? Format::kExtended : Format::kNone;
#elif LDBL_MANT_DIG != 113
  if (type.kind == BasicKind::kLongDouble || type.kind == BasicKind::kLongDoubleComplex) return Format::kNone;
#endif
  if (!complex && type.kind != BasicKind::kFloating && type.kind != BasicKind::kLongDouble) return Format::kNone;
  switch (width) {
    case 2: return Format::kHalf;
    case 4: return Format::kSingle;
    case 8: return Format::kDouble;
#ifdef RESIL_QUAD
    case 16: return Format::kQuad;
#endif
    default: return Format::kNone;
  }
}

void exact_single(const char* const* contributions, size_t ranks, size_t offset, char* result) {
  ExactSum<SingleFormat> sum;
  one_sum<SingleFormat>(contributions, ranks, offset, result, sum);
}

void exact_double(const char* const* contributions, size_t ranks, size_t offset, char* result) {
  ExactSum<DoubleFormat> sum;
  one_sum<DoubleFormat>(contributions, ranks, offset, result, sum);
}

void exact_sums(Format format, const char* const* contributions, size_t ranks, char* result, size_t units,
                char* scratch) {
  const ExactKernels& kernels = *fold_variant().exact;
  switch (format) {
    case Format::kHalf: return integer_sums<HalfFormat>(contributions, ranks, result, units, scratch);
    case Format::kSingle:
      return ranks < kMostRanks ? kernels.f32(contributions, ranks, result, units, scratch)
                                : integer_sums<SingleFormat>(contributions, ranks, result, units, scratch);
    case Format::kDouble:
      return ranks < kMostRanks ? kernels.f64(contributions, ranks, result, units, scratch)
                                : integer_sums<DoubleFormat>(contributions, ranks, result, units, scratch);
    case Format::kExtended: return integer_sums<ExtendedFormat>(contributions, ranks, result, units, scratch);
    case Format::kQuad: return integer_sums<QuadFormat>(contributions, ranks, result, units, scratch);
    case Format::kNone: return;
  }
}

void exact_prefixes(Format format, const char* const* contributions, size_t ranks, char* const* results, size_t units,
                    char* scratch) {
  switch (format) {
    case Format::kHalf: return integer_prefixes<HalfFormat>(contributions, ranks, results, units, scratch);
    case Format::kSingle: return floating_prefixes<float, SingleFormat>(contributions, ranks, results, units);
    case Format::kDouble: return floating_prefixes<double, DoubleFormat>(contributions, ranks, results, units);
    case Format::kExtended: return integer_prefixes<ExtendedFormat>(contributions, ranks, results, units, scratch);
    case Format::kQuad: return integer_prefixes<QuadFormat>(contributions, ranks, results, units, scratch);
    case Format::kNone: return;
  }
}

}  // namespace resil::reduction
