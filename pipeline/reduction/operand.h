// SPDX-License-Identifier: Apache-2.0
//
// What is reduced and how: operator and datatype of one call. Elements travel as `cells`: the bytes of one element one
// behind the other, as they lie in memory for predefined types and plain derived ones, packed for others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/reduction/fold.h"
#include "pipeline/reduction/scratch.h"

namespace resil {
struct Thread;
struct TypeMap;
}  // namespace resil

namespace resil::reduction {

struct Operand {
  uint64_t op_handle, type_handle;
  OpKind op;
  bool user;  ///< MPI_Reduce_local does the arithmetic, element layout and handle are the program's
  bool plain;  ///< cells are what lies in memory from the buffer's address on, without gaps
  BasicType basic;  ///< of predefined operators
  Mode mode;
  size_t cell;  ///< bytes
  const TypeMap* map;  ///< of derived types; null: only the library can pack it
  int64_t extent;  ///< from one element to the next in memory
  int64_t true_low, true_extent;  ///< of one element's data
};

/// Why a call goes the library's own way, or that it need not.
enum class Verdict : uint8_t {
  kFold,
  kSafe,  ///< the library's result is the same in any order
  kOperator,  ///< not an operator on this type that MPI allows: the library's error
  kDatatype,  ///< MPI would not say how large the type is
};

/// Handles must be arguments of the program's current call. Asks MPI; results are cached by the caller.
Verdict describe(Thread& thread, uint64_t op, uint64_t type, bool exact, Operand* operand);

/// Can cells be read from and written to this buffer directly? False: through load() and store().
bool direct(const Operand& operand, const void* buffer, int64_t count);
/// Copies `count` elements from `first` on to cells, or from cells into the buffer, whatever memory that is.
void load(const Operand& operand, const void* buffer, int64_t first, int64_t count, char* cells);
void store(const Operand& operand, void* buffer, int64_t first, int64_t count, const char* cells);

/// result[i] = fold of cells[0][i] ... cells[ranks - 1][i] for `count` elements, in the canonical association.
/// Overwrites the cells; `result` may be one of them. Returns MPI's code.
int fold_cells(const Operand& operand, char** cells, int64_t ranks, char* result, int64_t count, Arena& arena);
/// cells[r][i] = fold of cells[0][i] ... cells[r][i], each as a fold over r + 1 ranks would be.
int prefix_cells(const Operand& operand, char** cells, int64_t ranks, int64_t count, Arena& arena);

}  // namespace resil::reduction
