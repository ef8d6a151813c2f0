// SPDX-License-Identifier: Apache-2.0
//
// The module registry: linker section in, lists in the order of the stages out. Knows no module by name.

#include "shim/call/registry.h"

#include <cstring>

#include "shim/base/spinlock.h"
#include "shim/call/dispatch.h"
#include "shim/call/thread.h"
#include "shim/runtime/progress.h"
#include "shim/tables/tables.h"

namespace resil {

Hooks hook_lists[2];
const Hooks* current_hooks = &hook_lists[0];
const Module* dormant;
uint8_t intercepted[kCallCount];
bool status_one_by_one;
double (*time_hook)(Thread&, CallId, double);

namespace {

const Module* enabled[kMaxModules];
size_t enabled_count;
bool (*seeing)(Stage);  // whose modules see calls; null: all

bool intercepts(const Module& module, CallId id) {
  return (module.before_call != nullptr || module.execute_instead != nullptr || module.after_call != nullptr) &&
         (module.intercepts == nullptr || module.intercepts(id));
}

/// The place of a stage in kInward.
unsigned place_of(const Module& module) {
  unsigned place = 0;
  for (Stage stage : kInward) {
    if (stage == module.stage) break;
    ++place;
  }
  return place;
}

/// By stage, within a stage by name.
bool comes_before(const Module& a, const Module& b) {
  const unsigned place = place_of(a), other = place_of(b);
  return place != other ? place < other : strcmp(a.name, b.name) < 0;
}

void add_enabled(const Module* module) {
  size_t at = enabled_count++;
  for (; at > 0 && comes_before(*module, *enabled[at - 1]); --at) enabled[at] = enabled[at - 1];
  enabled[at] = module;
}

bool sees(const Module& module) { return seeing == nullptr || seeing(module.stage); }

/// A hook of those modules that have it, in this order.
template <class Hook>
uint32_t collect(Hook Module::*hook, Hook* list, const StageOrder& order, const Module* left_out = nullptr,
                 uint8_t* words = nullptr) {
  uint32_t count = 0;
  for (Stage stage : order)
    for (const Module* module : enabled_modules()) {
      if (module->stage != stage || module->*hook == nullptr || module == left_out || !sees(*module)) continue;
      if (words != nullptr) words[count] = static_cast<uint8_t>(request_word(stage));
      list[count++] = module->*hook;
    }
  list[count] = nullptr;
  return count;
}

/// Likewise on the way out.
template <class Hook>
void collect_outward(Hook Module::*hook, Hook* list, const Module* left_out) {
  const uint32_t count = collect(hook, list, kInward, left_out);
  for (uint32_t i = 0; i < count / 2; ++i) {
    Hook first = list[i];
    list[i] = list[count - 1 - i];
    list[count - 1 - i] = first;
  }
}

bool sees_calls(const Module& module) {
  return module.enter != nullptr || module.leave != nullptr || module.activating != nullptr ||
         module.activated != nullptr || module.completed != nullptr;
}

void fill(Hooks& lists, const Module* left_out) {
  collect(&Module::enter, lists.enter, kInward, left_out);
  collect_outward(&Module::leave, lists.leave, left_out);
  collect(&Module::before_call, lists.before_call, kInward, left_out);
  collect(&Module::execute_instead, lists.execute_instead, kExecuting, left_out);
  collect_outward(&Module::after_call, lists.after_call, left_out);
  collect(&Module::activating, lists.activating, kInward, left_out, lists.activating_word);
  collect(&Module::activated, lists.activated, kInward, left_out, lists.activated_word);
  collect(&Module::completed, lists.completed, kCompleting, left_out, lists.completed_word);
  collect(&Module::fast, lists.fast, kInward, left_out);
  lists.fast_kinds = fast::kAllKinds;
  for (const Module* module : enabled_modules())
    if (module != left_out && sees(*module) && sees_calls(*module))
      lists.fast_kinds &= module->fast != nullptr ? module->fast_kinds : 0;
  lists.statuses_wanted = lists.completed[0] != nullptr;
  lists.local_enter = nullptr;
  for (const Module* module : enabled_modules()) {
    if (module == left_out || !sees(*module)) continue;
    lists.statuses_wanted = lists.statuses_wanted || module->reads_statuses;
    if (module->local_enter == nullptr) continue;
    lists.local_enter = module->local_enter;
    lists.local_leave = module->local_leave;
  }
}

/// The calls that the modules of these lists see between all hooks and the library. None is taken back.
void mark_intercepted(const Module* left_out) {
  for (unsigned id = 0; id < kCallCount; ++id) {
    uint8_t count = 0;
    for (const Module* module : enabled_modules())
      count += module != left_out && intercepts(*module, static_cast<CallId>(id));
    __atomic_store_n(&intercepted[id], count, __ATOMIC_RELAXED);
  }
  for (const Module* module : enabled_modules())
    if (module != left_out && module->asks_status) __atomic_store_n(&status_one_by_one, true, __ATOMIC_RELAXED);
}

}  // namespace

void registry_enable() {
  enabled_count = 0;
  for (const Module* module : modules())
    if (enabled_count < kMaxModules && (module->enabled == nullptr || module->enabled())) add_enabled(module);
  dormant = nullptr;
  for (const Module* module : enabled_modules())
    if (dormant == nullptr && module->activate_on_buffer != nullptr) dormant = module;
  fill(hook_lists[0], dormant);
  current_hooks = &hook_lists[0];
  collect(&Module::hand_over, pollers.hand_over, kInward);
  collect(&Module::progress, pollers.progress, kInward);
  time_hook = nullptr;
  for (const Module* module : enabled_modules())
    if (module->time != nullptr && module->times()) time_hook = module->time;
  status_one_by_one = false;
  mark_intercepted(dormant);
}

void registry_activate() {
  static SpinLock lock;
  SpinGuard guard(lock);
  if (dormant == nullptr) return;
  fill(hook_lists[1], nullptr);
  // Before the lists: a call that has been through all hooks of the way in is intercepted, too.
  mark_intercepted(nullptr);
  __atomic_store_n(&current_hooks, &hook_lists[1], __ATOMIC_RELEASE);
  forget_calls();  // call sites that went the fast path
  __atomic_store_n(&dormant, static_cast<const Module*>(nullptr), __ATOMIC_RELEASE);
}

void registry_mute(bool (*keeps)(Stage)) {
  seeing = keeps;
  __atomic_store_n(&dormant, static_cast<const Module*>(nullptr), __ATOMIC_RELEASE);
  fill(hook_lists[1], nullptr);
  __atomic_store_n(&current_hooks, &hook_lists[1], __ATOMIC_RELEASE);
  forget_calls();
}

std::span<const Module* const> enabled_modules() { return {enabled, enabled_count}; }

}  // namespace resil
