// SPDX-License-Identifier: Apache-2.0
//
// The stack of one thread as raw addresses, from the registers that a signal interrupted. Async-signal-safe: no lock,
// no allocation, every read guarded. May touch: stacks and loaded objects, read only.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/cfi.h"
#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/registers.h"

namespace resil::stacks {

constexpr uint32_t kInnermost = 48;  ///< frames kept from the interrupted function on
constexpr uint32_t kOutermost = 16;  ///< frames kept from the thread's first function on, when there are more
constexpr uint32_t kFrames = kInnermost + kOutermost;
constexpr uint32_t kMostSteps = 5000;  ///< deep recursion: stop counting here

/// Bits that mark a frame; user addresses lie far below.
constexpr uint64_t kExactFrame = uint64_t{1} << 63;  ///< not a return address
constexpr uint64_t kGuessedFrame = uint64_t{1} << 62;  ///< found by frame pointer: may be wrong
constexpr uint64_t kFrameAddress = kGuessedFrame - 1;

enum class StackEnd : uint8_t {
  kComplete,  ///< up to the thread's first function
  kNoInfo,  ///< code without unwind information (generated code, unknown object)
  kBroken,  ///< the stack cannot be followed: overwritten, or unwind information not understood
  kTooDeep,  ///< more than kMostSteps frames
};

struct Stack {
  uint32_t total;  ///< frames found; above kFrames the middle ones are left out
  StackEnd end;
  /// [0, kInnermost) from the innermost on; the rest is a ring of the outermost: frame n >= kInnermost is at
  /// kInnermost + (n - kInnermost) % kOutermost.
  uint64_t frames[kFrames];
};

/// What walking needs beside the stack; kept off the signal stack.
struct UnwindWork {
  Reader reader;
  Registers registers;
  CfiWork cfi;
};

/// Walks from `work->registers`; fills `*stack`. Takes about 1 microsecond a frame. `other`: of a thread of that
/// process.
void unwind(UnwindWork* work, Stack* stack, OtherProcess* other = nullptr);

}  // namespace resil::stacks
