// SPDX-License-Identifier: Apache-2.0
//
// Type signatures against lists of basic elements written out: equal lists have equal signatures however they were put
// together, and what arrived of a longer receive has the signature of its beginning.

#include "shim/model/datatype/signature.h"
#include "shim/model/datatype/type_map.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.h"

using namespace resil;

namespace {

using Elements = std::vector<uint16_t>;  // classes

std::mt19937_64 random_bits(20261);
size_t below(size_t limit) { return random_bits() % limit; }

const uint16_t kBasics[] = {basic_class(BasicKind::kSigned, 4), basic_class(BasicKind::kFloating, 4),
                            basic_class(BasicKind::kSigned, 8), basic_class(BasicKind::kFloating, 8),
                            basic_class(BasicKind::kSigned, 1), basic_class(BasicKind::kUnsigned, 2)};

struct Built {
  Elements elements;
  TypeSequence sequence;
  SequenceStart start;
};

Built element() {
  const uint16_t basic = kBasics[below(6)];
  Built one = {{basic}, sequence_of(basic), {}};
  one.start.add(basic, 1);
  return one;
}

/// A type as constructors make them: repeated and joined parts.
Built build(int depth) {
  if (depth == 0 || below(4) == 0) return element();
  Built all;
  for (size_t parts = 1 + below(3); parts != 0; --parts) {
    const Built part = build(depth - 1);
    const size_t times = below(5);
    for (size_t i = 0; i < times; ++i)
      all.elements.insert(all.elements.end(), part.elements.begin(), part.elements.end());
    all.sequence = join(all.sequence, repeat(part.sequence, times));
    all.start.add(part.start, times);
  }
  return all;
}

/// One by one.
TypeSequence plain(const Elements& elements, size_t count) {
  TypeSequence sequence;
  for (size_t i = 0; i < count; ++i) sequence = join(sequence, sequence_of(elements[i]));
  return sequence;
}

}  // namespace

TEST_CASE("equal type maps have equal signatures, however they were made") {
  std::map<Elements, uint32_t> by_elements;
  std::map<uint32_t, Elements> by_signature;
  for (int i = 0; i < 20000; ++i) {
    const Built made = build(3);
    const uint32_t signature = signature_of(made.sequence);
    CHECK(signature == signature_of(plain(made.elements, made.elements.size())));
    uint64_t bytes = 0;
    bool one_class = true;
    for (const uint16_t basic : made.elements) {
      bytes += basic & 0xff;
      one_class = one_class && basic == made.elements[0];
    }
    CHECK(made.sequence.bytes == bytes);
    CHECK(((signature & kMixedSignature) == 0) == one_class);
    if (one_class) continue;
    // Unequal ones differ: 20,000 of 2^31 collide by chance once in ten runs; these do not.
    const auto known = by_elements.emplace(made.elements, signature).first;
    CHECK(known->second == signature);
    const auto other = by_signature.emplace(signature, made.elements).first;
    CHECK(other->second == made.elements);
  }
}

TEST_CASE("what arrived of a longer receive has the signature of its beginning") {
  int cut = 0, unknown = 0;
  for (int i = 0; i < 5000; ++i) {
    const Built made = build(3);
    if (made.elements.empty() || (signature_of(made.sequence) & kMixedSignature) == 0) continue;
    MixedType type = {made.sequence, made.start, 0};
    Elements many;
    for (int k = 0; k < 3; ++k) many.insert(many.end(), made.elements.begin(), made.elements.end());
    const size_t count = below(many.size() + 1);
    uint64_t bytes = 0;
    for (size_t k = 0; k < count; ++k) bytes += many[k] & 0xff;
    const uint32_t wanted = signature_of(plain(many, count)), found = mixed_signature(type, bytes);
    const bool within = bytes % made.sequence.bytes != 0;
    if (within && !made.start.whole && found == kAnySignature) ++unknown;
    else CHECK(found == wanted);
    CHECK(mixed_signature(type, bytes) == found);  // from the cache
    if (count < many.size() && (many[count] & 0xff) > 1 && (!within || made.start.whole)) {
      ++cut;  // ends inside a basic element: goes with nothing but what goes with any
      CHECK(mixed_signature(type, bytes + 1) != wanted);
      CHECK(mixed_signature(type, bytes + 1) != signature_of(plain(many, count + 1)));
      CHECK(mixed_signature(type, bytes + 1) != kAnySignature);
    }
  }
  CHECK(cut > 500);
  CHECK(unknown < 2000);
}

TEST_CASE("which basic types go together") {
  using K = BasicKind;
  CHECK(basic_class(K::kSigned, 8) != basic_class(K::kUnsigned, 8));
  CHECK(basic_class(K::kSigned, 4) != basic_class(K::kFloating, 4));
  CHECK(basic_class(K::kSigned, 4) != basic_class(K::kSigned, 8));
  CHECK(basic_class(K::kCharacter, 1) == basic_class(K::kSigned, 1));
  CHECK(basic_class(K::kLogical, 4) == basic_class(K::kSigned, 4));
  CHECK(basic_class(K::kFloating, 16) != basic_class(K::kLongDouble, 16));
  CHECK(basic_class(K::kComplex, 16) != basic_class(K::kFloating, 16));
  for (const K kind : {K::kByte, K::kPacked, K::kUnknown}) CHECK(basic_class(kind, 1) == 0);
  TypeSequence bytes = sequence_of(0);
  bytes.bytes = 1;
  CHECK(signature_of(join(sequence_of(kBasics[0]), repeat(bytes, 4))) == kAnySignature);
  CHECK(signature_of(repeat(sequence_of(kBasics[0]), 7)) == kBasics[0]);
  CHECK(signature_of(TypeSequence()) == kAnySignature);
  CHECK(std::string(signature_words(basic_class(K::kUnsigned, 8))) == "unsigned integers");
  CHECK(signature_width(basic_class(K::kUnsigned, 8)) == 8);
  CHECK(std::string(signature_words(0x8123)) == "a mixture of basic types");
  CHECK(signature_fold(basic_class(K::kFloating, 8)) == basic_class(K::kFloating, 8));
  CHECK((signature_fold(0x87654321) & 0x8000) != 0);
}
