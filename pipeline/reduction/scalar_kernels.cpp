// SPDX-License-Identifier: Apache-2.0
//
// Nodes of the canonical tree for values that no vector's lane holds: long double, quadruple and half precision,
// 16-byte integers and logicals, products of complex numbers, and pairs of value and index. Compiled without
// contraction. What NaN, zeros and ties give is the same as in order_kernels.cpp.
#include "pipeline/reduction/kernel.h"
#include "pipeline/reduction/scalar_values.h"

namespace resil::reduction {

namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

struct Sum {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a + b;
  }
};
struct Product {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a * b;
  }
};
/// `kGreater`: the maximum. NaN if one is; of zeros the negative one is less.
template <bool kGreater>
struct Extreme {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    if constexpr (V::kFloating) {
      if (a != a || b != b) return a != a ? a : b;
      if (a == b) return V::negative(a) != kGreater ? a : b;
    }
    return (kGreater ? a > b : a < b) ? a : b;
  }
};
struct BitAnd {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a & b;
  }
};
struct BitOr {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a | b;
  }
};
struct BitXor {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a ^ b;
  }
};
struct And {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a != 0 && b != 0;
  }
};
struct Or {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a != 0 || b != 0;
  }
};
struct Xor {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return (a != 0) != (b != 0);
  }
};
struct LogicalAnd {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a == 0 ? a : b;
  }
};
struct LogicalOr {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a != 0 ? a : b;
  }
};
struct LogicalXor {
  template <class V>
  static typename V::Type of(typename V::Type a, typename V::Type b) {
    return a == 0 ? b : b == 0 ? a : typename V::Type{};
  }
};

/// A node of plain values.
template <class V, class Operator>
struct Plain {
  static constexpr size_t kUnit = sizeof(typename V::Type);
  static void copy(char* to, const char* from) { V::copy(to, from); }
  static void combine(char* to, const char* low, const char* high) {
    V::store(to, Operator::template of<V>(V::load(low), V::load(high)));
  }
};
template <class Operator>
struct Plain<HalfValue, Operator> {
  static constexpr size_t kUnit = 2;
  static void copy(char* to, const char* from) { HalfValue::copy(to, from); }
  static void combine(char* to, const char* low, const char* high) {
    HalfValue::store(to, Operator::template of<HalfValue>(HalfValue::load(low), HalfValue::load(high)));
  }
};

/// (a + ib)(c + id) = (ac - bd) + i(ad + bc), each operation rounded on its own, infinities not looked after.
template <class V, size_t kPart>
struct ComplexProduct {
  static constexpr size_t kUnit = 2 * kPart;
  static void copy(char* to, const char* from) {
    V::copy(to, from);
    V::copy(to + kPart, from + kPart);
  }
  /// What one operation of the type gives: half precision is rounded after each.
  static typename V::Type rounded(typename V::Type value) {
    if constexpr (kPart == 2) {
      char bytes[2];
      V::store(bytes, value);
      return V::load(bytes);
    } else {
      return value;
    }
  }
  static void combine(char* to, const char* low, const char* high) {
    const auto a = V::load(low), b = V::load(low + kPart), c = V::load(high), d = V::load(high + kPart);
    V::store(to, rounded(a * c) - rounded(b * d));
    V::store(to + kPart, rounded(a * d) + rounded(b * c));
  }
};

/// The pair that wins whole: least (or greatest) value, of equal ones the least index, of those the value that is the
/// minimum (maximum). NaN wins. The gap between value and index is not part of the type and stays as it is.
template <class V, class I, size_t kIndexAt, size_t kExtent, bool kGreater>
struct Located {
  static constexpr size_t kUnit = kExtent;
  static void copy(char* to, const char* from) {
    V::copy(to, from);
    I::copy(to + kIndexAt, from + kIndexAt);
  }
  template <class X>
  static bool nan(typename X::Type x) {
    if constexpr (X::kFloating) return x != x;
    else return false;
  }
  /// NaN is above all, +0 above -0.
  static bool index_below(typename I::Type a, typename I::Type b) {
    if (nan<I>(a) || nan<I>(b)) return !nan<I>(a);
    if constexpr (I::kFloating)
      if (a == b) return I::negative(a) && !I::negative(b);
    return a < b;
  }
  static bool low_wins(typename V::Type low, typename V::Type high, typename I::Type low_index,
                       typename I::Type high_index) {
    if (nan<V>(low) != nan<V>(high)) return nan<V>(low);
    if (!nan<V>(low) && low != high) return kGreater ? low > high : low < high;
    if (index_below(low_index, high_index) || index_below(high_index, low_index))
      return index_below(low_index, high_index);
    if constexpr (V::kFloating) return V::negative(low) != kGreater;
    return true;
  }
  static void combine(char* to, const char* low, const char* high) {
    const typename V::Type a = V::load(low), b = V::load(high);
    const typename I::Type i = I::load(low + kIndexAt), j = I::load(high + kIndexAt);
    const bool first = low_wins(a, b, i, j);
    V::store(to, first ? a : b);
    I::store(to + kIndexAt, first ? i : j);
  }
};

template <class Node>
void step(char* to, const char* before, const char* const* leaves, unsigned leaf_count, size_t units) {
  constexpr size_t kUnit = Node::kUnit;
  const char* low = leaf_count == 2 ? leaves[0] : before;
  const char* high = leaves[leaf_count - 1];
  if (low == nullptr) {
    for (size_t i = 0; i < units; ++i) Node::copy(to + i * kUnit, high + i * kUnit);
    return;
  }
  for (size_t i = 0; i < units; ++i) Node::combine(to + i * kUnit, low + i * kUnit, high + i * kUnit);
}

template <class V>
Step real_step(OpKind op) {
  switch (op) {
    case OpKind::kMax: return step<Plain<V, Extreme<true>>>;
    case OpKind::kMin: return step<Plain<V, Extreme<false>>>;
    case OpKind::kSum: return step<Plain<V, Sum>>;
    case OpKind::kProd: return step<Plain<V, Product>>;
    default: return nullptr;
  }
}

Step wide_integer_step(OpKind op) {
  using Signed = IntegerValue<Int128>;
  using Bits = IntegerValue<UInt128>;
  switch (op) {
    case OpKind::kMax: return step<Plain<Signed, Extreme<true>>>;
    case OpKind::kMin: return step<Plain<Signed, Extreme<false>>>;
    case OpKind::kSum: return step<Plain<Bits, Sum>>;
    case OpKind::kProd: return step<Plain<Bits, Product>>;
    case OpKind::kLand: return step<Plain<Bits, And>>;
    case OpKind::kLor: return step<Plain<Bits, Or>>;
    case OpKind::kLxor: return step<Plain<Bits, Xor>>;
    case OpKind::kBand: return step<Plain<Bits, BitAnd>>;
    case OpKind::kBor: return step<Plain<Bits, BitOr>>;
    case OpKind::kBxor: return step<Plain<Bits, BitXor>>;
    default: return nullptr;
  }
}

Step wide_logical_step(OpKind op) {
  using Bits = IntegerValue<UInt128>;
  switch (op) {
    case OpKind::kLand: return step<Plain<Bits, LogicalAnd>>;
    case OpKind::kLor: return step<Plain<Bits, LogicalOr>>;
    case OpKind::kLxor: return step<Plain<Bits, LogicalXor>>;
    default: return nullptr;
  }
}

constexpr bool is_float(BasicKind kind) { return kind == BasicKind::kFloating || kind == BasicKind::kLongDouble; }

template <class V, class I, size_t kValueBytes, size_t kIndexBytes>
bool located(OpKind op, Kernel* kernel) {
  constexpr size_t kIndexAt = (kValueBytes + kIndexBytes - 1) / kIndexBytes * kIndexBytes;
  constexpr size_t kAlign = kValueBytes > kIndexBytes ? kValueBytes : kIndexBytes;
  constexpr size_t kExtent = (kIndexAt + kIndexBytes + kAlign - 1) / kAlign * kAlign;
  kernel->unit = kExtent;
  kernel->step = op == OpKind::kMaxloc ? step<Located<V, I, kIndexAt, kExtent, true>>
                                       : step<Located<V, I, kIndexAt, kExtent, false>>;
  return true;
}

bool find_pair(OpKind op, const BasicType& type, Kernel* kernel) {
  if (op != OpKind::kMaxloc && op != OpKind::kMinloc) return false;
  using Int = IntegerValue<int32_t>;
  const unsigned value = type.value_width, index = type.index_width;
  kernel->floating = is_float(type.value_kind);
  if (type.twin && type.value_kind != BasicKind::kSigned) {
    if (type.value_kind != BasicKind::kFloating || value != index) return false;
    if (value == 4) return located<FloatingValue<float>, FloatingValue<float>, 4, 4>(op, kernel);
    if (value == 8) return located<FloatingValue<double>, FloatingValue<double>, 8, 8>(op, kernel);
#ifdef RESIL_QUAD
    kernel->x87 = value == 16;
    if (value == 16) return located<FloatingValue<Quad>, FloatingValue<Quad>, 16, 16>(op, kernel);
#endif
    return false;
  }
  if (type.value_kind == BasicKind::kSigned) {
    if (value == 8 && index == 8) return located<IntegerValue<int64_t>, IntegerValue<int64_t>, 8, 8>(op, kernel);
    if (index != 4) return false;
    if (value == 2) return located<IntegerValue<int16_t>, Int, 2, 4>(op, kernel);
    if (value == 4) return located<IntegerValue<int32_t>, Int, 4, 4>(op, kernel);
    return value == 8 && located<IntegerValue<int64_t>, Int, 8, 4>(op, kernel);
  }
  if (index != 4) return false;
  if (type.value_kind == BasicKind::kFloating) {
    if (value == 4) return located<FloatingValue<float>, Int, 4, 4>(op, kernel);
    return value == 8 && located<FloatingValue<double>, Int, 8, 4>(op, kernel);
  }
  if (type.value_kind != BasicKind::kLongDouble) return false;
#if defined(RESIL_X87)
  kernel->x87 = true;
  return value == 16 && located<ExtendedValue, Int, 16, 4>(op, kernel);
#elif LDBL_MANT_DIG == 113
  return value == 16 && located<FloatingValue<long double>, Int, 16, 4>(op, kernel);
#else
  return value == 8 && sizeof(long double) == 8 && located<FloatingValue<double>, Int, 8, 4>(op, kernel);
#endif
}

template <class V, size_t kPart>
Step number_step(OpKind op, bool complex) {
  if (!complex) return real_step<V>(op);
  return op == OpKind::kProd ? step<ComplexProduct<V, kPart>> : op == OpKind::kSum ? step<Plain<V, Sum>> : nullptr;
}

/// `width`: bytes of a real number, or of the parts of a complex one.
Step find_number(OpKind op, BasicKind kind, unsigned width, bool complex, bool* x87) {
  *x87 = false;
  if (kind == BasicKind::kLongDouble) {
#if defined(RESIL_X87)
    *x87 = true;
    return width == 16 ? number_step<ExtendedValue, 16>(op, complex) : nullptr;
#elif LDBL_MANT_DIG != 113
    return nullptr;
#endif
  }
  switch (width) {
    case 2: return number_step<HalfValue, 2>(op, complex);
    // Sums of these and all of real ones: order_kernels.cpp.
    case 4: return complex && op == OpKind::kProd ? step<ComplexProduct<FloatingValue<float>, 4>> : nullptr;
    case 8: return complex && op == OpKind::kProd ? step<ComplexProduct<FloatingValue<double>, 8>> : nullptr;
#ifdef RESIL_QUAD
    case 16:
      *x87 = true;  // where libgcc raises its exceptions
      return number_step<FloatingValue<Quad>, 16>(op, complex);
#endif
    default: return nullptr;
  }
}

}  // namespace

Kernel find_scalar_kernel(OpKind op, const BasicType& type) {
  Kernel kernel = {nullptr, type.width, 1, false, false, false};
  switch (type.kind) {
    case BasicKind::kSigned:
      if (type.width == 16) kernel.step = wide_integer_step(op);
      break;
    case BasicKind::kLogical:
      if (type.width == 16) kernel.step = wide_logical_step(op);
      break;
    case BasicKind::kFloating:
    case BasicKind::kLongDouble:
    case BasicKind::kComplex:
    case BasicKind::kLongDoubleComplex: {
      const bool complex = type.kind == BasicKind::kComplex || type.kind == BasicKind::kLongDoubleComplex;
      const bool extended = type.kind == BasicKind::kLongDouble || type.kind == BasicKind::kLongDoubleComplex;
      const unsigned part = complex ? type.width / 2u : type.width;
      kernel.floating = true;
      kernel.step =
          find_number(op, extended ? BasicKind::kLongDouble : BasicKind::kFloating, part, complex, &kernel.x87);
      if (complex && op != OpKind::kProd) {
        kernel.unit = static_cast<uint16_t>(part);
        kernel.units = 2;
      }
      break;
    }
    case BasicKind::kPair:
      if (!find_pair(op, type, &kernel)) kernel.step = nullptr;
      break;
    default: break;
  }
  return kernel.step != nullptr ? kernel : Kernel{};
}

}  // namespace resil::reduction
