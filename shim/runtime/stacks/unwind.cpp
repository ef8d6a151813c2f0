// SPDX-License-Identifier: Apache-2.0
//
// The walk: by unwind information where an object has it, by frame pointer where it has not, and never past what can be
// read. May touch: stacks and loaded objects, read only.
#include "shim/runtime/stacks/unwind.h"

#include "shim/runtime/stacks/objects.h"

namespace resil::stacks {
namespace {

// The largest frame that a frame pointer is believed to span.
constexpr uint64_t kLargestFrame = uint64_t{1} << 22;

void append(Stack* stack, uint64_t frame) {
  const uint32_t n = stack->total++;
  stack->frames[n < kInnermost ? n : kInnermost + (n - kInnermost) % kOutermost] = frame;
}

/// A call through a bad pointer leaves a PC in nowhere: the caller's address is still at the top of the stack.
bool step_bad_call(Reader& reader, Registers* registers) {
  Object object;
#if defined(__x86_64__)
  uint64_t back;
  uint64_t& sp = registers->r[kStackRegister];
  if (!reader.load(sp, &back) || !reader.find(back - 1, &object)) return false;
  sp += 8;
#else
  const uint64_t back = plain_address(registers->r[kLinkRegister]);
  if (!reader.find(back - 1, &object)) return false;
#endif
  registers->pc = back;
  return true;
}

/// Both ABIs keep the caller's frame pointer and the return address, in this order, where the frame pointer points.
bool step_frame_pointer(Reader& reader, Registers* registers) {
  struct {
    uint64_t frame_pointer, back;
  } pair;
  uint64_t& sp = registers->r[kStackRegister];
  uint64_t& frame_pointer = registers->r[kFrameRegister];
  if (frame_pointer < sp || frame_pointer - sp > kLargestFrame || frame_pointer % 8 != 0) return false;
  if (!reader.load(frame_pointer, &pair) || pair.back == 0) return false;
  // Without unwind information any register may hold anything: believe it only when it leads into code.
  Object object;
  const uint64_t back = plain_address(pair.back);
  if (!reader.find(back - 1, &object)) return false;
  sp = frame_pointer + sizeof pair;
  frame_pointer = pair.frame_pointer;
  registers->pc = back;
  return true;
}

}  // namespace

void unwind(UnwindWork* work, Stack* stack, OtherProcess* other) {
  stack->total = 0;
  work->reader.reset(other);
  Registers* registers = &work->registers;
  bool exact = true;
  bool guessed = false;
  for (uint32_t step = 0;; ++step) {
    append(stack, (registers->pc & kFrameAddress) | (exact ? kExactFrame : 0) | (guessed ? kGuessedFrame : 0));
    if (step == kMostSteps) {
      stack->end = StackEnd::kTooDeep;
      return;
    }
    Object object;
    const bool known = work->reader.find(exact ? registers->pc : registers->pc - 1, &object);
    Step result = known ? step_cfi(work->reader, object, registers, &exact, &work->cfi) : Step::kNoInfo;
    guessed = false;
    if (result == Step::kNoInfo) {
      guessed = true;
      if ((!known && exact && step_bad_call(work->reader, registers)) || step_frame_pointer(work->reader, registers)) {
        exact = false;
        result = Step::kUp;
      }
    }
    if (result == Step::kUp) continue;
    stack->end = result == Step::kOutermost ? StackEnd::kComplete
                 : result == Step::kNoInfo  ? StackEnd::kNoInfo
                                            : StackEnd::kBroken;
    return;
  }
}

}  // namespace resil::stacks
