// SPDX-License-Identifier: Apache-2.0
//
// Type signatures: the basic types of a message in their order, as a number, so that two ranks can tell whether what
// one sends is what the other receives (MPI 4.0, sections 3.3.1 and 4.1). Equal signatures have equal numbers, however
// the datatypes were made; unequal ones are equal with a chance of 2^-31, basic types alone never.
//
// A message of one basic type has that type's class as its number, whatever its length, so that a receive need not know
// how long the message is. Of a mixture the number is a polynomial over the classes of all elements: sequences are
// joined and repeated without looking at their elements, and what arrived of a longer receive is a beginning of them.
//
// Classes are coarser than MPI's names, because correct programs mix these: integers of equal size and signedness are
// one (MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER8, MPI_CHAR, MPI_LOGICAL as
// the signed integer of its size), floating numbers of equal size are (MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL8),
// and so are complex ones. A pair is its value and its index. With MPI_BYTE or MPI_PACKED in it a signature goes with
// any.
#pragma once

#include <cstdint>

#include "shim/base/hash.h"

namespace resil {

constexpr uint32_t kAnySignature = 0;  ///< goes with any
constexpr uint32_t kMixedSignature = 0x80000000;  ///< this bit: a mixture; below 0x1000: a class
/// A class has the kind in bits 8 to 11, from 1, and the bytes below; 0 goes with any.

/// A sequence of basic elements.
struct TypeSequence {
  uint64_t hash = 0, power = 1;  ///< polynomial over the elements; base to the number of elements
  uint64_t bytes = 0;
  uint16_t uniform = 0;  ///< class of all of them; 0: none, or several
  bool any = false;  ///< something in it goes with any
};
TypeSequence sequence_of(uint16_t one_class);  ///< one element
TypeSequence join(const TypeSequence& first, const TypeSequence& second);
TypeSequence repeat(const TypeSequence& one, uint64_t times);
uint32_t signature_of(const TypeSequence& sequence);

/// How an element of a datatype begins: for what arrived of a longer receive.
struct SequenceStart {
  static constexpr uint32_t kParts = 16;
  struct Part {
    uint32_t count;
    uint16_t basic;  ///< class
  } parts[kParts];
  uint32_t count = 0;
  bool whole = true;  ///< it is all of the element

  void add(uint16_t basic, uint64_t times);
  void add(const SequenceStart& other, uint64_t times);
};

/// Of a datatype whose elements mix classes.
struct MixedType {
  TypeSequence element;
  SequenceStart start;
  uint64_t last;  ///< cache of mixed_signature(): low halves of bytes and signature
};
/// Of the first `bytes` bytes of the datatype's stream.
uint32_t mixed_signature(MixedType& type, uint64_t bytes);

/// For a record of 16 bits: classes stay what they are.
constexpr uint16_t signature_fold(uint32_t signature) {
  return static_cast<uint16_t>(signature & kMixedSignature ? ((signature ^ signature >> 16) & 0x7fff) | 0x8000
                                                           : signature);
}

/// "signed integers", "a mixture of basic types"; of signatures and folded ones.
const char* signature_words(uint32_t signature);
/// Bytes of each element; 0: of several sizes, or not known.
constexpr uint32_t signature_width(uint32_t signature) { return signature < 0x1000 ? signature & 0xff : 0; }

}  // namespace resil
