// SPDX-License-Identifier: Apache-2.0
//
// The floating-point environment in which folds are computed: round to nearest even, subnormals kept, no traps.
// Programs may have set another one (-ffast-math flushes subnormals, -ffpe-trap unmasks exceptions), and ranks need not
// agree. What the program had comes back whole, exception flags included: a fold leaves no trace there.
#pragma once

#include <cstdint>

namespace resil::reduction {

class FloatingEnvironment {
 public:
  /// `x87`: long double of x86 will be computed with as well.
  explicit FloatingEnvironment([[maybe_unused]] bool x87) {
#if defined(__x86_64__)
    x87_ = x87;
    asm volatile("stmxcsr %0" : "=m"(saved_)::"memory");
    constexpr uint32_t kDefault = 0x1f80;
    if (saved_ != kDefault) asm volatile("ldmxcsr %0" ::"m"(kDefault) : "memory");
    if (x87_) {
      constexpr uint16_t kExtended = 0x037f;  // 64-bit significands
      // fnstenv masks all exceptions, so that nothing pending fires in here.
      asm volatile("fnstenv %0\n\tfnclex\n\tfldcw %1" : "=m"(environment_) : "m"(kExtended) : "memory");
    }
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved_), "=r"(flags_)::"memory");
    asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}) : "memory");
#endif
  }
  ~FloatingEnvironment() {
#if defined(__x86_64__)
    asm volatile("ldmxcsr %0" ::"m"(saved_) : "memory");
    if (x87_) asm volatile("fldenv %0" ::"m"(environment_) : "memory");
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" ::"r"(saved_), "r"(flags_) : "memory");
#endif
  }
  FloatingEnvironment(const FloatingEnvironment&) = delete;
  FloatingEnvironment& operator=(const FloatingEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  bool x87_;
  uint32_t saved_;
  struct {
    uint32_t words[7];
  } environment_;
#elif defined(__aarch64__)
  uint64_t saved_, flags_;
#endif
};

}  // namespace resil::reduction
