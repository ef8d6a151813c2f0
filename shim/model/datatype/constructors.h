// SPDX-License-Identifier: Apache-2.0
//
// What MPI says of a datatype: the constructor that made it, with its arguments, and the basic types (MPI 4.1, 3.2.2
// and 5.1). Whoever flattens a datatype asks by these five functions; in the library they are the backend's, in tests
// their own.
#pragma once

#include <cstdint>

namespace resil {

/// How a datatype was made; the `_c` and deprecated constructors count as their plain ones.
enum class Combiner : uint8_t {
  kUnknown,
  kNamed,
  kDup,
  kContiguous,
  kVector,
  kHvector,
  kIndexed,
  kHindexed,
  kIndexedBlock,
  kHindexedBlock,
  kStruct,
  kSubarray,
  kDarray,
  kResized,
  kF90Integer,
  kF90Real,
  kF90Complex,  ///< MPI_Type_create_f90_*: predefined, without a name
};

/// Lives forever and cannot be freed.
constexpr bool is_predefined(Combiner combiner) {
  return combiner == Combiner::kNamed || combiner >= Combiner::kF90Integer;
}

/// Arguments of the constructor, as MPI_Type_get_contents orders them, each as 64 bits whatever the library's layout:
/// displacements and strides in bytes are addresses, everything else integers (also those of `_c` constructors).
/// MPI_ORDER_C is 0, MPI_ORDER_FORTRAN 1; distributions are kDistribute*; MPI_DISTRIBUTE_DFLT_DARG is -1.
struct TypeContents {
  Combiner combiner;
  int64_t words_needed;  ///< memory that decode() wants for this type, in 8-byte words
  int64_t integer_count, address_count, type_count;
  const int64_t* integers;
  const int64_t* addresses;
  const uint64_t* types;  ///< handles; each must be given back with release()
};
constexpr int64_t kDistributeNone = 0, kDistributeBlock = 1, kDistributeCyclic = 2;

enum class Decoded : uint8_t {
  kDone,
  kMoreMemory,  ///< `words_needed` and `combiner` are set, nothing else
  kFailed,
};

enum class BasicKind : uint8_t {
  kUnknown,  ///< derived from several, or not known
  kSigned,
  kUnsigned,
  kFloating,
  kLongDouble,  ///< C's; on x86 10 of its 16 bytes are the value, the rest is padding
  kComplex,
  kLongDoubleComplex,
  kLogical,
  kByte,
  kPacked,
  kCharacter,
  kPair,  ///< value and index of MPI_MAXLOC and MPI_MINLOC
};

/// A predefined datatype. In memory a pair is the C struct {value; index}: the index lies at the first multiple of its
/// width behind the value.
struct BasicType {
  BasicKind kind;
  BasicKind value_kind;  ///< pairs: of the value
  uint16_t width;  ///< bytes of data: MPI_Type_size
  uint8_t value_width;  ///< pairs
  uint8_t index_width : 7;
  uint8_t twin : 1;  ///< pairs: the index is of the value's kind (MPI_2REAL), else an int

  bool operator==(const BasicType&) const = default;
};

/// Handles are bits; local calls, on any thread.
struct TypeQueries {
  /// Reads how `type` was made into `memory` (`words` of 8 bytes; null with 0 words asks for the size). Predefined
  /// types need none. The handles in `types` are new references: release() each.
  Decoded (*decode)(uint64_t type, int64_t* memory, int64_t words, TypeContents* contents);
  void (*release)(uint64_t type);  ///< gives back a handle from decode(); does nothing for predefined types
  BasicType (*basic)(uint64_t type);  ///< of a predefined type, else {kUnknown}
  /// In bytes; false: MPI would not say.
  bool (*size)(uint64_t type, int64_t* bytes);
  bool (*extent)(uint64_t type, int64_t* lower_bound, int64_t* extent);
};

}  // namespace resil
