// SPDX-License-Identifier: Apache-2.0
//
// The digest of messages: short ones here without an indirect call, longer ones by the variant for this CPU.
//
// Why adding mixed leaf hashes is enough. XXH3 sees every byte of its leaf and its position therein, so two leaves
// that differ have equal hashes with probability 2^-64 only. digest_term() is a bijection for fixed (index, bytes), so
// one wrong leaf always changes D if its hash differs. The position enters before mix64 and not after it: were the
// term hash * key(index) or hash ^ key(index) alone, the sum would be linear in either, and leaves that changed places
// would cancel for many keys (an XOR of two leaves' hashes does so always). mix64 makes the terms of one hash at two
// positions unrelated 64-bit numbers, so that leaves which moved, were doubled or are missing change the sum with
// probability 1 - 2^-64. `bytes` needs no more: it differs from 4096 in the last leaf only.
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "shim/base/digest/digest.h"

#include <atomic>
#include <cstring>

#include "shim/base/digest/helpers.h"
#include "shim/base/digest/variant.h"

namespace resil {

namespace {

constinit std::atomic<const DigestVariant*> chosen{&digest_portable::variant};

// XXH3 needs no vectors up to here, so that all variants have the same code.
constexpr size_t kShort = 240;

/// memcpy, but called: where the compiler knows a bound it may put in `rep movs`, which takes 20 ns to start.
void copy_bytes(char* to, const char* from, size_t bytes) {
  if (bytes == 0) return;  // null pointers are allowed then, and not by memcpy
  asm("" : "+r"(bytes));
  memcpy(to, from, bytes);
}

}  // namespace

const DigestVariant& digest_variant() { return *chosen.load(std::memory_order_relaxed); }

void digest_use(const DigestVariant& variant) { chosen.store(&variant, std::memory_order_relaxed); }

void digest_prepare() {
#ifdef __x86_64__
  if (digest_has_avx512()) digest_use(digest_avx512::variant);
  else if (digest_has_avx2()) digest_use(digest_avx2::variant);
#endif
}

uint64_t digest_leaf(const void* leaf, size_t bytes, uint64_t index) {
  if (bytes <= kShort) return digest_term(XXH3_64bits(leaf, bytes), index, bytes);
  return digest_term(digest_variant().xxh3(leaf, bytes), index, bytes);
}

namespace {

[[gnu::noinline]] uint64_t digest_long(const char* data, size_t bytes) {
  const DigestVariant& variant = digest_variant();
  const size_t whole = bytes / kDigestLeaf, rest = bytes % kDigestLeaf;
  uint64_t sum = 0;
  if (whole != 0 && (bytes < kDigestLarge || !share_with_helpers(data, whole, &sum)))
    sum = variant.whole(data, whole, 0);
  return rest == 0 ? sum : sum + digest_leaf(data + whole * kDigestLeaf, rest, whole);
}

}  // namespace

uint64_t digest(const void* data, size_t bytes) {
  if (bytes <= 16)  // XXH3_64bits() of so few, and nothing saved for longer ones
    return digest_term(XXH3_len_0to16_64b(static_cast<const xxh_u8*>(data), bytes, XXH3_kSecret, 0), 0, bytes);
  if (bytes <= kShort) return digest_term(XXH3_64bits(data, bytes), 0, bytes);
  if (bytes <= kDigestLeaf) return digest_term(digest_variant().xxh3(data, bytes), 0, bytes);
  return digest_long(static_cast<const char*>(data), bytes);
}

void DigestStream::add(const void* data, size_t bytes) {
  const char* piece = static_cast<const char*>(data);
  while (bytes != 0) {
    if (fill_ == 0 && bytes >= kDigestLeaf) {
      const size_t whole = bytes / kDigestLeaf;
      sum_ += digest_variant().whole(piece, whole, index_);
      index_ += whole;
      piece += whole * kDigestLeaf;
      bytes -= whole * kDigestLeaf;
      continue;
    }
    const size_t part = bytes < kDigestLeaf - fill_ ? bytes : kDigestLeaf - fill_;
    copy_bytes(leaf_ + fill_, piece, part);
    fill_ += part;
    piece += part;
    bytes -= part;
    if (fill_ == kDigestLeaf) {
      sum_ += digest_leaf(leaf_, kDigestLeaf, index_++);
      fill_ = 0;
    }
  }
}

uint64_t DigestStream::finish() {
  const uint64_t sum = fill_ != 0 || index_ == 0 ? sum_ + digest_leaf(leaf_, fill_, index_) : sum_;
  sum_ = index_ = fill_ = 0;
  return sum;
}

}  // namespace resil
