// SPDX-License-Identifier: Apache-2.0
//
// Which variants this CPU and operating system can run. CPUID is asked directly: __builtin_cpu_supports would link a
// constructor of libgcc into the library, and a preloaded library runs nothing in processes that it has no business in.
#include "shim/base/digest/variant.h"

#ifdef __x86_64__
#include <cpuid.h>

namespace resil {

namespace {

/// Register state that the operating system saves when it switches threads (XCR0); 0 if it cannot be asked.
uint64_t saved_state() {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return uint64_t{d} << 32 | a;
}

bool has(uint64_t state, unsigned ebx, unsigned ecx) {
  unsigned a, b, c, d;
  return (saved_state() & state) == state && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & ebx) == ebx &&
         (c & ecx) == ecx;
}

constexpr uint64_t kYmm = 0x06, kZmm = 0xe6;  // bits of XCR0: SSE and AVX; and all three of AVX-512

}  // namespace

bool digest_has_avx2() { return has(kYmm, bit_AVX2, 0); }

// The first CPUs with AVX-512 clock a core down for half a millisecond when 512-bit multiplications run, which would
// slow the application's own code. Those that also have VBMI (Ice Lake, Zen 4 and later) hardly do.
bool digest_has_avx512() { return has(kZmm, bit_AVX2 | bit_AVX512F, bit_AVX512VBMI); }

}  // namespace resil
#endif
