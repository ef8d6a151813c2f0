// SPDX-License-Identifier: Apache-2.0
//
// Completion calls while staged messages are under way. A staged request is shown to the library only when its copies
// are done; the library then completes it, with its own status and error. Until then the call is carried out by tests,
// between which everything is looked after.
//
// Not where tests must not stand for the call (shim/model/request_class.h), and not for messages that the library may
// not be asked about (may_ask): these are *claimed*. The library's own call completes them together with all others,
// and what came is copied up after it, before the program's call returns. See docs/STAGING.md.

#include <cstring>

#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/late.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/messages.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/model/request_class.h"
#include "shim/report/log.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/tables.h"

namespace resil::staging {

namespace {

constexpr int64_t kFew = 16;

/// The call's requests: which of them are staged.
struct Requests {
  int64_t count, staged;
  Message** messages;  ///< by index; null: not staged
  char* shown;  ///< handles as the library is shown them
  int64_t unfinished_from;  ///< all before it are finished
  bool testable;  ///< tests may stand for the call
  bool late;  ///< some are claimed: their copies come after the library's call
  Message* few[kFew];
  uint64_t few_shown[kFew];
  void* scratch;
};

bool of_all(CallId id) {
  const Completion of = call_info(id).completion;
  return of == Completion::kOne || of == Completion::kAll;
}

/// False: no memory for more than a few.
bool collect(Event& e, Requests* r) {
  r->count = e.request_count;
  r->staged = r->unfinished_from = 0;
  r->late = false;
  r->testable = requests_may_be_tested(e);
  r->scratch = nullptr;
  r->messages = r->few;
  r->shown = reinterpret_cast<char*>(r->few_shown);
  if (r->count > kFew) {
    const auto count = static_cast<size_t>(r->count);
    r->scratch = memory::blocks.allocate(count * (sizeof(Message*) + sizeof(uint64_t)));
    if (r->scratch == nullptr) return false;
    r->messages = static_cast<Message**>(r->scratch);
    r->shown = reinterpret_cast<char*>(r->messages + count);
  }
  for (int64_t i = 0; i < r->count; ++i) {
    Message* op = message_find(request_handle(e.requests, i));
    r->messages[i] = op;
    r->staged += op != nullptr;
  }
  return true;
}

/// May the library be asked about all that are not finished? Handlers may change at any time; who asks is not in a
/// hurry.
bool all_askable(const Requests& r) {
  uint64_t comm = 0;
  for (int64_t i = r.unfinished_from; i < r.count; ++i) {
    const Message* op = r.messages[i];
    if (op == nullptr || finished(*op) || op->comm == comm) continue;
    if (!may_ask(*op)) return false;
    comm = op->comm;
  }
  return true;
}

bool all_finished(Requests& r) {
  while (r.unfinished_from < r.count) {
    const Message* op = r.messages[r.unfinished_from];
    if (op != nullptr && !finished(*op)) return false;
    ++r.unfinished_from;
  }
  return true;
}

/// Unfinished messages that the library has are this call's from now on; returns how many it does not have, or no more.
/// An exchange is shown as its receive: when its send is done, or where the call waits for all anyhow.
int64_t claim(const Event& e, Requests& r) {
  const bool waits_for_all = of_all(e.id) && (e.attributes & kCallBlocking) != 0;
  int64_t others = 0;
  for (int64_t i = 0; i < r.count; ++i) {
    Message* op = r.messages[i];
    if (op == nullptr || op->claimed || finished(*op)) continue;
    op->claimed = (waits_for_all || sender_done(*e.thread, op)) && wire_claim(op);
    others += !op->claimed;
  }
  return others;
}

void release(Requests& r) {
  for (int64_t i = 0; i < r.count; ++i)
    if (Message* op = r.messages[i]; op != nullptr && op->claimed) {
      op->claimed = false;
      wire_append(op);
    }
}

/// A finished one whose request is persistent: a send of its send queue, a receive from MPI_PROC_NULL, the program's
/// own persistent receive. On MPICH from 4.2 on who asks whether such a request is complete makes it inactive: calls
/// for some of many pass over it.
bool is_passed_over(const Message* op) {
  return op != nullptr && (op->persistent || op->keeps) && !op->claimed && finished(*op);
}

/// The program's handles but for those of unfinished messages; returns how many these are. `passed`: how many are left
/// out besides since they are for settle_passed.
int64_t show(const Event& e, Requests& r, int64_t* passed) {
  memcpy(r.shown, e.requests, static_cast<size_t>(r.count) * backend->handle_bytes);
  int64_t hidden = 0;
  *passed = 0;
  for (int64_t i = 0; i < r.count; ++i) {
    const Message* op = r.messages[i];
    const bool is = is_passed_over(op);
    if (op == nullptr || op->claimed || (finished(*op) && !is)) continue;
    backend->staging->set_request(r.shown, i, backend->request_null());
    *(is ? passed : &hidden) += 1;
  }
  return hidden;
}

/// What the library does not say of a message, or not any more, in the status at `place`.
void complete_status(const Event& e, const Message& op, int64_t place) {
  if (op.came != 0) backend->staging->set_bytes(e, place, op.came);
  if (op.told) backend->staging->set_envelope(e, place, op.peer, op.tag, op.cancelled);
  else if (op.persistent && !op.sends) backend->staging->set_envelope(e, place, ring::kProcNull, ring::kAnyTag, false);
}

/// The message of request `index` is complete, with its status at `place`.
void settle_message(Event& e, Message* op, int64_t index, int64_t place) {
  if (op->keeps && request_handle(e.requests, index) == backend->request_null())
    chunked_persistent_gone(op->handle);  // Open MPI 4 frees a persistent request with an error
  message_remove(op);
  if (op->persistent) {  // the program's request is not: it is null now
    backend->staging->free(&op->handle);
    backend->staging->set_request(e.requests, index, backend->request_null());
  }
  complete_status(e, *op, place);
  if (op->failed) backend->staging->mark(e, place, error_of(*op));
  message_retire(*e.thread, op);
}

void settle(Event& e, Requests& r, int64_t index, int64_t place) {
  if (Message* op = r.messages[index]; op != nullptr) {
    r.messages[index] = nullptr;
    settle_message(e, op, index, place);
  }
}

/// What the call returns when copies have failed, and the library knows nothing of it.
void fail(Event& e, uint64_t comm, int error) {
  const bool many = call_info(e.id).completion == Completion::kAll || e.outcount != nullptr;
  e.result = backend->staging->raise(comm, many ? backend->replay->error_in_status : error);
}

/// The library has completed all of them, or some and reports errors.
void settle_all(Event& e, Requests& r) {
  const Message* bad = nullptr;
  for (int64_t i = 0; i < r.count; ++i)
    if (r.messages[i] != nullptr && r.messages[i]->failed && finished(*r.messages[i])) bad = r.messages[i];
  const uint64_t comm = bad != nullptr ? bad->comm : 0;
  const int error = bad != nullptr ? error_of(*bad) : 0;
  if (bad != nullptr && e.result == 0 && r.count > 1)
    for (int64_t i = 0; i < r.count; ++i) backend->staging->mark(e, i, 0);
  for (int64_t i = 0; i < r.count; ++i) {
    const Message* op = r.messages[i];
    if (op == nullptr || !finished(*op)) continue;
    if (e.result == 0 || op->persistent || op->keeps || request_handle(e.requests, i) == backend->request_null())
      settle(e, r, i, i);  // else the library has left it for another call
  }
  if (bad != nullptr && e.result == 0) fail(e, comm, error);
}

/// Waitany, Testany, Waitsome, Testsome: those that it says.
void settle_said(Event& e, Requests& r) {
  const bool some = e.outcount != nullptr;
  const int64_t said = some ? *e.outcount : 1;
  const auto index_of = [&](int64_t k) { return some ? e.indices[k] : *e.index; };
  const auto valid = [&](int64_t i) { return i >= 0 && i < r.count; };
  const Message* bad = nullptr;
  for (int64_t k = 0; k < said; ++k)
    if (const int64_t i = index_of(k); valid(i) && r.messages[i] != nullptr && r.messages[i]->failed)
      bad = r.messages[i];
  const uint64_t comm = bad != nullptr ? bad->comm : 0;
  const int error = bad != nullptr ? error_of(*bad) : 0;
  for (int64_t k = 0; bad != nullptr && some && e.result == 0 && k < said; ++k) backend->staging->mark(e, k, 0);
  for (int64_t k = 0; k < said; ++k) {
    const int64_t i = index_of(k);
    if (!valid(i)) continue;
    backend->staging->set_request(e.requests, i, request_handle(r.shown, i));
    settle(e, r, i, k);
  }
  if (bad != nullptr && e.result == 0) fail(e, comm, error);
}

/// Those that the library passes over, one by one: the first one for MPI_Waitany and MPI_Testany, else all, behind
/// those that the library has said.
void settle_passed(Event& e, Requests& r) {
  const bool some = e.outcount != nullptr;
  int place = some && *e.outcount != backend->replay->undefined ? *e.outcount : 0;
  const bool errors = e.result != 0;
  for (int64_t i = 0; i < r.count; ++i) {
    Message* op = r.messages[i];
    if (!is_passed_over(op)) continue;
    const bool stored = e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
    void* status =
        stored ? static_cast<char*>(e.given_statuses) + static_cast<size_t>(place) * backend->status_bytes : nullptr;
    const uint64_t comm = op->comm;
    const int error = op->failed ? error_of(*op) : 0;
    int flag = 0;
    const int result = backend->replay->test(e, i, &flag, status);
    if (errors && some) backend->staging->mark(e, place, result);
    for (int k = 0; error != 0 && e.result == 0 && some && k < place; ++k) backend->staging->mark(e, k, 0);
    settle(e, r, i, place);
    if (result != 0) e.result = result;
    else if (error != 0) fail(e, comm, error);
    if (!some) {
      *e.index = static_cast<int>(i);
      return;
    }
    e.indices[place++] = static_cast<int>(i);
  }
  if (some) *e.outcount = place;
}

/// Around the library's call that may complete them.
void closing(Requests& r, bool is) {
  if (!several_threads()) return;
  for (int64_t i = 0; i < r.count; ++i)
    if (Message* op = r.messages[i]; op != nullptr && (op->claimed || finished(*op))) {
      if (is) op->marks.fetch_or(kClosing, std::memory_order_seq_cst);
      else op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
    }
}

/// One attempt; true: the call is carried out.
bool attempt_all(Event& e, Requests& r, bool may_block) {
  if (!r.late && !all_finished(r)) return false;
  if (r.late && claim(e, r) != 0) return false;
  int flag = 1;
  if (may_block) begin_blocking(e);
  closing(r, true);
  e.result = may_block ? backend->staging->wait_as(e, e.requests) : backend->staging->test_as(e, e.requests, &flag);
  const bool done = e.result != 0 || flag != 0;
  if (done && r.late) {
    // After an error some may be pending still, the others' requests are gone, unless they are persistent.
    const bool every = e.result == 0 || r.count == 1;
    const auto complete = [&](int64_t i) {
      if (every || request_handle(e.requests, i) == backend->request_null()) return true;
      StatusInfo status = {};
      backend->messages->status_read(e.given_statuses, i, &status);
      return (r.messages[i]->persistent || r.messages[i]->keeps) &&
             backend->messages->error_kind(status.error) != ErrorKind::kPending;
    };
    for (int64_t i = 0; i < r.count; ++i)
      if (Message* op = r.messages[i]; op != nullptr && op->claimed && complete(i))
        begin_late(*e.thread, op, came_with(e, *op, i));
    for (int64_t i = 0; i < r.count; ++i)
      if (Message* op = r.messages[i]; op != nullptr && !op->claimed) end_late(*e.thread, op);
  }
  if (done) settle_all(e, r);
  closing(r, false);  // those that are left
  return done;
}

bool attempt_any(Event& e, Requests& r, bool may_block) {
  if (r.late) claim(e, r);
  int64_t passed = 0;
  const int64_t hidden = show(e, r, &passed);
  int flag = 1;
  if (passed != 0 && e.outcount == nullptr) {
    e.result = 0;
    closing(r, true);
    settle_passed(e, r);
    closing(r, false);
    return true;
  }
  const bool blocks = may_block && hidden == 0 && passed == 0;
  if (may_block && r.late && !blocks && passed == 0) return false;  // their copies are done soon
  if (blocks) begin_blocking(e);
  closing(r, true);
  e.result = blocks ? backend->staging->wait_as(e, r.shown) : backend->staging->test_as(e, r.shown, &flag);
  const int said = e.outcount != nullptr ? *e.outcount : *e.index;
  const bool nothing = said == backend->replay->undefined || (flag == 0 && e.result == 0);
  bool done = e.result != 0 || flag != 0;
  if (e.result == 0 && said == backend->replay->undefined && hidden != 0)
    done = false;  // it was shown none that is active
  if (nothing && passed != 0) *e.outcount = 0, done = true;
  if (done && r.late && !nothing) {
    const int64_t several = e.outcount != nullptr ? said : 1;
    const auto message = [&](int64_t k) {
      const int64_t i = e.outcount != nullptr ? e.indices[k] : said;
      return i >= 0 && i < r.count ? r.messages[i] : nullptr;
    };
    for (int64_t k = 0; k < several; ++k)
      if (Message* op = message(k); op != nullptr && op->claimed) begin_late(*e.thread, op, came_with(e, *op, k));
    for (int64_t k = 0; k < several; ++k)
      if (const Message* op = message(k); op != nullptr) end_late(*e.thread, op);
  }
  if (done && (passed == 0 || !nothing)) settle_said(e, r);
  if (done && passed != 0) settle_passed(e, r);
  closing(r, false);
  return done;
}

void say_not_yet(Event& e) {
  e.result = 0;
  if (e.outcount != nullptr) *e.outcount = 0;
  if (e.index != nullptr) *e.index = backend->replay->undefined;
  if (e.flag != nullptr) *e.flag = 0;
}

/// Are the requests to be completed by the library's own call?
bool is_late(Event& e, const Requests& r) {
  if (r.staged == 0 || (r.testable && all_askable(r))) return false;
  if (!give_statuses(e)) {
    log_line(messages::staging::no_memory_statuses);
    backend->messages->abort(93);
  }
  return true;
}

bool intercept_wait(Event& e, Requests& r) {
  Thread& thread = *e.thread;
  const bool blocking = (e.attributes & kCallBlocking) != 0;
  const bool all = of_all(e.id);
  constexpr uint32_t kSeldom = 64;
  for (Wait wait(thread);; wait.pause()) {
    const bool moved = advance(thread);
    const bool idle = !under_way();
    if (r.staged == 0 && (idle || !blocking || !r.testable)) {  // an ordinary call
      if (blocking) begin_blocking(e);
      return false;
    }
    if (wait.rounds() % kSeldom == 0) r.late = is_late(e, r);
    if (r.late && blocking) flush(thread);  // the library has all sends
    const bool may_block = blocking && (idle || r.late);
    const bool done = all ? attempt_all(e, r, may_block) : attempt_any(e, r, may_block);
    if (r.late) release(r);
    if (done) {
      if (!blocking && e.flag != nullptr) *e.flag = 1;
      return true;
    }
    if (!blocking) {
      if (!moved) backend->replay->progress();
      say_not_yet(e);
      return true;
    }
    if ((all || r.late) && !moved) backend->replay->progress();
  }
}

bool free_request(Event& e, Message* op) {
  // With checks the copy up that has begun ends here: see arrived().
  if (checking && leaves(*op)) wait_while_working(*e.thread, [op] { return finished(*op); });
  message_remove(op);
  backend->staging->set_request(e.requests, 0, backend->request_null());
  e.result = 0;
  if (op->marks.fetch_or(kDetached, std::memory_order_acq_rel) & kFinished) {
    e.result = backend->staging->free(&op->handle);
    message_retire(*e.thread, op);
  }
  return true;
}

/// For calls on one request that are not MPI_Wait and MPI_Test. True: carried out.
bool other_call(Event& e) {
  Message* op = message_find(request_handle(e.requests, 0));
  advance(*e.thread);
  if (op == nullptr) return false;
  switch (class_of(e.id)) {
    case CallClass::kRequestFree: return free_request(e, op);
    case CallClass::kCancel:
      if (op->chunked != nullptr) {  // its chunks have somewhere to go: it is completed like any other
        e.result = 0;
        return true;
      }
      flush(*e.thread);  // the library has it now, and decides
      e.result = 0;
      return op->told || (op->persistent && finished(*op));  // inactive: too late
    default:
      if (!finished(*op)) {
        const bool asks = may_ask(*op);
        int result = 0;
        *e.flag = 0;
        if (!asks)
          complete_claimed(e, op, 0, e.flag, &result, true,
                           [&](void*) { return backend->replay->get_status(e, e.flag); });
        e.result = result;
        if (*e.flag == 0 || result != 0) return true;
      } else if (op->came == 0 && !op->told && (!op->persistent || op->sends)) {
        return false;
      } else {
        e.result = backend->replay->get_status(e, e.flag);
      }
      complete_status(e, *op, 0);
      return true;
  }
}

int64_t place_of(const Event& e, const void* status) {
  const auto* first = static_cast<const char*>(e.given_statuses);
  return status != nullptr ? (static_cast<const char*>(status) - first) / static_cast<int64_t>(backend->status_bytes)
                           : 0;
}

void settle_tested(Event& e, Message* op, int64_t index, const void* status, int* result) {
  const uint64_t comm = op->comm;
  const int error = op->failed && *result == 0 ? error_of(*op) : 0;
  settle_message(e, op, index, place_of(e, status));
  if (error != 0) *result = backend->staging->raise(comm, error);
}

}  // namespace

bool test_one(Event& e, int64_t index, int* flag, void* status, int* result) {
  Message* op = message_find(request_handle(e.requests, index));
  if (op == nullptr) return false;
  *flag = *result = 0;
  const bool looks = class_of(e.id) == CallClass::kGetStatus;
  if (!finished(*op) && !may_ask(*op)) {
    const int before = e.result;
    const bool ended = complete_claimed(e, op, place_of(e, status), flag, result, looks, [&](void* room) {
      return looks ? backend->replay->get_status(e, flag) : backend->replay->test(e, index, flag, room);
    });
    e.result = before;
    if (!ended) return true;
    *flag = 1;
    if (!looks) settle_tested(e, op, index, status, result);
    return true;
  }
  if (!finished(*op)) {
    backend->replay->progress();
    return true;
  }
  if (looks) {
    *result = backend->replay->get_status(e, flag);
    complete_status(e, *op, 0);
    return true;
  }
  op->marks.fetch_or(kClosing, std::memory_order_seq_cst);
  *result = backend->replay->test(e, index, flag, status);
  if (*flag == 0 && *result == 0) {
    op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
    return true;
  }
  settle_tested(e, op, index, status, result);
  *flag = 1;
  return true;
}

bool completes(CallId id) {
  static constexpr auto kCompletes = by_call([](const CallInfo& info) {
    const CallClass of = info.call_class;
    return of == CallClass::kCompletion || of == CallClass::kRequestFree || of == CallClass::kGetStatus ||
           of == CallClass::kCancel;
  });
  return kCompletes[id];
}

bool wait_replace(Event& e) {
  if ((!messages_known() && !under_way()) || e.request_count <= 0) [[likely]] {
    if ((e.attributes & kCallBlocking) != 0 && e.request_count > 0) begin_blocking(e);
    return false;
  }
  if (class_of(e.id) != CallClass::kCompletion) return other_call(e);
  Requests requests;
  if (!collect(e, &requests)) {
    log_line(messages::staging::no_memory_handles);
    backend->messages->abort(93);
  }
  const bool carried = intercept_wait(e, requests);
  if (requests.scratch != nullptr) memory::blocks.release(requests.scratch);
  return carried;
}

}  // namespace resil::staging
