// SPDX-License-Identifier: Apache-2.0
//
// The module registry: linker section in, lists in the order of the stages out. Knows no module by name.

#include "shim/call/registry.h"

#include <cstring>

#include "shim/base/spinlock.h"
#include "shim/call/dispatch.h"
#include "shim/call/thread.h"
#include "shim/runtime/progress.h"

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

/// A hook of those modules that have it, in this order.
template <class Hook>
uint32_t collect(Hook Module::*hook, Hook* list, const StageOrder& order, uint8_t* cookies = nullptr,
                 Sleepers sleepers = Sleepers::kIn) {
  uint32_t count = 0;
  for (Stage stage : order)
    for (const Module* module : enabled_modules()) {
      if (module->stage != stage || module->*hook == nullptr) continue;
      if (sleepers == Sleepers::kLeaveOut && module == hooks.sleeper) continue;
      if (cookies != nullptr) cookies[count] = static_cast<uint8_t>(module->cookie);
      list[count++] = module->*hook;
    }
  list[count] = nullptr;
  return count;
}

/// Likewise on the way out.
template <class Hook>
void collect_outward(Hook Module::*hook, Hook* list, Sleepers sleepers = Sleepers::kIn) {
  const uint32_t count = collect(hook, list, kInward, nullptr, sleepers);
  for (uint32_t i = 0; i < count / 2; ++i) {
    Hook first = list[i];
    list[i] = list[count - 1 - i];
    list[count - 1 - i] = first;
  }
}

}  // namespace

void registry_enable() {
  enabled_count = 0;
  for (const Module* module : modules())
    if (enabled_count < kMaxModules && (module->enabled == nullptr || module->enabled())) add_enabled(module);
  hooks.sleeper = nullptr;
  for (const Module* module : enabled_modules())
    if (module->sleeps_through != nullptr) hooks.sleeper = module;
  const bool sleeps = hooks.sleeper != nullptr;
  hooks.first_enter = sleeps ? 1 : 0;
  if (sleeps) hooks.enter[0] = hooks.sleeper->enter;
  collect(&Module::enter, hooks.enter + hooks.first_enter, kInward, nullptr, Sleepers::kLeaveOut);
  collect_outward(&Module::leave, hooks.leave, Sleepers::kLeaveOut);
  collect(&Module::before_call, hooks.before_call, kInward);
  const bool replaces = sleeps && hooks.sleeper->replace != nullptr;
  if (replaces) hooks.replace[0] = hooks.sleeper->replace;
  collect(&Module::replace, hooks.replace + replaces, kCarrying, nullptr, Sleepers::kLeaveOut);
  collect_outward(&Module::after_call, hooks.after_call);
  collect(&Module::hand_over, pollers.hand_over, kInward);
  collect(&Module::progress, pollers.progress, kInward);
  if (sleeps) {
    hooks.activating[0] = hooks.sleeper->activating;
    hooks.activating_cookie[0] = static_cast<uint8_t>(hooks.sleeper->cookie);
  }
  collect(&Module::activating, hooks.activating + sleeps, kInward, hooks.activating_cookie + sleeps,
          Sleepers::kLeaveOut);
  collect(&Module::activated, hooks.activated, kInward, hooks.activated_cookie);
  const uint32_t behind = collect(&Module::completed, hooks.completed, kCompleting, hooks.completed_cookie) + 1;
  collect(&Module::completed, hooks.completed + behind, kCompleting, hooks.completed_cookie + behind,
          Sleepers::kLeaveOut);
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
