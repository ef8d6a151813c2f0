// SPDX-License-Identifier: Apache-2.0
//
// The module registry: linker section in, sorted lists out. Knows no module by name.

#include "shim/registry.h"

#include "shim/dispatch.h"
#include "shim/thread.h"

namespace resil {

Hooks hooks;
bool between[kCallCount];
double (*time_hook)(Thread&, CallId, double);

namespace {

const Module* enabled[kMaxModules];
size_t enabled_count;

template <class Hook>
void collect(Hook Module::*hook, Hook* list, bool reverse, uint8_t* cookies = nullptr) {
  size_t count = 0;
  for (size_t i = 0; i < enabled_count; ++i) {
    const Module& module = *enabled[reverse ? enabled_count - 1 - i : i];
    if (module.*hook == nullptr)
      continue;
    if (cookies != nullptr)
      cookies[count] = static_cast<uint8_t>(module.cookie);
    list[count++] = module.*hook;
  }
  list[count] = nullptr;
}

}  // namespace

void registry_enable() {
  enabled_count = 0;
  for (ModuleKind kind : {ModuleKind::kTransform, ModuleKind::kVerify, ModuleKind::kWatch})
    for (const Module* module : modules())
      if (module->kind == kind && enabled_count < kMaxModules && (module->enabled == nullptr || module->enabled()))
        enabled[enabled_count++] = module;
  collect(&Module::enter, hooks.enter, false);
  collect(&Module::leave, hooks.leave, true);
  collect(&Module::before_call, hooks.before_call, false);
  collect(&Module::replace, hooks.replace, false);
  collect(&Module::after_call, hooks.after_call, true);
  collect(&Module::activating, hooks.activating, false, hooks.activating_cookie);
  collect(&Module::activated, hooks.activated, false, hooks.activated_cookie);
  collect(&Module::completed, hooks.completed, false, hooks.completed_cookie);
  time_hook = nullptr;
  for (const Module* module : enabled_modules())
    if (module->time != nullptr && module->times())
      time_hook = module->time;
  for (unsigned id = 0; id < kCallCount; ++id) {
    between[id] = false;
    for (const Module* module : enabled_modules())
      if (module->before_call != nullptr || module->replace != nullptr || module->after_call != nullptr)
        between[id] = between[id] || module->between == nullptr || module->between(static_cast<CallId>(id));
  }
}

std::span<const Module* const> enabled_modules() { return {enabled, enabled_count}; }

}  // namespace resil
