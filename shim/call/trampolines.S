// SPDX-License-Identifier: Apache-2.0
//
// Entry points: MPI_X and PMPI_X jump through one slot each. A slot first holds the address of a lazy stub, which
// calls resil_resolve(slot number, return address) once and jumps on; the resolver fills all slots at once. Only
// integer argument registers are kept: no MPI function takes a floating-point argument (MPI_Pcontrol is not here).
#if defined(__x86_64__)

  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000002, 4, 3, 0   /* indirect branch tracking, shadow stack */

  .text
#define ENTRY(name, slot)                              \
  .globl name;                                         \
  .type name, @function;                               \
  .balign 16;                                          \
name:                                                  \
  endbr64;                                             \
  jmp *(resil_slots + 8 * slot)(%rip);                 \
  .size name, . - name;
#include "trampolines.inc"
#undef ENTRY

#define ENTRY(name, slot)                              \
  .balign 16;                                          \
.Llazy_##slot:                                         \
  endbr64;                                             \
  pushq $slot;                                         \
  jmp .Lresolve;
#include "trampolines.inc"
#undef ENTRY

  .balign 16
.Lresolve:                 /* stack: slot number, return address; 16-byte aligned here */
  .cfi_startproc
  .cfi_def_cfa_offset 16
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  .cfi_adjust_cfa_offset 48
  movl 48(%rsp), %edi
  movq 56(%rsp), %rsi
  callq resil_resolve
  movq %rax, %r11
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  addq $8, %rsp
  .cfi_adjust_cfa_offset -56
  jmp *%r11
  .cfi_endproc

#elif defined(__aarch64__)

/* The slot is loaded with acquire: a thread may come here while another one fills the slots (MPI_Initialized may be called at
   any time), and the wrapper uses what the resolver stored before. */

  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000000, 4, 1, 0   /* branch target identification */

  .text
#define ENTRY(name, slot)                              \
  .globl name;                                         \
  .type name, %function;                               \
  .balign 16;                                          \
name:                                                  \
  hint 34;                                            \
  adrp x16, resil_slots + 8 * slot;                    \
  add x16, x16, :lo12:resil_slots + 8 * slot;         \
  ldar x16, [x16];                                     \
  br x16;                                              \
  .size name, . - name;
#include "trampolines.inc"
#undef ENTRY

#define ENTRY(name, slot)                              \
  .balign 8;                                           \
.Llazy_##slot:                                         \
  hint 34;                                            \
  movz w17, slot;                                     \
  b .Lresolve;
#include "trampolines.inc"
#undef ENTRY

  .balign 16
.Lresolve:
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
  mov x1, x30
  bl resil_resolve
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

#else
#error "no trampolines for this architecture"
#endif

  .section .data.rel.resil_slots, "aw"
  .globl resil_slots
  .hidden resil_slots
  .hidden resil_resolve
  .balign 64
resil_slots:
#define ENTRY(name, slot) .quad .Llazy_##slot;
#include "trampolines.inc"

  .section .note.GNU-stack, "", %progbits
