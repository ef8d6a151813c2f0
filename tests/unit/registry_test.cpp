// SPDX-License-Identifier: Apache-2.0
//
// The module registry: order of stages whatever the order of linking, modules that stay out, lists of hooks, and calls
// that a module carries out.
#include "shim/call/registry.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "fake_backend.h"
#include "shim/call/local_data.h"

namespace {

using resil::CallId;
using resil::Event;
using resil::Module;
using resil::Stage;

std::string trace;
bool carries_out;

template <char name>
Module module_of(Stage stage) {
  Module module{};
  static const char kName[] = {name, 0};
  module.name = kName;
  module.stage = stage;
  module.before_init = [] { trace += std::string("init-") + name + " "; };
  module.enter = [](Event&) { trace += std::string("in-") + name + " "; };
  module.leave = [](Event&) { trace += std::string("out-") + name + " "; };
  return module;
}

Module watch = module_of<'w'>(Stage::kWatch), verify = module_of<'v'>(Stage::kChecksum),
       transform = module_of<'t'>(Stage::kFault), second = module_of<'s'>(Stage::kFault);

/// One call through the call path with these modules; what was called, in order.
std::string run(std::vector<const Module*> list) {
  resil::hook_lists[0] = resil::hook_lists[1] = {};  // the registry is filled once in a process
  fake::modules = std::move(list);
  fake::Core core;
  trace.clear();
  Event e = fake::make_event(core.thread(), CallId::kMPI_Barrier);
  e.comm_handle = fake::kCommWorld;
  REQUIRE(resil::enter(e));
  e.result = 0;
  if (!resil::intercepted[static_cast<unsigned>(e.id)] || !resil::intercept(e)) trace += "MPI ";
  resil::leave(e);
  return trace;
}

}  // namespace

TEST_CASE("registry: by stage on the way in, within a stage by name, the reverse on the way out") {
  CHECK(run({&watch, &transform, &verify}) == "in-t in-v in-w MPI out-w out-v out-t ");
  CHECK_FALSE(resil::intercepted[0]);
  CHECK(run({&transform, &watch, &second}) == "in-s in-t in-w MPI out-w out-t out-s ");
  trace.clear();
  resil::run_hooks(&Module::before_init);
  resil::run_hooks_reverse(&Module::before_init);
  CHECK(trace == "init-s init-t init-w init-w init-t init-s ");
}

TEST_CASE("registry: a module that does not take part is not called, nor are hooks that it lacks") {
  Module out = watch, quiet{};
  out.enabled = [] { return false; };
  out.before_init = [] { trace += "never "; };
  quiet.name = "quiet";
  quiet.stage = Stage::kRecord;
  CHECK(run({&out, &quiet, &transform}) == "in-t MPI out-t ");
  resil::run_hooks(&Module::before_init);
  CHECK(trace.find("never") == std::string::npos);
  CHECK(resil::enabled_modules().size() == 2);
}

TEST_CASE("registry: every list of hooks has the order of its stages, in whatever order the modules are linked") {
  // One module a stage, each with every hook.
  const auto probe = [](auto letter, Stage stage) {
    constexpr char name = decltype(letter)::value;
    Module module = module_of<name>(stage);
    module.before_call = [](Event&) { trace += std::string("before-") + name + " "; };
    module.execute_instead = [](Event&) { return trace += std::string("carry-") + name + " ", false; };
    module.after_call = [](Event&) { trace += std::string("after-") + name + " "; };
    module.activating = [](Event&, uint64_t*) { trace += std::string("starts-") + name + " "; };
    module.activated = [](Event&, uint64_t*) { trace += std::string("started-") + name + " "; };
    module.completed = [](Event&, int64_t, uint64_t*, bool) { trace += std::string("done-") + name + " "; };
    return module;
  };
  const Module probes[] = {probe(std::integral_constant<char, 'S'>{}, Stage::kStaging),
                           probe(std::integral_constant<char, 'R'>{}, Stage::kReduction),
                           probe(std::integral_constant<char, 'F'>{}, Stage::kFault),
                           probe(std::integral_constant<char, 'C'>{}, Stage::kChecksum),
                           probe(std::integral_constant<char, 'P'>{}, Stage::kRecord),
                           probe(std::integral_constant<char, 'W'>{}, Stage::kHang)};
  std::vector<const Module*> linked;
  for (const Module& module : probes) linked.push_back(&module);
  std::sort(linked.begin(), linked.end());
  unsigned orders = 0;
  do {
    run(linked);
    Event e{};
    uint64_t word = 1;
    resil::after_call(e);
    for (auto* hook = resil::hooks().activating; *hook != nullptr; ++hook) (*hook)(e, &word);
    for (auto* hook = resil::hooks().activated; *hook != nullptr; ++hook) (*hook)(e, &word);
    for (auto* hook = resil::hooks().completed; *hook != nullptr; ++hook) (*hook)(e, 0, &word, false);
    REQUIRE(trace ==
            "in-S in-R in-F in-C in-P in-W before-S before-R before-F before-C before-P before-W "
            "carry-S carry-R carry-F carry-P carry-C carry-W MPI out-W out-P out-C out-F out-R out-S "
            "after-W after-P after-C after-F after-R after-S "
            "starts-S starts-R starts-F starts-C starts-P starts-W "
            "started-S started-R started-F started-C started-P started-W "
            "done-R done-S done-F done-C done-P done-W ");
    ++orders;
  } while (std::next_permutation(linked.begin(), linked.end()));
  CHECK(orders == 720);
}

TEST_CASE("registry: the first module that carries the call out ends the search") {
  Module first = second, other = transform;
  first.execute_instead = [](Event& e) {
    trace += "s? ";
    e.result = 0;
    return carries_out;
  };
  other.execute_instead = [](Event&) {
    trace += "t? ";
    return true;
  };
  carries_out = false;
  CHECK(run({&watch, &first, &other}) == "in-s in-t in-w s? t? out-w out-t out-s ");
  CHECK(resil::intercepted[0]);
  carries_out = true;
  CHECK(run({&watch, &first, &other}) == "in-s in-t in-w s? out-w out-t out-s ");
}

TEST_CASE("registry: a dormant module has no hook in any list until it is given a buffer that activates it") {
  static char host[16], device;
  Module lazy = second;
  lazy.stage = Stage::kStaging;
  lazy.activate_on_buffer = [](const void* buffer, resil::HostRangeCache* cache) {
    trace += "? ";
    cache->low = reinterpret_cast<uintptr_t>(host);
    cache->bytes = sizeof(host);
    return buffer == &device;
  };
  lazy.local_enter = [](resil::Thread&, resil::LocalData&) { return resil::LocalWay{}; };
  Module first = transform;
  first.stage = Stage::kChecksum;
  first.completed = [](Event&, int64_t, uint64_t*, bool) {};
  lazy.completed = [](Event&, int64_t, uint64_t*, bool) { trace += "s. "; };
  lazy.execute_instead = [](Event& e) {
    trace += "s! ";
    e.result = 0;
    return true;
  };
  CHECK(run({&first, &lazy, &watch}) == "in-t in-w MPI out-w out-t ");
  CHECK(resil::is_dormant(lazy));
  CHECK(resil::hooks().completed[0] == first.completed);
  CHECK(resil::hooks().completed[1] == nullptr);
  CHECK(resil::hooks().local_enter == nullptr);
  fake::Core core;
  resil::Thread& thread = core.thread();
  trace.clear();
  resil::notice(thread, &host[3]);
  resil::notice(thread, &host[15]);  // in the range that it gave
  resil::notice(thread, nullptr);  // MPI_BOTTOM
  resil::notice(thread, reinterpret_cast<const void*>(~uintptr_t{0}));  // MPI_IN_PLACE
  CHECK(trace == "? ");
  CHECK(resil::is_dormant(lazy));
  resil::notice(thread, &device);
  CHECK_FALSE(resil::is_dormant(lazy));
  CHECK(resil::hooks().completed[0] == lazy.completed);
  CHECK(resil::hooks().completed[1] == first.completed);
  CHECK(resil::hooks().completed[2] == nullptr);
  CHECK(resil::hooks().local_enter == lazy.local_enter);
  trace.clear();
  resil::notice(thread, &host[0] + 16);  // nobody is asked any more
  CHECK_FALSE(thread.host_ranges.all());  // local calls are looked at
  Event e = fake::make_event(thread, CallId::kMPI_Barrier);
  e.comm_handle = fake::kCommWorld;
  REQUIRE(resil::enter(e));
  CHECK(resil::intercepted[static_cast<unsigned>(e.id)]);
  CHECK(resil::intercept(e));
  resil::leave(e);
  CHECK(trace == "in-s in-t in-w s! out-w out-t out-s ");
}

TEST_CASE("registry: with two modules that could be dormant one is, the other takes part from the start") {
  Module one = second, other = transform;
  one.activate_on_buffer = other.activate_on_buffer = [](const void*, resil::HostRangeCache*) { return true; };
  CHECK(run({&other, &one}) == "in-t MPI out-t ");
  CHECK(resil::is_dormant(one));
}

TEST_CASE("words beside a request: each stage that has one has its own") {
  for (unsigned i = 0; i < resil::kRequestWords; ++i) CHECK(resil::request_word(resil::kStagesWithWord[i]) == i);
  CHECK(resil::request_word(Stage::kWatch) == resil::kRequestWords);
}

TEST_CASE("registry: as many modules as there is room for, and not one more") {
  std::vector<const Module*> many(resil::kMaxModules + 5, &watch);
  std::string result = run(many);
  size_t entered = 0;
  for (size_t at = 0; (at = result.find("in-w", at)) != std::string::npos; ++at) ++entered;
  CHECK(entered == resil::kMaxModules);
  CHECK(resil::hooks().enter[resil::kMaxModules] == nullptr);
  CHECK(resil::hooks().leave[resil::kMaxModules] == nullptr);
  CHECK(run({}) == "MPI ");
}
