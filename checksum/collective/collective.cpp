// SPDX-License-Identifier: Apache-2.0
//
// Hooks of the checks of collectives: when a plan is made, read and compared, and what the report says.
//
//   blocking      leave: all at once, the plan on the stack
//   nonblocking   leave: inputs read, receivers told; completed: results compared
//   persistent    leave of the _init: the plan only; activated: inputs; completed: results; freed: the end
//   MPI_IN_PLACE  inputs are read in enter (persistent: activating), before the call overwrites them

#include "checksum/collective/collective.h"

#include <atomic>
#include <cstring>
#include <new>

#include "checksum/collective/agreement.h"
#include "checksum/collective/collective_internal.h"
#include "checksum/collective/compare.h"
#include "checksum/collective/memory.h"
#include "checksum/collective/seen.h"
#include "checksum/collective/sums.h"
#include "checksum/cookie.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/lives.h"
#include "checksum/p2p/p2p.h"
#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/tables/tables.h"

namespace resil::collective {

Counts counts;
std::atomic<uint32_t> lost_count;

namespace {

constexpr uint64_t kLooked = 512;  // operations posted last, among which others with the same memory are looked for

void count(uint64_t& counter) {
  if (ledger::concurrent()) __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
  else counter += 1;
}

void count_outcome(const Plan& plan) {
  if (plan.outcome != Reason::kNone) count(counts.uncovered[static_cast<unsigned>(plan.outcome)]);
  else if (plan.reduces && !plan.sums && plan.reduction.linear == LinearMode::kNone) count(counts.agreement_only);
  else count(counts.checked);
}

// --- Communicators on which a call failed: this rank's numbering may no longer be the other ranks' -----------------

constexpr uint32_t kLost = 64;
std::atomic<uint64_t> lost_comms[kLost];

bool is_lost(uint64_t comm) {
  const uint32_t lost = lost_count.load(std::memory_order_relaxed);
  if (lost == 0) [[likely]]
    return false;
  for (uint32_t i = 0; i < lost && i < kLost; ++i)
    if (lost_comms[i].load(std::memory_order_relaxed) == comm) return true;
  return lost > kLost;
}

void lose(uint64_t comm) {
  if (is_lost(comm)) return;
  const uint32_t place = lost_count.load(std::memory_order_relaxed);
  if (place < kLost) lost_comms[place].store(comm, std::memory_order_relaxed);
  lost_count.store(place + 1, std::memory_order_release);
}

// --- Plans in memory ------------------------------------------------------------------------------------------------

Plan* new_plan() {
  void* memory = pool.allocate(sizeof(Plan));
  return memory != nullptr ? new (memory) Plan : nullptr;
}

void release(Plan* plan) {
  plan_free(*plan);
  pool.release(plan, sizeof(Plan));
}

Plan* plan_of(uint64_t cookie) { return reinterpret_cast<Plan*>(cookie & ~kCookieMask); }

/// What all ranks have alike of the data's types.
uint16_t common_type(const Plan& plan) {
  const View& view = plan.reduces
                         ? (plan.reduction.input.type != nullptr ? plan.reduction.input : plan.reduction.output)
                         : plan.result;
  if ((!plan.reduces && !plan.agrees) || plan.result_parts || view.type == nullptr) return 0;
  return signature_fold(type_signature(*view.type, view.bytes));
}

/// After the call, which MPI has taken: its place among the communicator's calls.
void prepare_plan(Plan& plan, const Event& e) {
  if (is_lost(plan.name.base)) [[unlikely]] {
    plan.reason = Reason::kOrderLost;
    return;
  }
  const OpKind op = plan.reduces ? plan.reduction.op : OpKind::kNone;
  const bool rooted = !plan.intercomm && has_root(plan.form);
  const int32_t root = rooted ? e.peer : -1;
  plan.name.calls =
      ledger::calls_roll(e.comm->index, plan.name.base, e.sequence, static_cast<uint16_t>(call_info(e.id).plain),
                         plan.intercomm ? OpKind::kNone : op, root);
  plan.name.type = common_type(plan);
  if (plan.moves || plan.persistent)
    ledger::calls_note({plan.name.comm, plan.name.bytes, plan.name.tag, root, static_cast<uint16_t>(plan.name.id),
                        plan.name.calls, plan.name.type, op, true});
}

void finish(Thread& thread, Plan& plan, Reason failed) {
  compare_results(thread, plan, failed);
  count_outcome(plan);
  progress(thread);
}

/// From now on the memory of its result is the library's.
void begin_life(Plan& plan) {
  uint64_t low = ~uint64_t{0}, high = 0;
  bool pieces = false;
  auto add = [&](const View& view) {
    uint64_t bytes = view.bytes;
    const auto at = reinterpret_cast<uint64_t>(ledger::life_memory(view, &bytes));
    pieces = pieces || (bytes & ledger::kInPieces) != 0;
    bytes &= ~ledger::kInPieces;
    low = bytes != 0 && at < low ? at : low;
    high = bytes != 0 && at + bytes > high ? at + bytes : high;
  };
  if (plan.reduces && plan.gets_result) add(plan.reduction.output);
  else if (plan.agrees && !plan.result_parts &&
           !(plan.form == Collective::kBcast && plan.name.info->rank == plan.name.root))
    add(plan.result);
  for (uint32_t i = 0; i < plan.receives.count; ++i) add(plan.receives.items[i].view);
  plan.life = ledger::life_next(ledger::concurrent());
  ledger::life_begin(plan.life, reinterpret_cast<const void*>(low),
                     high < low ? 0 : (high - low) | (pieces ? ledger::kInPieces : 0));
}

void pend(Plan& plan) {
  ledger::collective_pends(ledger::concurrent(), 1);
  begin_life(plan);
}

/// Its results are about to be read. Was their memory another operation's as well?
bool end_life(Plan& plan) {
  if (plan.life == 0) return false;
  ledger::collective_pends(ledger::concurrent(), ~uint64_t{0});
  ledger::life_end(plan.life, ledger::life_name(plan.name.comm, plan.name.tag));
  const bool shared = ledger::life_shared(ledger::lives[plan.life % ledger::kLives], kLooked);
  if (shared) ledger::note_shared_memory();
  plan.life = 0;
  return shared;
}

/// A blocking one is over. Others that are pending may have its memory: what is found to be wrong is looked up there.
void pass_life(Plan& plan) {
  if (!ledger::others_pend()) [[likely]]
    return;
  begin_life(plan);
  ledger::life_end(plan.life, ledger::life_name(plan.name.comm, plan.name.tag));
  plan.life = 0;
}

/// Given to MPI: the requests of the call are pending, or all is done already.
void started(Event& e, Plan* plan) {
  Thread& thread = *e.thread;
  if (!plan->inputs_read) read_inputs(*plan);
  tell_receivers(thread, *plan);
  if (e.cookies != nullptr) {
    pend(*plan);
    plan_hold(*plan);
    e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(plan) | kCookieCollective;
    return;
  }
  finish(thread, *plan, e.request_key != 0 ? Reason::kOrderLost : Reason::kNone);  // its end will not be seen
  release(plan);
}

/// What was made of the call on the way in, null: nothing.
Plan*& plan_in(Event& e) { return e.state<Plan*>(); }

[[gnu::noinline]] void leave_starting(Event& e) {
  Plan* plan = plan_in(e);
  bool moves = plan != nullptr;
  if (plan == nullptr) {
    plan = new_plan();
    if (plan == nullptr) {  // the partners are told that nothing can be compared
      lose(e.comm->ring->id);  // its place among the calls is not noted
      Plan room;
      if (!(e.attributes & kCallPersistent) && plan_make(room, e)) {
        prepare_plan(room, e);
        room.reason = Reason::kMemory;
        tell_receivers(*e.thread, room);
        finish(*e.thread, room, Reason::kMemory);
      }
      return plan_free(room);
    }
    moves = plan_make(*plan, e);
  }
  prepare_plan(*plan, e);
  if ((!moves && !plan->persistent) || (plan->persistent && e.cookies == nullptr)) {
    if (!plan->persistent) count(counts.nothing);
    return release(plan);
  }
  if (!plan->persistent) return started(e, plan);
  plan_hold(*plan);
  e.cookies[kChecksumWord] = reinterpret_cast<uint64_t>(plan) | kCookieCollective;
}

[[gnu::noinline]] void leave_failed(Event& e, Collective form) {
  if (e.comm != nullptr && e.comm->ring != nullptr) lose(e.comm->ring->id);
  if (plan_in(e) != nullptr) release(plan_in(e));
  if (!moves_data(form)) return;
  count(counts.failed);
  ledger::count_uncovered(Reason::kError, 1, e.bytes);
}

[[gnu::noinline]] void leave_in_place(Event& e) {
  Plan* plan = plan_in(e);
  prepare_plan(*plan, e);
  tell_receivers(*e.thread, *plan);
  pass_life(*plan);
  finish(*e.thread, *plan, Reason::kNone);
  release(plan);
}

[[gnu::noinline]] void leave_uncovered(Event& e, Reason reason) {
  count(counts.uncovered[static_cast<unsigned>(reason)]);
  ledger::count_uncovered(reason, 1, e.bytes);
}

bool completion_failed(Event& e, int64_t place) {
  if (e.result == 0) return false;
  if (backend->messages->error_kind(e.result) != ErrorKind::kInStatus || e.given_statuses == nullptr ||
      backend->messages->status_ignored(e.given_statuses))
    return true;
  StatusInfo status = {};
  backend->messages->status_read(e.given_statuses, place, &status);
  return status.error != 0;
}

}  // namespace

bool prepare() {
  linear_prepare();
  return ledger::calls_create() && sums_prepare();
}

void connect() {
  ledger::calls_concurrent = ledger::concurrent();
  agreement_connect();
  sums_connect();
  if (ledger::full_blame()) seen_connect();
}

void enter(Event& e) {
  plan_in(e) = nullptr;
  if (!moves_data(collective_of(e.id)) || e.comm == nullptr ||
      !(is_overwritten(e, backend->is_in_place) || ledger::full_blame())) [[likely]]
    return;
  if ((e.attributes & kCallPersistent) || comm_reason(*e.comm) != Reason::kNone) return;
  Plan* plan = new_plan();
  if (plan == nullptr) return;  // leave() finds that the contribution has not been read
  if (!plan_make(*plan, e)) {
    release(plan);
    return;
  }
  plan_keep_tree(*plan);
  read_inputs(*plan);
  if (ledger::full_blame()) read_before(*plan);
  plan_in(e) = plan;
}

void leave(Event& e) {
  const Collective form = collective_of(e.id);
  if (e.result != 0) [[unlikely]]
    return leave_failed(e, form);
  if (!moves_data(form) || e.comm == nullptr) return;
  if (const Reason reason = comm_reason(*e.comm); reason != Reason::kNone) [[unlikely]]
    return leave_uncovered(e, reason);
  if (e.attributes & kCallStarts) return leave_starting(e);
  if (plan_in(e) != nullptr) return leave_in_place(e);
  Plan plan;
  const bool moves = plan_make(plan, e);
  prepare_plan(plan, e);
  if (!moves) {
    count(counts.nothing);
    return plan_free(plan);
  }
  compare_given_to_itself(plan);
  if (!plan.in_place) [[likely]]
    read_inputs(plan);
  tell_receivers(*e.thread, plan);
  pass_life(plan);
  finish(*e.thread, plan, Reason::kNone);
  plan_free(plan);
}

void activating(Event&, uint64_t* cookie) {
  Plan& plan = *plan_of(*cookie);
  plan.inputs_read = plan.reduction.has_input = false;
  if (plan.in_place) read_inputs(plan);
  if (plan.moves && ledger::full_blame()) read_before(plan);
}

void activated(Event& e, uint64_t* cookie) {
  Plan& plan = *plan_of(*cookie);
  if (!plan.persistent || plan.active || class_of(e.id) != CallClass::kStart) return;
  plan.active = true;
  if (!plan.moves) return;
  plan.outcome = Reason::kNone;
  plan.name.tag += 1;
  pend(plan);
  if (!plan.in_place) read_inputs(plan);
  tell_receivers(*e.thread, plan);
}

void completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  Plan* plan = plan_of(*cookie);
  if (plan->active && !plan->moves) count(counts.nothing);
  else if (!plan->persistent || plan->active) {
    const bool shared = end_life(*plan);
    finish(*e.thread, *plan,
           freed                         ? Reason::kRequestFreed
           : completion_failed(e, place) ? Reason::kError
           : shared                      ? Reason::kOverlapped
                                         : Reason::kNone);
  }
  plan->active = false;
  if (plan->persistent && !freed) return;
  plan_release(*plan);
  release(plan);
}

void progress(Thread& thread) {
  static std::atomic<bool> busy;
  if (agreement_pending() == 0 && !sums_ready()) [[likely]]
    return stop_if_wanted();
  if (busy.exchange(true, std::memory_order_acquire)) return;  // this thread further up, or another one
  sums_progress(thread);
  agreement_progress(thread);
  busy.store(false, std::memory_order_release);
  stop_if_wanted();
}

uint64_t unverified() {
  const bool finalizing =
      runtime.header != nullptr && runtime.header->phase >= static_cast<uint32_t>(ring::Phase::kFinalizing);
  return agreement_pending() + (finalizing ? sums_pending() : 0);
}

void report(JsonWriter& json) {
  json.begin_object("collectives");
  json.integer("calls_checked", counts.checked);
  json.integer("calls_agreement_only", counts.agreement_only);
  json.integer("calls_without_data", counts.nothing);
  json.integer("calls_failed", counts.failed);
  ledger::report_reasons(json, "calls_uncovered", counts.uncovered);
  json.integer("sums_pending", sums_pending());
  json.integer("sums_lost", sums_lost());
  json.end_object();
}

}  // namespace resil::collective
