// SPDX-License-Identifier: Apache-2.0
//
// A fingerprint that codes compute for themselves: XOR of the CRC32 of each 64-bit word, salted with packet index and
// tag. Offered for comparing with such codes, and weaker than the digest; the units show how:
//   - XOR forgets the order: every permutation of words has the same fingerprint, and equal words cancel in pairs;
//   - CRC32 is linear: flipping the same bits in any two words goes unseen, and 32 bits collide once in 4 * 10^9;
//   - the salt is ambiguous: packet 1000 of tag 0 has that of packet 0 of tag 1, and a salt is XORed on top, so that a
//     transposed packet is not found if the salts are equal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// CRC-32 (ISO-HDLC: polynomial 0x04c11db7 reflected, initial value and final XOR all ones; that of zlib).
/// `before`: the CRC of the bytes in front of these, which are then one text. Any thread, async-signal-safe.
uint32_t compat_crc32(const void* data, size_t bytes, uint32_t before = 0);

/// XOR over the 8-byte words of the stream, bytes in memory order, of their CRC-32. A last word of 1 to 7 bytes is the
/// CRC-32 of these bytes alone, without padding. 0 for an empty stream. Below 2^32. Any thread, async-signal-safe.
uint64_t compat_fingerprint(const void* data, size_t bytes);

/// To be XORed to the fingerprint: packet_index + 1000 * tag, mod 2^64.
constexpr uint64_t compat_salt(uint64_t packet_index, int tag) {
  return packet_index + 1000 * static_cast<uint64_t>(static_cast<int64_t>(tag));
}

}  // namespace resil
