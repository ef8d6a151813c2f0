// SPDX-License-Identifier: Apache-2.0
//
// Finds the section that RESIL_MODULE fills. Nothing else.
#include "shim/call/module_list.h"

// The linker defines these two as soon as one module is linked in. Weak: a build without modules has neither.
// Hidden: another preloaded library that also is preloaded must not lend us its list.
extern "C" {
[[gnu::weak, gnu::visibility("hidden")]] extern const resil::Module* const __start_resil_modules[];
[[gnu::weak, gnu::visibility("hidden")]] extern const resil::Module* const __stop_resil_modules[];
}

namespace resil {

std::span<const Module* const> modules() {
  const Module* const* first = __start_resil_modules;
  const Module* const* last = __stop_resil_modules;
  // The addresses go through a register: the compiler would otherwise assume that two arrays never meet.
  asm("" : "+r"(first), "+r"(last));
  return {first, static_cast<size_t>(last - first)};
}

}  // namespace resil
