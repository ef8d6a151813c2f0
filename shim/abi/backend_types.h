// SPDX-License-Identifier: Apache-2.0
//
// Datatypes and reduction operators. Part of the Backend table; handles are bits. All functions ask MPI (PMPI_ layer,
// local calls) but where noted, and may be called wherever `type_size` may: inside the program's own calls, with
// handles that are arguments of them. None takes a lock.
#pragma once

#include <cstdint>

#include "shim/model/datatype/constructors.h"

namespace resil {

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
