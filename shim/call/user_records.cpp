// SPDX-License-Identifier: Apache-2.0
//
// See user_records.h.

#include "shim/call/user_records.h"

#include "shim/call/flight.h"
#include "shim/call/registry.h"
#include "shim/call/thread.h"

namespace resil {

void record_user(ring::RecordState state, const char* name, uint64_t value) {
  Thread* thread = thread_register();
  if (thread == nullptr || thread->disabled) return;
  ring::TraceBuffer& trace = *thread->trace;
  uint32_t name_index = flight::intern(name);
  ring::Record& record = *flight::place_for_next(trace, trace.head);
  record = {};
  record.time = thread->last_time = ticks();
  record.call = 0;
  record.state = static_cast<uint8_t>(state);
  record.comm = name_index;
  record.peer = ring::kNoPeer;
  record.tag = ring::kNoTag;
  record.repeat = 1;
  record.sequence = trace.calls;
  record.aux = state == ring::RecordState::kStep ? name_index : value;
  if (state == ring::RecordState::kStep) {
    record.sequence = ++trace.step;
    trace.step_name = name_index;
  }
  __atomic_store_n(&trace.head, trace.head + 1, __ATOMIC_RELEASE);
  if (state != ring::RecordState::kStep) run_hooks(&Module::logged, *thread, state, name, value);
}

}  // namespace resil
