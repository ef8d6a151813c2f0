// SPDX-License-Identifier: Apache-2.0
//
// Completion calls while staged messages are under way: tests, between which everything is looked after. A staged
// request is shown to the library only when its copies are done; the library then completes it, with its own status and
// error. See message.h.

#include <cstring>

#include "checksum/datatype/blocks.h"
#include "pipeline/staging/blocking.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/staging.h"
#include "shim/backend.h"
#include "shim/event.h"
#include "shim/log.h"
#include "shim/request_class.h"
#include "shim/tables.h"
#include "shim/thread.h"

namespace resil::staging {

namespace {

constexpr int64_t kFew = 16;

/// The call's requests: which of them are staged.
struct Requests {
  int64_t count, staged;
  Message** messages;  ///< by index; null: not staged
  char* shown;             ///< handles as the library is shown them
  int64_t unfinished_from;  ///< all before it are finished
  Message* few[kFew];
  uint64_t few_shown[kFew];
  void* scratch;
};

bool of_all(CallId id) {
  return id == CallId::kMPI_Wait || id == CallId::kMPI_Test || id == CallId::kMPI_Waitall || id == CallId::kMPI_Testall;
}

/// False: no memory for more than a few.
bool collect(Event& e, Requests* r) {
  r->count = e.request_count;
  r->staged = r->unfinished_from = 0;
  r->scratch = nullptr;
  r->messages = r->few;
  r->shown = reinterpret_cast<char*>(r->few_shown);
  if (r->count > kFew) {
    const auto count = static_cast<size_t>(r->count);
    r->scratch = block_acquire(count * (sizeof(Message*) + sizeof(uint64_t)));
    if (r->scratch == nullptr)
      return false;
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

bool all_finished(Requests& r) {
  while (r.unfinished_from < r.count) {
    const Message* op = r.messages[r.unfinished_from];
    if (op != nullptr && !finished(*op))
      return false;
    ++r.unfinished_from;
  }
  return true;
}

/// The program's handles but for those of unfinished messages; returns how many these are.
int64_t show(const Event& e, Requests& r) {
  memcpy(r.shown, e.requests, static_cast<size_t>(r.count) * backend->handle_bytes);
  int64_t hidden = 0;
  for (int64_t i = 0; i < r.count; ++i) {
    const Message* op = r.messages[i];
    if (op == nullptr || finished(*op))
      continue;
    backend->staging->store(r.shown, i, backend->request_null());
    ++hidden;
  }
  return hidden;
}

/// The message of request `index` is complete, with its status at `place`.
void settle_message(Event& e, Message* op, int64_t index, int64_t place) {
  message_remove(op);
  if (op->persistent) {  // the program's request is not: it is null now
    backend->staging->free(&op->handle);
    backend->staging->store(e.requests, index, backend->request_null());
  }
  if (op->came != 0)
    backend->staging->set_bytes(e, place, op->came);
  if (op->failed)
    backend->staging->mark(e, place, error_of(*op));
  if (op->persistent && !op->sends)
    backend->staging->mark_nothing(e, place);
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
  const bool many = e.id == CallId::kMPI_Waitall || e.id == CallId::kMPI_Testall || e.outcount != nullptr;
  e.result = backend->staging->raise(comm, many ? backend->replay->error_in_status : error);
}

/// The library has completed all of them, or some and reports errors.
void settle_all(Event& e, Requests& r) {
  const Message* bad = nullptr;
  for (int64_t i = 0; i < r.count; ++i)
    if (r.messages[i] != nullptr && r.messages[i]->failed && finished(*r.messages[i]))
      bad = r.messages[i];
  const uint64_t comm = bad != nullptr ? bad->comm : 0;
  const int error = bad != nullptr ? error_of(*bad) : 0;
  if (bad != nullptr && e.result == 0 && r.count > 1)
    for (int64_t i = 0; i < r.count; ++i)
      backend->staging->mark(e, i, 0);
  for (int64_t i = 0; i < r.count; ++i) {
    const Message* op = r.messages[i];
    if (op == nullptr || !finished(*op))
      continue;
    if (e.result == 0 || op->persistent || op->keeps || request_handle(e.requests, i) == backend->request_null())
      settle(e, r, i, i);  // else the library has left it for another call
  }
  if (bad != nullptr && e.result == 0)
    fail(e, comm, error);
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
  for (int64_t k = 0; bad != nullptr && some && e.result == 0 && k < said; ++k)
    backend->staging->mark(e, k, 0);
  for (int64_t k = 0; k < said; ++k) {
    const int64_t i = index_of(k);
    if (!valid(i))
      continue;
    backend->staging->store(e.requests, i, request_handle(r.shown, i));
    settle(e, r, i, k);
  }
  if (bad != nullptr && e.result == 0)
    fail(e, comm, error);
}

/// Around the library's call that may complete them.
void closing(Requests& r, bool is) {
  if (!several_threads())
    return;
  for (int64_t i = 0; i < r.count; ++i)
    if (Message* op = r.messages[i]; op != nullptr && finished(*op)) {
      if (is)
        op->marks.fetch_or(kClosing, std::memory_order_seq_cst);
      else
        op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
    }
}

/// One attempt; true: the call is carried out.
bool attempt_all(Event& e, Requests& r, bool may_block) {
  if (!all_finished(r))
    return false;
  int flag = 1;
  // What others wait for has been handed over, and the rest can wait as well.
  may_block = may_block || ((e.attributes & kCallBlocking) != 0 && !requests_may_be_carried(e));
  if (may_block)
    begin_blocking(e);
  closing(r, true);
  e.result = may_block ? backend->staging->wait_as(e, e.requests) : backend->staging->test_as(e, e.requests, &flag);
  const bool done = e.result != 0 || flag != 0;
  if (done)
    settle_all(e, r);
  closing(r, false);  // those that are left
  return done;
}

bool attempt_any(Event& e, Requests& r, bool may_block) {
  const int64_t hidden = show(e, r);
  int flag = 1;
  const bool blocks = may_block && hidden == 0;
  if (blocks)
    begin_blocking(e);
  closing(r, true);
  e.result = blocks ? backend->staging->wait_as(e, r.shown) : backend->staging->test_as(e, r.shown, &flag);
  const int said = e.outcount != nullptr ? *e.outcount : *e.index;
  bool done = e.result != 0 || flag != 0;
  if (e.result == 0 && said == backend->replay->undefined && hidden != 0)
    done = false;  // it was shown none that is active
  if (done)
    settle_said(e, r);
  closing(r, false);
  return done;
}

void say_not_yet(Event& e) {
  e.result = 0;
  if (e.outcount != nullptr)
    *e.outcount = 0;
  if (e.index != nullptr)
    *e.index = backend->replay->undefined;
  if (e.flag != nullptr)
    *e.flag = 0;
}

bool carry_out(Event& e, Requests& r) {
  Thread& thread = *e.thread;
  const bool blocking = (e.attributes & kCallBlocking) != 0;
  const bool all = of_all(e.id);
  for (uint32_t round = 0;; ++round) {
    const bool moved = advance(thread);
    const bool idle = !under_way();
    if (r.staged == 0 && (idle || !blocking)) {  // an ordinary call
      if (blocking)
        begin_blocking(e);
      return false;
    }
    if (all ? attempt_all(e, r, blocking && idle) : attempt_any(e, r, blocking && idle)) {
      if (!blocking && e.flag != nullptr)
        *e.flag = 1;
      return true;
    }
    if (!blocking) {
      if (!moved)
        backend->replay->progress();
      say_not_yet(e);
      return true;
    }
    if (all && !moved)
      backend->replay->progress();
    while_waiting(thread, round);
  }
}

bool free_request(Event& e, Message* op) {
  // With checks the copy up that has begun ends here: see arrived().
  if (checking && op->rising.load(std::memory_order_acquire))
    wait_while_working(*e.thread, [op] { return finished(*op); });
  message_remove(op);
  backend->staging->store(e.requests, 0, backend->request_null());
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
  if (op == nullptr)
    return false;
  switch (e.id) {
    case CallId::kMPI_Request_free: return free_request(e, op);
    case CallId::kMPI_Cancel:
      if (op->lone != nullptr) {  // its chunks have somewhere to go: it is completed like any other
        e.result = 0;
        return true;
      }
      flush(*e.thread);  // the library has it now, and decides
      e.result = 0;
      return op->persistent && finished(*op);  // inactive: too late
    default:
      if (!finished(*op)) {
        e.result = 0;
        *e.flag = 0;
        return true;
      }
      if (op->came == 0 && (!op->persistent || op->sends))
        return false;
      e.result = backend->replay->get_status(e, e.flag);
      if (op->came != 0)
        backend->staging->set_bytes(e, 0, op->came);
      else
        backend->staging->mark_nothing(e, 0);
      return true;
  }
}

}  // namespace

bool test_one(Event& e, int64_t index, int* flag, void* status, int* result) {
  Message* op = message_find(request_handle(e.requests, index));
  if (op == nullptr)
    return false;
  *flag = *result = 0;
  if (!finished(*op)) {
    backend->replay->progress();
    return true;
  }
  if (e.id == CallId::kMPI_Request_get_status) {
    *result = backend->replay->get_status(e, flag);
    if (op->persistent && !op->sends)
      backend->staging->mark_nothing(e, 0);
    return true;
  }
  op->marks.fetch_or(kClosing, std::memory_order_seq_cst);
  *result = backend->replay->test(e, index, flag, status);
  if (*flag == 0 && *result == 0) {
    op->marks.fetch_and(static_cast<uint8_t>(~kClosing), std::memory_order_relaxed);
    return true;
  }
  const uint64_t comm = op->comm;
  const int error = op->failed && *result == 0 ? error_of(*op) : 0;
  const char* first = static_cast<const char*>(e.given_statuses);
  settle_message(e, op, index, status != nullptr ? (static_cast<const char*>(status) - first) / static_cast<int64_t>(backend->status_bytes) : 0);
  if (error != 0)
    *result = backend->staging->raise(comm, error);
  *flag = 1;
  return true;
}

bool completes(CallId id) {
  return (call_info(id).attributes & kCallCompletes) != 0 || id == CallId::kMPI_Request_get_status || id == CallId::kMPI_Cancel;
}

bool wait_replace(Event& e) {
  if ((!messages_known() && !under_way()) || e.request_count <= 0) [[likely]] {
    if ((e.attributes & kCallBlocking) != 0 && e.request_count > 0)
      begin_blocking(e);
    return false;
  }
  if (e.id == CallId::kMPI_Request_free || e.id == CallId::kMPI_Request_get_status || e.id == CallId::kMPI_Cancel)
    return other_call(e);
  Requests requests;
  if (!collect(e, &requests)) {
    log_line("no memory for the handles of a completion call: the job ends");
    backend->messages->abort(93);
  }
  const bool carried = carry_out(e, requests);
  if (requests.scratch != nullptr)
    block_release(requests.scratch);
  return carried;
}

}  // namespace resil::staging
