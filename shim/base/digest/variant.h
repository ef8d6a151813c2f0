// SPDX-License-Identifier: Apache-2.0
//
// The CPU variants of the digest: one source, variant.cpp, compiled for each. All give the same values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// Any thread, async-signal-safe.
struct DigestVariant {
  const char* name;
  /// XXH3 of any number of bytes.
  uint64_t (*xxh3)(const void* data, size_t bytes);
  /// Sum of the terms of `leaves` whole leaves, the first of which has index `first`.
  uint64_t (*whole)(const char* data, size_t leaves, uint64_t first);
  /// Whether one of the floating-point numbers there, of 4 or 8 bytes, is infinite or no number. `bytes`: a multiple of
  /// their width.
  bool (*beyond)(const char* data, size_t bytes, unsigned width);
};

// portable is what the compiler's default target allows: SSE2 on x86-64, NEON on aarch64.
namespace digest_portable {
extern const DigestVariant variant;
}
#ifdef __x86_64__
namespace digest_avx2 {
extern const DigestVariant variant;
}
namespace digest_avx512 {
extern const DigestVariant variant;
}
#endif

/// Whether this CPU and operating system can run the AVX2 or the AVX-512 variant (x86-64 only).
bool digest_has_avx2();
bool digest_has_avx512();

/// The variant in use.
const DigestVariant& digest_variant();
/// For tests and benchmarks: uses this one from now on.
void digest_use(const DigestVariant& variant);

}  // namespace resil
