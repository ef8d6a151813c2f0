// SPDX-License-Identifier: Apache-2.0
//
// Stubs in front of functions of libc, one for each row of the table in sources.cpp. They know nothing of the function:
// arguments, stack and return address are left as they are. Async-signal-safe, no system call, no lock; three
// instructions and a jump. Where the arguments decide (files, system calls) a function looks at them first.

#include "checksum/record/sources.h"

extern "C" {
[[gnu::visibility("hidden")]] extern const char resil_source_stubs[];
[[gnu::visibility("hidden")]] extern const char resil_source_checks[];
}

namespace resil::record {

void* source_stub(unsigned index, bool checked) {
  return const_cast<char*>((checked ? resil_source_checks : resil_source_stubs) + 64 * index);
}

}  // namespace resil::record

#define FIVE(tens, a, b, c, d, e) STUB(tens a) STUB(tens b) STUB(tens c) STUB(tens d) STUB(tens e)
#define TEN(tens) FIVE(tens, "0", "1", "2", "3", "4") FIVE(tens, "5", "6", "7", "8", "9")
#define HUNDRED TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") TEN("6") TEN("7") TEN("8") TEN("9")

#if defined(__x86_64__)

asm(R"(
  .section .text.resil_source_stubs, "ax", @progbits
  .globl resil_source_stubs
  .hidden resil_source_stubs
  .type resil_source_stubs, @function
  .balign 64
resil_source_stubs:
)"
#define STUB(n)                             \
  ".balign 64\n"                            \
  "  endbr64\n"                             \
  "  incq resil_source_slots+32*" n         \
  "(%rip)\n"                                \
  "  cmpq $0, resil_source_slots+8+32*" n   \
  "(%rip)\n"                                \
  "  jne 1f\n"                              \
  "  movq (%rsp), %r11\n"                   \
  "  movq %r11, resil_source_slots+8+32*" n \
  "(%rip)\n"                                \
  "1: jmp *resil_source_slots+16+32*" n "(%rip)\n"
    HUNDRED R"(
  .size resil_source_stubs, . - resil_source_stubs
  .globl resil_source_checks
  .hidden resil_source_checks
  .type resil_source_checks, @function
  .balign 64
resil_source_checks:
)"
#undef STUB
#define STUB(n)  \
  ".balign 64\n" \
  "  endbr64\n"  \
  "  pushq $" n  \
  "\n"           \
  "  jmp .Lresil_check\n"
    HUNDRED R"(
  .balign 16
.Lresil_check:
  .cfi_startproc
  .cfi_def_cfa_offset 16
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %rax
  subq $8, %rsp
  .cfi_adjust_cfa_offset 64
  movq %rsi, %rdx
  movq %rdi, %rsi
  movq 64(%rsp), %rdi
  movq 72(%rsp), %rcx
  callq resil_source_checked
  movq %rax, %r11
  addq $8, %rsp
  popq %rax
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  addq $8, %rsp
  .cfi_adjust_cfa_offset -72
  jmp *%r11
  .cfi_endproc
  .size resil_source_checks, . - resil_source_checks
  .text
)");

#elif defined(__aarch64__)

asm(R"(
  .section .text.resil_source_stubs, "ax", @progbits
  .globl resil_source_stubs
  .hidden resil_source_stubs
  .type resil_source_stubs, %function
  .balign 64
resil_source_stubs:
)"
#define STUB(n)                                \
  ".balign 64\n"                               \
  "  hint 34\n"                                \
  "  adrp x16, resil_source_slots\n"           \
  "  add x16, x16, :lo12:resil_source_slots\n" \
  "  ldr x17, [x16, #32*" n                    \
  "]\n"                                        \
  "  add x17, x17, #1\n"                       \
  "  str x17, [x16, #32*" n                    \
  "]\n"                                        \
  "  ldr x17, [x16, #8+32*" n                  \
  "]\n"                                        \
  "  cbnz x17, 1f\n"                           \
  "  str x30, [x16, #8+32*" n                  \
  "]\n"                                        \
  "1: ldr x16, [x16, #16+32*" n                \
  "]\n"                                        \
  "  br x16\n"
    HUNDRED R"(
  .size resil_source_stubs, . - resil_source_stubs
  .globl resil_source_checks
  .hidden resil_source_checks
  .type resil_source_checks, %function
  .balign 64
resil_source_checks:
)"
#undef STUB
#define STUB(n)     \
  ".balign 64\n"    \
  "  hint 34\n"     \
  "  movz w17, #" n \
  "\n"              \
  "  b .Lresil_check\n"
    HUNDRED R"(
  .balign 16
.Lresil_check:
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
  mov x2, x1
  mov x1, x0
  mov w0, w17
  mov x3, x30
  bl resil_source_checked
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
  .size resil_source_checks, . - resil_source_checks
  .text
)");

#else
#error "no stubs for this architecture"
#endif
