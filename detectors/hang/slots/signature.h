// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator must agree on in its n-th collective, in one word: the call, a predefined operator,
// the root, and the bytes where MPI demands equal amounts (MPI 4.0, chapter 6). Equal words never prove that the calls
// match; different ones prove that they do not, but for the bytes: see mismatch/.
//
// Bits 0-9 call id (that of the plain call for its `_c` twin) | 10-15 operator (OpKind; 0: none) | 16-35 root + 1
// (0: none) | 36-63 bytes; all ones: not compared.
#pragma once

#include <cstdint>

#include "shim/abi/backend_types.h"
#include "shim/base/hash.h"
#include "shim/ring/collective_history.h"

namespace resil::hang {

constexpr uint64_t kBytesNotCompared = (uint64_t{1} << 28) - 1;
constexpr uint64_t kExactBytes = uint64_t{1} << 27;  ///< below: the number itself; from here on a hash of it
constexpr uint32_t kNoRoot = 0;

struct Signature {
  uint16_t call;
  OpKind op;  ///< kNone: the call has none; kUser: whatever the program made
  uint32_t root;  ///< rank in the communicator + 1; kNoRoot
  uint64_t bytes;  ///< at most kBytesNotCompared
};

/// 28 bits for an amount: amounts of 128 MiB and more can only be told apart.
constexpr uint64_t signature_bytes(uint64_t bytes) {
  if (bytes < kExactBytes) return bytes;
  const uint64_t hash = kExactBytes | (mix64(bytes) & (kExactBytes - 1));
  return hash != kBytesNotCompared ? hash : hash - 1;
}

/// `bytes`: as it stands there, see signature_bytes().
constexpr uint64_t signature_pack(const Signature& from) {
  return uint64_t{from.call} | uint64_t{static_cast<uint8_t>(from.op)} << 10 | uint64_t{from.root & 0xfffff} << 16 |
         from.bytes << 36;
}

constexpr Signature signature_unpack(uint64_t word) {
  return {static_cast<uint16_t>(word & 0x3ff), static_cast<OpKind>(ring::operator_in(word)),
          static_cast<uint32_t>(word >> 16 & 0xfffff), ring::bytes_in(word)};
}

}  // namespace resil::hang
