// SPDX-License-Identifier: Apache-2.0
//
// The way of a stub to a function that decides where the call goes on: resil_keep_arguments calls
//
//   void* function(unsigned number, uint64_t* arguments, void* return_address)
//
// and jumps to what it returns, with the arguments of the call in their registers as the caller left them, or as
// `function` has changed the first six. The stub comes with the number and the address of the function: on x86-64 the
// number lies on the stack, below the return address, and the address in r11; on aarch64 they are in w17 and x16. Kept
// are the registers of integer arguments, and on x86-64 the number of vector registers of a variadic call: no function
// that comes here takes a floating-point argument.

#if defined(__x86_64__)

asm(R"(
  .text
  .globl resil_keep_arguments
  .hidden resil_keep_arguments
  .type resil_keep_arguments, @function
  .balign 16
resil_keep_arguments:
  .cfi_startproc
  .cfi_def_cfa_offset 16
  pushq %rax
  subq $8, %rsp
  pushq %r9
  pushq %r8
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  .cfi_adjust_cfa_offset 64
  movl 64(%rsp), %edi
  movq %rsp, %rsi
  movq 72(%rsp), %rdx
  callq *%r11
  movq %rax, %r11
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %r8
  popq %r9
  addq $8, %rsp
  popq %rax
  addq $8, %rsp
  .cfi_adjust_cfa_offset -72
  jmp *%r11
  .cfi_endproc
  .size resil_keep_arguments, . - resil_keep_arguments
)");

#elif defined(__aarch64__)

asm(R"(
  .text
  .globl resil_keep_arguments
  .hidden resil_keep_arguments
  .type resil_keep_arguments, %function
  .balign 16
resil_keep_arguments:
  .cfi_startproc
  stp x29, x30, [sp, #-96]!
  .cfi_adjust_cfa_offset 96
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  mov w0, w17
  add x1, sp, #16
  mov x2, x30
  blr x16
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp x29, x30, [sp], #96
  .cfi_adjust_cfa_offset -96
  br x16
  .cfi_endproc
  .size resil_keep_arguments, . - resil_keep_arguments
)");

#else
#error "no stubs for this architecture"
#endif
