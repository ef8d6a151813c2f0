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

}  // namespace

#define RESIL_TEXT(name) #name
#define RESIL_NAME(name) RESIL_TEXT(name)
extern const DigestVariant variant = {&RESIL_NAME(RESIL_DIGEST_VARIANT)[sizeof("digest_") - 1], xxh3, whole};

}  // namespace resil::RESIL_DIGEST_VARIANT
