// SPDX-License-Identifier: Apache-2.0
//
// The cold half of fast_path.h: which call sites may go there, and the way out of a call of which something is unusual.

#include "shim/call/fast_path.h"

#include "shim/call/dispatch.h"
#include "shim/call/registry.h"

namespace resil::fast {

namespace {

constexpr uint32_t kOpen = 1;
/// No fast path reads a status or finds its communicator's world ranks anew.
bool is_plain(const Event& e) {
  if (!(e.attributes & (kCallP2P | kCallCollective))) return true;
  if (e.comm == nullptr || e.comm->index < 2) return false;  // "others" has no counters of its own
  if (e.attributes & kCallPoll) return true;
  if (e.attributes & kCallP2P) return e.peer >= 0 && e.tag >= 0;
  return e.comm->remote_size < 0 && (!has_root(collective_of(e.id)) || e.peer >= 0);
}

}  // namespace

const uint32_t* gate = &kOpen;
bool enabled;
uint32_t statuses_wanted;
ring::Pending* pending;
ring::CollectiveHistory* histories;

void open() { __atomic_store_n(&gate, &kOpen, __ATOMIC_RELEASE); }

void prepare(Event& e, SiteEntry& site) {
  const auto id = static_cast<unsigned>(e.id);
  // `generation`: a callback of an attribute may have freed a communicator meanwhile, and its call had this entry.
  if (site.id != id || !kMayBeFast.of[id] || e.nested || request_table_has_threads() || !hooks().all_fast ||
      intercepted[id] || !is_plain(e) || site.return_address != e.return_address)
    return;
  if (!(e.attributes & kCallHasBlocks)) site.op = 0;
  if (e.attributes & kCallCollective && is_reduction(collective_of(e.id))) site.op = e.op;
  for (auto* hook = hooks().fast; *hook != nullptr; ++hook)
    if (!(*hook)(e, site)) return;
  site.id = static_cast<uint16_t>(id | kFast);
  __atomic_store_n(&enabled, true, __ATOMIC_RELAXED);
}

void event_of(Event& e, Call call, CallId id, int result) {
  const ring::Record& record = *call.record;
  clear_event<CallId::kMPI_Wait>(e);  // sets all that any call has
  e.id = id;
  e.attributes = call_info(id).attributes;
  e.thread = call.thread;
  e.peer = record.peer;
  e.tag = record.tag;
  e.comm_handle = record.comm >= 2 && record.comm < runtime.comm_count ? runtime.comms[record.comm].handle : 0;
  e.comm = e.comm_handle != 0 ? comm_lookup(*call.thread, e.comm_handle) : nullptr;
  e.bytes = record.bytes;
  e.return_address = e.site = record.site;
  e.frame = call.thread->outer_frame;
  e.time = record.time;
  e.untimed = static_cast<uint8_t>(record.flags & ring::kUntimed);
  e.record = call.record;
  e.record_number = call.thread->trace->current;
  e.sequence = record.sequence;
  e.timing = &call.thread->timing[static_cast<unsigned>(id)];
  e.send = e.receive = {};
  e.op = 0;
  e.result = result;
  e.requests = e.scratch = e.status_room = nullptr;
  e.saved_requests = e.saved_few;
}

void general(Call call, CallId id, int result, void* requests, const void* saved, int64_t count, void* statuses,
             int flag) {
  Event e;
  event_of(e, call, id, result);
  e.requests = requests;
  if (e.attributes & kCallPoll) e.flag = &flag;
  e.request_count = count;
  e.statuses = e.given_statuses = statuses;
  if (saved != nullptr) {
    e.saved_requests = const_cast<void*>(saved);
    if (count == 1) e.saved_few[0] = request_handle(saved, 0);
  }
  leave(e);
}

}  // namespace resil::fast
