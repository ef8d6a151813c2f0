// SPDX-License-Identifier: Apache-2.0
//
// See fold_oracle.h.
#include "tests/unit/fold_oracle.h"

#include <mpfr.h>

#include <algorithm>
#include <cstring>

namespace fold_oracle {

namespace {

__extension__ typedef unsigned __int128 Big;
__extension__ typedef __int128 SignedBig;

/// A binary floating-point format: `digits` of significand, values below 2^range.
struct Format {
  int digits, range, bytes, value_bytes;
  bool explicit_bit;
};

const Format kHalf{11, 16, 2, 2, false}, kSingle{24, 128, 4, 4, false}, kDouble{53, 1024, 8, 8, false},
    kExtended{64, 16384, 16, 10, true}, kQuad{113, 16384, 16, 16, false};

const Format& format_of(BasicKind kind, unsigned width) {
  if (kind == BasicKind::kLongDouble || kind == BasicKind::kLongDoubleComplex) return kExtended;
  return width == 2 ? kHalf : width == 4 ? kSingle : width == 8 ? kDouble : kQuad;
}

/// A value as MPFR has it, or NaN.
class Number {
 public:
  explicit Number(int precision) { mpfr_init2(value, precision); }
  Number(const Number&) = delete;
  ~Number() { mpfr_clear(value); }
  mpfr_t value;
};

/// Arithmetic of this format from here to the end of the block.
class Range {
 public:
  explicit Range(const Format& format) : least_(mpfr_get_emin()), most_(mpfr_get_emax()) {
    mpfr_set_emin(4 - format.range - format.digits);
    mpfr_set_emax(format.range);
  }
  ~Range() {
    mpfr_set_emin(least_);
    mpfr_set_emax(most_);
  }

 private:
  mpfr_exp_t least_, most_;
};

Big integer_at(const unsigned char* from, size_t bytes) {
  Big value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | from[i];
  return value;
}

void put_integer(unsigned char* to, size_t bytes, Big value) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) to[i] = static_cast<unsigned char>(value);
}

int exponent_bits(const Format& f) { return f.value_bytes * 8 - f.digits - (f.explicit_bit ? 1 : 0); }
int fraction_bits(const Format& f) { return f.explicit_bit ? f.digits : f.digits - 1; }

bool negative(const Format& f, const unsigned char* from) { return from[f.value_bytes - 1] >> 7; }

void read(const Format& f, const unsigned char* from, Number& out) {
  const Big bits = integer_at(from, static_cast<size_t>(f.value_bytes));
  const int fraction_width = fraction_bits(f);
  Big fraction = bits & ((Big{1} << fraction_width) - 1);
  long exponent = static_cast<long>(bits >> fraction_width & ((Big{1} << exponent_bits(f)) - 1));
  const long greatest = (1L << exponent_bits(f)) - 1;
  const Big leading = Big{1} << (f.digits - 1);
  if (exponent == greatest) {
    const Big infinity = f.explicit_bit ? leading : 0;
    if (fraction == infinity) mpfr_set_inf(out.value, negative(f, from) ? -1 : 1);
    else mpfr_set_nan(out.value);
    return;
  }
  if (exponent == 0) {
    exponent = 1;
  } else if (!f.explicit_bit) {
    fraction |= leading;
  } else if ((fraction & leading) == 0) {
    mpfr_set_nan(out.value);
    return;
  }
  Number high(64);
  mpfr_set_ui_2exp(out.value, static_cast<unsigned long>(fraction), 0, MPFR_RNDN);  // its low 64 bits
  mpfr_set_ui_2exp(high.value, static_cast<unsigned long>(fraction >> 64), 64, MPFR_RNDN);
  Number whole(128);
  mpfr_add(whole.value, out.value, high.value, MPFR_RNDN);
  mpfr_mul_2si(whole.value, whole.value, exponent - greatest / 2 - (f.digits - 1), MPFR_RNDN);
  mpfr_set(out.value, whole.value, MPFR_RNDN);
  mpfr_setsign(out.value, out.value, negative(f, from), MPFR_RNDN);
}

void write(const Format& f, const Number& number, unsigned char* to) {
  const long greatest = (1L << exponent_bits(f)) - 1;
  const int fraction_width = fraction_bits(f);
  Big fraction = 0;
  long exponent = 0;
  bool minus = mpfr_signbit(number.value);
  const Big leading = Big{1} << (f.digits - 1);
  if (mpfr_nan_p(number.value)) {
    minus = false;
    exponent = greatest;
    fraction = leading >> 1 | (f.explicit_bit ? leading : 0);
  } else if (mpfr_inf_p(number.value)) {
    exponent = greatest;
    fraction = f.explicit_bit ? leading : 0;
  } else if (!mpfr_zero_p(number.value)) {
    exponent = mpfr_get_exp(number.value) - 1 + greatest / 2;
    const long unit = std::max(exponent, 1L) - greatest / 2 - (f.digits - 1);  // of the last bit
    mpz_t integer;
    mpz_init(integer);
    mpfr_t scaled;
    mpfr_init2(scaled, 128);
    mpfr_mul_2si(scaled, number.value, -unit, MPFR_RNDN);
    mpfr_get_z(integer, scaled, MPFR_RNDN);
    mpz_abs(integer, integer);
    fraction = mpz_getlimbn(integer, 0) | static_cast<Big>(mpz_getlimbn(integer, 1)) << 64;
    mpfr_clear(scaled);
    mpz_clear(integer);
    if (exponent < 1) exponent = 0;
    else if (!f.explicit_bit) fraction &= ~leading;
  }
  const Big sign = Big{minus} << (f.value_bytes * 8 - 1);
  put_integer(to, static_cast<size_t>(f.value_bytes), sign | static_cast<Big>(exponent) << fraction_width | fraction);
  memset(to + f.value_bytes, 0, static_cast<size_t>(f.bytes - f.value_bytes));
}

void float_op(const Format& f, OpKind op, const unsigned char* a, const unsigned char* b, unsigned char* to) {
  Number x(f.digits), y(f.digits), z(f.digits);
  {
    // Read in MPFR's own range: 2^-16445 is taken apart on the way.
    read(f, a, x);
    read(f, b, y);
  }
  if (op == OpKind::kMin || op == OpKind::kMax) {
    const unsigned char* from;
    if (mpfr_nan_p(x.value) || mpfr_nan_p(y.value)) {
      mpfr_set_nan(z.value);
      return write(f, z, to);
    }
    if (mpfr_equal_p(x.value, y.value)) from = negative(f, a) == (op == OpKind::kMin) ? a : b;
    else from = (mpfr_less_p(x.value, y.value) != 0) == (op == OpKind::kMin) ? a : b;
    memcpy(to, from, static_cast<size_t>(f.value_bytes));
    memset(to + f.value_bytes, 0, static_cast<size_t>(f.bytes - f.value_bytes));
    return;
  }
  {
    Range range(f);
    const int inexact = op == OpKind::kSum    ? mpfr_add(z.value, x.value, y.value, MPFR_RNDN)
                        : op == OpKind::kProd ? mpfr_mul(z.value, x.value, y.value, MPFR_RNDN)
                                              : mpfr_sub(z.value, x.value, y.value, MPFR_RNDN);
    mpfr_subnormalize(z.value, inexact, MPFR_RNDN);
  }
  write(f, z, to);
}

constexpr OpKind kMinus = OpKind::kUser;  // float_op's name for a difference

Bytes complex_product(const Format& f, const Bytes& x, const Bytes& y) {
  const size_t part = static_cast<size_t>(f.bytes);
  const unsigned char *a = x.data(), *b = a + part, *c = y.data(), *d = c + part;
  Bytes ac(part), bd(part), ad(part), bc(part), out(2 * part);
  float_op(f, OpKind::kProd, a, c, ac.data());
  float_op(f, OpKind::kProd, b, d, bd.data());
  float_op(f, OpKind::kProd, a, d, ad.data());
  float_op(f, OpKind::kProd, b, c, bc.data());
  float_op(f, kMinus, ac.data(), bd.data(), out.data());
  float_op(f, OpKind::kSum, ad.data(), bc.data(), out.data() + part);
  return out;
}

Big integer_op(OpKind op, bool with_sign, unsigned width, Big a, Big b) {
  auto value = [&](Big x) { return static_cast<SignedBig>(x << (128 - 8 * width)) >> (128 - 8 * width); };
  const bool less = with_sign ? value(a) < value(b) : a < b;
  switch (op) {
    case OpKind::kSum: return a + b;
    case OpKind::kProd: return a * b;
    case OpKind::kMin: return less ? a : b;
    case OpKind::kMax: return less ? b : a;
    case OpKind::kBand: return a & b;
    case OpKind::kBor: return a | b;
    case OpKind::kBxor: return a ^ b;
    case OpKind::kLand: return a != 0 && b != 0;
    case OpKind::kLor: return a != 0 || b != 0;
    default: return (a != 0) != (b != 0);
  }
}

/// What is true keeps its looks.
Big logical_op(OpKind op, Big a, Big b) {
  if (op == OpKind::kLand) return a != 0 && b != 0 ? b : 0;
  if (op == OpKind::kLor) return a != 0 ? a : b;
  return (a != 0) == (b != 0) ? 0 : a + b;
}

struct Layout {
  size_t index_at, index_bytes;
};
Layout layout(const BasicType& type) {
  const size_t index = type.index_width;
  return {(type.value_width + index - 1) / index * index, index};
}

using resil::BasicKind;

bool float_value(const BasicType& type) {
  return type.value_kind == BasicKind::kFloating || type.value_kind == BasicKind::kLongDouble;
}

/// -1, 0, 1: order of plain values; NaN is beyond all in the direction of `nan_last`.
int compare(BasicKind kind, unsigned width, const unsigned char* a, const unsigned char* b, bool nan_last) {
  if (kind == BasicKind::kSigned) {
    const unsigned shift = 128 - 8 * width;
    const SignedBig x = static_cast<SignedBig>(integer_at(a, width) << shift),
                    y = static_cast<SignedBig>(integer_at(b, width) << shift);
    return x < y ? -1 : x > y;
  }
  const Format& f = format_of(kind, width);
  Number x(f.digits), y(f.digits);
  read(f, a, x);
  read(f, b, y);
  const int nans[] = {mpfr_nan_p(x.value) != 0, mpfr_nan_p(y.value) != 0};
  if (nans[0] != 0 || nans[1] != 0) return nan_last ? nans[0] - nans[1] : nans[1] - nans[0];
  return mpfr_cmp(x.value, y.value);
}

}  // namespace

bool is_floating(const BasicType& type) {
  return type.kind == BasicKind::kFloating || type.kind == BasicKind::kLongDouble;
}
bool is_complex(const BasicType& type) {
  return type.kind == BasicKind::kComplex || type.kind == BasicKind::kLongDoubleComplex;
}

const std::vector<TypeCase>& types() {
  static const std::vector<TypeCase> all = [] {
    const std::vector<OpKind> arithmetic{OpKind::kMax, OpKind::kMin, OpKind::kSum, OpKind::kProd},
        logical{OpKind::kLand, OpKind::kLor, OpKind::kLxor}, bits{OpKind::kBand, OpKind::kBor, OpKind::kBxor};
    std::vector<OpKind> integer(arithmetic);
    integer.insert(integer.end(), logical.begin(), logical.end());
    integer.insert(integer.end(), bits.begin(), bits.end());
    std::vector<TypeCase> list;
    auto plain = [&](const char* name, BasicKind kind, unsigned width, const std::vector<OpKind>& ops) {
      list.push_back({name + std::to_string(width), {kind, {}, static_cast<uint16_t>(width), 0, 0, 0}, width, ops});
    };
    for (unsigned width : {1, 2, 4, 8, 16}) {
      plain("signed", BasicKind::kSigned, width, integer);
      if (width < 16) plain("unsigned", BasicKind::kUnsigned, width, integer);
      plain("logical", BasicKind::kLogical, width, logical);
    }
    plain("byte", BasicKind::kByte, 1, bits);
    for (unsigned width : {2, 4, 8, 16}) {
      plain("floating", BasicKind::kFloating, width, arithmetic);
      plain("complex", BasicKind::kComplex, 2 * width, {OpKind::kSum, OpKind::kProd});
    }
    plain("long double", BasicKind::kLongDouble, 16, arithmetic);
    plain("long double complex", BasicKind::kLongDoubleComplex, 32, {OpKind::kSum, OpKind::kProd});
    auto pair = [&](const char* name, BasicKind value, unsigned width, unsigned index, bool twin, size_t extent) {
      list.push_back({name,
                      {BasicKind::kPair, value, static_cast<uint16_t>(width + index), static_cast<uint8_t>(width),
                       static_cast<uint8_t>(index & 0x7f), twin},
                      extent,
                      {OpKind::kMinloc, OpKind::kMaxloc}});
    };
    pair("MPI_FLOAT_INT", BasicKind::kFloating, 4, 4, false, 8);
    pair("MPI_DOUBLE_INT", BasicKind::kFloating, 8, 4, false, 16);
    pair("MPI_LONG_INT", BasicKind::kSigned, 8, 4, false, 16);
    pair("MPI_SHORT_INT", BasicKind::kSigned, 2, 4, false, 8);
    pair("MPI_2INT", BasicKind::kSigned, 4, 4, false, 8);
    pair("MPI_LONG_DOUBLE_INT", BasicKind::kLongDouble, 16, 4, false, 32);
    pair("MPI_2REAL", BasicKind::kFloating, 4, 4, true, 8);
    pair("MPI_2DOUBLE_PRECISION", BasicKind::kFloating, 8, 8, true, 16);
    pair("MPI_2INTEGER", BasicKind::kSigned, 4, 4, true, 8);
    pair("MPI_2INTEGER of 8 bytes", BasicKind::kSigned, 8, 8, true, 16);
    pair("MPI_2DOUBLE_PRECISION of 16 bytes", BasicKind::kFloating, 16, 16, true, 32);
    return list;
  }();
  return all;
}

namespace {

void random_float(const Format& f, unsigned wild, std::mt19937_64& random, unsigned char* to) {
  const Big noise = static_cast<Big>(random()) << 64 | random();
  const int fraction_width = fraction_bits(f);
  const long greatest = (1L << exponent_bits(f)) - 1;
  Big fraction = noise & ((Big{1} << fraction_width) - 1);
  long exponent = greatest / 2 + static_cast<long>(random() % 7) - 3;
  if (wild == 1) {
    exponent = static_cast<long>(random() % static_cast<uint64_t>(greatest));
  } else if (wild == 2) {  // few digits, some of them far from the others: exact ties and near ones
    const int kept = static_cast<int>(random() % 4);
    fraction = fraction >> (fraction_width - kept) << (fraction_width - kept);
    const long steps[] = {0, 0, 1, f.digits - 1, f.digits, f.digits + 1, 2 * f.digits, 2 * f.digits + 1};
    exponent = greatest / 2 - steps[random() % 8];
    exponent = std::max(exponent, 0L);
  } else if (wild == 3) {
    switch (random() % 10) {
      case 0: exponent = 0; break;  // subnormal
      case 1: exponent = 0, fraction = 0; break;  // zero
      case 2: exponent = greatest, fraction = 0; break;  // infinity
      case 3: exponent = greatest; break;  // NaN, most often
      case 4: exponent = greatest - 1; break;  // near overflow
      case 5: exponent = greatest - 1, fraction = ~Big{0} & ((Big{1} << fraction_width) - 1); break;
      case 6: exponent = 1; break;  // near underflow
      case 7: exponent = 0, fraction = 1; break;
      default: exponent = static_cast<long>(random() % static_cast<uint64_t>(greatest + 1));
    }
  }
  if (f.explicit_bit) {
    const Big leading = Big{1} << (f.digits - 1);
    fraction = exponent == 0 ? fraction & ~leading : fraction | leading;
    if (wild == 3 && random() % 16 == 0)
      fraction ^= leading;  // what the CPU takes for NaN, or for a number although it should not be written that way
  }
  const Big sign = Big{random() & 1} << (f.value_bytes * 8 - 1);
  put_integer(to, static_cast<size_t>(f.value_bytes), sign | static_cast<Big>(exponent) << fraction_width | fraction);
}

}  // namespace

Bytes random_element(const TypeCase& type, unsigned wild, std::mt19937_64& random) {
  Bytes out(type.extent);
  for (unsigned char& byte : out) byte = static_cast<unsigned char>(random());
  const BasicType& t = type.type;
  if (is_floating(t) || is_complex(t)) {
    const unsigned parts = is_complex(t) ? 2 : 1;
    const Format& f = format_of(t.kind, t.width / parts);
    for (unsigned i = 0; i < parts; ++i) random_float(f, wild, random, out.data() + i * static_cast<size_t>(f.bytes));
  } else if (t.kind == BasicKind::kPair) {
    const bool few = random() % 2 == 0;  // ties
    if (float_value(t)) random_float(format_of(t.value_kind, t.value_width), few ? 2 : wild, random, out.data());
    else if (few) put_integer(out.data(), t.value_width, static_cast<Big>(static_cast<SignedBig>(random() % 3) - 1));
    if (t.twin && float_value(t))
      random_float(format_of(t.value_kind, t.index_width), wild == 3 && !few ? 3 : 2, random,
                   out.data() + layout(t).index_at);
    else if (few) put_integer(out.data() + layout(t).index_at, t.index_width, random() % 4);
  } else if (random() % 4 == 0) {
    memset(out.data(), 0, out.size());
  }
  return out;
}

Bytes alone(const TypeCase& type, const Bytes& element) {
  Bytes out = element;
  const BasicType& t = type.type;
  if (t.kind == BasicKind::kLongDouble || t.kind == BasicKind::kLongDoubleComplex ||
      t.value_kind == BasicKind::kLongDouble)
    for (size_t at = 0; at < (t.kind == BasicKind::kLongDoubleComplex ? 32u : 16u); at += 16)
      memset(out.data() + at + 10, 0, 6);
  return out;
}

Bytes apply(const TypeCase& type, OpKind op, const Bytes& a, const Bytes& b) {
  const BasicType& t = type.type;
  Bytes out(type.extent);
  if (t.kind == BasicKind::kPair) return winner(type, op, {a, b});
  if (is_complex(t) && op == OpKind::kProd) return complex_product(format_of(t.kind, t.width / 2u), a, b);
  if (is_floating(t) || is_complex(t)) {
    const unsigned parts = is_complex(t) ? 2 : 1;
    const Format& f = format_of(t.kind, t.width / parts);
    for (size_t at = 0; at < out.size(); at += static_cast<size_t>(f.bytes))
      float_op(f, op, a.data() + at, b.data() + at, out.data() + at);
    return out;
  }
  const Big x = integer_at(a.data(), t.width), y = integer_at(b.data(), t.width);
  put_integer(out.data(), t.width,
              t.kind == BasicKind::kLogical ? logical_op(op, x, y)
                                            : integer_op(op, t.kind == BasicKind::kSigned, t.width, x, y));
  return out;
}

namespace {

Bytes subtree(const TypeCase& type, OpKind op, const std::vector<Bytes>& x, size_t low, size_t high) {
  if (high - low == 1) return alone(type, x[low]);
  size_t step = 1;
  while (step * 2 < high - low) step *= 2;
  return apply(type, op, subtree(type, op, x, low, low + step), subtree(type, op, x, low + step, high));
}

}  // namespace

Bytes tree(const TypeCase& type, OpKind op, const std::vector<Bytes>& contributions) {
  return subtree(type, op, contributions, 0, contributions.size());
}

Bytes winner(const TypeCase& type, OpKind op, const std::vector<Bytes>& contributions) {
  const BasicType& t = type.type;
  const Layout where = layout(t);
  const bool least = op == OpKind::kMinloc;
  const bool float_index = t.twin && float_value(t);
  const Bytes* best = nullptr;
  for (const Bytes& x : contributions) {
    if (best == nullptr) {
      best = &x;
      continue;
    }
    int order = compare(t.value_kind, t.value_width, x.data(), best->data(), !least);
    if (!least) order = -order;
    if (order == 0)
      order = compare(float_index ? t.value_kind : BasicKind::kSigned, t.index_width, x.data() + where.index_at,
                      best->data() + where.index_at, true);
    if (order == 0 && float_index) {  // -0 before +0
      const Format& f = format_of(t.value_kind, t.index_width);
      Number number(f.digits);
      read(f, x.data() + where.index_at, number);
      if (!mpfr_nan_p(number.value))
        order = negative(f, best->data() + where.index_at) - negative(f, x.data() + where.index_at);
    }
    if (order == 0 && float_value(t)) {
      const Format& f = format_of(t.value_kind, t.value_width);
      order = negative(f, best->data()) - negative(f, x.data());
      if (!least) order = -order;
    }
    if (order < 0) best = &x;
  }
  Bytes out = alone(type, *best);
  auto canonical = [](const Format& f, unsigned char* at) {
    Number number(f.digits);
    read(f, at, number);
    if (mpfr_nan_p(number.value)) write(f, number, at);
  };
  if (float_value(t)) canonical(format_of(t.value_kind, t.value_width), out.data());
  if (float_index) canonical(format_of(t.value_kind, t.index_width), out.data() + where.index_at);
  return out;
}

Bytes exact_sum(const TypeCase& type, const std::vector<Bytes>& contributions) {
  if (contributions.size() == 1) return alone(type, contributions[0]);
  const BasicType& t = type.type;
  const unsigned parts = is_complex(t) ? 2 : 1;
  const Format& f = format_of(t.kind, t.width / parts);
  Bytes out(type.extent);
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(f.bytes)) {
    std::vector<mpfr_t> values(contributions.size());
    std::vector<mpfr_ptr> pointers;
    bool all_negative_zero = true;
    for (size_t r = 0; r < contributions.size(); ++r) {
      Number number(f.digits);
      read(f, contributions[r].data() + at, number);
      mpfr_init2(values[r], f.digits);
      mpfr_set(values[r], number.value, MPFR_RNDN);
      pointers.push_back(values[r]);
      all_negative_zero = all_negative_zero && mpfr_zero_p(number.value) && mpfr_signbit(number.value);
    }
    Number total(f.digits);
    {
      Range range(f);
      const int inexact = mpfr_sum(total.value, pointers.data(), pointers.size(), MPFR_RNDN);
      mpfr_subnormalize(total.value, inexact, MPFR_RNDN);
    }
    if (mpfr_zero_p(total.value)) mpfr_set_zero(total.value, all_negative_zero ? -1 : 1);
    write(f, total, out.data() + at);
    for (mpfr_t& value : values) mpfr_clear(value);
  }
  return out;
}

bool same(const TypeCase& type, const unsigned char* a, const unsigned char* b) {
  const BasicType& t = type.type;
  if (t.kind != BasicKind::kPair) return memcmp(a, b, type.extent) == 0;
  const Layout where = layout(t);
  return memcmp(a, b, t.value_width) == 0 && memcmp(a + where.index_at, b + where.index_at, where.index_bytes) == 0;
}

std::string hex(const unsigned char* bytes, size_t count) {
  std::string out;
  char digits[4];
  for (size_t i = count; i-- > 0;) {
    snprintf(digits, sizeof(digits), "%02x", bytes[i]);
    out += digits;
  }
  return out;
}

}  // namespace fold_oracle
