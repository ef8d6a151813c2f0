// SPDX-License-Identifier: Apache-2.0
//
// See double_run.h. The module that has a place in the report; it wants no call.
//
// What the step sends and receives is sent and received twice; the ranks agree after it, so that no rank goes on with a
// state that another rank's hardware has spoiled, and a step is run again on all ranks or on none.

#include "checksum/double_run/double_run.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/double_run/agreement.h"
#include "checksum/double_run/messages.h"
#include "checksum/double_run/state.h"
#include "shim/base/digest/digest.h"
#include "shim/base/own_stack.h"
#include "shim/call/attach.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil::double_run {

namespace {

constexpr int kMostRuns = 6;  // of one step: then nothing that this machine says can be believed
constexpr uint64_t kOneIn = 1000, kLeast = 3;

std::atomic<bool> busy;  // a step is being run twice
uint64_t steps, unchecked, different_steps, runs_again;  // of the thread that is `busy`
bool systemic;

Policy policy_of(int policy) {
  const auto wanted = static_cast<Policy>(policy & ~kLocalFlag);
  if (wanted == Policy::kAbort || wanted == Policy::kRetry || wanted == Policy::kContinue) return wanted;
  return config_has("RESIL_ON_MISMATCH", "retry") ? Policy::kRetry
         : config_has("RESIL_ON_MISMATCH", "log") ? Policy::kContinue
                                                  : Policy::kAbort;
}

/// Everything about one call of run_twice.
struct Attempt {
  Thread& thread;
  const char* step;
  Policy policy;
  bool local;
  int runs = 0;
  uint64_t results[kMostRuns] = {};
  Verdict verdict = {};

  bool differs() const {
    for (int i = 1; i < runs; ++i)
      if (results[i] != results[0]) return true;
    return false;
  }
  /// Does the last result agree with an earlier one? Then it is in memory, and believed.
  bool settled() const {
    for (int i = 0; i < runs - 1; ++i)
      if (results[i] == results[runs - 1]) return true;
    return false;
  }
  void tell_others(bool could_not_save) {
    verdict = {differs(), !settled(), could_not_save, differs() ? runtime.rank : -1};
    if (could_not_save) verdict.unsettled = verdict.different = 0;
    if (local) return;
    InsideMpi inside(thread);
    verdict = agree(thread, verdict);
  }
};

void add_place(Finding& finding, const Place& place) {
  if (place.array == nullptr) return;
  const Array& array = *place.array;
  finding.add("array", "\"%s\", %zu bytes%s", array.name, array.bytes,
              place.arrays > 1 ? ", the first of several" : "");
  finding.add("arrays_different", "%" PRIu64 " of %u", place.arrays, state_count());
  if (place.exact) finding.add("first_byte", "%" PRIu64, place.first_byte);
  else finding.add("first_bytes", "%" PRIu64 " to %" PRIu64, place.first_byte, place.leaf_end - 1);
  finding.add("blocks_different", "%" PRIu64 " of %" PRIu64 " (4 KiB each)", place.leaves_different, place.leaves);
  if (place.has_words) {
    double first, second;
    memcpy(&first, &place.first_word, 8);
    memcpy(&second, &place.second_word, 8);
    finding.add("first_run", "%016" PRIx64 " (as a double: %a)", place.first_word, first);
    finding.add("second_run", "%016" PRIx64 " (as a double: %a)", place.second_word, second);
    finding.add("bits", "%d of 64 differ", __builtin_popcountll(place.first_word ^ place.second_word));
  }
}

void say(const Attempt& attempt, const Place& place) {
  const bool ordered = !config_has("RESIL_REDUCE", "native") || attempt.local || runtime.size == 1;
  Finding finding;
  finding.start("double_run", ordered ? Confidence::kVerified : Confidence::kSuspected);
  // With one odd rank the fault is its own; else it may have come to this rank in a message.
  if (attempt.verdict.different == 1) finding.culprit(runtime.rank);
  else finding.victim(runtime.rank);
  namespace text = messages::double_run;
  finding.say(text::step_differs, attempt.step, attempt.verdict.different, attempt.local ? 1 : runtime.size,
              attempt.verdict.different > 1 ? text::in_messages : "", ordered ? "" : text::native_reductions);
  finding.to_do(text::step_differs_to_do, runtime.host);
  finding.add("step_number", "%" PRIu64 " of those run twice", steps);
  add_place(finding, place);
  for (int i = 0; i < attempt.runs; ++i) {
    char name[28];
    snprintf(name, sizeof(name), "fingerprint_%d", i + 1);
    finding.add(name, "%016" PRIx64, attempt.results[i]);
  }
  finding.add("action", "%s",
              attempt.policy == Policy::kAbort   ? "the job ends"
              : attempt.policy == Policy::kRetry ? "run again until two runs agree"
                                                 : "goes on with the second result");
  finding_publish(finding);
}

void publish(const Attempt& attempt, const Place& place) {
  on_own_stack([&] { say(attempt, place); });
}

/// One in a thousand steps, and not for the first one or two: no stray bit.
void look_at_rate() {
  if (systemic || different_steps < kLeast || different_steps * kOneIn <= steps) return;
  systemic = true;
  Finding finding;
  finding.start("systemic", Confidence::kVerified);
  finding.victim(runtime.rank);
  finding.say(messages::double_run::systemic, different_steps, steps, runtime.rank, runtime.host);
  finding.to_do(messages::double_run::systemic_to_do);
  finding_publish(finding);
}

void watch_rate() {
  on_own_stack([&] { look_at_rate(); });
}

[[noreturn]] void stop(Thread& thread) {
  InsideMpi inside(thread);
  stop_job(90);
}

/// After the first two runs differed somewhere. Returns when the ranks have a result that two runs agree on.
void again(Attempt& attempt, void (*run)(void*), void* argument) {
  while (attempt.verdict.unsettled != 0) {
    if (attempt.runs == kMostRuns) {
      add_note(messages::double_run::never_agreed);
      stop(attempt.thread);
    }
    ++runs_again;
    state_restore();
    run(argument);
    attempt.results[attempt.runs++] = state_fingerprint();
    attempt.tell_others(false);
  }
}

int compare_two_runs(Attempt& attempt, void (*run)(void*), void* argument) {
  const bool saved = state_save();
  if (!attempt.local) {
    attempt.tell_others(!saved);
    if (attempt.verdict.unchecked != 0) {
      ++unchecked;
      add_note(messages::double_run::no_memory);
      run(argument);
      return 0;
    }
  } else if (!saved) {
    ++unchecked;
    run(argument);
    return 0;
  }
  run(argument);
  state_fingerprint_first(config_has("RESIL_BLAME", "full"), &attempt.results[0]);
  state_restore();
  run(argument);
  attempt.results[1] = state_fingerprint();
  attempt.runs = 2;
  attempt.tell_others(false);
  if (attempt.verdict.different == 0) return 0;
  const int found = static_cast<int>(attempt.verdict.different);
  ++different_steps;
  if (attempt.differs()) publish(attempt, state_compare_with_first());
  watch_rate();
  if (attempt.policy == Policy::kAbort) {
    if (attempt.differs()) stop(attempt.thread);
    // The rank that differs says why before it ends the job; nobody goes on.
    InsideMpi inside(attempt.thread);
    agree(attempt.thread, {});
  } else if (attempt.policy == Policy::kRetry) {
    again(attempt, run, argument);
  }
  return found;
}

}  // namespace

uint64_t mismatches() { return __atomic_load_n(&different_steps, __ATOMIC_RELAXED); }

int run_twice(const char* step, void (*run)(void*), void* argument, int policy) {
  Thread* thread = current_thread;
  const bool local = (policy & kLocalFlag) != 0;
  const bool possible = thread != nullptr && !thread->disabled && thread->depth == 0 && runtime_has_world() &&
                        (local || agreement_possible());
  if (!possible || state_count() == 0 || busy.exchange(true)) {
    if (thread != nullptr && !thread->disabled) __atomic_fetch_add(&unchecked, 1, __ATOMIC_RELAXED);
    run(argument);
    return 0;
  }
  ++steps;
  Attempt attempt = {.thread = *thread, .step = step, .policy = policy_of(policy), .local = local};
  const int found = compare_two_runs(attempt, run, argument);
  busy.store(false);
  return found;
}

namespace {

bool enabled() { return true; }

void report(JsonWriter& json) {
  if (steps == 0 && unchecked == 0 && state_count() == 0) return;
  json.begin_object("double_runs");
  json.integer("steps", steps);
  json.integer("mismatches", different_steps);
  json.integer("runs_again", runs_again);
  json.integer("unchecked", unchecked);
  json.integer("protected_arrays", state_count());
  json.integer("protected_bytes", state_bytes());
  json.boolean("systemic", systemic);
  json.end_object();
}

constexpr Module kDoubleRun = {
    .name = "double_run",
    .description = "runs steps of the program twice and compares their results (resil.h)",
    .stage = Stage::kSteps,
    .enabled = enabled,
    .report = report,
};
RESIL_MODULE(kDoubleRun);

}  // namespace
}  // namespace resil::double_run
