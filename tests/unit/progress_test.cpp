// SPDX-License-Identifier: Apache-2.0
//
// Waits of resil's own: what all modules do between the tests, in which rounds, and that no wait leaves one out.
#include "shim/runtime/progress.h"

#include <string>
#include <vector>

#include "check.h"
#include "fake_backend.h"
#include "shim/call/registry.h"

namespace {

using resil::Module;
using resil::Thread;
using resil::Wait;

std::string trace;
int record_arrives;  // after so many times of progress

std::string waited(uint32_t rounds, resil::Pace pace, Thread& thread) {
  trace.clear();
  Wait wait(thread, pace);
  for (uint32_t i = 0; i < rounds; ++i) wait.pause();
  CHECK(wait.rounds() == rounds);
  return trace;
}

Module module_of(const char* name, resil::Stage stage, void (*hand_over)(Thread&), void (*progress)(Thread&)) {
  Module module{};
  module.name = name;
  module.stage = stage;
  module.hand_over = hand_over;
  module.progress = progress;
  return module;
}

}  // namespace

TEST_CASE("a wait: nothing at first, then all modules hand over once and make progress in some rounds") {
  const Module ledger = module_of(
      "ledger", resil::Stage::kChecksum, [](Thread&) { trace += "over "; },
      [](Thread&) {
        trace += "ledger ";
        --record_arrives;
      });
  const Module staging = module_of("staging", resil::Stage::kStaging, nullptr, [](Thread&) { trace += "staging "; });
  const Module other = module_of("other", resil::Stage::kWatch, nullptr, nullptr);
  fake::modules = {&other, &ledger, &staging};
  fake::Core core;
  Thread& thread = core.thread();
  constexpr resil::Pace kPace = {3, 2, ~0u};
  CHECK(waited(3, kPace, thread) == "");
  CHECK(waited(4, kPace, thread) == "staging ledger ");
  CHECK(waited(5, kPace, thread) == "staging ledger ");
  CHECK(waited(6, kPace, thread) == "staging ledger staging ledger ");
  CHECK(waited(2, resil::kByProgress, thread) == "staging ledger staging ledger ");
  CHECK(waited(1000, resil::kByProgress, thread).find("over") == 200 * std::string("staging ledger ").size());
  CHECK(trace.find("over") == trace.rfind("over"));
  CHECK(waited(200, resil::kAsTheLibrary, thread) == "");
  CHECK(waited(200 + 16, resil::kAsTheLibrary, thread) == "over staging ledger ");
  CHECK(waited(200 + 17, resil::kForOthers, thread) == "over staging ledger staging ledger ");
}

TEST_CASE("a wait of any module ends by what another module's progress brings") {
  // A reduction by messages waits for a rank whose strict checksum waits for a record from here.
  const Module ledger = module_of("ledger", resil::Stage::kChecksum, nullptr, [](Thread&) { --record_arrives; });
  fake::modules = {&ledger};
  fake::Core core;
  for (resil::Pace pace : {resil::kAsTheLibrary, resil::kForOthers, resil::kByProgress}) {
    record_arrives = 5;
    resil::wait_until(
        core.thread(), [] { return record_arrives <= 0; }, pace);
    CHECK(record_arrives == 0);
  }
  record_arrives = 2;
  CHECK(resil::wait_by_tests(core.thread(), [](int* flag) { return *flag = record_arrives <= 0, 0; }) == 0);
  int tests = 0;
  CHECK(resil::wait_by_tests(core.thread(), [&](int*) { return ++tests == 3 ? 15 : 0; }) == 15);
  CHECK(tests == 3);
}
