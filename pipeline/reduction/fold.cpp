// SPDX-License-Identifier: Apache-2.0
//
// See fold.h: which pairs of operator and type there are, and which loops compute them.
#include "pipeline/reduction/fold.h"

#include <atomic>

#include "pipeline/reduction/environment.h"
#include "pipeline/reduction/exact.h"
#include "pipeline/reduction/kernel.h"
#include "pipeline/reduction/tree.h"
#include "shim/base/digest/variant.h"

namespace resil::reduction {

namespace {

constexpr Variant kVariants[] = {
    {"portable", &order_portable::kernels, &exact_portable::kernels},
#ifdef __x86_64__
    {"avx2", &order_avx2::kernels, &exact_avx2::kernels},
    // Trees wait for memory, exact sums for arithmetic: only these gain from wider vectors.
    {"avx512", &order_avx2::kernels, &exact_avx512::kernels},
#endif
};
constinit std::atomic<const Variant*> chosen{nullptr};

bool is_logical(OpKind op) { return op == OpKind::kLand || op == OpKind::kLor || op == OpKind::kLxor; }
bool is_bitwise(OpKind op) { return op == OpKind::kBand || op == OpKind::kBor || op == OpKind::kBxor; }
bool is_integer(const BasicType& type) { return type.kind == BasicKind::kSigned || type.kind == BasicKind::kUnsigned; }
bool is_complex(const BasicType& type) {
  return type.kind == BasicKind::kComplex || type.kind == BasicKind::kLongDoubleComplex;
}

Element by_width(unsigned width, Element first) {
  const unsigned at = width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : width == 8 ? 3 : 4;
  return at < 4 ? static_cast<Element>(static_cast<unsigned>(first) + at) : Element::kNone;
}

Element floating_element(unsigned width) {
  return width == 4 ? Element::kF32 : width == 8 ? Element::kF64 : Element::kNone;
}

Element element_of(OpKind op, const BasicType& type) {
  switch (type.kind) {
    case BasicKind::kSigned: return by_width(type.width, Element::kI8);
    case BasicKind::kUnsigned: return by_width(type.width, Element::kU8);
    case BasicKind::kLogical: return by_width(type.width, Element::kL8);
    case BasicKind::kByte: return is_bitwise(op) && type.width == 1 ? Element::kU8 : Element::kNone;
    case BasicKind::kFloating: return floating_element(type.width);
    case BasicKind::kComplex: return op == OpKind::kSum ? floating_element(type.width / 2u) : Element::kNone;
    default: return Element::kNone;
  }
}

bool is_floating(Element element) { return element == Element::kF32 || element == Element::kF64; }

const char* const* bytes(const void* const* list) { return reinterpret_cast<const char* const*>(list); }
char* const* bytes(void* const* list) { return reinterpret_cast<char* const*>(list); }

/// Calls what computes, in the floating-point environment that it needs.
template <class Compute>
void in_environment(const Kernel& kernel, const Compute& compute) {
  if (!kernel.floating) return compute();
  FloatingEnvironment environment(kernel.x87);
  compute();
}

}  // namespace

size_t fold_variants(const Variant** list) {
  *list = kVariants;
#ifdef __x86_64__
  return digest_has_avx512() ? 3 : digest_has_avx2() ? 2 : 1;
#else
  return 1;
#endif
}

const Variant& fold_variant() {
  const Variant* variant = chosen.load(std::memory_order_relaxed);
  if (variant == nullptr) [[unlikely]] {
    const Variant* list = nullptr;
    const size_t count = fold_variants(&list);
    variant = &list[count - 1];
    chosen.store(variant, std::memory_order_relaxed);
  }
  return *variant;
}

void fold_use(const Variant* variant) { chosen.store(variant, std::memory_order_relaxed); }

Kernel find_kernel(OpKind op, const BasicType& type) {
  if (static_cast<unsigned>(op) >= kOperators) return {};
  const Element element = element_of(op, type);
  if (element == Element::kNone) return find_scalar_kernel(op, type);
  const Step step = fold_variant().order->steps[static_cast<unsigned>(op)][static_cast<unsigned>(element)];
  if (step == nullptr) return {};
  const uint8_t units = is_complex(type) ? 2 : 1;
  return {step, static_cast<uint16_t>(type.width / units), units, is_floating(element), is_floating(element), false};
}

bool fold_defined(OpKind op, const BasicType& type) { return find_kernel(op, type).step != nullptr; }

bool fold_is_native(OpKind op, const BasicType& type) {
  if (!fold_defined(op, type)) return false;
  if (is_logical(op) || is_bitwise(op)) return true;
  if (!is_integer(type)) return false;
  if (op == OpKind::kSum || op == OpKind::kProd)
    return type.width == 4 ||
           type.width == 8;  // Open MPI's narrower sums stick at the greatest value, if vectors do them
  // MPICH 4.0 compares unsigned integers as if they had a sign; Open MPI 4.1 compares MPI_OFFSET as if it had none.
  return type.kind == BasicKind::kSigned && type.width <= 4;
}

bool fold_exact_defined(OpKind op, const BasicType& type) {
  return op == OpKind::kSum && exact_format(type) != Format::kNone && fold_defined(op, type);
}

size_t element_extent(const BasicType& type) {
  if (type.kind != BasicKind::kPair) return type.width;
  const size_t value = type.value_width, index = type.index_width;
  const size_t align = value > index ? value : index;
  const size_t end = (value + index - 1) / index * index + index;
  return (end + align - 1) / align * align;
}

void combine(OpKind op, const BasicType& type, void* low, const void* high, size_t count) {
  const Kernel kernel = find_kernel(op, type);
  const char* leaf = static_cast<const char*>(high);
  in_environment(kernel, [&] {
    kernel.step(static_cast<char*>(low), static_cast<const char*>(low), &leaf, 1, count * kernel.units);
  });
}

void combine_into_high(OpKind op, const BasicType& type, const void* low, void* high, size_t count) {
  const Kernel kernel = find_kernel(op, type);
  const char* leaf = static_cast<const char*>(high);
  in_environment(kernel, [&] {
    kernel.step(static_cast<char*>(high), static_cast<const char*>(low), &leaf, 1, count * kernel.units);
  });
}

namespace {

/// For callers that have none.
template <class Compute>
[[gnu::noinline]] void with_scratch(const Compute& compute) {
  alignas(64) char scratch[kFoldScratch];
  compute(scratch);
}

}  // namespace

void fold(OpKind op, const BasicType& type, Mode mode, const void* const* contributions, size_t ranks, void* result,
          size_t count, char* scratch) {
  if (scratch == nullptr)
    return with_scratch([&](char* own) { fold(op, type, mode, contributions, ranks, result, count, own); });
  const Kernel kernel = find_kernel(op, type);
  const size_t units = count * kernel.units;
  if (units == 0) return;
  char* const to = static_cast<char*>(result);
  // Of two numbers, the rounded sum is what `order` gives as well.
  const Format format = mode == Mode::kExact && op == OpKind::kSum && ranks > 2 ? exact_format(type) : Format::kNone;
  in_environment(kernel, [&] {
    if (format != Format::kNone) exact_sums(format, bytes(contributions), ranks, to, units, scratch);
    else fold_tree(kernel, bytes(contributions), ranks, to, units, scratch);
  });
}

void fold_prepared(const Kernel& kernel, const char* const* contributions, size_t ranks, char* result, size_t units,
                   char* scratch) {
  in_environment(kernel, [&] { fold_tree(kernel, contributions, ranks, result, units, scratch); });
}

void fold_prefixes(OpKind op, const BasicType& type, Mode mode, const void* const* contributions, size_t ranks,
                   void* const* results, size_t count, char* scratch) {
  if (scratch == nullptr)
    return with_scratch([&](char* own) { fold_prefixes(op, type, mode, contributions, ranks, results, count, own); });
  const Kernel kernel = find_kernel(op, type);
  const size_t units = count * kernel.units;
  if (units == 0) return;
  const Format format = mode == Mode::kExact && op == OpKind::kSum ? exact_format(type) : Format::kNone;
  in_environment(kernel, [&] {
    if (format != Format::kNone) exact_prefixes(format, bytes(contributions), ranks, bytes(results), units, scratch);
    else fold_tree_prefixes(kernel, bytes(contributions), ranks, bytes(results), units, scratch);
  });
}

}  // namespace resil::reduction
