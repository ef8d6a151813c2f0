// SPDX-License-Identifier: Apache-2.0
//
// The module registry: linker section in, sorted lists out. Knows no module by name.

#include "shim/registry.h"

#include "shim/dispatch.h"
#include "shim/thread.h"

namespace resil {

Hooks hooks;
bool any_transform;

namespace {

const Module* enabled[kMaxModules];
size_t enabled_count;

}  // namespace

void registry_enable() {
  size_t enters = 0, leaves = 0, replaces = 0;
  enabled_count = 0;
  for (ModuleKind kind : {ModuleKind::kTransform, ModuleKind::kVerify, ModuleKind::kWatch})
    for (const Module* module : modules())
      if (module->kind == kind && enabled_count < kMaxModules && (module->enabled == nullptr || module->enabled()))
        enabled[enabled_count++] = module;
  for (size_t i = 0; i < enabled_count; ++i) {
    if (enabled[i]->enter != nullptr)
      hooks.enter[enters++] = enabled[i]->enter;
    if (enabled[i]->replace != nullptr)
      hooks.replace[replaces++] = enabled[i]->replace;
    any_transform = replaces != 0;
    if (enabled[enabled_count - 1 - i]->leave != nullptr)
      hooks.leave[leaves++] = enabled[enabled_count - 1 - i]->leave;
  }
}

std::span<const Module* const> enabled_modules() { return {enabled, enabled_count}; }

}  // namespace resil
