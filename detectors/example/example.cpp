// SPDX-License-Identifier: Apache-2.0
//
// A complete module, to be copied. It notices the longest run of point-to-point messages without a collective (a
// program that never synchronises is one where a hang is found late) and reports it. Off unless RESIL_EXAMPLE=1.
//
// To make your own: copy this folder, name the files in detectors/meson.build, build. Nothing in shim/ is edited.
// Then read docs/CONTRIBUTING.md, "Add a module".

#include <atomic>

#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/report/message.h"
#include "shim/runtime/mailbox.h"

namespace resil::messages::example {

// What users read is a row of the message catalogue, with what it means and what to do. Modules with more than a few
// rows have them in a messages.h.
RESIL_MESSAGE(no_communicator, note, "example: no private communicator, the ring test was left out",
              "Some rank is not preloaded.", "Nothing.");
RESIL_MESSAGE(refused, note, "example: the private communicator refused a message", "MPI returned an error.",
              "Nothing.");
RESIL_MESSAGE(came_round, note, "example: token came round", "The private communicator carries messages.", "Nothing.");
RESIL_MESSAGE(wrong_token, note, "example: wrong token", "A message came from another rank than it should.",
              "Report it.");

}  // namespace resil::messages::example

namespace resil {

// Everything of the module is in an anonymous namespace: modules talk to the shim, not to each other.
namespace {

// 1. Configuration. Parsed, checked and documented by the core; a bad value stops the job with exit status 93.
constexpr ConfigEntry kConfig[] = {
    {"RESIL_EXAMPLE", ConfigType::kSwitch, "", "0", "runs the example module of docs/CONTRIBUTING.md"},
};

// 2. State. Hooks run on any thread of the application at the same time: what is shared is atomic, what is not lives
// in Thread::module_data. Nothing may be allocated, locked or asked of the kernel in enter and leave.
std::atomic<uint64_t> longest;
unsigned slot;  // this module's place in Thread::module_data

uint64_t run_of(const Thread& thread) { return reinterpret_cast<uint64_t>(thread.module_data[slot]); }

// 3. Whether to take part at all; asked once, after the configuration is known. A module that says no costs nothing.
bool enabled() { return config_integer("RESIL_EXAMPLE") != 0; }

// Before the real MPI_Init: no MPI call is allowed yet.
void before_init() { slot = thread_slot(); }

// 4. After the real MPI_Init. MPI is usable here and in the other hooks through `backend` only (the next PMPI_ layer),
// and messages of resil's own go through the mailbox, if it is open: where some rank runs without resil it is not, and
// the module must do without. After MPI_Init only point-to-point and nonblocking calls are allowed.
void after_init() {
  if (!mailbox::is_open()) {
    add_note(messages::example::no_communicator);
    return;
  }
  // A token to the right neighbour, so that the tests know that the private communicator carries messages.
  const int right = (runtime.rank + 1) % runtime.size, left = (runtime.rank + runtime.size - 1) % runtime.size;
  int token = runtime.rank, received = -1;
  uint64_t requests[2];
  if (!mailbox::receive(&received, sizeof(received), left, tags::kExample[0], &requests[0]) ||
      !mailbox::send(&token, sizeof(token), right, tags::kExample[0], &requests[1])) {
    add_note(messages::example::refused);
    return;
  }
  for (bool done[2] = {false, false}; !done[0] || !done[1];)
    for (int i = 0; i < 2; ++i) done[i] = done[i] || backend->test(&requests[i]);
  add_note(received == left ? messages::example::came_round : messages::example::wrong_token);
}

// 5. Every application call passes here once, with its arguments in the event. Local queries (MPI_Comm_rank, ...) have
// no event. The other way round on the way out: `leave` sees event.result.
void enter(Event& event) {
  Thread& thread = *event.thread;
  uint64_t run = event.attributes & kCallCollective ? 0 : run_of(thread) + (event.attributes & kCallP2P ? 1 : 0);
  thread.module_data[slot] = reinterpret_cast<void*>(run);
  uint64_t best = longest.load(std::memory_order_relaxed);
  while (run > best && !longest.compare_exchange_weak(best, run, std::memory_order_relaxed)) {}
}

// 6. The module's members in rank-NNNNN.json.
void report(JsonWriter& json) {
  json.begin_object("example");
  json.integer("longest_run_without_collective", longest.load());
  json.end_object();
}

// 7. The one value that registers it all.
constexpr Module kExample = {
    .name = "example",
    .description = "the commented module of docs/CONTRIBUTING.md",
    .stage = Stage::kWatch,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .enter = enter,
    .report = report,
};
RESIL_MODULE(kExample);

}  // namespace
}  // namespace resil
