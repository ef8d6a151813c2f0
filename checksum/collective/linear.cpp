// SPDX-License-Identifier: Apache-2.0
//
// See linear.h. Factor of element k = 512 b + i in sum l: table[l][i] * d_b + e_b, d_b odd, so that the inner loop is a
// product with a table; e_b is even in the first sum and any number in the others.

#include "checksum/collective/linear.h"

#include <cstring>

#include "shim/base/hash.h"

namespace resil::collective {

namespace {

constexpr int64_t kBlock = 512;
constexpr uint64_t kPolynomial = 0x42f0e1eba9ea3693;  // ECMA-182, without x^64

/// 8 KiB of factors for each width; 16 / w sums of w bytes.
template <class Word>
struct Factors {
  static constexpr unsigned kSums = 16 / sizeof(Word);
  static Word table[kSums][kBlock];
};
template <class Word>
Word Factors<Word>::table[Factors<Word>::kSums][kBlock];

uint64_t crc_tables[8][256];

template <class Word>
void fill_factors() {
  for (unsigned sum = 0; sum < Factors<Word>::kSums; ++sum)
    for (uint64_t i = 0; i < kBlock; ++i) {
      uint64_t random = mix64(mix64((sizeof(Word) << 32 | sum << 16) + 0x9e3779b97f4a7c15) + i * 0xd1342543de82ef95);
      Factors<Word>::table[sum][i] = static_cast<Word>((random >> 20) | (sum == 0 ? 1 : 0));
    }
}

template <class Word>
[[gnu::optimize("O3")]] void sum_block(const char* data, int64_t within, int64_t count, uint64_t block, Word* sums) {
  constexpr unsigned kSums = Factors<Word>::kSums;
  Word plain = 0;
  for (int64_t i = 0; i < count; ++i) {
    Word x;
    memcpy(&x, data + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
    plain = static_cast<Word>(plain + x);
  }
  for (unsigned sum = 0; sum < kSums; ++sum) {
    const Word* factors = &Factors<Word>::table[sum][within];
    Word product = 0;
    for (int64_t i = 0; i < count; ++i) {
      Word x;
      memcpy(&x, data + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
      product = static_cast<Word>(product + static_cast<uint64_t>(factors[i]) * x);
    }
    const uint64_t random = mix64((block + 1) * 0xa0761d6478bd642f + sum);
    const Word times = static_cast<Word>(random | 1),
               plus = static_cast<Word>(sum == 0 ? random >> 32 << 1 : random >> 32);
    sums[sum] =
        static_cast<Word>(sums[sum] + static_cast<uint64_t>(product) * times + static_cast<uint64_t>(plain) * plus);
  }
}

template <class Word>
Linear sum_digest(const void* data, int64_t first, int64_t count) {
  Word sums[Factors<Word>::kSums] = {};
  const char* at = static_cast<const char*>(data);
  while (count > 0) {
    const int64_t within = first % kBlock, now = count < kBlock - within ? count : kBlock - within;
    sum_block<Word>(at, within, now, static_cast<uint64_t>(first / kBlock), sums);
    at += static_cast<size_t>(now) * sizeof(Word);
    first += now;
    count -= now;
  }
  Linear result;
  static_assert(sizeof(sums) == sizeof(result.words));
  memcpy(result.words, sums, sizeof(sums));
  return result;
}

template <class Word, bool subtract>
Linear combine(const Linear& a, const Linear& b) {
  constexpr unsigned kSums = Factors<Word>::kSums;
  Word x[kSums], y[kSums];
  memcpy(x, a.words, sizeof(x));
  memcpy(y, b.words, sizeof(y));
  for (unsigned i = 0; i < kSums; ++i) x[i] = static_cast<Word>(subtract ? x[i] - y[i] : x[i] + y[i]);
  Linear result;
  memcpy(result.words, x, sizeof(x));
  return result;
}

uint64_t times_x(uint64_t a) { return (a << 1) ^ (a >> 63 ? kPolynomial : 0); }

uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  for (int bit = 63; bit >= 0; --bit) result = times_x(result) ^ (b >> bit & 1 ? a : 0);
  return result;
}

uint64_t power_of_x(uint64_t exponent) {
  uint64_t result = 1, square = 2;
  for (; exponent != 0; exponent >>= 1, square = multiply(square, square))
    if (exponent & 1) result = multiply(result, square);
  return result;
}

uint64_t remainder(const unsigned char* data, uint64_t bytes) {
  uint64_t crc = 0;
  for (; bytes >= 8; data += 8, bytes -= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    crc ^= __builtin_bswap64(word);
    uint64_t next = 0;
    for (unsigned i = 0; i < 8; ++i) next ^= crc_tables[i][crc >> (8 * i) & 0xff];
    crc = next;
  }
  for (; bytes != 0; ++data, --bytes) crc = (crc << 8) ^ crc_tables[0][(crc >> 56) ^ *data];
  return crc;
}

}  // namespace

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

void linear_prepare() {
  fill_factors<uint32_t>();
  fill_factors<uint64_t>();
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t crc = byte << 56;
    for (int i = 0; i < 8; ++i) crc = times_x(crc);
    crc_tables[0][byte] = crc;
  }
  for (unsigned behind = 1; behind < 8; ++behind)  // the byte with `behind` more of them after it
    for (unsigned byte = 0; byte < 256; ++byte) {
      const uint64_t crc = crc_tables[behind - 1][byte];
      crc_tables[behind][byte] = (crc << 8) ^ crc_tables[0][crc >> 56];
    }
}

Linear linear_digest(LinearMode mode, const void* data, unsigned width, int64_t first, int64_t count, int64_t total) {
  if (count <= 0) return {};
  switch (mode) {
    case LinearMode::kWidth4: return sum_digest<uint32_t>(data, first, count);
    case LinearMode::kWidth8: return sum_digest<uint64_t>(data, first, count);
    case LinearMode::kXor: {
      uint64_t crc = remainder(static_cast<const unsigned char*>(data), static_cast<uint64_t>(count) * width);
      if (const int64_t behind = total - first - count; behind > 0)
        crc = multiply(crc, power_of_x(8 * static_cast<uint64_t>(behind) * width));
      return {{crc, 0}};
    }
    default: return {};
  }
}

Linear linear_add(LinearMode mode, const Linear& a, const Linear& b) {
  switch (mode) {
    case LinearMode::kWidth4: return combine<uint32_t, false>(a, b);
    case LinearMode::kWidth8: return combine<uint64_t, false>(a, b);
    default: return {{a.words[0] ^ b.words[0], a.words[1] ^ b.words[1]}};
  }
}

Linear linear_subtract(LinearMode mode, const Linear& a, const Linear& b) {
  switch (mode) {
    case LinearMode::kWidth4: return combine<uint32_t, true>(a, b);
    case LinearMode::kWidth8: return combine<uint64_t, true>(a, b);
    default: return {{a.words[0] ^ b.words[0], a.words[1] ^ b.words[1]}};
  }
}

}  // namespace resil::collective
