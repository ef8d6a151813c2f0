// SPDX-License-Identifier: Apache-2.0
//
// One step up the stack by the DWARF call-frame information (.eh_frame) that every object carries for exceptions.
// Why not libgcc's _Unwind_Backtrace: it follows a broken stack into unmapped memory and kills the program. Here every
// read is guarded. Async-signal-safe, lock-free, about 1 microsecond a frame. May touch: stacks and objects, read only.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/objects.h"
#include "shim/runtime/stacks/registers.h"

namespace resil::stacks {

/// How a register of the caller is found. `value` is an offset from the CFA, a register number or an address of an
/// expression, by kind.
enum class RuleKind : uint8_t { kSame, kUndefined, kAtOffset, kIsOffset, kRegister, kAtExpression, kIsExpression };

/// One row of the unwind table.
struct Row {
  RuleKind kinds[kRegisters];
  uint64_t values[kRegisters];
  uint64_t cfa_expression;  ///< address of the expression, 0: register + offset
  uint64_t cfa_offset;
  uint32_t cfa_register;
};

/// What stepping needs; too large for a small signal stack, so the caller keeps it elsewhere.
struct CfiWork {
  Row row, initial;
  Row saved[2];  ///< DW_CFA_remember_state nests once in what compilers emit
  Registers next;
};

enum class Step : uint8_t {
  kUp,  ///< registers are the caller's now
  kOutermost,  ///< this was the first frame of the thread
  kNoInfo,  ///< no unwind information for this PC
  kBroken,  ///< the information or the stack cannot be followed
};

/// Replaces the registers of a frame by its caller's. `exact`: pc is where execution stopped (first frame, or one that
/// a signal interrupted), not a return address; set for the next step.
Step step_cfi(Reader& reader, const Object& object, Registers* registers, bool* exact, CfiWork* work);

}  // namespace resil::stacks
