// SPDX-License-Identifier: Apache-2.0
//
// See signature.h.

#include "shim/model/datatype/signature.h"

namespace resil {

namespace {

constexpr uint64_t kBase = 0x9e3779b97f4a7c15;  // odd, 5 modulo 8
constexpr uint16_t kCut = 0xf00;  // kind of a basic element that the end of a message cuts: goes with none

constexpr const char* kKinds[] = {
    "bytes",        "signed integers", "unsigned integers",          "floating-point numbers",
    "long doubles", "complex numbers", "long double complex numbers"};

}  // namespace

TypeSequence sequence_of(uint16_t one_class) {
  TypeSequence one;
  one.hash = mix64(one_class);
  one.power = kBase;
  one.bytes = one_class & 0xff;
  one.uniform = one_class;
  one.any = one_class == 0;
  return one;
}

TypeSequence join(const TypeSequence& first, const TypeSequence& second) {
  if (first.power == 1) return second;  // the power of no elements: the base has another one for any number below 2^62
  if (second.power == 1) return first;
  TypeSequence both;
  both.hash = first.hash * second.power + second.hash;
  both.power = first.power * second.power;
  both.bytes = first.bytes + second.bytes;
  both.uniform = first.uniform == second.uniform ? first.uniform : 0;
  both.any = first.any || second.any;
  return both;
}

TypeSequence repeat(const TypeSequence& one, uint64_t times) {
  TypeSequence all, doubled = one;
  for (; times != 0; times >>= 1) {
    if (times & 1) all = join(all, doubled);
    if (times > 1) doubled = join(doubled, doubled);
  }
  return all;
}

uint32_t signature_of(const TypeSequence& sequence) {
  if (sequence.any) return kAnySignature;
  if (sequence.uniform != 0 || sequence.power == 1) return sequence.uniform;
  return kMixedSignature | static_cast<uint32_t>(mix64(sequence.hash) >> 33);
}

void SequenceStart::add(uint16_t basic, uint64_t times) {
  if (!whole || times == 0) return;
  constexpr uint64_t kMost = UINT32_MAX;
  Part* last = count != 0 && parts[count - 1].basic == basic ? &parts[count - 1] : nullptr;
  if ((last == nullptr && count == kParts) || times > kMost - (last != nullptr ? last->count : 0)) {
    whole = false;
    return;
  }
  if (last == nullptr) parts[count++] = {static_cast<uint32_t>(times), basic};
  else last->count += static_cast<uint32_t>(times);
}

void SequenceStart::add(const SequenceStart& other, uint64_t times) {
  if (times != 0 && other.count == 1 && other.whole) return add(other.parts[0].basic, other.parts[0].count * times);
  for (uint64_t i = 0; i < times && whole && other.count != 0; ++i) {
    for (uint32_t part = 0; part < other.count; ++part) add(other.parts[part].basic, other.parts[part].count);
    whole = whole && other.whole;
  }
}

uint32_t mixed_signature(MixedType& type, uint64_t bytes) {
  const uint64_t last = __atomic_load_n(&type.last, __ATOMIC_RELAXED);
  if (last >> 32 == bytes && bytes != 0) return static_cast<uint32_t>(last);
  if (type.element.any || type.element.bytes == 0) return kAnySignature;
  TypeSequence sequence = repeat(type.element, bytes / type.element.bytes);
  uint64_t rest = bytes % type.element.bytes;
  for (uint32_t i = 0; rest != 0; ++i) {
    if (i == type.start.count) return kAnySignature;  // too far into the element
    const SequenceStart::Part& part = type.start.parts[i];
    const uint64_t width = part.basic & 0xff, whole = rest / width < part.count ? rest / width : part.count;
    sequence = join(sequence, repeat(sequence_of(part.basic), whole));
    rest -= whole * width;
    if (whole < part.count && rest != 0) {
      sequence = join(sequence, sequence_of(static_cast<uint16_t>(kCut | rest)));
      rest = 0;
    }
  }
  const uint32_t signature = signature_of(sequence);
  if (bytes <= UINT32_MAX) __atomic_store_n(&type.last, bytes << 32 | signature, __ATOMIC_RELAXED);
  return signature;
}

const char* signature_words(uint32_t signature) {
  const uint32_t kind = signature >> 8;
  if (signature == kAnySignature) return "MPI_BYTE or MPI_PACKED";
  return signature < 0x1000 && kind < sizeof(kKinds) / sizeof(kKinds[0]) ? kKinds[kind] : "a mixture of basic types";
}

}  // namespace resil
