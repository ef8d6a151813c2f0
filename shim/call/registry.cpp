// SPDX-License-Identifier: Apache-2.0
//
// The module registry: linker section in, sorted lists out. Knows no module by name.

#include "shim/call/registry.h"

#include <initializer_list>

#include "shim/base/spinlock.h"
#include "shim/call/dispatch.h"
#include "shim/call/thread.h"

namespace resil {

Hooks hooks;
bool between[kCallCount];
bool status_one_by_one;
double (*time_hook)(Thread&, CallId, double);

namespace {

const Module* enabled[kMaxModules];
size_t enabled_count;

enum class Sleepers : bool { kIn, kLeaveOut };

bool is_between(const Module& module, CallId id) {
  return (module.before_call != nullptr || module.replace != nullptr || module.after_call != nullptr) &&
         (module.between == nullptr || module.between(id));
}

template <class Hook>
uint32_t collect(Hook Module::*hook, Hook* list, bool reverse, uint8_t* cookies = nullptr,
                 Sleepers sleepers = Sleepers::kIn) {
  uint32_t count = 0;
  for (size_t i = 0; i < enabled_count; ++i) {
    const Module& module = *enabled[reverse ? enabled_count - 1 - i : i];
    if (module.*hook == nullptr || (sleepers == Sleepers::kLeaveOut && &module == hooks.sleeper)) continue;
    if (cookies != nullptr) cookies[count] = static_cast<uint8_t>(module.cookie);
    list[count++] = module.*hook;
  }
  list[count] = nullptr;
  return count;
}

/// In order of kind, and within a kind first those that decide.
void collect_replace(bool (**list)(Event&)) {
  for (ModuleKind kind : {ModuleKind::kTransform, ModuleKind::kVerify, ModuleKind::kWatch})
    for (bool decides : {true, false})
      for (size_t i = 0; i < enabled_count; ++i)
        if (const Module* module = enabled[i];
            module->kind == kind && module->decides == decides && module->replace != nullptr && module != hooks.sleeper)
          *list++ = module->replace;
  *list = nullptr;
}

}  // namespace

void registry_enable() {
  enabled_count = 0;
  for (ModuleKind kind : {ModuleKind::kTransform, ModuleKind::kVerify, ModuleKind::kWatch})
    for (const Module* module : modules())
      if (module->kind == kind && enabled_count < kMaxModules && (module->enabled == nullptr || module->enabled()))
        enabled[enabled_count++] = module;
  hooks.sleeper = nullptr;
  for (const Module* module : enabled_modules())
    if (module->sleeps_through != nullptr) hooks.sleeper = module;
  const bool sleeps = hooks.sleeper != nullptr;
  hooks.first_enter = sleeps ? 1 : 0;
  if (sleeps) hooks.enter[0] = hooks.sleeper->enter;
  collect(&Module::enter, hooks.enter + hooks.first_enter, false, nullptr, Sleepers::kLeaveOut);
  collect(&Module::leave, hooks.leave, true, nullptr, Sleepers::kLeaveOut);
  collect(&Module::before_call, hooks.before_call, false);
  const bool replaces = sleeps && hooks.sleeper->replace != nullptr;
  if (replaces) hooks.replace[0] = hooks.sleeper->replace;
  collect_replace(hooks.replace + replaces);
  collect(&Module::after_call, hooks.after_call, true);
  collect(&Module::progress, hooks.progress, false);
  if (sleeps) {
    hooks.activating[0] = hooks.sleeper->activating;
    hooks.activating_cookie[0] = static_cast<uint8_t>(hooks.sleeper->cookie);
  }
  collect(&Module::activating, hooks.activating + sleeps, false, hooks.activating_cookie + sleeps, Sleepers::kLeaveOut);
  collect(&Module::activated, hooks.activated, false, hooks.activated_cookie);
  const uint32_t behind = collect(&Module::completed, hooks.completed, false, hooks.completed_cookie) + 1;
  collect(&Module::completed, hooks.completed + behind, false, hooks.completed_cookie + behind, Sleepers::kLeaveOut);
  hooks.first_completed = sleeps ? behind : 0;
  time_hook = nullptr;
  for (const Module* module : enabled_modules())
    if (module->time != nullptr && module->times()) time_hook = module->time;
  status_one_by_one = false;
  for (const Module* module : enabled_modules())
    status_one_by_one = status_one_by_one || (module != hooks.sleeper && module->asks_status);
  for (unsigned id = 0; id < kCallCount; ++id) {
    between[id] = false;
    for (const Module* module : enabled_modules())
      between[id] = between[id] || (module != hooks.sleeper && is_between(*module, static_cast<CallId>(id)));
  }
}

void registry_wake() {
  static SpinLock lock;
  SpinGuard guard(lock);
  if (awake()) return;
  for (unsigned id = 0; id < kCallCount; ++id)
    if (is_between(*hooks.sleeper, static_cast<CallId>(id))) __atomic_store_n(&between[id], true, __ATOMIC_RELAXED);
  if (hooks.sleeper->asks_status) __atomic_store_n(&status_one_by_one, true, __ATOMIC_RELAXED);
  auto* last = hooks.leave;
  while (*last != nullptr) ++last;
  __atomic_store_n(last, hooks.sleeper->leave, __ATOMIC_RELEASE);
  __atomic_store_n(&hooks.first_completed, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&hooks.first_enter, 0, __ATOMIC_RELEASE);
}

std::span<const Module* const> enabled_modules() { return {enabled, enabled_count}; }

}  // namespace resil
