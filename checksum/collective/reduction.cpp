// SPDX-License-Identifier: Apache-2.0
//
// See reduction.h.

#include "checksum/collective/reduction.h"

#include <cstring>
#include <new>

#include "shim/abi/backend.h"
#include "shim/base/digest/variant.h"
#include "shim/runtime/work_memory.h"

namespace resil::collective {

namespace {

bool is_integer(BasicKind kind) {
  return kind == BasicKind::kSigned || kind == BasicKind::kUnsigned || kind == BasicKind::kCharacter;
}
bool is_float(BasicKind kind) {
  return kind == BasicKind::kFloating || kind == BasicKind::kLongDouble || kind == BasicKind::kComplex ||
         kind == BasicKind::kLongDoubleComplex;
}
bool is_complex(BasicKind kind) { return kind == BasicKind::kComplex || kind == BasicKind::kLongDoubleComplex; }
bool picks(OpKind op) {
  return op == OpKind::kMin || op == OpKind::kMax || op == OpKind::kMinloc || op == OpKind::kMaxloc;
}

LinearMode mode_of(OpKind op, const BasicType& basic) {
  if (op == OpKind::kBxor && (is_integer(basic.kind) || basic.kind == BasicKind::kByte)) return LinearMode::kXor;
  if (op != OpKind::kSum || !is_integer(basic.kind)) return LinearMode::kNone;
  return basic.width == 4 ? LinearMode::kWidth4 : basic.width == 8 ? LinearMode::kWidth8 : LinearMode::kNone;
}

/// Bytes of one floating value: half of a complex one.
unsigned float_width(const BasicType& basic) { return is_complex(basic.kind) ? basic.width / 2u : basic.width; }

/// Can canonical() handle values of this kind?
bool knows_float(BasicKind kind, unsigned width) {
  return is_float(kind) ? width == 4 || width == 8 || width == 16 : true;
}

/// One floating value in place; `zeros`: zeros and denormals become one.
template <class Bits>
void canonical_bits(char* value, Bits exponent, bool zeros) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  Bits bits;
  memcpy(&bits, value, sizeof(bits));
  const Bits magnitude = bits & static_cast<Bits>(~kSign);
  if (magnitude > exponent) bits = static_cast<Bits>(exponent | 1);
  else if (zeros && (magnitude & exponent) == 0) bits = 0;
  else return;
  memcpy(value, &bits, sizeof(bits));
}

/// x86's 80-bit format in 16 bytes: six of them are padding.
[[maybe_unused]] void canonical_extended(char* value, bool zeros) {
  uint64_t significand;
  uint16_t head;
  memcpy(&significand, value, 8);
  memcpy(&head, value + 8, 2);
  memset(value + 10, 0, 6);
  if ((head & 0x7fff) == 0x7fff && significand << 1 != 0) {
    significand = ~uint64_t{0};
    head = 0x7fff;
  } else if (zeros && (head & 0x7fff) == 0) {
    significand = head = 0;
  }
  memcpy(value, &significand, 8);
  memcpy(value + 8, &head, 2);
}

void canonical_quad(char* value, bool zeros) {
  uint64_t low, high;
  memcpy(&low, value, 8);
  memcpy(&high, value + 8, 8);
  constexpr uint64_t kExponent = uint64_t{0x7fff} << 48;
  const uint64_t magnitude = high & ~(uint64_t{1} << 63);
  if (magnitude > kExponent || (magnitude == kExponent && low != 0)) {
    high = kExponent;
    low = 1;
  } else if (zeros && (magnitude & kExponent) == 0) {
    high = low = 0;
  }
  memcpy(value, &low, 8);
  memcpy(value + 8, &high, 8);
}

void canonical(char* value, BasicKind kind, unsigned width, bool zeros) {
  if (width == 4) return canonical_bits<uint32_t>(value, 0x7f800000u, zeros);
  if (width == 8) return canonical_bits<uint64_t>(value, uint64_t{0x7ff} << 52, zeros);
#if defined(__x86_64__)
  if (kind == BasicKind::kLongDouble || kind == BasicKind::kLongDoubleComplex) return canonical_extended(value, zeros);
#endif
  (void)kind;
  canonical_quad(value, zeros);
}

constexpr uint64_t kFew = 64;  // bytes

/// Is there a value that canonical() would or could change on some rank? Then all go the slow way.
template <class Bits>
bool has_special(const char* data, uint64_t count, Bits exponent, bool zeros) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  bool special = false;
  for (uint64_t i = 0; i < count && !special;) {
    const uint64_t end = i + 256 < count ? i + 256 : count;
    for (; i < end; ++i) {
      Bits bits;
      memcpy(&bits, data + i * sizeof(Bits), sizeof(bits));
      const Bits magnitude = bits & static_cast<Bits>(~kSign);
      special |= magnitude > exponent || (zeros && (magnitude & exponent) == 0);
    }
  }
  return special;
}

bool any_special(const char* data, uint64_t bytes, unsigned width, bool zeros) {
  if (!zeros && bytes > kFew) return digest_variant().beyond(data, bytes, width);  // infinities, too
  if (width == 4) return has_special<uint32_t>(data, bytes / 4, 0x7f800000u, zeros);
  return has_special<uint64_t>(data, bytes / 8, uint64_t{0x7ff} << 52, zeros);
}

uint64_t slow_float_digest(const View& view, BasicKind kind, unsigned width, bool zeros) {
  Work<DigestStream> room;
  DigestStream& stream = *new (room.get()) DigestStream;
  char chunk[256];  // small: the stack may be
  const char* data = static_cast<const char*>(view.buffer) + view.type->low;
  for (uint64_t done = 0; done < view.bytes;) {
    const uint64_t now = view.bytes - done < sizeof(chunk) ? view.bytes - done : sizeof(chunk);
    memcpy(chunk, data + done, now);
    for (uint64_t at = 0; at + width <= now; at += width) canonical(chunk + at, kind, width, zeros);
    stream.add(chunk, now);
    done += now;
  }
  return stream.finish();
}

unsigned index_offset(const BasicType& pair) {
  return (pair.value_width + pair.index_width - 1u) / pair.index_width * pair.index_width;
}

uint64_t pair_digest(const View& view, const BasicType& pair) {
  Work<DigestStream> room;
  DigestStream& stream = *new (room.get()) DigestStream;
  const char* element = static_cast<const char*>(view.buffer);
  for (int64_t i = 0; i < view.count; ++i, element += view.type->extent) {
    char value[32];
    memcpy(value, element, pair.value_width);
    if (is_float(pair.value_kind)) canonical(value, pair.value_kind, pair.value_width, true);
    stream.add(value, pair.value_width);
    stream.add(element + index_offset(pair), pair.index_width);
  }
  return stream.finish();
}

/// NaN among `count` values that lie `stride` apart.
bool has_nan(const char* data, int64_t count, int64_t stride, BasicKind kind, unsigned width) {
  for (int64_t i = 0; i < count; ++i, data += stride) {
    if (width == 4) {
      uint32_t bits;
      memcpy(&bits, data, 4);
      if ((bits & 0x7fffffffu) > 0x7f800000u) return true;
    } else if (width == 8) {
      uint64_t bits;
      memcpy(&bits, data, 8);
      if ((bits & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52) return true;
    } else {
      char value[16], zero[16];
      memcpy(value, data, 16);
      canonical(value, kind, width, false);
      memset(zero, 0xff, 16);
      canonical(zero, kind, width, false);  // all bits set: the canonical NaN
      if (memcmp(value, zero, 16) == 0) return true;
    }
  }
  return false;
}

template <class T, class Holds>
int64_t first_violation(const char* input, const char* output, int64_t count, Holds holds) {
  for (int64_t i = 0; i < count; ++i) {
    T x, result;
    memcpy(&x, input + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    memcpy(&result, output + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    if (!holds(x, result)) [[unlikely]]
      return i;
  }
  return -1;
}

template <class T>
int64_t ordered(OpKind op, const char* input, const char* output, int64_t count) {
  // Written so that NaNs hold.
  if (op == OpKind::kMin) return first_violation<T>(input, output, count, [](T x, T result) { return !(result > x); });
  return first_violation<T>(input, output, count, [](T x, T result) { return !(result < x); });
}

template <class T>
int64_t bitwise(OpKind op, const char* input, const char* output, int64_t count) {
  switch (op) {
    case OpKind::kBand:
      return first_violation<T>(input, output, count, [](T x, T result) { return (result & ~x) == 0; });
    case OpKind::kBor:
      return first_violation<T>(input, output, count, [](T x, T result) { return (x & ~result) == 0; });
    case OpKind::kLand:
      return first_violation<T>(input, output, count, [](T x, T result) { return result == 0 || x != 0; });
    case OpKind::kLor:
      return first_violation<T>(input, output, count, [](T x, T result) { return x == 0 || result != 0; });
    default: return -1;
  }
}

template <class Signed, class Unsigned>
int64_t integer_bound(const Reduction& r, const char* input, const char* output, int64_t count) {
  if (!picks(r.op)) return bitwise<Unsigned>(r.op, input, output, count);
  return r.basic.kind == BasicKind::kUnsigned ? ordered<Unsigned>(r.op, input, output, count)
                                              : ordered<Signed>(r.op, input, output, count);
}

}  // namespace

void reduction_classify(Reduction& r, uint64_t op, const TypeMap* type) {
  r.op = backend->types->op_kind(op);
  r.basic = type != nullptr ? type->basic : BasicType{};
  r.linear = LinearMode::kNone;
  r.comparable = r.orders = r.nan_seen = r.has_input = false;
  r.why = Reason::kReduction;
  r.contribution = {};
  if (r.op == OpKind::kUser) {
    r.why = Reason::kUserOperator;
    return;
  }
  const bool pair = r.basic.kind == BasicKind::kPair;
  if (type == nullptr || r.basic.kind == BasicKind::kUnknown || r.basic.kind == BasicKind::kPacked ||
      (!pair && ((!type->contiguous && !type->padded) || type->size != r.basic.width ||
                 type->extent != static_cast<int64_t>(type->size))))
    return;  // a program that MPI itself would refuse
  r.linear = mode_of(r.op, r.basic);
  const BasicKind kind = pair ? r.basic.value_kind : r.basic.kind;
  const unsigned width = pair ? r.basic.value_width : float_width(r.basic);
  // Products of complex numbers: contraction to fused operations makes a * b and b * a differ in the last bit.
  r.comparable = knows_float(kind, width) && !(r.op == OpKind::kProd && is_complex(kind));
  r.orders = picks(r.op) && is_float(kind);
}

uint64_t canonical_digest(const Reduction& r, const View& view) {
  if (r.basic.kind == BasicKind::kPair) return pair_digest(view, r.basic);
  if (!is_float(r.basic.kind)) return view_digest(view, view.bytes);
  const unsigned width = float_width(r.basic);
  if (width != 16 && !any_special(static_cast<const char*>(view.buffer) + view.type->low, view.bytes, width, r.orders))
      [[likely]]
    return view_digest(view, view.bytes);
  return slow_float_digest(view, r.basic.kind, width, r.orders);
}

void reduction_read_input(Reduction& r) {
  const char* data = static_cast<const char*>(r.input.buffer);
  r.has_input = true;
  if (r.linear != LinearMode::kNone)
    r.contribution = linear_digest(r.linear, data, r.basic.width, 0, r.input.count, r.total);
  if (!r.orders) return;
  const bool pair = r.basic.kind == BasicKind::kPair;
  r.nan_seen = has_nan(data, r.input.count, r.input.type->extent, pair ? r.basic.value_kind : r.basic.kind,
                       pair ? r.basic.value_width : r.basic.width);
}

Linear reduction_result(const Reduction& r) {
  return linear_digest(r.linear, r.output.buffer, r.basic.width, r.first, r.output.count, r.total);
}

int64_t bound_violated(const Reduction& r) {
  if (r.basic.kind == BasicKind::kPair || r.basic.kind == BasicKind::kLongDouble || is_complex(r.basic.kind)) return -1;
  const char* output = static_cast<const char*>(r.output.buffer);
  const char* input = static_cast<const char*>(r.input.buffer) + static_cast<size_t>(r.first) * r.basic.width;
  const int64_t count = r.output.count;
  if (r.basic.kind == BasicKind::kFloating) {
    if (!picks(r.op)) return -1;
    return r.basic.width == 4   ? ordered<float>(r.op, input, output, count)
           : r.basic.width == 8 ? ordered<double>(r.op, input, output, count)
                                : -1;
  }
  if (r.basic.kind == BasicKind::kLogical) return -1;  // what is true depends on the Fortran compiler
  switch (r.basic.width) {
    case 1: return integer_bound<int8_t, uint8_t>(r, input, output, count);
    case 2: return integer_bound<int16_t, uint16_t>(r, input, output, count);
    case 4: return integer_bound<int32_t, uint32_t>(r, input, output, count);
    case 8: return integer_bound<int64_t, uint64_t>(r, input, output, count);
    default: return -1;
  }
}

}  // namespace resil::collective
