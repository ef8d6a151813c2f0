// SPDX-License-Identifier: Apache-2.0
//
// Flattened datatypes: which bytes of a buffer are data, in the order of the type map, so that a buffer can be
// digested, packed and unpacked without MPI. Padding is no data: it is neither read nor written.
//
// A message's stream is what MPI_Pack would give: the data of its elements one after the other. It is the same at both
// ends whatever types they use.
#pragma once

#include <cstdint>

#include "shim/model/datatype/constructors.h"
#include "shim/model/datatype/signature.h"

namespace resil {

/// `count` pieces of `bytes`, each `stride` behind the one before; offsets from the buffer's address.
struct Run {
  int64_t offset, bytes, count, stride;
};

struct TypeMap {
  uint64_t size;  ///< bytes of data in one element
  int64_t extent;  ///< from one element to the next
  int64_t low, high;  ///< range of one element's data: first byte, one past the last, from the buffer's address
  bool contiguous;  ///< the elements are one piece that starts at the buffer's address (never when `padded`)
  bool padded;  ///< x86 long doubles: see type_digest
  bool permanent;  ///< of a predefined type: lives forever
  uint32_t run_count;
  const Run* runs;
  BasicType basic;  ///< what all of it consists of; kUnknown when it is mixed
  uint32_t signature;  ///< of any number of its elements; kMixedSignature: see `mixed`
  MixedType* mixed;
  uint32_t references;
};

/// See signature.h.
constexpr uint16_t basic_class(BasicKind kind, unsigned width) {
  unsigned group = 0;
  switch (kind) {
    case BasicKind::kSigned:
    case BasicKind::kCharacter:
    case BasicKind::kLogical: group = 1; break;
    case BasicKind::kUnsigned: group = 2; break;
    case BasicKind::kFloating: group = 3; break;
    case BasicKind::kLongDouble: group = 4; break;
    case BasicKind::kComplex: group = 5; break;
    case BasicKind::kLongDoubleComplex: group = 6; break;
    case BasicKind::kUnknown:
    case BasicKind::kByte:
    case BasicKind::kPacked:
    case BasicKind::kPair: return 0;
  }
  return static_cast<uint16_t>(group << 8 | (width & 0xff));
}

/// Signature of the first `bytes` bytes of the stream.
inline uint32_t type_signature(const TypeMap& map, uint64_t bytes) {
  return map.signature != kMixedSignature ? map.signature : mixed_signature(*map.mixed, bytes);
}

/// Bytes of the stream of `count` elements; 2^63 - 1 when it is more.
uint64_t type_bytes(const TypeMap& map, int64_t count);

/// D (shim/base/digest/digest.h) of the first `bytes` bytes of the stream of `count` elements at `buffer`; they may end
/// inside an element (short receives). `bytes` beyond the stream's end are not there and not looked for.
/// A long double on x86 has 16 bytes in the stream, of which 10 are its value. MPI need not carry the other 6, and
/// MPICH does not where it copies element by element: they count as zeros.
uint64_t type_digest(const TypeMap& map, const void* buffer, int64_t count, uint64_t bytes);

/// Copies bytes [first, first + bytes) of the stream to `to`, or from `from` into the buffer. Return bytes copied: less
/// than asked for where the stream ends.
uint64_t type_pack(const TypeMap& map, const void* buffer, int64_t count, uint64_t first, uint64_t bytes, void* to);
uint64_t type_unpack(const TypeMap& map, void* buffer, int64_t count, uint64_t first, uint64_t bytes, const void* from);

/// `count` pieces of `bytes` in memory, each `stride` behind the one before.
struct Pieces {
  char* at;
  uint64_t bytes;
  int64_t count, stride;
};

/// Hands out where bytes [first, first + bytes) of the stream lie, in its order, as few groups of pieces as the runs
/// make; stops when `each` returns false. Touches no data: the buffer may be a device's.
void type_walk(const TypeMap& map, const void* buffer, int64_t count, uint64_t first, uint64_t bytes,
               bool (*each)(void* argument, const Pieces& pieces), void* argument);

/// Range touched by `count` elements: lowest byte and one past the highest, from the buffer's address. 0, 0: none.
void type_span(const TypeMap& map, int64_t count, int64_t* low, int64_t* high);

}  // namespace resil
