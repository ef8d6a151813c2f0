// SPDX-License-Identifier: Apache-2.0
//
// What slots hold while a part of the job runs as the program's world (parts.h): each stub compares the arguments that are
// communicators with MPI_COMM_WORLD, puts the part's in its place, and jumps to what the slot held before. Arguments,
// stack and return address stay as the caller left them. Handles of 4 bytes have stubs of their own: what else is in
// their registers is undefined. Calls that parts.cpp looks at first are led there with their first six arguments.
#if defined(__x86_64__)

  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000002, 4, 3, 0

#define IN_REGISTER(number, r64, r32)      \
  .if \arg == number;                      \
  .if \wide;                               \
  cmpq resil_parts_world(%rip), r64;       \
  jne 9f;                                  \
  movq resil_parts_comm(%rip), r64;        \
  .else;                                   \
  cmpl resil_parts_world(%rip), r32;       \
  jne 9f;                                  \
  movl resil_parts_comm(%rip), r32;        \
  .endif;                                  \
  .endif;

.macro swap wide, arg
  IN_REGISTER(0, %rdi, %edi)
  IN_REGISTER(1, %rsi, %esi)
  IN_REGISTER(2, %rdx, %edx)
  IN_REGISTER(3, %rcx, %ecx)
  IN_REGISTER(4, %r8, %r8d)
  IN_REGISTER(5, %r9, %r9d)
  .if \arg > 5
  .if \wide
  movq 8*(\arg-5)(%rsp), %r11
  cmpq resil_parts_world(%rip), %r11
  jne 9f
  movq resil_parts_comm(%rip), %r11
  movq %r11, 8*(\arg-5)(%rsp)
  .else
  movl 8*(\arg-5)(%rsp), %r11d
  cmpl resil_parts_world(%rip), %r11d
  jne 9f
  movl resil_parts_comm(%rip), %r11d
  movl %r11d, 8*(\arg-5)(%rsp)
  .endif
  .endif
9:
.endm

.macro stub slot, wide, count, first, second
  .balign 16
  endbr64
  swap \wide, \first
  .if \count > 1
  swap \wide, \second
  .endif
  jmp *(resil_parts_inner + 8*\slot)(%rip)
.endm

.macro prepared slot
  .balign 16
  endbr64
  pushq $\slot
  jmp .Lprepare
.endm

  .text
  .balign 16
.Lprepare:                 /* stack: slot number, return address; 16-byte aligned here */
  .cfi_startproc
  .cfi_def_cfa_offset 16
  pushq %r9
  pushq %r8
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  .cfi_adjust_cfa_offset 48
  movl 48(%rsp), %edi
  movq %rsp, %rsi
  callq resil_parts_prepare
  movq %rax, %r11
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %r8
  popq %r9
  addq $8, %rsp
  .cfi_adjust_cfa_offset -56
  jmp *%r11
  .cfi_endproc

#elif defined(__aarch64__)

  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000000, 4, 1, 0

.macro load to, from
  adrp x16, \from
  ldr \to, [x16, :lo12:\from]
.endm

.macro swap wide, arg
  .if \arg < 8
  .if \wide
  load x17, resil_parts_world
  cmp x\arg, x17
  b.ne 9f
  load x\arg, resil_parts_comm
  .else
  load w17, resil_parts_world
  cmp w\arg, w17
  b.ne 9f
  load w\arg, resil_parts_comm
  .endif
  .else
  .if \wide
  load x17, resil_parts_world
  ldr x16, [sp, #8*(\arg-8)]
  cmp x16, x17
  b.ne 9f
  load x17, resil_parts_comm
  str x17, [sp, #8*(\arg-8)]
  .else
  load w17, resil_parts_world
  ldr w16, [sp, #8*(\arg-8)]
  cmp w16, w17
  b.ne 9f
  load w17, resil_parts_comm
  str w17, [sp, #8*(\arg-8)]
  .endif
  .endif
9:
.endm

.macro stub slot, wide, count, first, second
  .balign 16
  hint 34
  swap \wide, \first
  .if \count > 1
  swap \wide, \second
  .endif
  adrp x16, resil_parts_inner + 8*\slot
  ldr x16, [x16, :lo12:resil_parts_inner + 8*\slot]
  br x16
.endm

.macro prepared slot
  .balign 16
  hint 34
  movz w17, \slot
  b .Lprepare
.endm

  .text
  .balign 16
.Lprepare:
  .cfi_startproc
  stp x29, x30, [sp, #-96]!
  .cfi_adjust_cfa_offset 96
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  mov w0, w17
  add x1, sp, #16
  bl resil_parts_prepare
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldp x29, x30, [sp], #96
  .cfi_adjust_cfa_offset -96
  br x16
  .cfi_endproc

#else
#error "no stubs for this architecture"
#endif

/* The stubs, and where they are: by slot, handles of 4 bytes, of 8, and what is looked at first. 0: none. */
.macro part slot, count, first, second, first_looked_at
  .text
  .if \count
  .balign 16
.Lnarrow_\slot:
  stub \slot, 0, \count, \first, \second
  .balign 16
.Lwide_\slot:
  stub \slot, 1, \count, \first, \second
  .endif
  .if \first_looked_at
  .balign 16
.Lprepared_\slot:
  prepared \slot
  .endif
  .section .data.rel.ro.resil_parts, "aw"
  .if \count
  .quad .Lnarrow_\slot, .Lwide_\slot
  .else
  .quad 0, 0
  .endif
  .if \first_looked_at
  .quad .Lprepared_\slot
  .else
  .quad 0
  .endif
.endm

  .section .data.rel.ro.resil_parts, "aw"
  .globl resil_parts_stubs
  .hidden resil_parts_stubs
  .hidden resil_parts_inner
  .hidden resil_parts_world
  .hidden resil_parts_comm
  .hidden resil_parts_prepare
  .balign 64
resil_parts_stubs:
#define PART(slot, count, first, second, first_looked_at) part slot, count, first, second, first_looked_at
#include "parts.inc"

  .section .note.GNU-stack, "", %progbits
