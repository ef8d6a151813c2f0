// SPDX-License-Identifier: Apache-2.0
//
// The stacks section: what each thread does, and for those without a stack, why. May touch: the collected slots.
#include "detectors/dump/content.h"
#include "shim/call/runtime.h"

namespace resil::dump {
namespace {

const char* state_name(char letter) {
  switch (letter) {
    case 'R': return "runnable";
    case 'S': return "sleeping";
    case 'D': return "in uninterruptible sleep (usually input/output)";
    case 'T': return "stopped by a signal";
    case 't': return "stopped by a debugger";
    case 'Z':
    case 'X': return "ended";
    case 'I': return "idle";
    default: return "in an unknown state";
  }
}

void put_state(SafeText& text, const ThreadState& state) {
  text.chr(state.letter).str(", ").str(state_name(state.letter));
  if (state.wchan[0] != 0) text.str(" in ").safe(state.wchan, sizeof state.wchan);
  if (state.sleeping && state.call >= 0) text.str(", system call ").i64(state.call);
}

/// Why there is no stack from the thread itself; nothing when there is one.
void put_why(SafeText& text, const Slot& slot) {
  switch (slot.answer) {
    case Answer::kOwn:
    case Answer::kGiven: break;
    case Answer::kNotGiven:
      text.str("; did not answer within ").i64(kWaitMs).str(" ms");
      if (slot.state.letter == 'D') text.str(": the kernel does not interrupt this sleep");
      if (slot.state.letter == 'R') text.str(": no processor for it, perhaps");
      break;
    case Answer::kBlocks: text.str("; blocks the signal, so it was not asked"); break;
    case Answer::kSigwait: text.str("; waits for signals (sigwait), so it was not asked"); break;
    case Answer::kStopped: text.str("; stopped, so it cannot answer"); break;
    case Answer::kGone: text.str("; ended meanwhile"); break;
    case Answer::kUnsent: text.str("; could not be sent the signal"); break;
  }
}

}  // namespace

void Content::frame(uint64_t address) const {
  const uint64_t pc = address & kFrameAddress;
  symbols.put(text, pc, (address & kExactFrame) == 0);
  if ((address & kGuessedFrame) != 0) text.str(" (by frame pointer)");
}

void Content::stack(const Stack& stack) const {
  const uint32_t total = stack.total;
  for (uint32_t n = 0; n < total; ++n) {
    if (n == kInnermost && total > kFrames) {
      n = total - kOutermost;
      text.str("    … ").u64(n - kInnermost).str(" frames left out …\n");
    }
    const uint64_t address = stack.frames[n < kInnermost ? n : kInnermost + (n - kInnermost) % kOutermost];
    text.str("    #").u64(n).chr(' ');
    frame(address);
    text.chr('\n');
  }
  switch (stack.end) {
    case StackEnd::kComplete: break;
    case StackEnd::kNoInfo: text.str("    (ends here: no unwind information for this code)\n"); break;
    case StackEnd::kBroken: text.str("    (ends here: the stack cannot be followed further)\n"); break;
    case StackEnd::kTooDeep: text.str("    (ends here: more than ").u64(kMostSteps).str(" frames)\n"); break;
  }
}

void Content::stacks(const Threads& threads, int signal) const {
  text.str("\nThreads: ");
  if (threads.total > 0) text.i64(threads.total).chr('\n');
  else text.str("/proc/self/task cannot be read, only the one that dumps\n");
  if (signal == 0) text.str("  No handler is installed: only this thread's stack, and what the kernel tells.\n");
  if (!objects_are_live()) {
    text.str("  C library older than 2.35: frames in libraries loaded after MPI_Init may be missing.\n");
  }
  for (uint32_t i = 0; i < threads.used; ++i) {
    const Slot& slot = threads.slots[i];
    if (slot.tid == 0) continue;
    text.str("  Thread ").i64(slot.tid).str(" (").safe(slot.state.name, sizeof slot.state.name).chr(')');
    if (slot.tid == runtime.pid) text.str(", the main thread");
    if (slot.answer == Answer::kOwn) {
      text.str(", writes this dump");
    } else {
      text.str(": ");
      put_state(text, slot.state);
    }
    put_why(text, slot);
    if (slot.from_kernel) text.str("; stack as far as it can be followed from outside:");
    text.chr('\n');
    if (slot.has_stack) stack(slot.stack);
  }
  if (threads.total > static_cast<int32_t>(threads.used)) {
    text.str("  and ").i64(threads.total - static_cast<int32_t>(threads.used)).str(" more threads, not asked\n");
  }
}

void Content::objects() const {
  text.str("\nObjects named above (address in file = address - base; for addr2line -e PATH OFFSET):\n");
  symbols.put_objects(text);
}

void Content::brief_stack(const Threads& threads, const char* prefix) const {
  const Slot* best = nullptr;
  for (uint32_t i = 0; i < threads.used; ++i) {
    const Slot& slot = threads.slots[i];
    if (slot.tid != runtime.pid) continue;
    best = &slot;
  }
  if (best == nullptr) return;
  text.str(prefix).str("main thread");
  if (best->answer != Answer::kOwn) {
    text.str(" (");
    put_state(text, best->state);
    put_why(text, *best);
    text.chr(')');
  }
  text.str(": ");
  symbols.limit_names(kBriefNameBytes);
  if (!best->has_stack) text.str("no stack");
  const uint32_t total = best->has_stack ? best->stack.total : 0;
  for (uint32_t n = 0; n < total && n < kBriefFrames; ++n) {
    if (n > 0) text.str(" < ");
    frame(best->stack.frames[n]);
  }
  if (total > kBriefFrames) text.str(" < …");
  symbols.limit_names(SIZE_MAX);
  text.chr('\n');
}

}  // namespace resil::dump
