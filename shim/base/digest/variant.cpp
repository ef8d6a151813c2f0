// SPDX-License-Identifier: Apache-2.0
//
// The digest's loops, compiled once for each CPU variant with its own flags: RESIL_DIGEST_VARIANT names the variant,
// XXH_VECTOR the vectors that xxHash shall use. Nothing here may be an inline function with external linkage: the
// linker would keep one copy for all variants, and that may be the one this CPU cannot run.
//
// Debian's libxxhash.so is an SSE2 build and several times slower; the functions are taken from the header instead.
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
// Further ahead than the default: measured, 15 instead of 12 GB/s from memory. Prefetching past the end faults never.
#define XXH_PREFETCH_DIST 2048
#include <xxhash.h>

#include "shim/base/digest/variant.h"

namespace resil::RESIL_DIGEST_VARIANT {
namespace {

constexpr size_t kLeaf = 4096;

// digest_term() of digest.h once more, because that one is inline.
[[gnu::always_inline]] static inline uint64_t term(uint64_t x, uint64_t index) {
  x ^= 0x6a09e667f3bcc908 + (index * (2 * kLeaf) + kLeaf) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t xxh3(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t whole(const char* data, size_t leaves, uint64_t first) {
  uint64_t sum = 0;
  for (size_t i = 0; i < leaves; ++i) sum += term(XXH3_64bits(data + i * kLeaf, kLeaf), first + i);
  return sum;
}

/// The 16 bits with the sign and the top of the exponent: of which number in eight bytes, and from where on it is all
/// ones. No comparison of floating-point numbers, which may trap.
bool beyond(const char* data, size_t bytes, unsigned width) {
  typedef int16_t Lanes __attribute__((vector_size(32), aligned(1), may_alias));
  typedef uint64_t Words __attribute__((vector_size(32)));
  const uint64_t mask = width == 8 ? uint64_t{0x7fff} << 48 : 0x7fff00007fff0000;
  const int16_t all_ones = width == 8 ? 0x7ff0 : 0x7f80;
  const Lanes masks = (Lanes)(Words{mask, mask, mask, mask});
  Lanes most = {};
  size_t i = 0;
  for (; i + sizeof(Lanes) <= bytes; i += sizeof(Lanes)) {
    const Lanes tops = *reinterpret_cast<const Lanes*>(data + i) & masks;
    most = tops > most ? tops : most;
  }
  int16_t found = 0;
  for (size_t lane = 0; lane < sizeof(Lanes) / sizeof(int16_t); ++lane) found = most[lane] > found ? most[lane] : found;
  for (i += width; i <= bytes; i += width) {  // the last few, by their top halves
    int16_t top;
    __builtin_memcpy(&top, data + i - sizeof(top), sizeof(top));
    top &= 0x7fff;
    found = top > found ? top : found;
  }
  return found >= all_ones;
}

}  // namespace

#define RESIL_TEXT(name) #name
#define RESIL_NAME(name) RESIL_TEXT(name)
extern const DigestVariant variant = {&RESIL_NAME(RESIL_DIGEST_VARIANT)[sizeof("digest_") - 1], xxh3, whole, beyond};

}  // namespace resil::RESIL_DIGEST_VARIANT
