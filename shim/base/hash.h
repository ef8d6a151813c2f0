// SPDX-License-Identifier: Apache-2.0
//
// Mixing of small keys (identifiers, not data: the digest of messages is elsewhere).
#pragma once

#include <cstdint>

namespace resil {

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection on 64-bit words.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t hash_combine(uint64_t hash, uint64_t value) {
  return mix64(hash * 0x9e3779b97f4a7c15 + mix64(value) + 1);
}

constexpr uint64_t hash_text(const char* text) {
  uint64_t hash = 0xcbf29ce484222325;
  while (*text != 0) hash = (hash ^ static_cast<unsigned char>(*text++)) * 0x100000001b3;
  return mix64(hash);
}

}  // namespace resil
