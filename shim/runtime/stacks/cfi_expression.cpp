// SPDX-License-Identifier: Apache-2.0
//
// A stack machine of 16 entries. Operations that unwind rules never use fail the evaluation instead of being guessed.
// May touch: the stack, read only.
#include "shim/runtime/stacks/cfi_expression.h"

#include "shim/runtime/stacks/cfi_cursor.h"

namespace resil::stacks {
namespace {

enum Operation : uint8_t {
  kAddr = 0x03,
  kDeref = 0x06,
  kConst1u = 0x08,
  kConst1s = 0x09,
  kConst2u = 0x0a,
  kConst2s = 0x0b,
  kConst4u = 0x0c,
  kConst4s = 0x0d,
  kConst8u = 0x0e,
  kConst8s = 0x0f,
  kConstu = 0x10,
  kConsts = 0x11,
  kDup = 0x12,
  kDrop = 0x13,
  kOver = 0x14,
  kSwap = 0x16,
  kAnd = 0x1a,
  kMinus = 0x1c,
  kMul = 0x1e,
  kNeg = 0x1f,
  kNot = 0x20,
  kOr = 0x21,
  kPlus = 0x22,
  kPlusUconst = 0x23,
  kShl = 0x24,
  kShr = 0x25,
  kShra = 0x26,
  kXor = 0x27,
  kBra = 0x28,
  kEq = 0x29,
  kGe = 0x2a,
  kGt = 0x2b,
  kLe = 0x2c,
  kLt = 0x2d,
  kNe = 0x2e,
  kSkip = 0x2f,
  kLit0 = 0x30,
  kBreg0 = 0x70,
  kBregx = 0x92,
  kNop = 0x96,
};

constexpr int kDepth = 16;
constexpr int kMostOperations = 256;  // ends loops

struct Machine {
  uint64_t entries[kDepth];
  int depth = 0;
  bool ok = true;

  void push(uint64_t value) {
    if (depth == kDepth) {
      ok = false;
    } else {
      entries[depth++] = value;
    }
  }
  uint64_t pop() {
    if (depth == 0) {
      ok = false;
      return 0;
    }
    return entries[--depth];
  }
};

uint64_t shift_right(int64_t value, uint64_t by) { return static_cast<uint64_t>(value >> (by < 63 ? by : 63)); }

/// Operations on the two topmost entries. False: not one of them.
bool binary(uint8_t operation, Machine& machine) {
  const bool known = operation == kAnd || operation == kMinus || operation == kMul || operation == kOr ||
                     operation == kPlus || (operation >= kShl && operation <= kXor) ||
                     (operation >= kEq && operation <= kNe);
  if (!known) return false;
  const uint64_t b = machine.pop();
  const uint64_t a = machine.pop();
  const auto sa = static_cast<int64_t>(a);
  const auto sb = static_cast<int64_t>(b);
  switch (operation) {
    case kAnd: machine.push(a & b); break;
    case kMinus: machine.push(a - b); break;
    case kMul: machine.push(a * b); break;
    case kOr: machine.push(a | b); break;
    case kPlus: machine.push(a + b); break;
    case kShl: machine.push(b < 64 ? a << b : 0); break;
    case kShr: machine.push(b < 64 ? a >> b : 0); break;
    case kShra: machine.push(shift_right(sa, b)); break;
    case kXor: machine.push(a ^ b); break;
    case kEq: machine.push(sa == sb); break;
    case kGe: machine.push(sa >= sb); break;
    case kGt: machine.push(sa > sb); break;
    case kLe: machine.push(sa <= sb); break;
    case kLt: machine.push(sa < sb); break;
    default: machine.push(sa != sb); break;
  }
  return true;
}

/// Operations that push a constant. False: not one of them.
bool constant(uint8_t operation, Cursor& code, Machine& machine) {
  if (operation >= kLit0 && operation < kLit0 + 32) {
    machine.push(operation - kLit0);
    return true;
  }
  switch (operation) {
    case kAddr:
    case kConst8u:
    case kConst8s: machine.push(code.get<uint64_t>()); return true;
    case kConst1u: machine.push(code.get<uint8_t>()); return true;
    case kConst1s: machine.push(static_cast<uint64_t>(int64_t{code.get<int8_t>()})); return true;
    case kConst2u: machine.push(code.get<uint16_t>()); return true;
    case kConst2s: machine.push(static_cast<uint64_t>(int64_t{code.get<int16_t>()})); return true;
    case kConst4u: machine.push(code.get<uint32_t>()); return true;
    case kConst4s: machine.push(static_cast<uint64_t>(int64_t{code.get<int32_t>()})); return true;
    case kConstu: machine.push(code.uleb()); return true;
    case kConsts: machine.push(static_cast<uint64_t>(code.sleb())); return true;
    default: return false;
  }
}

void push_register(const Registers& registers, uint64_t number, int64_t offset, Machine& machine) {
  if (number >= kRegisters) {
    machine.ok = false;
    return;
  }
  machine.push(registers.r[number] + static_cast<uint64_t>(offset));
}

void other(uint8_t operation, Cursor& code, uint64_t begin, const Registers& registers, Machine& machine) {
  if (operation >= kBreg0 && operation < kBreg0 + 32) {
    push_register(registers, operation - kBreg0, code.sleb(), machine);
    return;
  }
  switch (operation) {
    case kBregx: {
      const uint64_t number = code.uleb();
      push_register(registers, number, code.sleb(), machine);
      break;
    }
    case kDeref: {
      uint64_t value = 0;
      machine.ok = code.reader.load(machine.pop(), &value) && machine.ok;
      machine.push(value);
      break;
    }
    case kDup:
    case kOver: {
      const int below = operation == kDup ? 1 : 2;
      if (machine.depth < below) machine.ok = false;
      else machine.push(machine.entries[machine.depth - below]);
      break;
    }
    case kDrop: machine.pop(); break;
    case kSwap: {
      const uint64_t a = machine.pop();
      const uint64_t b = machine.pop();
      machine.push(a);
      machine.push(b);
      break;
    }
    case kNeg: machine.push(0 - machine.pop()); break;
    case kNot: machine.push(~machine.pop()); break;
    case kPlusUconst: machine.push(machine.pop() + code.uleb()); break;
    case kSkip:
    case kBra: {
      const auto distance = static_cast<uint64_t>(int64_t{code.get<int16_t>()});
      if (operation == kBra && machine.pop() == 0) break;
      code.at += distance;
      if (code.at < begin || code.at > code.end) machine.ok = false;
      break;
    }
    case kNop: break;
    default: machine.ok = false;
  }
}

}  // namespace

bool evaluate(Reader& reader, uint64_t expression, const Registers& registers, bool push_cfa, uint64_t cfa,
              uint64_t* result) {
  Cursor code{reader, expression, expression + 16};
  const uint64_t length = code.uleb();
  if (!code.ok || length > 4096) return false;
  const uint64_t begin = code.at;
  code.end = begin + length;
  Machine machine;
  if (push_cfa) machine.push(cfa);
  for (int i = 0; code.more() && machine.ok; ++i) {
    if (i == kMostOperations) return false;
    const auto operation = code.get<uint8_t>();
    if (!binary(operation, machine) && !constant(operation, code, machine)) {
      other(operation, code, begin, registers, machine);
    }
  }
  *result = machine.pop();
  return code.ok && machine.ok;
}

}  // namespace resil::stacks
