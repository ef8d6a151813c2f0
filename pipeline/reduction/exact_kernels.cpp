// SPDX-License-Identifier: Apache-2.0
//
// Correctly rounded sums of floats and doubles by error-free transformations, compiled once for each CPU variant
// (RESIL_VARIANT) without contraction. The same bits from all, since there is but one right answer. No inline function
// with external linkage here, as in order_kernels.cpp.
//
// Knuth's two_sum gives a + b as a rounded sum and its exact error. Adding all values to `sum`, the errors to `error`
// and the errors' errors to `rest` leaves
//   total = sum + error + rest + delta,    |delta| <= kSlack * ranks * size,    size = the sum of |errors' errors|
// (Ogita, Rump, Oishi: Accurate sum and dot product, 2005; the bound is theirs with room for rounding `size` itself).
// Mostly `size` is 0, and one rounding of sum + error ends it, ties included. Otherwise the total lies between two
// bounds; rounding is monotonic, so that where both round to the same value, the total does. Where they do not, or
// something is infinite or not a number or overflowed in between, all comparisons fail and integers decide
// (exact_sum.h).
#include <cstring>
#include <limits>

#include "pipeline/reduction/exact.h"
#include "pipeline/reduction/fold.h"

#if defined(__FAST_MATH__)
#error "reductions are computed as IEEE 754 says"
#endif

namespace resil::reduction::RESIL_VARIANT {
namespace {

#if defined(__AVX512F__)
constexpr unsigned kWide = 64;
#elif defined(__AVX2__)
constexpr unsigned kWide = 32;
#else
constexpr unsigned kWide = 16;
#endif
constexpr unsigned kNarrow = 16;
/// Contributions that are added in one go, and values whose state lies in the first-level cache between two goes.
constexpr size_t kGroup = 8, kBlockBytes = 2048;

template <class T, unsigned kBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes)));
};
template <class T, unsigned kBytes>
using Vector = typename VectorOf<T, kBytes>::type;

template <class T>
struct Sums {
  const char* const* contributions;
  size_t ranks;
  char* result;
  T slack;
};

/// The state of a vector of sums.
template <class V>
struct State {
  V sum, error, rest, size;
};

template <class V>
[[gnu::always_inline]] inline V two_sum(V a, V b, V* error) {
  const V sum = a + b;
  const V from_b = sum - a;
  *error = (a - (sum - from_b)) + (b - from_b);
  return sum;
}

template <class V>
[[gnu::always_inline]] inline V magnitude(V value) {
  using Bits = decltype(value < value);
  return reinterpret_cast<V>(reinterpret_cast<Bits>(value) & ~reinterpret_cast<Bits>(-V{}));
}

template <class V>
[[gnu::always_inline]] inline void add(State<V>& state, V value) {
  V error, rest;
  state.sum = two_sum(state.sum, value, &error);
  state.error = two_sum(state.error, error, &rest);
  state.rest += rest;
  state.size += magnitude(rest);
}

template <class M>
[[gnu::always_inline]] inline bool any(M mask) {
  uint64_t words[sizeof(M) / 8], all = 0;
  memcpy(words, &mask, sizeof(mask));
  for (uint64_t word : words) all |= word;
  return all != 0;
}

/// The rounded totals of the values that lie `at` bytes into the contributions, `lanes` of which count.
template <class T, class V>
[[gnu::always_inline]] inline V rounded(const State<V>& state, const Sums<T>& sums, size_t at, unsigned lanes) {
  constexpr T kUlp = std::numeric_limits<T>::epsilon();
  V error;
  const V sum = two_sum(state.sum, state.error, &error);
  // total = sum + (error + rest), off by no more than `off`: what `rest` lacks, and the roundings in this line and the
  // next ones, which are of half a kUlp each. (Below the normal range additions do not round.)
  const V low_part = error + state.rest;
  V off = magnitude(low_part) * (2 * kUlp) + state.size * sums.slack;
  off = state.size != 0 ? off : V{};
  V value = sum + (low_part - off);
  const auto doubt = value != sum + (low_part + off);
  // The sum of zeros alone is negative if all are, as that of two is. state.sum is the sum in floating point.
  value = ((value == 0) & (state.sum == 0)) ? state.sum : value;
  if (any(doubt)) [[unlikely]] {
    for (unsigned i = 0; i < lanes; ++i) {
      T lane = value[i];
      if (doubt[i]) {
        if constexpr (sizeof(T) == 4)
          exact_single(sums.contributions, sums.ranks, at + i * sizeof(T), reinterpret_cast<char*>(&lane));
        else exact_double(sums.contributions, sums.ranks, at + i * sizeof(T), reinterpret_cast<char*>(&lane));
      }
      value[i] = lane;
    }
  }
  return value;
}

template <class V>
struct Loader {
  [[gnu::always_inline]] static V load(const char* from) {
    V value;
    memcpy(&value, from, sizeof(value));
    return value;
  }
};
/// One value, zeros behind it.
template <class T>
struct OneLoader {
  [[gnu::always_inline]] static Vector<T, kNarrow> load(const char* from) {
    T value;
    memcpy(&value, from, sizeof(value));
    return Vector<T, kNarrow>{value};
  }
};

/// Adds `count` contributions from `first` on to one vector of sums, which begin with the first, and end with the last.
template <class L, class T, class V, bool kFirst, bool kLast>
[[gnu::always_inline]] inline void vector_of(const Sums<T>& sums, size_t first, size_t count, size_t at, State<V>* kept,
                                             unsigned bytes) {
  State<V> state;
  size_t next = first;
  if constexpr (kFirst) {
    state.sum = two_sum(L::load(sums.contributions[0] + at), L::load(sums.contributions[1] + at), &state.error);
    state.rest = state.size = V{};
    next = 2;
  } else {
    state = *kept;
  }
  for (; next < first + count; ++next) add(state, L::load(sums.contributions[next] + at));
  if constexpr (kLast) {
    const V value = rounded(state, sums, at, bytes / static_cast<unsigned>(sizeof(T)));
    memcpy(sums.result + at, &value, bytes);
  } else {
    *kept = state;
  }
}

template <class T, bool kFirst, bool kLast>
void pass(const Sums<T>& sums, size_t first, size_t count, size_t at, size_t end, void* kept) {
  constexpr unsigned kStep = kFirst && kLast ? 0 : 1;  // a sum of one pass keeps nothing, and `kept` is null
  auto* wide = static_cast<State<Vector<T, kWide>>*>(kept);
  for (; end - at >= kWide; at += kWide, wide += kStep)
    vector_of<Loader<Vector<T, kWide>>, T, Vector<T, kWide>, kFirst, kLast>(sums, first, count, at, wide, kWide);
  auto* narrow = reinterpret_cast<State<Vector<T, kNarrow>>*>(wide);
  for (; at < end; at += sizeof(T), narrow += kStep)
    vector_of<OneLoader<T>, T, Vector<T, kNarrow>, kFirst, kLast>(sums, first, count, at, narrow, sizeof(T));
}

template <class T>
void sum(const char* const* contributions, size_t ranks, char* result, size_t count, char* kept) {
  constexpr T kSlack = 2 * std::numeric_limits<T>::epsilon();  // four half units, where one would do but for roundings
  const Sums<T> sums = {contributions, ranks, result, static_cast<T>(ranks) * kSlack};
  const size_t bytes = count * sizeof(T);
  if (ranks <= kGroup) return pass<T, true, true>(sums, 0, ranks, 0, bytes, nullptr);
  // The last block has up to 15 single values, each with a narrow vector.
  static_assert(4 * kBlockBytes + 4 * kNarrow * kWide / sizeof(T) <= kFoldScratch);
  for (size_t at = 0; at < bytes; at += kBlockBytes) {
    const size_t end = bytes - at < kBlockBytes ? bytes : at + kBlockBytes;
    size_t first = kGroup;
    pass<T, true, false>(sums, 0, kGroup, at, end, kept);
    for (; ranks - first > kGroup; first += kGroup) pass<T, false, false>(sums, first, kGroup, at, end, kept);
    pass<T, false, true>(sums, first, ranks - first, at, end, kept);
  }
}

}  // namespace

extern constexpr ExactKernels kernels = {sum<float>, sum<double>};

}  // namespace resil::reduction::RESIL_VARIANT
