// SPDX-License-Identifier: Apache-2.0
//
// Fault injection (RESIL_FAULT): damages messages where the other modules cannot see it, between their hooks and the
// MPI library, so that a test, or a user who wants to know, sees whether damage is found and rightly explained. No
// part of the library learns from here what was done; it is written to faults-RRRRR.jsonl for whoever compares.
//
// Not for production: it allocates and writes on the call path, and the results of the program become wrong.

#include "checksum/fault/operations.h"
#include "checksum/fault/pool.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/config/config.h"
#include "shim/config/config_value.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/runtime/looked_at.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::fault {

namespace {

bool check(Slice text, ValueProblem* problem) {
  Specs specs;
  return parse(text, &specs, problem);
}

constexpr ConfigEntry kConfig[] = {
    {"RESIL_FAULT", ConfigType::kText, kAllowed, "none",
     "Damages messages on purpose, to see whether it is found: see docs/FAULTS.md. For tests only: the program "
     "computes wrong "
     "results.",
     check},
};

bool enabled() {
  ValueProblem problem;
  return !config_is_default("RESIL_FAULT") && parse(slice_of(config_text("RESIL_FAULT")), &engine.specs, &problem) &&
         engine.specs.count != 0;
}

bool ends_epoch(CallId id) {
  switch (call_info(id).window) {
    case WindowCall::kFence:
    case WindowCall::kComplete:
    case WindowCall::kUnlock:
    case WindowCall::kUnlockAll:
    case WindowCall::kFlushAll:
    case WindowCall::kFree: return true;
    case WindowCall::kFlush:  // of one target: the epoch goes on
    case WindowCall::kFlushLocal:
    case WindowCall::kFlushLocalAll:
    case WindowCall::kNone:
    case WindowCall::kCreate:
    case WindowCall::kPost:
    case WindowCall::kStart:
    case WindowCall::kWait:
    case WindowCall::kTest:
    case WindowCall::kLock:
    case WindowCall::kLockAll:
    case WindowCall::kSync: return false;
  }
  return false;
}

bool intercepts(CallId id) {
  const CallInfo& info = call_info(id);
  switch (info.call_class) {
    case CallClass::kSend:
    case CallClass::kReceive:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kMatchedReceive:
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionedReceive:
    case CallClass::kPartitionReady:
    case CallClass::kCompletion:
    case CallClass::kRequestFree:
    case CallClass::kStart:
    case CallClass::kCollective: return true;
    case CallClass::kRma: return is_put(info) || is_get(info);
    case CallClass::kWindow: return ends_epoch(id);
    case CallClass::kLocal:
    case CallClass::kLifecycle:
    case CallClass::kPartitionArrived:
    case CallClass::kBuffer:
    case CallClass::kGetStatus:
    case CallClass::kCancel:
    case CallClass::kGeneralizedRequest:
    case CallClass::kComm:
    case CallClass::kFile: return false;
  }
  return false;
}

bool completes(const Event& e) { return (e.attributes & kCallCompletes) != 0; }
bool is_partitioned(const Event& e) { return (e.attributes & kCallPartitioned) != 0; }

/// What has arrived can be told only with a status.
void enter(Event& e) {
  const bool receive = (e.attributes & kCallP2P) && (e.attributes & (kCallReceives | kCallBothWays)) &&
                       !(e.attributes & (kCallStarts | kCallActivates));
  if (engine.receives && !e.nested && (receive || class_of(e.id) == CallClass::kCompletion)) give_statuses(e);
}

void start_again(Event& e, PerThread& mine) {
  for (int64_t i = 0; i < e.request_count; ++i) {
    Operation* operation = operation_find(request_handle(e.requests, i));
    if (operation == nullptr || !operation->persistent) continue;
    if (operation->receives) {
      operation->active = true;
      pool.release(operation->kept);
      operation->kept = engine.keeps ? keep(*e.thread, operation->layout) : nullptr;
    } else {
      restart(*operation, mine);
    }
  }
}

void before_call(Event& e) {
  PerThread* mine = e.nested ? nullptr : per_thread(*e.thread);  // a callback's call: the one around it is under way
  if (mine == nullptr) return;
  mine->receiving = mine->departing = false;
  if (is_partitioned(e)) return;
  if (e.attributes & kCallActivates) {
    if (class_of(e.id) == CallClass::kStart) start_again(e, *mine);
    return;
  }
  if (completes(e)) return;
  if (ends_epoch(e.id)) return epoch_ends(e.object);
  if (engine.sends) inject_send(e, *mine);
  if (engine.receives && receive_layout(e, &mine->layout)) {
    mine->receiving = true;
    mine->kept = engine.keeps && !(e.attributes & kCallPersistent) ? keep(*e.thread, mine->layout) : nullptr;
  }
}

/// Cuts the only packet of a point-to-point receive to what has come. False: nothing known of it.
bool cut(const void* statuses, int64_t place, const Layout& layout, Arrival* arrival) {
  if (statuses == nullptr || backend->messages->status_ignored(statuses)) return false;
  StatusInfo status;
  backend->messages->status_read(statuses, place, &status);
  if (status.cancelled || status.bytes == 0 || status.source < 0) return false;
  arrival->packet.bytes = status.bytes < arrival->packet.bytes ? status.bytes : arrival->packet.bytes;
  arrival->tag = status.tag;
  arrival->peer = layout.comm != nullptr ? comm_world_rank(*layout.comm, status.source) : status.source;
  return true;
}

void track_receive(Event& e, PerThread& mine) {
  const uint64_t key = request_handle(e.requests, 0);
  const bool one_way = !(e.attributes & kCallBothWays) && mine.layout.types == nullptr;
  if (e.result != 0 || is_shared_handle(key) || !one_way) {
    pool.release(mine.kept);
    return;
  }
  Operation operation = {};
  operation.key = key;
  operation.id = e.id;
  operation.tag = e.tag;
  operation.receives = true;
  operation.persistent = (e.attributes & kCallPersistent) != 0;
  operation.active = !operation.persistent;
  operation.collective = (e.attributes & kCallCollective) != 0;
  operation.sequence = operation.collective ? e.sequence : 0;
  operation.layout = mine.layout;
  operation.kept = mine.kept;
  operation.second = mine.tracked;
  if (operation_add(operation) == nullptr) pool.release(mine.kept);
}

void end_send(Event& e, Operation& operation, bool failed) {
  const bool freed = class_of(e.id) == CallClass::kRequestFree;
  if (!failed && !freed) land_change(operation);
  if (operation.persistent && !freed && !failed) operation.active = false;
  else operation_drop(&operation, freed && operation.active);
}

void look_at_arrivals(PerThread& mine) {
  inject_received(mine, mine.found, false);
  for (unsigned i = 0; i < mine.found; ++i)
    if (mine.ended[i]->persistent) mine.ended[i]->active = false;
    else operation_drop(mine.ended[i], false);
  mine.found = 0;
}

void end_receive(Event& e, PerThread& mine, int64_t place, Operation& operation) {
  Packet packet;
  if (operation.collective) {
    look_at_arrivals(mine);  // the list is needed
    inject_received(mine,
                    gather_arrivals(*e.thread, mine, operation.layout, operation.id, operation.tag, operation.sequence,
                                    operation.kept),
                    true);
  } else if (block_at(*e.thread, operation.layout, 0, &packet)) {
    if (mine.found == kArrivals) look_at_arrivals(mine);
    const uint64_t comm = operation.layout.comm != nullptr ? operation.layout.comm->ring->id : 0;
    Arrival& arrival = mine.arrivals[mine.found];
    arrival = {packet, operation.id, -1, -1, comm, 0, operation.kept, false, nullptr, nullptr};
    if (cut(e.given_statuses, place, operation.layout, &arrival)) {
      mine.ended[mine.found++] = &operation;
      return;
    }
  }
  if (operation.persistent) operation.active = false;
  else operation_drop(&operation, false);
}

void end_operation(Event& e, uint64_t key, int64_t place, bool failed) {
  Operation* operation = operation_find(key);
  if (operation == nullptr) return;
  if (!operation->receives) {
    end_send(e, *operation, failed);
    operation = operation_find(key);
    if (operation == nullptr || !operation->second) return;
  }
  if (failed || class_of(e.id) == CallClass::kRequestFree) operation_drop(operation, false);
  else if (operation->active) end_receive(e, *per_thread(*e.thread), place, *operation);
}

void end_blocking_receive(Event& e, PerThread& mine) {
  const bool collective = (e.attributes & kCallCollective) != 0;
  unsigned count = 0;
  if (e.result == 0)
    count = gather_arrivals(*e.thread, mine, mine.layout, e.id, -1, collective ? e.sequence : 0, mine.kept);
  if (!collective && count == 1 && !cut(e.given_statuses, 0, mine.layout, &mine.arrivals[0])) count = 0;
  inject_received(mine, count, collective);
  pool.release(mine.kept);
}

void after_call(Event& e) {
  PerThread* mine = e.nested ? nullptr : per_thread(*e.thread);
  if (mine == nullptr) return;
  inject_sent(e, *mine);
  if (e.attributes & kCallCompletes) {
    mine->found = 0;
    for_each_completed(e, end_operation);
    look_at_arrivals(*mine);
  } else if (mine->receiving) {
    mine->receiving = false;
    if (e.attributes & kCallRma) retain_get(e, *mine);
    else if (e.attributes & kCallStarts) track_receive(e, *mine);
    else end_blocking_receive(e, *mine);
  }
  if (ends_epoch(e.id)) epoch_ended(e, *mine);
  if (mine->late_write.used) arm(mine->late_write);  // last: now the time runs
}

/// The last of all hooks: whoever looks twice has done so.
void leave(Event& e) {
  auto* mine = static_cast<PerThread*>(e.thread->module_data[per_thread_slot()]);
  if (mine == nullptr || e.nested || !mine->late_write.used) return;
  LateWrite& late_write = mine->late_write;
  late_write.used = false;
  late_write.injection.remark = force(late_write)    ? "landed by the timer"
                                : late_write.by_look ? "landed when it had been looked at"
                                                     : "landed when the call ended";
  type_map_release(late_write.packet.type);
  pool.release(late_write.packed);
  note(late_write.injection);
}

void on_look(const void* buffer, uint32_t looks) {
  if (current_thread == nullptr) return;
  auto* mine = static_cast<PerThread*>(current_thread->module_data[per_thread_slot()]);
  if (mine != nullptr && mine->late_write.used) looked_at(mine->late_write, buffer, looks);
}

void inject_receive_staged(Thread& thread, const StagedMessage& message) {
  PerThread* mine = per_thread(thread);
  if (mine == nullptr || !engine.receives) return;
  CommInfo* comm = comm_lookup(thread, message.comm);
  const int32_t peer = comm != nullptr && message.peer >= 0 ? comm_world_rank(*comm, message.peer) : message.peer;
  mine->arrivals[0] = {{message.buffer, message.count, message.type, message.bytes},
                       message.call,
                       peer,
                       message.tag,
                       comm != nullptr ? comm->ring->id : 0,
                       0,
                       nullptr,
                       false,
                       nullptr,
                       nullptr};
  inject_received(*mine, 1, false);
}

constexpr StagedFaults kStaged = {[] { return engine.sends; }, inject_send_staged, inject_receive_staged};

void start() {
  engine_start();
  staged_faults = &kStaged;
  buffer_looked_at = on_look;
}

void thread_end(Thread& thread) {
  void*& place = thread.module_data[per_thread_slot()];
  if (place == nullptr) return;
  forget_timer(static_cast<PerThread*>(place)->late_write);
  memory::unmap_array(static_cast<PerThread*>(place));
  place = nullptr;
}

void before_init() { per_thread_slot() = thread_slot(); }

void report(JsonWriter& json) {
  json.begin_object("faults_injected");
  for (unsigned i = 0; i < kKinds; ++i)
    json.integer(kind_name(static_cast<Kind>(i)), engine.injected[i].load(std::memory_order_relaxed));
  json.end_object();
}

constexpr Module kFault = {
    .name = "fault",
    .description = "damages messages on purpose",
    .stage = Stage::kFault,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = start,
    .thread_end = thread_end,
    .enter = enter,
    .leave = leave,
    .intercepts = intercepts,
    .before_call = before_call,
    .after_call = after_call,
    .reads_statuses = true,
    .report = report,
};
RESIL_MODULE(kFault);

}  // namespace

}  // namespace resil::fault
