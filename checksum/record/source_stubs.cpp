// SPDX-License-Identifier: Apache-2.0
//
// Stubs in front of functions of libc, one for each row of the table in sources.cpp. They know nothing of the function:
// arguments, stack and return address are left as they are. Async-signal-safe, no system call, no lock; three
// instructions and a jump. Where the arguments decide (files, system calls) a function looks at them first
// (shim/call/keep_arguments.cpp).

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
  leaq resil_source_checked(%rip), %r11
  jmp resil_keep_arguments
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
  adrp x16, resil_source_checked
  add x16, x16, :lo12:resil_source_checked
  b resil_keep_arguments
  .size resil_source_checks, . - resil_source_checks
  .text
)");

#else
#error "no stubs for this architecture"
#endif
