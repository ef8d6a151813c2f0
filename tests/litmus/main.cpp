// SPDX-License-Identifier: Apache-2.0
//
// litmus [NAME]: explores all programs, or those whose name holds NAME; then each again with one of its orderings taken
// as relaxed at a time, which must fail for at least as many as the program says. Ends with one line of counts.
//
// LITMUS_FACTOR=N in the environment: N times as many executions where not all are covered.
//
// litmus --orderings [NAME]: prints the address of each such place and what came of it, for addr2line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/litmus/programs.h"

namespace {

unsigned passed, failed;

void judge(bool good, const char* name, const char* what, uint64_t executions, bool complete, double seconds) {
  printf("%-4s %-52s %8llu executions%s, %.1f s%s%s\n", good ? "ok" : "FAIL", name,
         static_cast<unsigned long long>(executions), complete ? "" : " (bounded)", seconds,
         what == nullptr ? "" : ": ", what == nullptr ? "" : what);
  fflush(stdout);
  ++(good ? passed : failed);
}

/// LITMUS_FACTOR times as many executions.
litmus::Bounds bounds_of(const litmus::Program& program) {
  litmus::Bounds bounds = program.bounds;
  if (const char* factor = getenv("LITMUS_FACTOR"); factor != nullptr) {
    bounds.executions *= strtoull(factor, nullptr, 10);
    bounds.random *= strtoull(factor, nullptr, 10);
  }
  return bounds;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int main(int argc, char** argv) {
  const bool orderings = argc > 1 && strcmp(argv[1], "--orderings") == 0;
  const char* only = argc > 1 + orderings ? argv[1 + orderings] : "";
  std::vector<litmus::Program> programs = litmus::basics();
  for (const auto& more : {litmus::stream_programs(), litmus::cell_programs(), litmus::ring_programs(),
                           litmus::table_programs(), litmus::request_programs(), litmus::handover_programs()})
    programs.insert(programs.end(), more.begin(), more.end());
  for (const litmus::Program& program : programs) {
    if (strstr(program.name, only) == nullptr) continue;
    const double began = now();
    const litmus::Outcome outcome = explore(program, bounds_of(program));
    unsigned needed = 0;
    uint64_t executions = outcome.executions;
    if (outcome.failure == nullptr) {
      for (const void* place : outcome.ordered) {
        const litmus::Outcome weak = explore(program, bounds_of(program), place);
        executions += weak.executions;
        needed += weak.failure != nullptr;
        if (orderings)
          printf("%p %s %s: %s\n", static_cast<const void*>(static_cast<const char*>(place) - 1), program.name,
                 weak.failure != nullptr ? "needed" : "NOT NEEDED", weak.failure != nullptr ? weak.failure : "-");
      }
    }
    char text[160];
    snprintf(text, sizeof text, "%u of %zu orderings are needed, not %u", needed, outcome.ordered.size(),
             program.needed);
    const bool enough = outcome.failure != nullptr || needed >= program.needed;
    judge(outcome.failure == nullptr && enough, program.name,
          outcome.failure != nullptr ? outcome.failure
          : enough                   ? nullptr
                                     : text,
          executions, outcome.complete, now() - began);
  }
  for (const litmus::Program& program : litmus::wrong_basics()) {
    if (strstr(program.name, only) == nullptr) continue;
    const double began = now();
    const litmus::Outcome outcome = explore(program, bounds_of(program));
    judge(outcome.failure != nullptr, program.name, outcome.failure != nullptr ? nullptr : "is not seen to be wrong",
          outcome.executions, outcome.complete, now() - began);
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0;
}
