// SPDX-License-Identifier: Apache-2.0
//
// What a digest costs: nanoseconds a message for short ones, GB/s (10^9 bytes) for long ones, beside memcpy, for each
// variant that this CPU runs. A short message has two figures: calls one after the other, which the CPU overlaps, and
// `wait`, where the next call's address depends on the result: the time until D is known.
//
//   scripts/bench builds it; by hand: digest_bench [HELPERS]
//
// HELPERS is how many helper threads digest() may use from 4 MiB on, free cores or not; 0 unless given.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "shim/base/digest/digest.h"
#include "shim/base/digest/helpers.h"
#include "shim/base/digest/variant.h"
#include "tests/bench/timing.h"

namespace {

constexpr size_t kMost = 256 << 20;
char *source, *target;
volatile uint64_t sink, zero;

char* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

const char* text(size_t bytes) {
  static char buffer[16];
  if (bytes >= 1 << 20) snprintf(buffer, sizeof(buffer), "%zuM", bytes >> 20);
  else if (bytes >= 1 << 10) snprintf(buffer, sizeof(buffer), "%zuK", bytes >> 10);
  else snprintf(buffer, sizeof(buffer), "%zu", bytes);
  return buffer;
}

/// `what` digests or copies that many bytes at source + offset and returns something that depends on the result.
template <typename What>
void measure(const char* name, const What& what) {
  for (size_t bytes : {8, 64, 256, 1 << 10, 4 << 10}) {
    double best;
    uint64_t last = 0;
    BEST_OF(best, 200, 5000, sink = what(0, bytes));
    printf("%s_%s %.1f ns\n", name, text(bytes), best);
    const uint64_t none = zero;  // which the compiler does not know
    BEST_OF(best, 200, 5000, last = what(last & none, bytes));
    sink = last;
    printf("%s_wait_%s %.1f ns\n", name, text(bytes), best);
  }
  for (size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, kMost}) {
    const int count = static_cast<int>((64 << 20) / bytes) + 1;
    double best;
    BEST_OF(best, 12, count, sink = what(0, bytes));
    printf("%s_%s %.1f GB/s\n", name, text(bytes), static_cast<double>(bytes) / best);
  }
  fflush(stdout);
}

void measure_variant(const resil::DigestVariant& variant) {
  resil::digest_use(variant);
  char name[64];
  snprintf(name, sizeof(name), "digest_%s", variant.name);
  measure(name, [](uint64_t offset, size_t bytes) { return resil::digest(source + offset, bytes); });
}

}  // namespace

int main(int argc, char** argv) {
  source = map(kMost + 4096);
  target = map(kMost + 4096);
  uint64_t word = 1;
  for (size_t i = 0; i < kMost + 4096; i += 8, word = resil::mix64(word)) memcpy(source + i, &word, 8);
  memset(target, 1, kMost + 4096);

  measure("memcpy", [](uint64_t offset, size_t bytes) {
    asm volatile("" : "+r"(bytes));  // not a constant
    memcpy(target, source + offset, bytes);
    return static_cast<uint64_t>(target[offset]);
  });
  if (argc > 1) resil::allow_helpers(atoi(argv[1]));
  measure_variant(resil::digest_portable::variant);
#ifdef __x86_64__
  if (resil::digest_has_avx2()) measure_variant(resil::digest_avx2::variant);
  if (resil::digest_has_avx512()) measure_variant(resil::digest_avx512::variant);
#endif
  return 0;
}
