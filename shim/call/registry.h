// SPDX-License-Identifier: Apache-2.0
//
// The modules of this library, as the linker collected them, and the hooks of those that take part in this run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/call/event.h"
#include "shim/call/module_list.h"
#include "shim/model/calls.h"

namespace resil {

/// Asks every module whether it takes part, and builds the hook lists in the order of the stages (stages.h). Once,
/// before the first hook is called.
void registry_enable();

/// Hook lists of the call path: null-terminated.
struct Hooks {
  void (*enter[18])(Event&);
  void (*leave[18])(Event&);
  void (*before_call[17])(Event&);
  bool (*replace[18])(Event&);
  void (*after_call[17])(Event&);
  void (*activating[18])(Event&, uint64_t*);
  void (*activated[17])(Event&, uint64_t*);
  void (*completed[35])(Event&, int64_t, uint64_t*, bool);  ///< two lists: of all modules, and without the sleeper
  uint32_t
      first_enter;  ///< 1: the sleeper's hook, which comes first in the lists `enter` and `activating`, is left out
  uint32_t first_completed;  ///< where the list that holds now begins
  const Module* sleeper;  ///< module that has `sleeps_through`, null: none
  uint8_t activating_cookie[18], activated_cookie[17], completed_cookie[35];  ///< whose word each one is given
};
extern Hooks hooks;

/// The sleeper's hooks are called from now on. Any thread, inside a call, also while others are in theirs.
void registry_wake();
inline bool awake() { return __atomic_load_n(&hooks.first_enter, __ATOMIC_RELAXED) == 0; }

/// Calls `hook` of every module that takes part and has it, in the order of the stages (or in reverse).
template <class Hook, class... A>
void run_hooks(Hook Module::*hook, A&&... arguments);
template <class Hook, class... A>
void run_hooks_reverse(Hook Module::*hook, A&&... arguments);

std::span<const Module* const> enabled_modules();

template <class Hook, class... A>
void run_hooks(Hook Module::*hook, A&&... arguments) {
  for (const Module* module : enabled_modules())
    if (module->*hook != nullptr) (module->*hook)(arguments...);
}

template <class Hook, class... A>
void run_hooks_reverse(Hook Module::*hook, A&&... arguments) {
  auto all = enabled_modules();
  for (size_t i = all.size(); i-- > 0;)
    if (all[i]->*hook != nullptr) (all[i]->*hook)(arguments...);
}

}  // namespace resil
