// SPDX-License-Identifier: Apache-2.0
//
// Entry points: MPI_X and PMPI_X jump through one slot each. A slot first holds the address of a lazy stub, which
// calls resil_resolve(slot number, arguments, return address) once and jumps on (keep_arguments.cpp); the resolver fills
// all slots at once. No MPI function takes a floating-point argument (MPI_Pcontrol is not here).
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
.Lresolve:
  leaq resil_resolve(%rip), %r11
  jmp resil_keep_arguments

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
  adrp x16, resil_resolve
  add x16, x16, :lo12:resil_resolve
  b resil_keep_arguments

#else
#error "no trampolines for this architecture"
#endif

  .section .data.rel.resil_slots, "aw"
  .globl resil_slots
  .hidden resil_slots
  .hidden resil_resolve
  .hidden resil_keep_arguments
  .balign 64
resil_slots:
#define ENTRY(name, slot) .quad .Llazy_##slot;
#include "trampolines.inc"

  .section .note.GNU-stack, "", %progbits
