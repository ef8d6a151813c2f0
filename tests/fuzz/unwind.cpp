// SPDX-License-Identifier: Apache-2.0
//
// What a dump reads of loaded objects: unwind tables and dynamic symbol tables. The tables lie at a fixed address, so
// that an input means the same in every run; everything around them is unmapped. The sources under test are compiled
// into this file, with a loader of its own that knows one object: the input.
#include <sys/mman.h>

#include <initializer_list>

#include "fuzz.h"
#include "shim/runtime/stacks/cfi.cpp"
#include "shim/runtime/stacks/cfi_expression.cpp"
#include "shim/runtime/stacks/memory.cpp"
#include "shim/runtime/stacks/symbols.cpp"
#include "shim/runtime/stacks/unwind.cpp"

namespace {

constexpr uint64_t kBase = 0x200000000000, kBytes = 1 << 16;

}  // namespace

namespace resil::stacks {

bool find_object(uint64_t address, Object* object) {
  if (address < kBase || address >= kBase + kBytes) return false;
  *object = {kBase, kBase + kBytes, kBase, kBase + 0x8000, kBase, 0};
  return true;
}

void object_path(const Object&, Reader&, char* path, size_t capacity) { snprintf(path, capacity, "/opt/libfuzz.so"); }

}  // namespace resil::stacks

namespace fuzz {

namespace {

using namespace resil::stacks;

uint8_t* object_memory() {
  static uint8_t* const memory = [] {
    must(prepare_memory(), "reads can be guarded");
    void* made = mmap(reinterpret_cast<void*>(kBase), kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    must(made == reinterpret_cast<void*>(kBase), "the object's address is free");
    return static_cast<uint8_t*>(made);
  }();
  return memory;
}

/// The input behind its head, from the object's start on; what was there is gone.
void load(Input& in, uint64_t at) {
  static size_t used;
  uint8_t* memory = object_memory();
  memset(memory, 0, used);
  used = at + in.take(memory + at, kBytes - at);
}

}  // namespace

/// Index of the unwind table at the object's start; the stack is its second half.
void unwind(const uint8_t* data, size_t size) {
  static UnwindWork work;
  static Stack stack;
  Input in(data, size);
  work.registers = {};
  work.registers.pc = kBase + in.get<uint16_t>();
  for (const int number : {kStackRegister, kFrameRegister, 3, 12})
    work.registers.r[number] = kBase + in.get<uint16_t>();
  load(in, 0);
  resil::stacks::unwind(&work, &stack);
  must(stack.total >= 1 && stack.total <= kMostSteps + 1, "a walk ends");
  must(stack.end <= StackEnd::kTooDeep, "a walk says how it ended");
}

/// Dynamic section at 0x8000 of the object, where the input begins.
void symbols(const uint8_t* data, size_t size) {
  static Symbols names;
  Input in(data, size);
  const uint64_t address = kBase + in.get<uint16_t>();
  const auto flags = in.get<uint8_t>();
  load(in, 0x8000);
  names.reset();
  if ((flags & 1) != 0) names.limit_names(flags / 2);
  char room[4096];
  resil::SafeText text(room, sizeof(room), -1);
  for (const uint64_t at : {address, address + 1, address}) {
    names.put(text, at, (flags & 2) != 0);
    names.put_site(text, at);
  }
  names.put_objects(text);
  must(text.size() <= sizeof(room), "text fits");
  for (size_t i = 0; i < text.size(); ++i)
    must(static_cast<unsigned char>(room[i]) >= ' ' || room[i] == '\n', "text can be shown");
}

}  // namespace fuzz
