// SPDX-License-Identifier: Apache-2.0
//
// The exact sum of floating-point values, rounded once: a fixed-point number as wide as the format's whole range, in
// integers (a superaccumulator; Neal, arXiv:1505.05571). Slower than floating-point arithmetic but never in doubt: what
// the faster ways cannot decide ends up here. Order and grouping cannot matter, since integers are added.
#pragma once

#include <bit>

#include "pipeline/reduction/formats.h"

namespace resil::reduction {

/// Rounds `leading`, whose last bit is worth the unit of `exponent`, to nearest, ties to even. `rest`: there is
/// something behind these bits, 128 of them then.
template <class Format>
void round_bits(char* to, bool negative, Wide leading, unsigned exponent, bool rest) {
  constexpr unsigned kPrecision = Format::kPrecision;
  const uint64_t high = static_cast<uint64_t>(leading >> 64);
  const unsigned bits =
      static_cast<unsigned>(high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<uint64_t>(leading)));
  // The result's last bit is worth at least the least value there is.
  unsigned result = exponent + bits > kPrecision + 1 ? exponent + bits - kPrecision : 1;
  Wide significand;
  if (result <= exponent) {
    significand = leading << (exponent - result);
  } else {
    const unsigned shift = result - exponent;  // 128 - kPrecision at most
    significand = leading >> shift;
    const Wide half = Wide{1} << (shift - 1);
    const Wide behind = leading & ((half << 1) - 1);
    if (behind > half || (behind == half && (rest || (significand & 1) != 0))) ++significand;
    if (significand >> kPrecision != 0) {
      significand >>= 1;
      ++result;
    }
  }
  if (result > Format::kMostExponent) return Format::infinity(to, negative);
  Format::put_together(to, negative, result, significand);
}

/// The rounded sum where all values are finite, not all are zero, and 128 bits hold it; else false.
template <class Format>
bool short_sum(const char* const* values, size_t count, size_t offset, char* to) {
  if constexpr (sizeof(typename Format::Significand) > 8) {
    return false;
  } else {
    uint32_t least = ~uint32_t{0}, most = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto parts = Format::take_apart(values[i] + offset);
      if (parts.kind != Class::kFinite) return false;
      if (parts.significand == 0) continue;
      least = parts.exponent < least ? parts.exponent : least;
      most = parts.exponent > most ? parts.exponent : most;
    }
    if (most == 0 || most - least + Format::kPrecision + static_cast<unsigned>(std::bit_width(count)) > 126)
      return false;
    Wide sum = 0;  // of two's complement
    for (size_t i = 0; i < count; ++i) {
      const auto parts = Format::take_apart(values[i] + offset);
      if (parts.significand == 0) continue;
      const Wide value = Wide{parts.significand} << (parts.exponent - least);
      sum += parts.negative ? -value : value;
    }
    const bool negative = static_cast<bool>(sum >> 127);
    round_bits<Format>(to, negative, negative ? -sum : sum, least, false);
    return true;
  }
}

template <class Format>
class ExactSum {
 public:
  using Significand = typename Format::Significand;

  void clear() {
    first_ = end_ = 0;
    nan_ = plus_infinity_ = minus_infinity_ = false;
    only_negative_zeros_ = true;
  }

  /// At most 2^31 values.
  void add(const char* value) {
    const Parts<Significand> parts = Format::take_apart(value);
    only_negative_zeros_ = only_negative_zeros_ && parts.negative && parts.significand == 0;
    nan_ = nan_ || parts.kind == Class::kNan;
    if (parts.kind == Class::kInfinite) (parts.negative ? minus_infinity_ : plus_infinity_) = true;
    if (parts.significand == 0) return;
    const unsigned at = parts.exponent / 32, shift = parts.exponent % 32;
    add_word(at, shift, static_cast<uint64_t>(parts.significand), parts.negative);
    if constexpr (sizeof(Significand) > 8)
      add_word(at + 2, shift, static_cast<uint64_t>(parts.significand >> 64), parts.negative);
  }

  /// The sum of all values so far, rounded to nearest, ties to even. More may be added afterwards.
  void round(char* to) {
    if (nan_ || (plus_infinity_ && minus_infinity_)) return Format::nan(to);
    if (plus_infinity_ || minus_infinity_) return Format::infinity(to, minus_infinity_);
    carry();
    const bool negative = first_ < end_ && chunks_[end_ - 1] < 0;
    if (negative) negate();
    round_magnitude(to, negative);
    if (negative) negate();
  }

 private:
  static constexpr unsigned kChunks = (Format::kMostExponent + Format::kPrecision) / 32 + 4;

  // Chunk i counts units of 2^(32 i), with a sign. The third piece of a word has 31 bits at most, so that the highest
  // chunk in use takes 2^31 of them.
  void add_word(unsigned at, unsigned shift, uint64_t word, bool negative) {
    use(at, at + 3);
    const Wide shifted = Wide{word} << shift;
    const int64_t sign = negative ? -1 : 1;
    for (unsigned i = 0; i < 3; ++i)
      chunks_[at + i] += sign * static_cast<int64_t>(static_cast<uint32_t>(shifted >> (32 * i)));
  }
  void use(unsigned first, unsigned end) {
    if (first_ == end_) first_ = end_ = first;
    while (first_ > first) chunks_[--first_] = 0;
    while (end_ < end) chunks_[end_++] = 0;
  }
  /// All chunks but the highest are in 0 ... 2^32 - 1 afterwards; that has the sign.
  void carry() {
    for (unsigned i = first_; i + 1 < end_; ++i) {
      chunks_[i + 1] += chunks_[i] >> 32;
      chunks_[i] &= 0xffffffff;
    }
  }
  void negate() {
    for (unsigned i = first_; i < end_; ++i) chunks_[i] = -chunks_[i];
    carry();
  }

  void round_magnitude(char* to, bool negative) const {
    unsigned top = end_;
    while (top > first_ && chunks_[top - 1] == 0) --top;
    if (top == first_) return Format::put_together(to, only_negative_zeros_, 1, 0);
    // The leading bits, up to 128 of them, and whether there is anything behind.
    Wide leading = static_cast<uint64_t>(chunks_[--top]);
    unsigned bits = static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(leading)));
    unsigned exponent = 32 * top;  // of their last bit
    bool rest = false;
    while (top > first_ && bits < 128) {
      const uint32_t next = static_cast<uint32_t>(chunks_[--top]);
      const unsigned taken = 128 - bits < 32 ? 128 - bits : 32;
      leading = leading << taken | next >> (32 - taken);
      rest = taken < 32 && static_cast<uint32_t>(next << taken) != 0;
      bits += taken;
      exponent -= taken;
    }
    while (top > first_ && !rest) rest = chunks_[--top] != 0;
    round_bits<Format>(to, negative, leading, exponent, rest);
  }

  unsigned first_ = 0, end_ = 0;  ///< chunks in use; the others are garbage
  bool nan_ = false, plus_infinity_ = false, minus_infinity_ = false;
  bool only_negative_zeros_ = true;
  int64_t chunks_[kChunks];
};

}  // namespace resil::reduction
