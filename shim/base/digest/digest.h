// SPDX-License-Identifier: Apache-2.0
//
// The digest D of a message: the digest of its packed byte stream, that is of its bytes in the order of the type map.
//
//   The stream is cut into leaves of 4096 bytes; the last one may be shorter. An empty stream is one leaf of 0 bytes.
//   D = sum over all leaves of digest_leaf(leaf, its bytes, its index from 0), mod 2^64
//   digest_leaf = mix64(XXH3(leaf) ^ (kDigestKey + (index * 8192 + bytes) * 0x9e3779b97f4a7c15))
//
// XXH3 is XXH3_64bits() of xxHash without seed, its result read as a number; mix64 is the bijection of
// shim/base/hash.h. A sum does not depend on the order of its terms: threads, partitions and devices may add leaves as
// they finish them. digest.cpp says why the terms depend strongly enough on the position.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/base/hash.h"

namespace resil {

/// Bytes of all leaves but the last.
constexpr size_t kDigestLeaf = 4096;
/// Below this many bytes no helper thread is ever asked.
constexpr size_t kDigestLarge = 4 << 20;
/// Key of the positions: the fractional part of the square root of 2.
constexpr uint64_t kDigestKey = 0x6a09e667f3bcc908;

/// What a leaf adds to D, from the XXH3 of its bytes. `index` < 2^51.
constexpr uint64_t digest_term(uint64_t xxh3, uint64_t index, size_t bytes) {
  return mix64(xxh3 ^ (kDigestKey + (index * (2 * kDigestLeaf) + bytes) * 0x9e3779b97f4a7c15));
}

/// Chooses the variant for this CPU. Call it once, before_init; until then the portable variant is used, which gives
/// the same values. Allocates nothing, makes no system call.
void digest_prepare();

/// Allows digest() to split buffers of kDigestLarge bytes and more over helper threads, if the affinity mask of the
/// calling thread leaves cores over: more than `local_ranks`, the ranks on this node, and the OpenMP threads of each
/// can use. 0 allows none, also when there are some already. No thread is created before the first such buffer.
/// Call it from one thread, before the first digest. Makes system calls.
void digest_helpers(int local_ranks);

/// D of `bytes` contiguous bytes. Any thread; reads only [data, data + bytes), no MPI, no errors. Async-signal-safe,
/// but for kDigestLarge bytes and more only while no helper thread is allowed.
uint64_t digest(const void* data, size_t bytes);

/// The part of D that leaf `index` adds. `bytes` <= kDigestLeaf; 0 only for the one leaf of an empty stream.
uint64_t digest_leaf(const void* leaf, size_t bytes, uint64_t index);

/// D of a stream that comes in pieces (derived datatypes). One thread at a time; 4 KiB, so mind the stack of signal
/// handlers. Where pieces hold whole leaves these are hashed in place, the rest is gathered.
class DigestStream {
 public:
  /// The next `bytes` bytes of the stream, which may be 0.
  void add(const void* data, size_t bytes);
  /// D of all that was added; the stream is empty again.
  uint64_t finish();

 private:
  uint64_t sum_ = 0;
  uint64_t index_ = 0;  // of the leaf that is being gathered
  size_t fill_ = 0;  // bytes in leaf_
  char leaf_[kDigestLeaf];
};

}  // namespace resil
