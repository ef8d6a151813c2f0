// SPDX-License-Identifier: Apache-2.0
//
// What folding P contributions costs, without MPI: GB/s (10^9 bytes) of contributions read, in the first-level cache,
// beyond it and in memory, and nanoseconds for one element. `plain` is what an MPI library does with the same data:
// P - 1 passes of acc[i] += x[i], vectorised by the compiler.
//
//   ninja -C build tests/fold_bench && build/tests/fold_bench [PART OF A NAME]
//
// `wide` has contributions of all magnitudes, where exact sums need more than two doubles; in `ordinary` they are
// alike.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "pipeline/reduction/kernel.h"
#include "tests/bench/timing.h"

namespace {

using resil::BasicKind;
using resil::BasicType;
using resil::OpKind;
using resil::reduction::Mode;

constexpr size_t kRanks = 64;
/// Of all contributions together, and a page for each of the greatest number of them.
constexpr size_t kMost = (64 << 20) + kRanks * 4096;

struct Case {
  const char* name;
  OpKind op;
  BasicType type;
  Mode mode;
  bool wide;
};

const Case kCases[] = {
    {"double_sum", OpKind::kSum, {BasicKind::kFloating, {}, 8, 0, 0, 0}, Mode::kOrder, false},
    {"double_sum_exact", OpKind::kSum, {BasicKind::kFloating, {}, 8, 0, 0, 0}, Mode::kExact, false},
    {"double_sum_exact_wide", OpKind::kSum, {BasicKind::kFloating, {}, 8, 0, 0, 0}, Mode::kExact, true},
    {"float_sum", OpKind::kSum, {BasicKind::kFloating, {}, 4, 0, 0, 0}, Mode::kOrder, false},
    {"float_sum_exact", OpKind::kSum, {BasicKind::kFloating, {}, 4, 0, 0, 0}, Mode::kExact, false},
    {"double_min", OpKind::kMin, {BasicKind::kFloating, {}, 8, 0, 0, 0}, Mode::kOrder, false},
    {"double_complex_prod", OpKind::kProd, {BasicKind::kComplex, {}, 16, 0, 0, 0}, Mode::kOrder, false},
    {"long_double_sum", OpKind::kSum, {BasicKind::kLongDouble, {}, 16, 0, 0, 0}, Mode::kOrder, false},
    {"long_double_sum_exact", OpKind::kSum, {BasicKind::kLongDouble, {}, 16, 0, 0, 0}, Mode::kExact, false},
    {"double_int_minloc", OpKind::kMinloc, {BasicKind::kPair, BasicKind::kFloating, 12, 8, 4, 0}, Mode::kOrder, false},
    {"int8_sum", OpKind::kSum, {BasicKind::kSigned, {}, 1, 0, 0, 0}, Mode::kOrder, false},
};

char* memory;
char* result;
const void* contributions[kRanks];

char* map(size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) exit(1);
  madvise(mapped, bytes, MADV_HUGEPAGE);
  memset(mapped, 0, bytes);
  return static_cast<char*>(mapped);
}

uint64_t noise = 1;
uint64_t next() {
  noise ^= noise << 13;
  noise ^= noise >> 7;
  return noise ^= noise << 17;
}

template <class T>
void fill(char* to, size_t bytes, bool wide) {
  for (size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T value = static_cast<T>(static_cast<double>(next() >> 11) * 0x1p-53 - 0.5);
    for (unsigned steps = wide ? static_cast<unsigned>(next() % 200) : 0; steps > 0; --steps)
      value = static_cast<T>(value * 2);
    memset(to + i, 0, sizeof(T));
    memcpy(to + i, &value, sizeof(T) == 16 ? 10 : sizeof(T));
  }
}

/// Contributions of `bytes` each, a line and more apart from multiples of a page, as a receive buffer's parts may lie.
void prepare(const Case& what, size_t ranks, size_t bytes) {
  char* at = memory;
  for (size_t r = 0; r < ranks; ++r) {
    contributions[r] = at;
    if (what.type.kind == BasicKind::kLongDouble) fill<long double>(at, bytes, what.wide);
    else if (what.type.kind == BasicKind::kFloating && what.type.width == 4) fill<float>(at, bytes, what.wide);
    else fill<double>(at, bytes, what.wide);
    at += (bytes + 63) / 64 * 64;
  }
}

/// One pass of an MPI library's loop.
template <class T>
[[gnu::noinline, gnu::optimize("O3")]] void plain_pass(T* __restrict to, const T* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
}

template <class T>
void plain(size_t ranks, size_t bytes) {
  memcpy(result, contributions[0], bytes);
  for (size_t r = 1; r < ranks; ++r)
    plain_pass(reinterpret_cast<T*>(result), static_cast<const T*>(contributions[r]), bytes / sizeof(T));
}

void fold(const Case& what, size_t ranks, size_t bytes) {
  resil::reduction::fold(what.op, what.type, what.mode, contributions, ranks, result,
                         bytes / resil::reduction::element_extent(what.type));
}

void measure(const Case& what, size_t ranks) {
  const size_t extent = resil::reduction::element_extent(what.type);
  double best;
  prepare(what, ranks, extent);
  BEST_OF(best, 50, 2000, fold(what, ranks, extent));
  printf("%s_P%zu_1 %.1f ns\n", what.name, ranks, best);
  const struct {
    const char* name;
    size_t total;
  } sizes[] = {{"32K", 32 << 10}, {"1M", 1 << 20}, {"64M", 64 << 20}};
  for (const auto& size : sizes) {
    const size_t each = size.total / ranks / 64 * 64;
    prepare(what, ranks, each);
    const int repeats = size.total > 16 << 20 ? 1 : static_cast<int>((16 << 20) / size.total);
    const double read = static_cast<double>(each * ranks);
    BEST_OF(best, 7, repeats, fold(what, ranks, each));
    printf("%s_P%zu_%s %.2f GB/s\n", what.name, ranks, size.name, read / best);
    if (what.op != OpKind::kSum || what.mode != Mode::kOrder || what.type.width > 8) continue;
    if (what.type.width == 8) BEST_OF(best, 7, repeats, plain<double>(ranks, each));
    else if (what.type.width == 4) BEST_OF(best, 7, repeats, plain<float>(ranks, each));
    else BEST_OF(best, 7, repeats, plain<uint8_t>(ranks, each));
    printf("%s_P%zu_%s_plain %.2f GB/s\n", what.name, ranks, size.name, read / best);
  }
}

}  // namespace

int main(int argc, char** argv) {
  memory = map(kMost);
  result = map(kMost / 2);
  printf("variant %s\n", resil::reduction::fold_variant().name);
  for (const Case& what : kCases)
    for (size_t ranks : {2, 3, 4, 8, 16, 64})
      if (argc < 2 || strstr(what.name, argv[1]) != nullptr) measure(what, ranks);
  return 0;
}
