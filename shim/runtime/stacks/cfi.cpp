// SPDX-License-Identifier: Apache-2.0
//
// Finds the frame description of a PC (.eh_frame_hdr is sorted), runs its program up to the PC, applies the row.
// After GCC's unwind-dw2.c in meaning, but every read is guarded and nothing is trusted. May touch: stacks and objects,
// read only.
#include "shim/runtime/stacks/cfi.h"

#include "shim/runtime/stacks/cfi_cursor.h"
#include "shim/runtime/stacks/cfi_expression.h"

namespace resil::stacks {
namespace {

#if defined(__aarch64__)
constexpr uint64_t kReturnColumn = 30;
#else
constexpr uint64_t kReturnColumn = 16;
#endif

constexpr uint8_t kTableEncoding = 0x3b;  // DW_EH_PE_datarel | DW_EH_PE_sdata4, what every linker writes

/// A frame description entry with what its common information entry says.
struct Description {
  uint64_t begin, length;  ///< code
  uint64_t program, program_end;  ///< instructions of this function
  uint64_t initial, initial_end;  ///< instructions that come first, shared
  uint64_t code_align;
  int64_t data_align;
  uint64_t return_column;
  uint8_t encoding;
  bool augmented;  ///< the entry carries a length of augmentation data
  bool signal_frame;
};

/// Binary search; returns the address of the description entry or 0.
uint64_t find_entry(Reader& reader, const Object& object, uint64_t pc) {
  const uint64_t index = object.eh_frame_hdr;
  uint8_t head[4];  // version, encodings of: address of .eh_frame, count, table
  if (index == 0 || !reader.load(index, &head) || head[0] != 1 || head[3] != kTableEncoding) return 0;
  Cursor cursor{reader, index + 4, index + 64};
  cursor.pointer(head[1], index);
  const uint64_t count = cursor.pointer(head[2], index);
  if (!cursor.ok || count == 0 || count > (uint64_t{1} << 28)) return 0;
  const uint64_t table = cursor.at;
  struct Pair {
    int32_t begin, entry;
  } pair;
  uint64_t low = 0;
  uint64_t high = count;
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    if (!reader.load(table + middle * sizeof pair, &pair)) return 0;
    (index + static_cast<uint64_t>(int64_t{pair.begin}) <= pc ? low : high) = middle;
  }
  if (!reader.load(table + low * sizeof pair, &pair)) return 0;
  return index + static_cast<uint64_t>(int64_t{pair.entry});
}

/// Reads the length field: returns the end of the entry, 0 when there is none.
uint64_t entry_end(Cursor& cursor) {
  uint64_t length = cursor.get<uint32_t>();
  if (length == 0xffffffff) {
    cursor.end += 8;
    length = cursor.get<uint64_t>();
  }
  if (!cursor.ok || length == 0 || length > (uint64_t{1} << 24)) return 0;
  return cursor.at + length;
}

bool read_common(Reader& reader, uint64_t address, Description* description) {
  Cursor cursor{reader, address, address + 12};
  cursor.end = entry_end(cursor);
  if (cursor.end == 0 || cursor.get<uint32_t>() != 0) return false;
  const auto version = cursor.get<uint8_t>();
  if (version != 1 && version != 3) return false;
  char augmentation[8] = {};
  for (unsigned i = 0;; ++i) {
    const auto c = cursor.get<char>();
    if (c == 0) break;
    if (i + 1 >= sizeof augmentation) return false;
    augmentation[i] = c;
  }
  description->code_align = cursor.uleb();
  description->data_align = cursor.sleb();
  description->return_column = version == 1 ? cursor.get<uint8_t>() : cursor.uleb();
  description->encoding = 0;
  description->signal_frame = false;
  description->augmented = augmentation[0] == 'z';
  if (augmentation[0] == 'z') {
    const uint64_t length = cursor.uleb();
    const uint64_t after = cursor.at + length;
    for (const char* letter = augmentation + 1; *letter != 0 && cursor.ok; ++letter) {
      if (*letter == 'R') description->encoding = cursor.get<uint8_t>();
      else if (*letter == 'L') cursor.get<uint8_t>();
      else if (*letter == 'P') cursor.pointer(cursor.get<uint8_t>(), 0);
      else if (*letter == 'S') description->signal_frame = true;
      else if (*letter != 'B') break;  // unknown: the length skips it
    }
    cursor.at = after;
  } else if (augmentation[0] != 0) {
    return false;
  }
  description->initial = cursor.at;
  description->initial_end = cursor.end;
  return cursor.ok && cursor.at <= cursor.end;
}

bool read_description(Reader& reader, const Object& object, uint64_t pc, Description* description) {
  const uint64_t entry = find_entry(reader, object, pc);
  if (entry == 0) return false;
  Cursor cursor{reader, entry, entry + 12};
  cursor.end = entry_end(cursor);
  if (cursor.end == 0) return false;
  const uint64_t field = cursor.at;
  const auto back = cursor.get<uint32_t>();
  if (!cursor.ok || back == 0 || !read_common(reader, field - back, description)) return false;
  description->begin = cursor.pointer(description->encoding, object.eh_frame_hdr);
  description->length = cursor.pointer(description->encoding & 0x0f, 0);
  if (!cursor.ok || pc < description->begin || pc - description->begin >= description->length) return false;
  if (description->augmented) cursor.skip(cursor.uleb());
  description->program = cursor.at;
  description->program_end = cursor.end;
  return cursor.ok && cursor.at <= cursor.end;
}

class Program {
 public:
  Program(Reader& reader, const Description& description, CfiWork& work)
      : reader_(reader), description_(description), work_(work), location_(description.begin) {}

  /// Runs the instructions that apply at or before `pc`.
  bool run(uint64_t begin, uint64_t end, uint64_t pc) {
    Cursor code{reader_, begin, end};
    while (code.more() && location_ <= pc) {
      if (!instruction(code)) return false;
    }
    return code.ok;
  }

 private:
  void rule(uint64_t number, RuleKind kind, uint64_t value) {
    if (number >= kRegisters) return;  // vector registers: nothing in an unwind depends on them
    work_.row.kinds[number] = kind;
    work_.row.values[number] = value;
  }
  void offset_rule(uint64_t number, uint64_t factored, RuleKind kind = RuleKind::kAtOffset) {
    rule(number, kind, factored * static_cast<uint64_t>(description_.data_align));
  }
  void restore(uint64_t number) {
    if (number < kRegisters) rule(number, work_.initial.kinds[number], work_.initial.values[number]);
  }
  void define_cfa(uint64_t number, uint64_t offset) {
    work_.row.cfa_register = static_cast<uint32_t>(number);
    work_.row.cfa_offset = offset;
    work_.row.cfa_expression = 0;
  }
  void expression_rule(Cursor& code, RuleKind kind) {
    const uint64_t number = code.uleb();
    rule(number, kind, code.at);
    code.skip(code.uleb());
  }

  bool instruction(Cursor& code);

  Reader& reader_;
  const Description& description_;
  CfiWork& work_;
  uint64_t location_;
  unsigned saved_ = 0;
};

bool Program::instruction(Cursor& code) {
  const auto op = code.get<uint8_t>();
  const uint64_t low = op & 0x3f;
  const auto align = static_cast<uint64_t>(description_.data_align);
  switch (op & 0xc0) {
    case 0x40: location_ += low * description_.code_align; return true;
    case 0x80: offset_rule(low, code.uleb()); return true;
    case 0xc0: restore(low); return true;
    default: break;
  }
  uint64_t number;
  switch (op) {
    case 0x00: break;
    case 0x01: location_ = code.pointer(description_.encoding, 0); break;
    case 0x02: location_ += code.get<uint8_t>() * description_.code_align; break;
    case 0x03: location_ += code.get<uint16_t>() * description_.code_align; break;
    case 0x04: location_ += code.get<uint32_t>() * description_.code_align; break;
    case 0x05:
      number = code.uleb();
      offset_rule(number, code.uleb());
      break;
    case 0x06: restore(code.uleb()); break;
    case 0x07: rule(code.uleb(), RuleKind::kUndefined, 0); break;
    case 0x08: rule(code.uleb(), RuleKind::kSame, 0); break;
    case 0x09:
      number = code.uleb();
      rule(number, RuleKind::kRegister, code.uleb());
      break;
    case 0x0a:
      if (saved_ == 2) return false;
      work_.saved[saved_++] = work_.row;
      break;
    case 0x0b:
      if (saved_ == 0) return false;
      work_.row = work_.saved[--saved_];
      break;
    case 0x0c:
      number = code.uleb();
      define_cfa(number, code.uleb());
      break;
    case 0x0d:
      work_.row.cfa_register = static_cast<uint32_t>(code.uleb());
      work_.row.cfa_expression = 0;
      break;
    case 0x0e: work_.row.cfa_offset = code.uleb(); break;
    case 0x0f:
      work_.row.cfa_expression = code.at;
      code.skip(code.uleb());
      break;
    case 0x10: expression_rule(code, RuleKind::kAtExpression); break;
    case 0x11:
      number = code.uleb();
      offset_rule(number, static_cast<uint64_t>(code.sleb()));
      break;
    case 0x12:
      number = code.uleb();
      define_cfa(number, static_cast<uint64_t>(code.sleb()) * align);
      break;
    case 0x13: work_.row.cfa_offset = static_cast<uint64_t>(code.sleb()) * align; break;
    case 0x14:
      number = code.uleb();
      offset_rule(number, code.uleb(), RuleKind::kIsOffset);
      break;
    case 0x15:
      number = code.uleb();
      offset_rule(number, static_cast<uint64_t>(code.sleb()), RuleKind::kIsOffset);
      break;
    case 0x16: expression_rule(code, RuleKind::kIsExpression); break;
    case 0x2d: break;  // AArch64: return address signed from here on; plain_address() removes the signature anyway
    case 0x2e: code.uleb(); break;  // size of pushed arguments
    case 0x2f:
      number = code.uleb();
      offset_rule(number, 0 - code.uleb());
      break;
    default: return false;
  }
  return code.ok;
}

bool apply(Reader& reader, const Registers& registers, uint64_t cfa, const Row& row, int number, uint64_t* value) {
  const uint64_t argument = row.values[number];
  switch (row.kinds[number]) {
    case RuleKind::kSame: *value = registers.r[number]; return true;
    case RuleKind::kUndefined: *value = 0; return true;
    case RuleKind::kAtOffset: return reader.load(cfa + argument, value);
    case RuleKind::kIsOffset: *value = cfa + argument; return true;
    case RuleKind::kRegister:
      if (argument >= kRegisters) return false;
      *value = registers.r[argument];
      return true;
    case RuleKind::kIsExpression: return evaluate(reader, argument, registers, true, cfa, value);
    case RuleKind::kAtExpression: {
      uint64_t address;
      return evaluate(reader, argument, registers, true, cfa, &address) && reader.load(address, value);
    }
  }
  return false;
}

}  // namespace

Step step_cfi(Reader& reader, const Object& object, Registers* registers, bool* exact, CfiWork* work) {
  const uint64_t pc = *exact ? registers->pc : registers->pc - 1;
  Description description{};
  if (!read_description(reader, object, pc, &description)) return Step::kNoInfo;
  if (description.return_column != kReturnColumn) return Step::kBroken;

  work->row = Row{};
  Program program(reader, description, *work);
  if (!program.run(description.initial, description.initial_end, ~uint64_t{0})) return Step::kBroken;
  work->initial = work->row;
  if (!program.run(description.program, description.program_end, pc)) return Step::kBroken;

  const Row& row = work->row;
  uint64_t cfa;
  if (row.cfa_expression != 0) {
    if (!evaluate(reader, row.cfa_expression, *registers, false, 0, &cfa)) return Step::kBroken;
  } else {
    if (row.cfa_register >= kRegisters) return Step::kBroken;
    cfa = registers->r[row.cfa_register] + row.cfa_offset;
  }
  if (row.kinds[kReturnColumn] == RuleKind::kUndefined) return Step::kOutermost;

  // A signal frame may lie on another stack; otherwise the stack only gets shorter on the way up. A leaf function of
  // AArch64 (first frame) may not have moved it.
  const uint64_t sp = registers->r[kStackRegister];
  if (!description.signal_frame && (cfa < sp || (cfa == sp && !*exact))) return Step::kBroken;

  work->next = Registers{};
  for (int i = 0; i < kRegisters; ++i) {
    if (apply(reader, *registers, cfa, row, i, &work->next.r[i])) continue;
    if (static_cast<uint64_t>(i) == kReturnColumn) return Step::kBroken;
    work->next.r[i] = 0;
  }
  if (row.kinds[kStackRegister] == RuleKind::kSame) work->next.r[kStackRegister] = cfa;
  work->next.pc = plain_address(work->next.r[kReturnColumn]);
  // Return address 0 ends the stacks of fibres, which carry no mark; in the innermost frame it is damage.
  if (work->next.pc == 0) return *exact ? Step::kBroken : Step::kOutermost;
  *registers = work->next;
  *exact = description.signal_frame;
  return Step::kUp;
}

}  // namespace resil::stacks
