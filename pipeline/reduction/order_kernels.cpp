// SPDX-License-Identifier: Apache-2.0
//
// Nodes of the canonical tree for values that fit a vector's lane, compiled once for each CPU variant: RESIL_VARIANT
// names it. Up to eight leaves are folded in registers. Nothing here may be an inline function with external linkage:
// the linker would keep one copy for all variants, and that may be the one this CPU cannot run.
//
// The same bits from all: IEEE 754 defines sum and product to the last bit, contraction into fused operations is off
// for this file, and a NaN becomes the one canonical NaN before it is stored (which of two payloads an instruction
// keeps depends on the CPU and on the order of its operands).
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "pipeline/reduction/kernel.h"

#if defined(__FAST_MATH__)
#error "reductions are computed as IEEE 754 says"
#endif

namespace resil::reduction::RESIL_VARIANT {
namespace {

#if defined(__AVX2__)
constexpr unsigned kWide = 32;
#else
constexpr unsigned kWide = 16;
#endif
constexpr unsigned kNarrow = 16;

template <class T, unsigned kBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes)));
};
template <class T, unsigned kBytes>
using Vector = typename VectorOf<T, kBytes>::type;

template <class V>
[[gnu::always_inline]] inline V load(const char* from) {
  V value;
  memcpy(&value, from, sizeof(value));
  return value;
}

/// One value, zeros behind it: what the end of an array is computed with, by the same code.
template <class T>
[[gnu::always_inline]] inline Vector<T, kNarrow> load_one(const char* from) {
  T value;
  memcpy(&value, from, sizeof(value));
  return Vector<T, kNarrow>{value};
}

struct Sum {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a + b;
  }
};
struct Product {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a * b;
  }
};
struct Min {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a > b ? a : b;
  }
};

/// IEEE 754-2019's minimum: NaN where there is one, -0 below +0. Values that are equal have equal bits but for the sign
/// of zero, and a NaN stays one when bits are added to it.
struct FloatMin {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    using Bits = decltype(a < b);
    const V either = reinterpret_cast<V>(reinterpret_cast<Bits>(a) | reinterpret_cast<Bits>(b));
    return a < b ? a : b < a ? b : either;
  }
};
struct FloatMax {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    using Bits = decltype(a < b);
    const V both = reinterpret_cast<V>(reinterpret_cast<Bits>(a) & reinterpret_cast<Bits>(b));
    const V either = reinterpret_cast<V>(reinterpret_cast<Bits>(a) | reinterpret_cast<Bits>(b));
    return a > b ? a : b > a ? b : a == b ? both : either;
  }
};
struct BitAnd {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a & b;
  }
};
struct BitOr {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a | b;
  }
};
struct BitXor {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a ^ b;
  }
};

/// Of integers: 0 or 1.
struct And {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return reinterpret_cast<V>((a != 0) & (b != 0)) & 1;
  }
};
struct Or {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return reinterpret_cast<V>((a | b) != 0) & 1;
  }
};
struct Xor {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return reinterpret_cast<V>((a != 0) ^ (b != 0)) & 1;
  }
};

/// Of logical types: what is true is one of the operands, since what .TRUE. looks like is the Fortran compiler's
/// affair.
struct LogicalAnd {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a == 0 ? a : b;
  }
};
struct LogicalOr {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a != 0 ? a : b;
  }
};
struct LogicalXor {
  template <class V>
  [[gnu::always_inline]] static V of(V a, V b) {
    return a == 0 ? b : b == 0 ? a : V{};
  }
};

template <class T, class V>
[[gnu::always_inline]] inline V finished(V value) {
  if constexpr (std::is_floating_point_v<T>) return value == value ? value : V{} + static_cast<T>(__builtin_nan(""));
  else return value;
}

/// T(leaves first ... first + kCount - 1).
template <class Operator, unsigned kFirst, unsigned kCount, class Load>
[[gnu::always_inline]] inline auto tree(const Load& leaf) {
  if constexpr (kCount == 1) {
    return leaf(kFirst);
  } else {
    constexpr unsigned kHalf = kCount > 4 ? 4 : kCount > 2 ? 2 : 1;
    const auto low = tree<Operator, kFirst, kHalf>(leaf);
    return Operator::of(low, tree<Operator, kFirst + kHalf, kCount - kHalf>(leaf));
  }
}

template <class T, class Operator, unsigned kCount, bool kBefore>
void run(char* to, const char* before, const char* const* leaves, size_t units) {
  const char* leaf[kCount];
  for (unsigned i = 0; i < kCount; ++i) leaf[i] = leaves[i];
  const size_t end = units * sizeof(T);
  size_t at = 0;
  auto whole = [&](auto loaded) __attribute__((always_inline)) {
    auto value =
        tree<Operator, 0, kCount>([&](unsigned i) __attribute__((always_inline)) { return loaded(leaf[i] + at); });
    if constexpr (kBefore) value = Operator::of(loaded(before + at), value);
    return finished<T>(value);
  };
  for (; end - at >= kWide; at += kWide) {
    const Vector<T, kWide> value = whole(load<Vector<T, kWide>>);
    memcpy(to + at, &value, kWide);
  }
  for (; at < end; at += sizeof(T)) {
    const Vector<T, kNarrow> value = whole(load_one<T>);
    memcpy(to + at, &value, sizeof(T));
  }
}

/// One leaf, with or without something before it; or two leaves.
template <class T, class Operator>
void step(char* to, const char* before, const char* const* leaves, unsigned leaf_count, size_t units) {
  if (leaf_count == 2) run<T, Operator, 2, false>(to, nullptr, leaves, units);
  else if (before != nullptr) run<T, Operator, 1, true>(to, before, leaves, units);
  else if (to != leaves[0]) memcpy(to, leaves[0], units * sizeof(T));
}

/// Any number of leaves that has a case.
template <class T, class Operator>
void wide_step(char* to, const char* before, const char* const* leaves, unsigned leaf_count, size_t units) {
  switch (leaf_count) {
    case 1: return step<T, Operator>(to, before, leaves, 1, units);
#define CASE(n)                                                                     \
  case n:                                                                           \
    return before != nullptr ? run<T, Operator, n, true>(to, before, leaves, units) \
                             : run<T, Operator, n, false>(to, before, leaves, units);
      // clang-format off
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(8)
#undef CASE
    default: __builtin_unreachable();
      // clang-format on
  }
}

struct Table : OrderKernels {
  constexpr void set(OpKind op, Element element, Step how) {
    steps[static_cast<unsigned>(op)][static_cast<unsigned>(element)] = how;
  }
  /// `Bits`: the unsigned type, whose arithmetic is that of two's complement.
  template <class Bits, class Signed>
  constexpr void width(Element with_sign, Element without_sign, Element logical) {
    set(OpKind::kMax, with_sign, step<Signed, Max>);
    set(OpKind::kMin, with_sign, step<Signed, Min>);
    set(OpKind::kMax, without_sign, step<Bits, Max>);
    set(OpKind::kMin, without_sign, step<Bits, Min>);
    for (Element element : {with_sign, without_sign}) {
      set(OpKind::kSum, element, step<Bits, Sum>);
      set(OpKind::kProd, element, step<Bits, Product>);
      set(OpKind::kLand, element, step<Bits, And>);
      set(OpKind::kLor, element, step<Bits, Or>);
      set(OpKind::kLxor, element, step<Bits, Xor>);
      set(OpKind::kBand, element, step<Bits, BitAnd>);
      set(OpKind::kBor, element, step<Bits, BitOr>);
      set(OpKind::kBxor, element, step<Bits, BitXor>);
    }
    set(OpKind::kLand, logical, step<Bits, LogicalAnd>);
    set(OpKind::kLor, logical, step<Bits, LogicalOr>);
    set(OpKind::kLxor, logical, step<Bits, LogicalXor>);
  }
  template <class T>
  constexpr void floating(Element element) {
    set(OpKind::kMax, element, wide_step<T, FloatMax>);
    set(OpKind::kMin, element, wide_step<T, FloatMin>);
    set(OpKind::kSum, element, wide_step<T, Sum>);
    set(OpKind::kProd, element, wide_step<T, Product>);
  }
  constexpr Table() : OrderKernels{} {
    width<uint8_t, int8_t>(Element::kI8, Element::kU8, Element::kL8);
    width<uint16_t, int16_t>(Element::kI16, Element::kU16, Element::kL16);
    width<uint32_t, int32_t>(Element::kI32, Element::kU32, Element::kL32);
    width<uint64_t, int64_t>(Element::kI64, Element::kU64, Element::kL64);
    floating<float>(Element::kF32);
    floating<double>(Element::kF64);
  }
};

}  // namespace

extern constexpr OrderKernels kernels = Table();

}  // namespace resil::reduction::RESIL_VARIANT
