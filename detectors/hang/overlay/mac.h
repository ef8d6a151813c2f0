// SPDX-License-Identifier: Apache-2.0
//
// The message authentication code of the overlay: HMAC-SHA-256 (FIPS 180-4, RFC 2104), cut to 128 bits where it goes
// over the wire (RFC 2104, section 5). Written out here because the static library that distributions offer for it
// drags its allocator, its random generator and twenty more libc symbols into every process on the node. Portable, no
// state of its own; about one compression a 64-byte block and two more a message.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::hang::overlay {

constexpr size_t kMacBytes = 16;  ///< on the wire

class Sha256 {
 public:
  Sha256();
  void add(const void* data, size_t bytes);
  void finish(uint8_t digest[32]);

 private:
  void block(const uint8_t* data);

  uint32_t state_[8];
  uint64_t total_;
  uint8_t pending_[64];
};

/// A key made ready: the inner and outer state after the padded key, so that a message costs no compression for it.
class MacKey {
 public:
  MacKey() = default;
  MacKey(const void* key, size_t bytes);

  /// The full MAC of the concatenation of two pieces (the second may be empty).
  void full(const void* first, size_t first_bytes, const void* second, size_t second_bytes, uint8_t mac[32]) const;
  /// The same, cut.
  void sign(const void* first, size_t first_bytes, const void* second, size_t second_bytes,
            uint8_t mac[kMacBytes]) const;
  /// Takes the same time wherever the two differ.
  bool verify(const void* first, size_t first_bytes, const void* second, size_t second_bytes,
              const uint8_t mac[kMacBytes]) const;

 private:
  Sha256 inner_, outer_;
};

}  // namespace resil::hang::overlay
