// SPDX-License-Identifier: Apache-2.0
//
// The fast path where a module looks at messages (fast::MessageHooks): what it is told of each call, whatever way that
// ends, and which calls its interception keeps from it.
#include <string>
#include <vector>

#include "hang_fast.h"
#include "shim/call/dispatch.h"

using namespace fast_test;

namespace {

std::vector<std::string> told;
bool usual;  // what the module says of a completed request

std::string text(const GivenMessage& m) {
  return std::to_string(m.peer) + " " + std::to_string(m.tag) + " " + std::to_string(m.count);
}
void sent(fast::Call call, CallId) { told.push_back("sent " + text(call.thread->message)); }
void started(fast::Call call, CallId, uint64_t* words, uint64_t key) {
  if (words != nullptr) words[fast::kMessageWord] = 40 + told.size();
  told.push_back((words != nullptr ? "started " : key != 0 ? "untracked " : "at once ") + text(call.thread->message));
}
void received(fast::Call, CallId, const GivenMessage& message, const void* status) {
  told.push_back((status != nullptr ? "received " : "received without status ") + text(message));
}
bool completed(Thread&, uint64_t word, const void* statuses, int64_t place) {
  told.push_back("completed " + std::to_string(word) + " " +
                 std::to_string(static_cast<const OpenMpiStatus*>(statuses)[place].source));
  return usual;
}
void over(Thread&) { told.push_back("over"); }
void describe(Event&) { told.push_back("described"); }

const fast::MessageHooks kHooks = {.intercepts = [](CallId id) { return id == CallId::kMPI_Recv; },
                                   .send_bytes = 1 << 20,
                                   .sent = sent,
                                   .early = [](CallId id) { return id == CallId::kMPI_Sendrecv_replace; },
                                   .describe = describe,
                                   .started = started,
                                   .received = received,
                                   .tests = [](Thread&, const void*, int64_t) { return true; },
                                   .completed = completed,
                                   .over = over};

/// Beside hang detection: it says yes to all, intercepts what the hooks do, and sees the calls that end the general
/// way.
void left(Event& e) {
  if (e.result == 0) return;
  const bool receives = (e.attributes & kCallReceives) != 0;
  told.push_back("left " + std::to_string(e.peer) + " " + std::to_string(e.tag) + " " +
                 std::to_string(receives ? e.receive.count : e.send.count) + " of " + std::to_string(e.result));
}
void told_completed(Event&, int64_t place, uint64_t* cookie, bool) {
  told.push_back("hook " + std::to_string(*cookie) + " " + std::to_string(place));
}
const Module kLooking = [] {
  Module module = {};
  module.name = "looking";
  module.stage = Stage::kChecksum;
  module.leave = left;
  module.completed = told_completed;
  module.fast = [](Event&, SiteEntry&) { return true; };
  module.intercepts = [](CallId id) { return id == CallId::kMPI_Recv; };
  module.execute_instead = [](Event&) { return false; };
  return module;
}();

struct Looked : Program {
  Looked() : Program(true) {
    fake::modules = {&kWithFastPath, &kLooking};
    registry_enable();
    fast::messages = &kHooks;
    usual = true;
    told.clear();
  }
  ~Looked() { fast::messages = nullptr; }

  std::string take() {
    std::string all;
    for (const std::string& one : told) all += (all.empty() ? "" : "; ") + one;
    told.clear();
    return all;
  }
  /// As the wrapper does it.
  bool receive(int result) {
    fast::Call call;
    if (!fast::message<CallId::kMPI_Recv>(call, 0x3000, kFrame, nullptr, 4, fake::kDouble, 1, 7, fake::kCommWorld)) {
      OpenMpiStatus status = {1, 7, 0, 0, 32};
      Event e = slots.make(CallId::kMPI_Recv, 1, 7, 4);
      e.return_address = 0x3000;
      e.receive.type = fake::kDouble;
      e.statuses = e.given_statuses = &status;
      REQUIRE(enter(e));
      e.result = result;
      leave(e);
      return false;
    }
    OpenMpiStatus status = {1, 7, 0, 0, 32};
    fast::message_checked<CallId::kMPI_Recv>(call, result, &status);
    return true;
  }
  void start(CallId, uint64_t key) {
    message<CallId::kMPI_Isend>(0x4000, 1, 7, 4, fake::kDouble, fake::kCommWorld, 0, key);
  }
  bool wait_for(std::vector<void*> handles, int result) {
    void* saved[ring::kWaitedKeys];
    const auto count = static_cast<int64_t>(handles.size());
    OpenMpiStatus statuses[4] = {{10, 0, 0, 0, 0}, {11, 0, 0, 0, 0}, {12, 0, 0, 0, 0}, {13, 0, 0, 0, 0}};
    fast::Call call;
    if (!fast::wait<CallId::kMPI_Waitall>(call, 0x4010, kFrame, handles.data(), count, saved)) {
      wait<CallId::kMPI_Waitall>(0x4010, handles, result);
      return false;
    }
    for (void*& handle : handles) handle = reinterpret_cast<void*>(backend->request_null());
    fast::waited_checked<CallId::kMPI_Waitall>(call, result, handles.data(), count, saved, statuses);
    return true;
  }
};

void* handle(uint64_t key) { return reinterpret_cast<void*>(key); }

}  // namespace

TEST_CASE("fast path: a module that looks at messages is told of what is sent and received") {
  Looked program;
  const auto send = [&](int result) {
    program.message<CallId::kMPI_Send>(0x2000, 1, 7, 4, fake::kDouble, fake::kCommWorld, result);
  };
  send(0);
  CHECK(program.take().empty());  // the general way, where its hooks see it
  send(0);
  CHECK(program.take() == "sent 1 7 4");
  send(3);
  CHECK(program.take() == "left 1 7 4 of 3");  // with what the program gave
  send(0);
  CHECK(program.take() == "sent 1 7 4");
  program.inside = 3;  // calls from callbacks are not this message
  send(0);
  CHECK(program.take() == "sent 1 7 4");

  CHECK(!program.receive(0));
  CHECK(program.receive(0));
  CHECK(program.take() == "received 1 7 4");
  CHECK(program.receive(5));
  CHECK(program.take() == "left 1 7 4 of 5");
}

TEST_CASE("fast path: a call that one more module intercepts is left to both") {
  Looked program;
  const Module other = [] {
    Module module = {};
    module.name = "other";
    module.stage = Stage::kFault;
    module.intercepts = [](CallId id) { return id == CallId::kMPI_Recv; };
    module.before_call = [](Event&) {};
    return module;
  }();
  CHECK(!program.receive(0));
  CHECK(program.receive(0));
  fake::modules = {&kWithFastPath, &kLooking, &other};
  registry_enable();
  forget_calls();
  for (int i = 0; i < 3; ++i) CHECK(!program.receive(0));
  // One that only the other intercepts is not the hooks' either.
  fake::modules = {&kWithFastPath, &other};
  registry_enable();
  static const fast::MessageHooks kNone = [] {
    fast::MessageHooks hooks = kHooks;
    hooks.intercepts = [](CallId) { return false; };
    return hooks;
  }();
  fast::messages = &kNone;
  forget_calls();
  for (int i = 0; i < 3; ++i) CHECK(!program.receive(0));
}

TEST_CASE("fast path: a module that looks at messages has its word beside a request, and the status at its end") {
  Looked program;
  program.start(CallId::kMPI_Isend, 0x55550000);
  CHECK(!program.wait_for({handle(0x55550000)}, 0));
  program.take();
  program.start(CallId::kMPI_Isend, 0x55550000);
  CHECK(program.take() == "started 1 7 4");
  CHECK(program.wait_for({handle(0x55550000)}, 0));
  CHECK(program.take() == "completed 40 10; over");
  program.start(CallId::kMPI_Isend, 0x55550000);
  program.start(CallId::kMPI_Isend, 0x55550040);
  program.start(CallId::kMPI_Isend, backend->request_null());  // complete at once
  CHECK(program.take() == "started 1 7 4; started 1 7 4; at once 1 7 4");
  CHECK(program.wait_for({handle(0x55550040), handle(backend->request_null()), handle(0x55550000)}, 0));
  CHECK(program.take() == "completed 41 10; completed 40 12; over");
  // What it says is unusual goes to its hook, with the place of the status.
  program.start(CallId::kMPI_Isend, 0x55550000);
  program.start(CallId::kMPI_Isend, 0x55550040);
  program.take();
  usual = false;
  CHECK(program.wait_for({handle(0x55550040), handle(0x55550000)}, 0));
  CHECK(program.take() == "completed 41 10; hook 41 0; completed 40 11; hook 40 1; over");
}

TEST_CASE("fast path: a module that looks at messages is told of calls that send and receive") {
  Looked program;
  const auto exchange = [&]<CallId id>(int result) {
    fast::Call call;
    OpenMpiStatus status = {1, 8, 0, 0, 32};
    if (!fast::exchange<id>(call, 0x6000, kFrame, nullptr, 4, fake::kDouble, 1, 7, nullptr, 4, fake::kDouble, 2, 8,
                            fake::kCommWorld)) {
      program.exchange<id>(0x6000, {4, fake::kDouble, 1, 7}, {4, fake::kDouble, 2, 8}, fake::kCommWorld, result);
      return;
    }
    fast::exchange_begins<id>(call);
    told.push_back("MPI");
    fast::message_checked<id>(call, result, &status);
  };
  const uint32_t nothing = 0;
  const uint64_t never = 0;
  fast::check_waits = &nothing;
  fast::check_from = &never;
  for (int i = 0; i < 5; ++i) program.take(), exchange.operator()<CallId::kMPI_Sendrecv>(0);
  CHECK(program.take() == "MPI; sent 1 7 4; received 2 8 4");
  exchange.operator()<CallId::kMPI_Sendrecv>(6);
  CHECK(program.take() == "MPI; left 1 7 4 of 6");
  for (int i = 0; i < 5; ++i) program.take(), exchange.operator()<CallId::kMPI_Sendrecv_replace>(0);
  CHECK(program.take() == "sent 1 7 4; MPI; received 2 8 4");
  exchange.operator()<CallId::kMPI_Sendrecv_replace>(6);
  CHECK(program.take() == "sent 1 7 4; MPI; described; left 1 7 4 of 6");
  const uint32_t some = 1;
  fast::check_waits = &some;  // records are due
  exchange.operator()<CallId::kMPI_Sendrecv>(0);
  CHECK(program.take().empty());
  fast::check_waits = nullptr;
  fast::check_from = nullptr;
}
