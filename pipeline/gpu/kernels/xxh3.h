// SPDX-License-Identifier: Apache-2.0
//
// XXH3_64bits (xxHash 0.8, default secret, seed 0) of at most one leaf by a group of 32 threads, and the leaf's term.
//
// XXH3 of more than 240 bytes keeps eight accumulators. Each stripe of 64 bytes adds to all of them, and after 16
// stripes (a block of 1024 bytes) they are scrambled. What a block adds does not depend on what was there before, so
// the stripes of a leaf can be taken in any order: lane 4g + q has words 2q and 2q + 1 of the stripes g, g + 8, g + 16,
// ..., which are the 16 bytes that accumulators 2q and 2q + 1 see and that one load brings; 32 lanes read 512 bytes
// side by side. Then the lanes' parts are added, and only four steps (one a block) remain in sequence.
#pragma once

#include "pipeline/gpu/kernels/device.h"

namespace resil::gpu::device {

constexpr uint64_t kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F, kPrime64_3 = 0x165667B19E3779F9,
                   kPrime64_4 = 0x85EBCA77C2B2AE63, kPrime64_5 = 0x27D4EB2F165667C5;

/// The default secret of XXH3 as 64-bit words from each of its bytes on: a table of constants has no alignment to mind.
struct Secret {
  uint64_t word[185];
};

constexpr Secret make_secret() {
  constexpr unsigned char bytes[192] = {
      0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
      0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
      0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
      0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
      0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
      0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
      0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
      0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
      0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
      0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
      0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
  Secret secret = {};
  for (unsigned i = 0; i < 185; ++i)
    for (unsigned k = 0; k < 8; ++k) secret.word[i] |= static_cast<uint64_t>(bytes[i + k]) << (8 * k);
  return secret;
}

constexpr unsigned kLastStripe = 121, kScramble = 128, kMerge = 11;  ///< places in the secret

RESIL_CONSTANT constexpr Secret kSecret = make_secret();
RESIL_CONSTANT constexpr uint64_t kFirstAccumulators[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                                           kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};

// --- Reads at any address: never a word that has no byte asked for
// ----------------------------------------------------

/// 8 bytes from any address. The stream's words are little-endian, as all devices are.
RESIL_DEVICE uint64_t read64(uint64_t address) {
  if (address % 8 == 0) return *at<const uint64_t>(address);
  const uint32_t* words = at<const uint32_t>(address & ~uint64_t{3});
  const unsigned shift = static_cast<unsigned>(address % 4) * 8;
  const uint64_t low = words[0] | static_cast<uint64_t>(words[1]) << 32;
  return shift == 0 ? low : low >> shift | static_cast<uint64_t>(words[2]) << (64 - shift);
}

RESIL_DEVICE uint32_t read32(uint64_t address) {
  const uint32_t* words = at<const uint32_t>(address & ~uint64_t{3});
  const unsigned shift = static_cast<unsigned>(address % 4) * 8;
  return shift == 0 ? words[0] : words[0] >> shift | words[1] << (32 - shift);
}

RESIL_DEVICE uint32_t read8(uint64_t address) { return *at<const unsigned char>(address); }

RESIL_DEVICE Pair read_pair(uint64_t address) { return {read64(address), read64(address + 8)}; }

// --- XXH3 of up to 240 bytes: every lane computes the same
// ------------------------------------------------------------

RESIL_DEVICE uint64_t fold_product(uint64_t a, uint64_t b) { return (a * b) ^ high_product(a, b); }

RESIL_DEVICE uint64_t avalanche(uint64_t h) {
  h = (h ^ (h >> 37)) * 0x165667919E3779F9;
  return h ^ (h >> 32);
}

RESIL_DEVICE uint64_t avalanche64(uint64_t h) {  // XXH64's
  h = (h ^ (h >> 33)) * kPrime64_2;
  h = (h ^ (h >> 29)) * kPrime64_3;
  return h ^ (h >> 32);
}

RESIL_DEVICE uint64_t swap_bytes(uint64_t x) {
  x = (x & 0x00ff00ff00ff00ff) << 8 | (x >> 8 & 0x00ff00ff00ff00ff);
  x = (x & 0x0000ffff0000ffff) << 16 | (x >> 16 & 0x0000ffff0000ffff);
  return x << 32 | x >> 32;
}

RESIL_DEVICE uint64_t mix16(uint64_t address, unsigned secret) {
  return fold_product(read64(address) ^ kSecret.word[secret], read64(address + 8) ^ kSecret.word[secret + 8]);
}

RESIL_DEVICE uint64_t hash_short(uint64_t address, unsigned bytes) {
  if (bytes == 0) return avalanche64(kSecret.word[56] ^ kSecret.word[64]);
  if (bytes <= 3) {
    const uint32_t combined =
        read8(address) << 16 | read8(address + bytes / 2) << 24 | read8(address + bytes - 1) | bytes << 8;
    const uint32_t key = static_cast<uint32_t>(kSecret.word[0]) ^ static_cast<uint32_t>(kSecret.word[4]);
    return avalanche64(combined ^ static_cast<uint64_t>(key));
  }
  if (bytes <= 8) {
    const uint64_t key = kSecret.word[8] ^ kSecret.word[16];
    uint64_t h = (read32(address + bytes - 4) + (static_cast<uint64_t>(read32(address)) << 32)) ^ key;
    h ^= (h << 49 | h >> 15) ^ (h << 24 | h >> 40);
    h *= 0x9FB21C651E98DF25;
    h ^= (h >> 35) + bytes;
    h *= 0x9FB21C651E98DF25;
    return h ^ (h >> 28);
  }
  if (bytes <= 16) {
    const uint64_t low = read64(address) ^ kSecret.word[24] ^ kSecret.word[32];
    const uint64_t high = read64(address + bytes - 8) ^ kSecret.word[40] ^ kSecret.word[48];
    return avalanche(bytes + swap_bytes(low) + high + fold_product(low, high));
  }
  uint64_t sum = bytes * kPrime64_1;
  if (bytes <= 128) {
    RESIL_NO_UNROLL for (unsigned i = 0; i <= (bytes - 1) / 32; ++i) sum +=
        mix16(address + 16 * i, 32 * i) + mix16(address + bytes - 16 * (i + 1), 32 * i + 16);
    return avalanche(sum);
  }
  RESIL_NO_UNROLL for (unsigned i = 0; i < 8; ++i) sum += mix16(address + 16 * i, 16 * i);
  sum = avalanche(sum);
  RESIL_NO_UNROLL for (unsigned i = 8; i < bytes / 16; ++i) sum += mix16(address + 16 * i, 16 * (i - 8) + 3);
  return avalanche(sum + mix16(address + bytes - 16, 136 - 17));
}

// --- XXH3 of 241 to 4096 bytes
// ----------------------------------------------------------------------------------------

/// What each lane's share of the stripes adds, by block and by word of the lane's two.
struct Shares {
  PerLane<uint64_t> of[4][2];
};

/// A lane's words of the secret: for its stripes at even and at odd places in the block, and for the leaf's last one.
struct Keys {
  PerLane<uint64_t> even[2], odd[2], last[2];
};

RESIL_DEVICE void make_keys(Keys* keys) {
  LANES {
    const unsigned q = lane % 4, g = lane / 4;
    for (unsigned p = 0; p < 2; ++p) {
      keys->even[p][lane] = kSecret.word[8 * (g + 2 * q + p)];
      keys->odd[p][lane] = kSecret.word[8 * (g + 8 + 2 * q + p)];
      keys->last[p][lane] = g == 7 ? kSecret.word[kLastStripe + 8 * (2 * q + p)] : keys->odd[p][lane];
    }
  }
}

RESIL_DEVICE uint64_t share(uint64_t value, uint64_t key, uint64_t neighbour) {
  const uint64_t keyed = value ^ key;
  return neighbour + (keyed & 0xffffffff) * (keyed >> 32);
}

/// A whole leaf at a multiple of 8. `global`: it is in the device's memory, whose loads need not look where the address
/// points.
template <bool global>
RESIL_DEVICE void share_whole(const Keys& keys, uint64_t address, Shares* shares) {
  LANES {
    const uint64_t own = address + 16 * lane;
    Pair data[8];
    // The same way for all lanes, and mostly for all leaves of a launch.
    if (address % 16 == 0) {
      RESIL_UNROLL for (unsigned k = 0; k < 8; ++k) data[k] =
          global ? load_once(at<const Pair>(own + 512 * k)) : *at<const Pair>(own + 512 * k);
    } else {
      RESIL_UNROLL for (unsigned k = 0; k < 8; ++k)
          data[k] = {at<const uint64_t>(own + 512 * k)[0], at<const uint64_t>(own + 512 * k)[1]};
    }
    RESIL_UNROLL for (unsigned b = 0; b < 4; ++b) {
      const Pair first = data[2 * b], second = data[2 * b + 1];
      const uint64_t key0 = b == 3 ? keys.last[0][lane] : keys.odd[0][lane];
      const uint64_t key1 = b == 3 ? keys.last[1][lane] : keys.odd[1][lane];
      shares->of[b][0][lane] = share(first.low, keys.even[0][lane], first.high) + share(second.low, key0, second.high);
      shares->of[b][1][lane] = share(first.high, keys.even[1][lane], first.low) + share(second.high, key1, second.low);
    }
  }
}

/// A shorter one, or at any address.
RESIL_DEVICE void share_part(const Keys& keys, uint64_t address, unsigned bytes, Shares* shares) {
  const unsigned stripes = (bytes - 1) / 64, blocks = (bytes - 1) / 1024;
  LANES {
    const unsigned q = lane % 4, g = lane / 4;
    const uint64_t own = address + 16 * lane;
    RESIL_UNROLL for (unsigned b = 0; b < 4; ++b) {
      uint64_t sum0 = 0, sum1 = 0;
      if (16 * b + g < stripes) {
        const Pair data = read_pair(own + 1024 * b);
        sum0 = share(data.low, keys.even[0][lane], data.high);
        sum1 = share(data.high, keys.even[1][lane], data.low);
      }
      if (16 * b + 8 + g < stripes) {
        const Pair data = read_pair(own + 1024 * b + 512);
        sum0 += share(data.low, keys.odd[0][lane], data.high);
        sum1 += share(data.high, keys.odd[1][lane], data.low);
      }
      if (b == blocks && g == 0) {  // the last 64 bytes, whatever they share with the stripe before
        const Pair data = read_pair(address + bytes - 64 + 16 * q);
        sum0 += share(data.low, kSecret.word[kLastStripe + 16 * q], data.high);
        sum1 += share(data.high, kSecret.word[kLastStripe + 16 * q + 8], data.low);
      }
      shares->of[b][0][lane] = sum0;
      shares->of[b][1][lane] = sum1;
    }
  }
}

/// Adds the lanes' shares and finishes the hash; the same for all lanes.
RESIL_DEVICE uint64_t merge(Shares* shares, unsigned bytes) {
  // Eight numbers of each of eight lanes (those with the same q) are added so that each lane ends with one of the sums:
  // in each step a lane keeps half of its numbers and hands the others to its partner, which keeps those.
  PerLane<uint64_t> half[2][2], other[2][2];
  LANES {
    const bool upper = lane & 16;
    for (unsigned b = 0; b < 2; ++b)
      for (unsigned p = 0; p < 2; ++p) {
        half[b][p][lane] = upper ? shares->of[b + 2][p][lane] : shares->of[b][p][lane];
        other[b][p][lane] = upper ? shares->of[b][p][lane] : shares->of[b + 2][p][lane];
      }
  }
  for (unsigned b = 0; b < 2; ++b)
    for (unsigned p = 0; p < 2; ++p) exchange_lanes(&other[b][p], 16);
  PerLane<uint64_t> quarter[2], given[2];
  LANES {
    const bool upper = lane & 8;
    for (unsigned p = 0; p < 2; ++p) {
      const uint64_t low = half[0][p][lane] + other[0][p][lane], high = half[1][p][lane] + other[1][p][lane];
      quarter[p][lane] = upper ? high : low;
      given[p][lane] = upper ? low : high;
    }
  }
  for (unsigned p = 0; p < 2; ++p) exchange_lanes(&given[p], 8);
  PerLane<uint64_t> sum, last;
  LANES {
    const bool upper = lane & 4;
    const uint64_t low = quarter[0][lane] + given[0][lane], high = quarter[1][lane] + given[1][lane];
    sum[lane] = upper ? high : low;
    last[lane] = upper ? low : high;
  }
  exchange_lanes(&last, 4);
  LANES { sum[lane] += last[lane]; }
  // Lane 8b + 4p + q now has what block b adds to accumulator 2q + p.
  const PerLane<uint64_t> block0 = from_lanes(sum, 7, 0), block1 = from_lanes(sum, 7, 8),
                          block2 = from_lanes(sum, 7, 16), block3 = from_lanes(sum, 7, 24);
  const unsigned blocks = (bytes - 1) / 1024;
  PerLane<uint64_t> own, partner;
  LANES {
    const unsigned a = 2 * (lane % 4) + (lane / 4) % 2;
    const uint64_t key = kSecret.word[kScramble + 8 * a];
    uint64_t x = kFirstAccumulators[a] + block0[lane];
    if (blocks > 0) x = ((x ^ (x >> 47)) ^ key) * kPrime32_1 + block1[lane];
    if (blocks > 1) x = ((x ^ (x >> 47)) ^ key) * kPrime32_1 + block2[lane];
    if (blocks > 2) x = ((x ^ (x >> 47)) ^ key) * kPrime32_1 + block3[lane];
    own[lane] = partner[lane] = x ^ kSecret.word[kMerge + 8 * a];
  }
  exchange_lanes(&partner, 4);
  PerLane<uint64_t> next;
  LANES { own[lane] = next[lane] = fold_product(own[lane], partner[lane]); }
  exchange_lanes(&next, 1);
  LANES { own[lane] = next[lane] = own[lane] + next[lane]; }
  exchange_lanes(&next, 2);
  LANES { own[lane] += next[lane]; }
  return avalanche(bytes * kPrime64_1 + of_lane(own, 0));
}

/// digest_term of shim/base/digest/digest.h.
RESIL_DEVICE uint64_t term(uint64_t hash, uint64_t index, unsigned bytes) {
  uint64_t x = hash ^ (0x6a09e667f3bcc908 + (index * (2 * kLeaf) + bytes) * 0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// What the leaf of `bytes` (0 to kLeaf) at `address` adds to D; the same for all lanes.
template <bool global>
RESIL_DEVICE uint64_t leaf_term(const Keys& keys, uint64_t address, unsigned bytes, uint64_t index) {
  if (bytes <= 240) return term(hash_short(address, bytes), index, bytes);
  Shares shares;
  if (bytes == kLeaf && address % 8 == 0) share_whole<global>(keys, address, &shares);
  else share_part(keys, address, bytes, &shares);
  return term(merge(&shares, bytes), index, bytes);
}

}  // namespace resil::gpu::device
