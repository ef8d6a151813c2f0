// SPDX-License-Identifier: Apache-2.0
//
// The registers of one frame, in DWARF numbering, and how they come out of a signal context. May touch: nothing.
#pragma once

#include <ucontext.h>

#include <cstdint>

namespace resil::stacks {

#if defined(__x86_64__)
constexpr int kRegisters = 17;  ///< rax rdx rcx rbx rsi rdi rbp rsp r8..r15, return address
constexpr int kFrameRegister = 6;
constexpr int kStackRegister = 7;
#elif defined(__aarch64__)
constexpr int kRegisters = 32;  ///< x0..x30, sp
constexpr int kFrameRegister = 29;
constexpr int kStackRegister = 31;
constexpr int kLinkRegister = 30;
#endif

struct Registers {
  uint64_t r[kRegisters];
  uint64_t pc;
};

inline Registers registers_of(const ucontext_t& context) {
  Registers registers{};
#if defined(__x86_64__)
  constexpr int kOrder[16] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  for (int i = 0; i < 16; ++i) registers.r[i] = static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[i]]);
  registers.pc = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  for (int i = 0; i < 31; ++i) registers.r[i] = context.uc_mcontext.regs[i];
  registers.r[kStackRegister] = context.uc_mcontext.sp;
  registers.pc = context.uc_mcontext.pc;
#endif
  return registers;
}

/// A return address as the hardware would use it: pointer authentication puts a signature into the upper bits.
inline uint64_t plain_address(uint64_t address) {
#if defined(__aarch64__)
  return address & ((uint64_t{1} << 48) - 1);
#else
  return address;
#endif
}

}  // namespace resil::stacks
