// SPDX-License-Identifier: Apache-2.0
//
// The module registry: order of kinds, modules that stay out, lists of hooks, and calls that a transform carries out.
#include "shim/call/registry.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "fake_backend.h"

namespace {

using resil::CallId;
using resil::Event;
using resil::Module;
using resil::ModuleKind;

std::string trace;
bool carries_out;

template <char name>
Module module_of(ModuleKind kind) {
  Module module{};
  module.name = "fake";
  module.kind = kind;
  module.before_init = [] { trace += std::string("init-") + name + " "; };
  module.enter = [](Event&) { trace += std::string("in-") + name + " "; };
  module.leave = [](Event&) { trace += std::string("out-") + name + " "; };
  return module;
}

Module watch = module_of<'w'>(ModuleKind::kWatch), verify = module_of<'v'>(ModuleKind::kVerify),
       transform = module_of<'t'>(ModuleKind::kTransform), second = module_of<'s'>(ModuleKind::kTransform);

/// One call through the call path with these modules; what was called, in order.
std::string run(std::vector<const Module*> list) {
  resil::hooks = {};  // the registry is filled once in a process
  fake::modules = std::move(list);
  fake::Core core;
  trace.clear();
  Event e = fake::make_event(core.thread(), CallId::kMPI_Barrier);
  e.comm_handle = fake::kCommWorld;
  REQUIRE(resil::enter(e));
  e.result = 0;
  if (!resil::between[static_cast<unsigned>(e.id)] || !resil::carried_out(e)) trace += "MPI ";
  resil::leave(e);
  return trace;
}

}  // namespace

TEST_CASE("registry: transform, verify, watch on the way in, the reverse on the way out") {
  CHECK(run({&watch, &transform, &verify}) == "in-t in-v in-w MPI out-w out-v out-t ");
  CHECK_FALSE(resil::between[0]);
  CHECK(run({&second, &watch, &transform}) == "in-s in-t in-w MPI out-w out-t out-s ");
  trace.clear();
  resil::run_hooks(&Module::before_init);
  resil::run_hooks_reverse(&Module::before_init);
  CHECK(trace == "init-s init-t init-w init-w init-t init-s ");
}

TEST_CASE("registry: a module that does not take part is not called, nor are hooks that it lacks") {
  Module out = watch, quiet{};
  out.enabled = [] { return false; };
  out.before_init = [] { trace += "never "; };
  quiet.kind = ModuleKind::kVerify;
  CHECK(run({&out, &quiet, &transform}) == "in-t MPI out-t ");
  resil::run_hooks(&Module::before_init);
  CHECK(trace.find("never") == std::string::npos);
  CHECK(resil::enabled_modules().size() == 2);
}

TEST_CASE("registry: the first transform that carries the call out ends the search") {
  Module first = transform, other = second;
  first.replace = [](Event& e) {
    trace += "t? ";
    e.result = 0;
    return carries_out;
  };
  other.replace = [](Event&) {
    trace += "s? ";
    return true;
  };
  carries_out = false;
  CHECK(run({&watch, &first, &other}) == "in-t in-s in-w t? s? out-w out-s out-t ");
  CHECK(resil::between[0]);
  carries_out = true;
  CHECK(run({&watch, &first, &other}) == "in-t in-s in-w t? out-w out-s out-t ");
}

TEST_CASE(
    "registry: a sleeper is called once it has been given a buffer that wakes it, first on the way in and last out") {
  static char quiet[16], loud;
  Module sleeper = second;
  sleeper.sleeps_through = [](const void* buffer, resil::Quiet* what) {
    trace += "? ";
    what->low = reinterpret_cast<uintptr_t>(quiet);
    what->bytes = sizeof(quiet);
    return buffer != &loud;
  };
  Module first = transform;
  first.completed = [](Event&, int64_t, uint64_t*, bool) {};
  sleeper.completed = [](Event&, int64_t, uint64_t*, bool) { trace += "s. "; };
  sleeper.replace = [](Event& e) {
    trace += "s! ";
    e.result = 0;
    return true;
  };
  auto completed = [](unsigned place) { return resil::hooks.completed[resil::hooks.first_completed + place]; };
  CHECK(run({&first, &sleeper, &verify}) == "in-t in-v MPI out-v out-t ");
  CHECK_FALSE(resil::awake());
  CHECK(completed(0) == first.completed);
  CHECK(completed(1) == nullptr);
  fake::Core core;
  resil::Thread& thread = core.thread();
  trace.clear();
  resil::notice(thread, &quiet[3]);
  resil::notice(thread, &quiet[15]);  // in the range that it gave
  resil::notice(thread, nullptr);  // MPI_BOTTOM
  resil::notice(thread, reinterpret_cast<const void*>(~uintptr_t{0}));  // MPI_IN_PLACE
  CHECK(trace == "? ");
  CHECK_FALSE(resil::awake());
  resil::notice(thread, &loud);
  CHECK(resil::awake());
  CHECK(completed(0) == first.completed);
  CHECK(completed(1) == sleeper.completed);
  CHECK(completed(2) == nullptr);
  trace.clear();
  resil::notice(thread, &quiet[0] + 16);  // nobody is asked any more
  Event e = fake::make_event(thread, CallId::kMPI_Barrier);
  e.comm_handle = fake::kCommWorld;
  REQUIRE(resil::enter(e));
  CHECK(resil::between[static_cast<unsigned>(e.id)]);
  CHECK(resil::carried_out(e));
  resil::leave(e);
  CHECK(trace == "in-s in-t in-v s! out-v out-t out-s ");
}

TEST_CASE("registry: as many modules as there is room for, and not one more") {
  std::vector<const Module*> many(resil::kMaxModules + 5, &watch);
  std::string result = run(many);
  size_t entered = 0;
  for (size_t at = 0; (at = result.find("in-w", at)) != std::string::npos; ++at) ++entered;
  CHECK(entered == resil::kMaxModules);
  CHECK(resil::hooks.enter[resil::kMaxModules] == nullptr);
  CHECK(resil::hooks.leave[resil::kMaxModules] == nullptr);
  CHECK(run({}) == "MPI ");
}
