// SPDX-License-Identifier: Apache-2.0
//
// HMAC-SHA-256; held against the vectors of FIPS 180-4 and RFC 4231 by tests/unit/overlay_mac_test.cpp.
#include "detectors/hang/overlay/mac.h"

#include <bit>
#include <cstring>

namespace resil::hang::overlay {

namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big(const uint8_t* from) {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | from[3];
}

void store_big(uint8_t* to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      total_(0) {}

void Sha256::block(const uint8_t* data) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = load_big(data + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t low = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t high = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + low + w[i - 7] + high;
  }
  uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
  uint32_t e = state_[4], f = state_[5], g = state_[6], h = state_[7];
  for (int i = 0; i < 64; ++i) {
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + second;
  }
  state_[0] += a, state_[1] += b, state_[2] += c, state_[3] += d;
  state_[4] += e, state_[5] += f, state_[6] += g, state_[7] += h;
}

void Sha256::add(const void* data, size_t bytes) {
  if (bytes == 0) return;
  auto* from = static_cast<const uint8_t*>(data);
  const size_t filled = total_ % 64;
  total_ += bytes;
  if (filled > 0) {
    const size_t taken = bytes < 64 - filled ? bytes : 64 - filled;
    memcpy(pending_ + filled, from, taken);
    if (filled + taken < 64) return;
    block(pending_);
    from += taken, bytes -= taken;
  }
  for (; bytes >= 64; from += 64, bytes -= 64) block(from);
  memcpy(pending_, from, bytes);
}

void Sha256::finish(uint8_t digest[32]) {
  const uint64_t bits = total_ * 8;
  uint8_t tail[72] = {0x80};
  const size_t filled = total_ % 64;
  const size_t zeros = (filled < 56 ? 56 : 120) - filled;
  store_big(tail + zeros, static_cast<uint32_t>(bits >> 32));
  store_big(tail + zeros + 4, static_cast<uint32_t>(bits));
  add(tail, zeros + 8);
  for (int i = 0; i < 8; ++i) store_big(digest + 4 * i, state_[i]);
}

MacKey::MacKey(const void* key, size_t bytes) {
  uint8_t padded[64] = {};
  if (bytes > 64) {
    Sha256 shorter;
    shorter.add(key, bytes);
    shorter.finish(padded);
  } else if (bytes > 0) {
    memcpy(padded, key, bytes);
  }
  for (uint8_t& byte : padded) byte ^= 0x36;
  inner_.add(padded, 64);
  for (uint8_t& byte : padded) byte ^= 0x36 ^ 0x5c;
  outer_.add(padded, 64);
  explicit_bzero(padded, sizeof(padded));
}

void MacKey::full(const void* first, size_t first_bytes, const void* second, size_t second_bytes,
                  uint8_t mac[32]) const {
  Sha256 inner = inner_, outer = outer_;
  inner.add(first, first_bytes);
  inner.add(second, second_bytes);
  inner.finish(mac);
  outer.add(mac, 32);
  outer.finish(mac);
}

void MacKey::sign(const void* first, size_t first_bytes, const void* second, size_t second_bytes,
                  uint8_t mac[kMacBytes]) const {
  uint8_t whole[32];
  full(first, first_bytes, second, second_bytes, whole);
  memcpy(mac, whole, kMacBytes);
}

bool MacKey::verify(const void* first, size_t first_bytes, const void* second, size_t second_bytes,
                    const uint8_t mac[kMacBytes]) const {
  uint8_t expected[kMacBytes];
  sign(first, first_bytes, second, second_bytes, expected);
  uint8_t differences = 0;
  for (size_t i = 0; i < kMacBytes; ++i) differences = static_cast<uint8_t>(differences | (expected[i] ^ mac[i]));
  return differences == 0;
}

}  // namespace resil::hang::overlay
