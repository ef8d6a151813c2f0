// SPDX-License-Identifier: Apache-2.0
//
// Work that needs more stack than a thread of the program may have left (16 KiB in all, see docs/LIMITS.md): what is
// said of a finding takes 12 KiB. It runs on a stack of its own, which is mapped for it and unmapped afterwards; where
// there is no memory, on the program's. Callers stay visible to unwinders and debuggers. Not for signal handlers, nor
// for what calls MPI's communication.
#pragma once

#include <cstddef>
#include <type_traits>

#include "shim/runtime/memory.h"

// The sanitizers keep accounts of stacks, and the tests under them have large ones.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RESIL_OWN_STACK 0
#elif defined(__x86_64__)
#define RESIL_OWN_STACK 1
asm(R"(
  .section .text.resil_call_on_stack, "axG", @progbits, resil_call_on_stack, comdat
  .weak resil_call_on_stack
  .hidden resil_call_on_stack
  .type resil_call_on_stack, @function
  .balign 16
resil_call_on_stack:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset 6, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register 6
  movq %rdx, %rsp
  movq %rdi, %rax
  movq %rsi, %rdi
  callq *%rax
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa 7, 8
  ret
  .cfi_endproc
  .size resil_call_on_stack, . - resil_call_on_stack
  .text
)");
#elif defined(__aarch64__)
#define RESIL_OWN_STACK 1
asm(R"(
  .section .text.resil_call_on_stack, "axG", @progbits, resil_call_on_stack, comdat
  .weak resil_call_on_stack
  .hidden resil_call_on_stack
  .type resil_call_on_stack, %function
  .balign 16
resil_call_on_stack:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset 29, -16
  .cfi_offset 30, -8
  mov x29, sp
  .cfi_def_cfa_register 29
  mov sp, x2
  mov x3, x0
  mov x0, x1
  blr x3
  mov sp, x29
  .cfi_def_cfa_register 31
  ldp x29, x30, [sp], #16
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size resil_call_on_stack, . - resil_call_on_stack
  .text
)");
#else
#define RESIL_OWN_STACK 0
#endif

/// `top`: 16-byte aligned.
extern "C" [[gnu::visibility("hidden")]] void resil_call_on_stack(void (*work)(void*), void* argument, void* top);

namespace resil {

namespace own_stack_detail {

constexpr size_t kBytes = 128 << 10;  // touched as far as it is used
inline constinit thread_local bool is_on_it __attribute__((tls_model("initial-exec"))) = false;

}  // namespace own_stack_detail

template <class Work>
void on_own_stack(Work&& work) {
#if RESIL_OWN_STACK
  using namespace own_stack_detail;
  void* memory = is_on_it ? nullptr : memory::map(kBytes);
  if (memory != nullptr) {
    is_on_it = true;
    resil_call_on_stack([](void* what) { (*static_cast<std::remove_reference_t<Work>*>(what))(); }, &work,
                        static_cast<char*>(memory) + kBytes);
    is_on_it = false;
    memory::unmap(memory, kBytes);
    return;
  }
#endif
  work();
}

}  // namespace resil
