// SPDX-License-Identifier: Apache-2.0
//
// Datatypes and reduction operators. Part of the Backend table; handles are bits. All functions ask MPI (PMPI_ layer,
// local calls) but where noted, and may be called wherever `type_size` may: inside the program's own calls, with
// handles that are arguments of them. None takes a lock.
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

enum class OpKind : uint8_t {
  kNone,  ///< MPI_OP_NULL
  kMax,
  kMin,
  kSum,
  kProd,
  kLand,
  kBand,
  kLor,
  kBor,
  kLxor,
  kBxor,
  kMaxloc,
  kMinloc,
  kReplace,
  kNoOp,
  kUser,
};

struct TypeFunctions {
  /// Reads how `type` was made into `memory` (`words` of 8 bytes; null with 0 words asks for the size). Predefined
  /// types need none. The handles in `types` are new references: release() each.
  Decoded (*decode)(uint64_t type, int64_t* memory, int64_t words, TypeContents* contents);
  /// Gives back a handle from decode(); does nothing for predefined types.
  void (*release)(uint64_t type);
  /// Kind of a predefined type, else {kUnknown}. MPI_Type_create_f90_*: the kind it stands for; with up to 18 digits in
  /// 16 bytes that is x86's long double, which gfortran calls kind 10.
  BasicType (*basic)(uint64_t type);
  /// Asks nobody.
  OpKind (*op_kind)(uint64_t op);
  /// In bytes; false: MPI would not say.
  bool (*extent)(uint64_t type, int64_t* lower_bound, int64_t* extent);
  bool (*true_extent)(uint64_t type, int64_t* lower_bound, int64_t* extent);
  /// Ties `info` to the handle: `forget` (the same function in all calls) runs inside MPI, on any thread, when the type
  /// dies. Not copied by MPI_Type_dup. Replaces (and forgets) an earlier one. False: not tied.
  bool (*attach)(uint64_t type, void* info, void (*forget)(void* info));
  void* (*attached)(uint64_t type);  ///< null: nothing
  uint64_t (*address)() = nullptr;  ///< MPI_AINT
};

}  // namespace resil
