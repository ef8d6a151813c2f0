// SPDX-License-Identifier: Apache-2.0
//
// The cold half of fast_path.h: which call sites may go there, and the way out of a call of which something is unusual.

#include "shim/call/fast_path.h"

#include "shim/call/dispatch.h"
#include "shim/call/fast_messages.h"
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

/// Likewise of a call that sends and receives, perhaps to or from MPI_PROC_NULL.
bool is_plain_exchange(const Event& e) {
  const auto named = [](int32_t peer) { return peer >= 0 || peer == ring::kProcNull; };
  return e.comm != nullptr && e.comm->index >= 2 && named(e.peer) && named(e.receive_peer) && e.tag >= 0 &&
         e.receive_tag >= 0;
}

bool may_execute_instead(CallId id) {
  return is_own_reduction(id) && execute_instead != nullptr && backend->reductions[0] != nullptr;
}

/// What a module does to calls between all hooks and the library it may do on the fast path, too, if it is alone.
bool is_intercepted(CallId id) {
  const bool own = messages != nullptr && messages->intercepts(id);
  return intercepted[static_cast<unsigned>(id)] != own;
}

/// With several threads at a time: by wrappers that are put in the place of the usual ones.
bool is_open_to(CallId id) {
  if (request_table_has_threads()) return is_threaded(id) && !intercepted[static_cast<unsigned>(id)];
  return !is_intercepted(id) || may_execute_instead(id);
}

void enable(CallId id) {
  if (!request_table_has_threads())
    return __atomic_store_n(&enabled, static_cast<uint8_t>(enabled | kind_of(id)), __ATOMIC_RELAXED);
  static std::atomic<bool> replaced;
  if (!replaced.exchange(true, std::memory_order_relaxed)) use_threaded_wrappers();
}

/// Four places for each, by what it is. Another one must go for it: rarely, once that has happened often, since calls
/// that take turns in more halves than there is room for are cheaper the general way.
ReceivingHalf* place_of(Thread& thread, const ReceivingHalf& half) {
  constexpr unsigned kWays = 4, kOften = 1024, kRarely = 16;
  const uint64_t mixed = half.comm_handle * 3 ^ half.type * 5 ^ static_cast<uint64_t>(half.count) << 20 ^
                         static_cast<uint64_t>(half.peer) << 40 ^ static_cast<uint64_t>(half.tag) << 28;
  ReceivingHalf* set = &thread.receiving[(mixed * 0x9e3779b97f4a7c15 >> 32) % (kReceivingHalves / kWays) * kWays];
  ReceivingHalf* free = nullptr;
  for (unsigned i = 0; i < kWays; ++i) {
    ReceivingHalf& one = set[i];
    if (one.comm_handle == half.comm_handle && one.type == half.type && one.count == half.count &&
        one.peer == half.peer && one.tag == half.tag)
      return &one;
    if (one.comm_handle == 0 || one.generation != half.generation) free = &one;
  }
  if (free != nullptr) return free;
  const uint32_t moved = ++thread.halves_moved;
  return moved < kOften || moved % kRarely == 0 ? &set[moved / (moved < kOften ? 1 : kRarely) % kWays] : nullptr;
}

}  // namespace

const uint32_t* gate = &kOpen;
uint8_t enabled;
uint32_t statuses_wanted;
const MessageHooks* messages;
ring::Pending* pending;
Instead (*execute_instead)(Event& e);
int (*reduction_over)(Thread& thread, uint64_t word);
void (*checked)(Thread& thread);
const uint32_t* check_waits;
const uint64_t* check_from;
void* reductions[2][kOwnReductions];

void open() { __atomic_store_n(&gate, &kOpen, __ATOMIC_RELEASE); }

void prepare(Event& e, SiteEntry& site) {
  const auto id = static_cast<unsigned>(e.id);
  // `generation`: a callback of an attribute may have freed a communicator meanwhile, and its call had this entry.
  if (site.id != id || !(kMayBeFast.of[id] & hooks().fast_kinds) || e.nested || !is_open_to(e.id) || !is_plain(e) ||
      site.return_address != e.return_address || site.offset == kNoPlace)
    return;
  if (e.attributes & kCallCollective) site.check = 0;
  if (!(e.attributes & kCallHasBlocks)) site.op = 0;
  if (e.attributes & kCallCollective && is_reduction(collective_of(e.id))) site.op = e.op;
  for (auto* hook = hooks().fast; *hook != nullptr; ++hook)
    if (!(*hook)(e, site)) return;
  if (is_own_reduction(e.id)) {
    const unsigned number = reductions_before(id);
    for (unsigned layer = 0; layer < 2; ++layer)
      __atomic_store_n(&reductions[layer][number],
                       intercepted[id] ? backend->reductions[layer][number] : next_functions[layer * kCallCount + id],
                       __ATOMIC_RELAXED);
  }
  site.id = static_cast<uint16_t>(id | kFast);
  enable(e.id);
}

void prepare_exchange(Event& e, SiteEntry& site) {
  const auto id = static_cast<unsigned>(e.id);
  if (!is_exchange(e.id) || e.nested || site.offset == kNoPlace || !is_open_to(e.id) || !is_plain_exchange(e)) return;
  const bool replaces = class_of(e.id) == CallClass::kSendReceiveReplace;
  const DataArgument& received = replaces ? e.send : e.receive;
  ReceivingHalf half = {e.comm_handle,
                        received.type,
                        received.count,
                        e.receive_peer,
                        e.receive_tag,
                        site.generation,
                        0,
                        nullptr,
                        nullptr,
                        0};
  ReceivingHalf* place = place_of(*e.thread, half);
  if (place == nullptr) return;
  flight::Received counted = {e.thread->no_traffic, 0};
  if (half.peer >= 0 && (counted = flight::received_by(e)).traffic == nullptr) return;
  half.traffic = counted.traffic;
  half.bytes = counted.bytes;
  place->comm_handle = 0;  // nobody's, until the modules have said yes
  site.receiving = &half;
  bool fast = true;
  for (auto* hook = hooks().fast; fast && *hook != nullptr; ++hook) fast = (*hook)(e, site);
  site.receiving = place;
  if (!fast) {
    site.id = static_cast<uint16_t>(id | kSeen);
    return;
  }
  *place = half;
  site.receive_type = half.type;
  Thread& thread = *e.thread;
  const bool is_former = &site >= thread.former;
  static_assert(offsetof(Thread, former) > offsetof(Thread, sites));
  e.thread->type_sites.add(
      half.type, static_cast<unsigned>(is_former ? &site - thread.former + kSiteCache : &site - thread.sites));
  site.id = static_cast<uint16_t>(id | kFast);
  enable(e.id);
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
  e.receive_peer = e.receive_tag = 0;  // no wildcard
  e.op = 0;
  e.result = result;
  e.requests = e.scratch = e.status_room = nullptr;
  for (unsigned char& one : e.module_state) one = 0;
  e.saved_requests = e.saved_few;
}

namespace {
DataArgument data_of(const GivenMessage& message) {
  return {message.buffer, message.count, message.type, nullptr, nullptr, nullptr};
}
}  // namespace

void message_event(Event& e, Call call, CallId id, int result) {
  event_of(e, call, id, result);
  const GivenMessage &message = call.thread->message, &received = call.thread->received;
  e.large = call_info(id).has(kCallLargeCount);
  e.peer = message.peer;
  e.tag = message.tag;
  e.comm = message.comm;
  e.comm_handle = message.comm->handle;
  const bool both = is_exchange(id);
  (both || !(e.attributes & kCallReceives) ? e.send : e.receive) = data_of(message);
  if (both) {
    e.receive = data_of(received);
    e.receive_peer = received.peer;
    e.receive_tag = received.tag;
  }
  e.given_send = e.send.buffer;
  e.given_receive = e.receive.buffer;
  e.given_count = message.count;
  if (both && messages->early(id)) messages->describe(e);
}

void complete_event(Event& e) {
  const CallId id = e.id;
  const DataArgument send = e.send, receive = e.receive;
  const uint64_t op = e.op, comm_handle = e.comm_handle;
  CommInfo* comm = e.comm;
  const void *given_send = e.given_send, *given_receive = e.given_receive;
  void* const requests = e.requests;
  ring::TraceBuffer& trace = *e.thread->trace;
  event_of(e, {e.thread, &trace.records[(trace.current - 1) & trace.last_place]}, id, 0);
  e.large = call_info(id).has(kCallLargeCount);
  e.send = send;
  e.receive = receive;
  e.op = op;
  e.comm_handle = comm_handle;
  e.comm = comm;
  e.given_send = given_send;
  e.given_receive = given_receive;
  e.requests = requests;
}

int general(Call call, CallId id, int result, void* requests, const void* saved, int64_t count, void* statuses,
            int flag) {
  Event e;
  if (messages != nullptr && (is_message(id) || is_exchange(id))) message_event(e, call, id, result);
  else event_of(e, call, id, result);
  e.requests = requests;
  if (e.attributes & kCallPoll) e.flag = &flag;
  e.request_count = count;
  e.statuses = e.given_statuses = statuses;
  if (saved != nullptr) {
    e.saved_requests = const_cast<void*>(saved);
    if (count == 1) e.saved_few[0] = request_handle(saved, 0);
  }
  leave(e);
  return e.result;
}

void general_announced(Call call, CallId id, int result) {
  Event e;
  message_event(e, call, id, result);
  messages->describe(e);
  leave(e);
}

}  // namespace resil::fast
