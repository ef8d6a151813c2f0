// SPDX-License-Identifier: Apache-2.0
//
// What slots hold while a part of the job runs as the program's world (parts.h): each stub compares the arguments that are
// communicators with MPI_COMM_WORLD, puts the part's in its place, and jumps to what the slot held before. Arguments,
// stack and return address stay as the caller left them. Handles of 4 bytes have stubs of their own: what else is in
// their registers is undefined. Calls that parts.cpp looks at first are led there with their first six arguments
// (keep_arguments.cpp).
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
.Lprepare:
  leaq resil_parts_prepare(%rip), %r11
  jmp resil_keep_arguments

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
  adrp x16, resil_parts_prepare
  add x16, x16, :lo12:resil_parts_prepare
  b resil_keep_arguments

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
  .hidden resil_keep_arguments
  .balign 64
resil_parts_stubs:
#define PART(slot, count, first, second, first_looked_at) part slot, count, first, second, first_looked_at
#include "parts.inc"

  .section .note.GNU-stack, "", %progbits
