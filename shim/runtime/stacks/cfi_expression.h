// SPDX-License-Identifier: Apache-2.0
//
// DWARF expressions in unwind rules: procedure linkage tables, signal trampolines and functions that realign their
// stack need them (DWARF 5, 2.5). May touch: the stack, read only.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/registers.h"

namespace resil::stacks {

/// Evaluates the block (length, then operations) at `expression`. With `push_cfa` the CFA lies on the stack first.
/// False when it cannot be evaluated. Async-signal-safe; bounded number of operations.
bool evaluate(Reader& reader, uint64_t expression, const Registers& registers, bool push_cfa, uint64_t cfa,
              uint64_t* result);

}  // namespace resil::stacks
