// SPDX-License-Identifier: Apache-2.0
//
// Folds in programs that changed the floating-point environment, as -ffast-math, -ffpe-trap and interval arithmetic do.
//
// A failure here means that a program's own rounding mode, flushing of subnormals or traps change the result of a
// reduction (ranks would disagree), or that a fold leaves something behind: a changed mode, an exception flag that the
// program tests, a trap that kills it.
#include <cfenv>

#include "tests/unit/fold_fixture.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

using namespace fold_fixture;
using namespace resil::reduction;
using resil::BasicKind;

namespace {

uint16_t x87_control() {
  uint16_t word;
  asm volatile("fnstcw %0" : "=m"(word));
  return word;
}
uint16_t x87_status() {
  uint16_t word;
  asm volatile("fnstsw %0" : "=m"(word));
  return word;
}
void set_x87_control(uint16_t word) { asm volatile("fldcw %0" ::"m"(word)); }

}  // namespace

TEST_CASE("whatever the program does to the floating-point environment, folds give the same and leave it alone") {
  struct Setting {
    const char* name;
    unsigned mxcsr;
    uint16_t x87;
  };
  const Setting settings[] = {
      {"flush to zero, subnormals are zeros", 0x1f80 | 0x8040, 0x037f},
      {"towards zero; 53 bits", 0x1f80 | 0x6000, 0x027f | 0x0c00},
      {"upwards; 24 bits", 0x1f80 | 0x4000, 0x007f | 0x0800},
      {"all exceptions trap", 0x0000, 0x0340},
      {"traps, flushing, downwards, flags raised", 0x8040 | 0x2000 | 0x3f, 0x0340 | 0x0400},
  };
  std::mt19937_64 random(seed(21));
  for (const TypeCase& type : fold_oracle::types()) {
    if (!fold_oracle::is_floating(type.type) && !fold_oracle::is_complex(type.type) &&
        type.type.kind != BasicKind::kPair)
      continue;
    for (OpKind op : type.ops)
      for (Mode mode : {Mode::kOrder, Mode::kExact}) {
        const size_t ranks = 2 + random() % 12;
        Problem problem(type, ranks, 9, 3, random);
        const bool exact = mode == Mode::kExact && fold_exact_defined(op, type.type);
        std::vector<Bytes> wanted;
        for (const auto& element : problem.values)
          wanted.push_back(exact ? fold_oracle::exact_sum(type, element) : fold_oracle::tree(type, op, element));
        const std::vector<void*> x = problem.pointers();
        std::vector<Memory> prefixes;
        std::vector<void*> results;
        for (size_t r = 0; r < ranks; ++r)
          results.push_back(prefixes.emplace_back(problem.count * type.extent, 0).data());
        Memory result(problem.count * type.extent, 0);
        for (const Setting& setting : settings)
          for_each_variant([&] {
            INFO(type.name << ", " << setting.name << ", operator " << static_cast<int>(op));
            const unsigned mxcsr = _mm_getcsr();
            asm volatile("fnclex");  // what is raised already would trap right here
            const uint16_t control = x87_control(), status = x87_status();
            _mm_setcsr(setting.mxcsr);
            set_x87_control(setting.x87);
            fold(op, type.type, mode, x.data(), ranks, result.data(), problem.count);
            const unsigned mxcsr_after = _mm_getcsr();
            const uint16_t control_after = x87_control(), status_after = x87_status();
            fold_prefixes(op, type.type, mode, x.data(), ranks, results.data(), problem.count);
            combine(op, type.type, results[0], x[1], problem.count);
            const unsigned mxcsr_last = _mm_getcsr();
            set_x87_control(control);
            _mm_setcsr(mxcsr);
            CHECK(mxcsr_after == setting.mxcsr);
            CHECK(mxcsr_last == setting.mxcsr);
            CHECK(control_after == setting.x87);
            CHECK(status_after == status);
            CHECK(x87_status() == status);
            for (size_t i = 0; i < problem.count; ++i) {
              check_element(type, wanted[i], result.data() + i * type.extent, problem, i);
              check_element(type, wanted[i], static_cast<unsigned char*>(results[ranks - 1]) + i * type.extent, problem,
                            i);
            }
          });
      }
  }
}
#endif
