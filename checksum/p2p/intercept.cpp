// SPDX-License-Identifier: Apache-2.0
//
// See intercept.h.

#include "checksum/p2p/intercept.h"

#include "checksum/ledger/ledger.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/p2p.h"
#include "shim/abi/backend.h"
#include "shim/abi/handler_change.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/model/request_class.h"
#include "shim/runtime/progress.h"
#include "shim/tables/buffer_view.h"

namespace resil::p2p {

uint64_t next_flush;

namespace {

constexpr int64_t kManyRequests = 64;  // testing more than these costs more than the wait is worth

/// What is carried out by tests: blocking sends but for buffered ones, receives, and waits for all of their requests.
enum class Intercepted : uint8_t { kNothing, kSend, kReceive, kWait };
constexpr auto kIntercepted = by_call([](const CallInfo& info) {
  if (!info.has(kCallBlocking)) return Intercepted::kNothing;
  if (info.call_class == CallClass::kSend && info.mode != SendMode::kBuffered) return Intercepted::kSend;
  if (info.call_class == CallClass::kReceive) return Intercepted::kReceive;
  const bool all = info.completion == Completion::kOne || info.completion == Completion::kAll;
  return info.call_class == CallClass::kCompletion && all ? Intercepted::kWait : Intercepted::kNothing;
});

bool intercept_send(Event& e) {
  const bool announces = ledger::strict() && !ledger::is_concurrent;
  if (e.given_count < 0 || e.bytes < (announces ? kAnnounceBytes : kOverlapBytes) || e.peer < 0) return false;
  const View view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
  if (view.reason != ledger::Reason::kNone) return false;
  uint64_t request;
  if (!backend->messages->post(e, &request, &e.result)) return false;
  if (e.result != 0) return true;
  if (announces) {
    send_announce(e, view);
  } else if (CallState& state = state_of(e); state.sent == SendState::kUnread) {
    state.digest = view_digest(view, view.bytes);
    state.sent = SendState::kDigested;
  }
  if (ledger::is_concurrent) e.result = backend->messages->wait(&request, nullptr);
  else e.result = wait_by_tests(*e.thread, [&](int* flag) { return backend->messages->test(&request, flag, nullptr); });
  return true;
}

bool intercept_receive(Event& e) {
  if (e.given_count < 0 || e.peer == ring::kProcNull) return false;
  uint64_t request;
  if (!backend->messages->post(e, &request, &e.result)) return false;
  if (e.result == 0 && request != backend->request_null())
    e.result =
        wait_by_tests(*e.thread, [&](int* flag) { return backend->messages->test(&request, flag, e.given_statuses); });
  if (request != backend->request_null()) backend->staging->free(&request);  // a persistent one
  return true;
}

bool intercept_wait(Event& e) {
  if (e.request_count <= 0 || e.request_count > kManyRequests) return false;
  if (!waits_by_tests(*e.thread, e.requests, e.request_count)) return false;
  // One request: MPI_Test, whose errors are MPI_Wait's; more: MPI_ERR_IN_STATUS in both.
  const bool one = call_info(e.id).completion == Completion::kOne;
  e.result = wait_by_tests(*e.thread, [&](int* flag) {
    return one ? backend->messages->test_one(e, flag) : backend->messages->test_all(e, flag);
  });
  if (!one && e.given_statuses == e.statuses && e.result == 0) [[unlikely]]
    backend->messages->all_succeeded(e);
  return true;
}

}  // namespace

bool waits_by_tests(Thread& thread, const void* requests, int64_t count) {
  // What a wait for several does after an error in one is each MPI's own: Open MPI's returns at once and leaves the
  // others pending, MPICH's waits for them, and tests do neither.
  const bool errors_return = count > 1 && handlers_were_set.load(std::memory_order_relaxed);
  if (!errors_return && requests_may_be_tested(thread, requests, count)) [[likely]]
    return true;
  ledger::flush(thread);
  ledger::progress(thread);
  return false;
}

bool intercepts(CallId id) { return kIntercepted[id] != Intercepted::kNothing; }

bool intercept(Event& e) {
  if (!ledger::connected()) return false;
  // Threads that wait sleep in MPI while one of them makes progress: tests in all of them would take the cores.
  if (ledger::is_concurrent && (e.attributes & (kCallReceives | kCallCompletes))) return false;
  switch (kIntercepted[e.id]) {
    case Intercepted::kSend: return intercept_send(e);
    case Intercepted::kReceive: return intercept_receive(e);
    case Intercepted::kWait: return intercept_wait(e);
    case Intercepted::kNothing: break;
  }
  return false;
}

void before_blocking(Event& e) {
  const uint32_t ranks = ledger::transport_dirty();
  if (ranks == 0 || !ledger::connected() || (intercepts(e.id) && !ledger::is_concurrent)) return;
  const uint64_t now = e.thread->last_time;
  if (now < __atomic_load_n(&next_flush, __ATOMIC_RELAXED)) return;
  // About 0.25 us a message: a hundred times that until the next ones.
  const double pause = 25e-6 * ranks * runtime.header->ticks_per_second;
  __atomic_store_n(&next_flush, now + static_cast<uint64_t>(pause), __ATOMIC_RELAXED);
  ledger::flush(*e.thread);
}

}  // namespace resil::p2p
