// SPDX-License-Identifier: Apache-2.0
//
// The compatibility fingerprint. Eight tables, so that the CRC of a whole word is eight loads.
#include "shim/base/digest/compat.h"

namespace resil {

namespace {

constexpr size_t kWord = 8;

/// byte[k][b]: what byte b adds to the CRC when k zero bytes follow it.
struct Tables {
  uint32_t byte[kWord][256];
};

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
    tables.byte[0][b] = crc;
  }
  for (size_t k = 1; k < kWord; ++k)
    for (uint32_t b = 0; b < 256; ++b)
      tables.byte[k][b] = (tables.byte[k - 1][b] >> 8) ^ tables.byte[0][tables.byte[k - 1][b] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

/// The CRC's state after a word; it meets the first four bytes.
uint32_t next_word(uint32_t state, const unsigned char* word) {
  uint32_t next = 0;
#pragma GCC unroll 8
  for (size_t i = 0; i < kWord; ++i)
    next ^= kTables.byte[kWord - 1 - i][word[i] ^ (i < 4 ? state >> (8 * i) & 0xff : 0)];
  return next;
}

}  // namespace

uint32_t compat_crc32(const void* data, size_t bytes, uint32_t before) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  uint32_t state = ~before;
  for (; bytes >= kWord; at += kWord, bytes -= kWord) state = next_word(state, at);
  for (size_t i = 0; i < bytes; ++i) state = (state >> 8) ^ kTables.byte[0][(state ^ at[i]) & 0xff];
  return ~state;
}

uint64_t compat_fingerprint(const void* data, size_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  uint32_t fingerprint = 0;
  for (; bytes >= kWord; at += kWord, bytes -= kWord) fingerprint ^= ~next_word(~0u, at);
  return bytes == 0 ? fingerprint : fingerprint ^ compat_crc32(at, bytes);
}

}  // namespace resil
