// SPDX-License-Identifier: Apache-2.0
//
// The modules of this library, as the linker collected them, and the hooks of those that take part in this run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/call/module_list.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"
#include "shim/model/event.h"

namespace resil {

/// Asks every module whether it takes part, and builds the hook lists in the order of the stages (stages.h). Once,
/// before the first hook is called.
void registry_enable();

/// Hook lists of the call path: null-terminated, of the modules that are not dormant.
struct Hooks {
  void (*enter[kMaxModules + 1])(Event&);
  void (*leave[kMaxModules + 1])(Event&);
  void (*before_call[kMaxModules + 1])(Event&);
  bool (*execute_instead[kMaxModules + 1])(Event&);
  void (*after_call[kMaxModules + 1])(Event&);
  void (*activating[kMaxModules + 1])(Event&, uint64_t*);
  void (*activated[kMaxModules + 1])(Event&, uint64_t*);
  void (*completed[kMaxModules + 1])(Event&, int64_t, uint64_t*, bool);
  uint8_t activating_word[kMaxModules + 1], activated_word[kMaxModules + 1],
      completed_word[kMaxModules + 1];  ///< whose word each one is given
  bool (*fast[kMaxModules + 1])(Event&, SiteEntry&);
  uint8_t fast_kinds;  ///< for which each module with a hook around calls has one of these (fast_calls.h)
  bool statuses_wanted;  ///< somebody reads the statuses of completion calls
  LocalWay (*local_enter)(Thread&, LocalData&);  ///< null: nobody looks at local calls
  int (*local_leave)(Thread&, LocalData&, int result, int64_t packed);
};
/// The lists that hold now: the first ones until a dormant module is activated, then the second ones.
extern Hooks hook_lists[2];
extern const Hooks* current_hooks;
inline const Hooks& hooks() { return *__atomic_load_n(&current_hooks, __ATOMIC_ACQUIRE); }

/// The module that is dormant; null: none is, any more. Application's threads.
extern const Module* dormant;
inline bool is_dormant(const Module& module) { return __atomic_load_n(&dormant, __ATOMIC_RELAXED) == &module; }
/// The dormant module's hooks are called from now on. Any thread, inside a call, also while others are in theirs.
void registry_activate();

/// Calls `hook` of every module that takes part and has it, in the order of the stages (or in reverse).
template <class Hook, class... A>
void run_hooks(Hook Module::*hook, A&&... arguments);
template <class Hook, class... A>
void run_hooks_reverse(Hook Module::*hook, A&&... arguments);

std::span<const Module* const> enabled_modules();

/// From now on only these stages' modules see calls: the process carries out none. Inside MPI_Init.
void registry_mute(bool (*keeps)(Stage));

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
