// SPDX-License-Identifier: Apache-2.0
//
// What fold.cpp and tree.cpp know of the loops that compute: one function for each operator and element, chosen by
// type and CPU. All variants give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/reduction/fold.h"

namespace resil::reduction {

/// What lies in memory, as far as arithmetic is concerned. Sums, minima and bit operations of complex numbers and the
/// like are those of their parts.
enum class Element : uint8_t {
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kL8,
  kL16,
  kL32,
  kL64,
  kF32,
  kF64,  // vectors: order_kernels.cpp
  kNone,
};
constexpr unsigned kVectorElements = static_cast<unsigned>(Element::kNone);
constexpr unsigned kOperators = static_cast<unsigned>(OpKind::kMinloc) + 1;

/// to[i] = T(leaves)[i], or before[i] op T(leaves)[i] where `before` is given: one node of the canonical tree above
/// `leaf_count` leaves, for `units` elements. `to` may be any of the inputs, or overlap none. With one leaf and nothing
/// before it: copies.
using Step = void (*)(char* to, const char* before, const char* const* leaves, unsigned leaf_count, size_t units);

/// One operator on one type.
struct Kernel {
  Step step;
  uint16_t unit;  ///< bytes of a unit
  uint8_t units;  ///< in an element
  bool wide;  ///< step takes 1, 2, 3, 4 and 8 leaves; else 1 and 2, and only 1 where something is before
  bool floating, x87;  ///< needs the floating-point environment
};

/// All null where there is no arithmetic.
Kernel find_kernel(OpKind op, const BasicType& type);
/// That of types whose values do not fit a vector's lane: scalar_kernels.cpp.
Kernel find_scalar_kernel(OpKind op, const BasicType& type);

/// fold() in `order` with a kernel that has been found before.
void fold_prepared(const Kernel& kernel, const char* const* contributions, size_t ranks, char* result, size_t units,
                   char* scratch);

struct OrderKernels {
  Step steps[kOperators][kVectorElements];
};

/// Correctly rounded sums of three or more contributions. `scratch`: kFoldScratch bytes.
struct ExactKernels {
  void (*f32)(const char* const* contributions, size_t ranks, char* result, size_t count, char* scratch);
  void (*f64)(const char* const* contributions, size_t ranks, char* result, size_t count, char* scratch);
};

// portable is what the compiler's default target allows: SSE2 on x86-64, NEON on aarch64.
namespace order_portable {
extern const OrderKernels kernels;
}
namespace exact_portable {
extern const ExactKernels kernels;
}
#ifdef __x86_64__
namespace order_avx2 {
extern const OrderKernels kernels;
}
namespace exact_avx2 {
extern const ExactKernels kernels;
}
namespace exact_avx512 {
extern const ExactKernels kernels;
}
#endif

/// One CPU's.
struct Variant {
  const char* name;
  const OrderKernels* order;
  const ExactKernels* exact;
};
/// The variant in use: the best for this CPU.
const Variant& fold_variant();
/// All that this CPU can run, best last; for tests and benchmarks.
size_t fold_variants(const Variant** list);
/// For tests and benchmarks: uses this one from now on; null: the best.
void fold_use(const Variant* variant);

}  // namespace resil::reduction
