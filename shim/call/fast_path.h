// SPDX-License-Identifier: Apache-2.0
//
// The fast path of the call path: a call that is, from its call site, the same as the last one, or as one of some
// before it (Thread::former). Nothing is looked up and no Event is made. What enter(), the modules' hooks and leave()
// would write is written straight from the call site's entry: the flight record, the counters, the state slot
// (shim/ring/state_slots.h) and, for a request, its entry.
//
// Only while every module with a hook has said so for this call site (Module::fast): in mode watch that is hang
// detection alone. With MPI_THREAD_MULTIPLE only calls without requests go this way (is_threaded), by wrappers of their
// own. Whatever is unusual goes the general way: on the way in by returning
// false before anything is written, on the way out by an Event made afterwards (`general`).
//
// Included into the wrappers, by which each check and store is one of constants. No call is made on the way in, so that
// the arguments stay in their registers.
#pragma once

#include <type_traits>

#include "shim/abi/backend.h"
#include "shim/call/fast_calls.h"
#include "shim/call/fast_sites.h"
#include "shim/call/flight.h"
#include "shim/call/message_hooks.h"
#include "shim/ring/collective_history.h"
#include "shim/tables/tables.h"

namespace resil::fast {

/// Calls that read the clock go the general way while the word is 0: a module has something to do in one of the next.
extern const uint32_t* gate;
void open();  ///< none has, any more
/// Kinds of calls of which a call site may be open: a module that has no Module::fast, or threads, close them all.
extern uint8_t enabled;
/// Pending requests that must complete the general way: a module reads their status, or has a word of its own there.
extern uint32_t statuses_wanted;
/// Beside the entry of the same index in section "requests"; null: nobody wants it.
extern ring::Pending* pending;

/// A call that is under way. Not its call site: calls from inside MPI may take that place of the table meanwhile.
struct Call {
  Thread* thread;
  ring::Record* record;  ///< number `current` of the thread's trace buffer, again once calls from inside are over
};
inline bool is_there(Call call) {  ///< else callbacks' calls overwrote the record
  const ring::TraceBuffer& trace = *call.thread->trace;
  return trace.head - trace.current <= trace.last_place;
}

enum class Instead : uint8_t {
  kDone,
  kLibrarys,  ///< no module has to do with it
  kUnknown,  ///< it goes the way of all others
};
/// Carries a reduction out, or starts it, as a module would that executes it instead of the library. Of the Event there
/// are only what the wrapper was given, thread and communicator. Null: nobody does.
extern Instead (*execute_instead)(Event& e);
/// A request is complete that has a word of a reduction's beside it (Thread::started). MPI's code.
extern int (*reduction_over)(Thread& thread, uint64_t word);
/// What is called of these, by layer: the library, or Backend::reductions. Since prepare() has let the first one
/// through.
extern void* reductions[2][kOwnReductions];
/// In place of the library: false once execute_instead() has said so. Makes the Event whole.
void complete_event(Event& e);

/// A collective is over that a module checks: Thread::checked has what it left with the call site, and the buffers.
/// Null: nobody does. Below MPI_THREAD_MULTIPLE.
extern void (*checked)(Thread& thread);
/// In SiteEntry::check: in place the call goes the general way, since what it gives must be read before.
constexpr uintptr_t kNotInPlace = 1;
/// It has something to do before the next one while the first word is not 0, from the time in the second one on: these
/// go the general way.
extern const uint32_t* check_waits;
extern const uint64_t* check_from;

/// After a call that went the general way: whether the next equal one from there may go the fast path.
void prepare(Event& e, SiteEntry& site);
/// Likewise inside a call that sends and receives, which is again what it was the last time.
void prepare_exchange(Event& e, SiteEntry& site);

/// The Event of a call that has come back, without its requests.
void event_of(Event& e, Call call, CallId id, int result);
/// Likewise of a message, with what the program gave.
void message_event(Event& e, Call call, CallId id, int result);
/// The way out of a call of which something is unusual, by the Event that it would have had. What the call returns.
int general(Call call, CallId id, int result, void* requests, const void* saved, int64_t count, void* statuses,
            int flag = 1);

/// Of a nonblocking message or collective: its request is pending. False: found no place.
bool message_pending(Call call, CallId id, uint64_t key);
bool collective_pending(Call call, CallId id, uint64_t key);
/// Tells the module that looks at messages of it: here, where its word is found once more, so that other modes pay
/// nothing for that.
void message_started(Call call, CallId id, uint64_t key);
/// Of a call that has completed it, or these: handles that operations do not share. What the call returns.
int request_completed(Call call, CallId id, uint64_t key);
int requests_completed(Call call, CallId id, const uint64_t* handles, uint32_t count);

/// Has the module that checks something to do before the next call that may block?
[[gnu::always_inline]] inline bool check_is_due(const Thread& thread) {
  return __atomic_load_n(check_waits, __ATOMIC_RELAXED) != 0 &&
         thread.last_time >= __atomic_load_n(check_from, __ATOMIC_RELAXED);
}

struct Stamp {
  uint64_t time;
  uint8_t untimed;
};

/// As flight::stamp. False: a gap that has to be settled, or a module wants this call.
template <CallId id>
[[gnu::always_inline]] inline bool stamp(Thread& thread, Stamp& stamp) {
  stamp = {thread.last_time, ring::kUntimed};
  if ((is_poll(id) || thread.timing[static_cast<unsigned>(id)].until_timed != 0) && thread.unstamped != 0) [[likely]] {
    --thread.unstamped;
    return true;
  }
  const uint64_t now = ticks(), gap = now - stamp.time;
  if ((gap > flight::gap_ticks && thread.open_timing != nullptr) || __atomic_load_n(gate, __ATOMIC_RELAXED) == 0)
      [[unlikely]]
    return false;
  thread.unstamped = gap < flight::tight_ticks ? flight::kUnstamped : 0;
  thread.open_timing = nullptr;
  thread.last_time = now;
  stamp = {now, 0};
  return true;
}

/// As flight::enter; the record's number.
template <CallId id>
[[gnu::always_inline]] inline uint64_t record(Call& call, Thread* thread, SiteEntry* site, uint64_t frame,
                                              const Stamp& stamp) {
  ring::TraceBuffer& trace = *thread->trace;
  thread->depth = 1;
  thread->outer_frame = frame;
  ring::CallCounter& counter = trace.counters[static_cast<unsigned>(id)];
  counter.count += 1;
  if constexpr (has_bytes(call_info(id))) counter.bytes += site->record.bytes;
  if constexpr (is_message(id) || is_exchange(id)) {
    site->traffic[0] += 1;
    site->traffic[1] += site->record.bytes;
  }
  const uint64_t calls = trace.calls + 1, head = trace.head;
  trace.calls = calls;
  ring::Record* place = flight::place_for_next(trace, head);
  asm("" : "+r"(place));
  *place = site->record;
  place->time = stamp.time;
  place->sequence = calls;
  place->flags = static_cast<uint8_t>(site->record.flags | stamp.untimed);
  call = {thread, place};
  const uint64_t number = head + 1;
  __atomic_store_n(&trace.current, number, __ATOMIC_RELEASE);
  __atomic_store_n(&trace.head, number, __ATOMIC_RELEASE);
  return number;
}

/// No reader takes the slot for that of a call while it is written.
[[gnu::always_inline]] inline void slot_begin(ring::Wait& wait) {
  __atomic_store_n(&wait.steps, wait.steps + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&wait.instance, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
[[gnu::always_inline]] inline void slot_publish(ring::Wait& wait, uint64_t number) {
  __atomic_store_n(&wait.instance, number, __ATOMIC_RELEASE);
}

/// As flight::leave, and the end of leave().
template <CallId id>
[[gnu::always_inline]] inline void leave(Call call) {
  Thread& thread = *call.thread;
  ring::TraceBuffer& trace = *thread.trace;
  if (is_there(call)) [[likely]] {
    Timing& timing = thread.timing[static_cast<unsigned>(id)];
    if (timing.until_timed == 0) [[unlikely]] {
      flight::account(thread, *call.record, timing, id);
    } else {
      --timing.until_timed;
      ++timing.untimed;
      if constexpr ((call_info(id).attributes & kCallBlocking) != 0) thread.open_timing = &timing;
    }
    __atomic_store_n(&call.record->state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
  }
  __atomic_store_n(&trace.current, 0, __ATOMIC_RELEASE);
  thread.depth = 0;
}

/// Host memory, as far as the dormant module cares (dispatch.h, notice).
template <class... Buffers>
[[gnu::always_inline]] inline bool is_host(const Thread& thread, Buffers... buffers) {
  return thread.host_ranges.all() ||
         ((reinterpret_cast<uintptr_t>(buffers) - thread.host_ranges.low < thread.host_ranges.bytes) && ...);
}

// --- Messages -------------------------------------------------------------------------------------------------------

/// The next number of a counter; `threads`: others may count there at the same time.
template <bool threads>
[[gnu::always_inline]] inline uint64_t count_one(uint64_t& counter) {
  if constexpr (threads) return __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
  const uint64_t number = counter + 1;
  __atomic_store_n(&counter, number, __ATOMIC_RELAXED);
  return number;
}

template <CallId id, bool threads = false>
[[gnu::always_inline]] inline bool message(Call& call, uint64_t return_address, uint64_t frame, const void* buffer,
                                           int64_t count, uint64_t type, int peer, int tag, uint64_t comm) {
  constexpr bool kReceives = call_info(id).call_class == CallClass::kReceive;
  Thread* thread = current_thread;
  SiteEntry* site = equal_call<id>(thread, return_address, frame, comm, type, count, peer, [&](const SiteEntry& one) {
    return one.comm_handle != comm || one.peer != peer || one.tag != tag || one.count != count || one.type != type;
  });
  if (site == nullptr) return false;
  if (!threads && messages != nullptr) [[unlikely]]
    thread->message = {site->comm, buffer, count, type, peer, tag};
  if (!is_host(*thread, buffer)) [[unlikely]]
    return false;
  ring::Wait* wait = thread->wait;
  ring::Envelope* envelope = site->envelope;
  if (wait != nullptr) [[likely]] {
    const uint32_t& last = kReceives ? envelope->handles.posted : envelope->handles.sent;
    if (__atomic_load_n(&last, __ATOMIC_RELAXED) != static_cast<uint32_t>(type)) [[unlikely]]
      return false;
  }
  Stamp time;
  if (!stamp<id>(*thread, time)) [[unlikely]]
    return false;
  const uint64_t record_number = record<id>(call, thread, site, frame, time);
  if (wait == nullptr) [[unlikely]]
    return true;
  slot_begin(*wait);
  const uint64_t number = count_one<threads>(kReceives ? envelope->posted : envelope->sent);
  wait->peer = site->world;
  (kReceives ? wait->receive_ordinal : wait->send_ordinal) = static_cast<uint32_t>(number);
  if constexpr ((call_info(id).attributes & kCallStarts) == 0) {
    if constexpr (!kReceives) wait->mode = call_info(id).mode;
    slot_publish(*wait, record_number);
  }
  return true;
}

/// MPI_Sendrecv_replace: `received` and the amount are those of what is sent. `peer`, `source`: as Events have them,
/// since either may be MPI_PROC_NULL, for which nothing is counted.
template <CallId id, bool threads = false>
[[gnu::always_inline]] inline bool exchange(Call& call, uint64_t return_address, uint64_t frame, const void* sent,
                                            int64_t count, uint64_t type, int peer, int tag, const void* received,
                                            int64_t receive_count, uint64_t receive_type, int source, int receive_tag,
                                            uint64_t comm) {
  Thread* thread = current_thread;
  SiteEntry* site = equal_call<id>(thread, return_address, frame, comm, type, count, peer, [&](const SiteEntry& one) {
    return one.comm_handle != comm || one.peer != peer || one.tag != tag || one.count != count || one.type != type;
  });
  if (site == nullptr) return false;
  const ReceivingHalf* half = site->receiving;
  // Its type twice: who frees one closes the sites that have it, and others may have filled this half anew.
  if (half->comm_handle != comm || half->type != receive_type || site->receive_type != receive_type ||
      half->count != receive_count || half->peer != source || half->tag != receive_tag ||
      half->generation != site->generation) [[unlikely]]
    return false;
  if (!is_host(*thread, sent, received)) [[unlikely]]
    return false;
  ring::Wait* wait = thread->wait;
  ring::Envelope *out = site->envelope, *in = half->envelope;
  const bool sends = site->world >= 0, receives = half->world >= 0;
  if (wait != nullptr) [[likely]] {
    if (sends && __atomic_load_n(&out->handles.sent, __ATOMIC_RELAXED) != static_cast<uint32_t>(type)) [[unlikely]]
      return false;
    if (receives && __atomic_load_n(&in->handles.posted, __ATOMIC_RELAXED) != static_cast<uint32_t>(receive_type))
        [[unlikely]]
      return false;
  }
  if (!threads && messages != nullptr) [[unlikely]] {
    if (check_is_due(*thread)) return false;
    thread->message = {site->comm, sent, count, type, peer, tag};
    thread->received = {site->comm, received, receive_count, receive_type, source, receive_tag};
  }
  Stamp time;
  if (!stamp<id>(*thread, time)) [[unlikely]]
    return false;
  const uint64_t record_number = record<id>(call, thread, site, frame, time);
  half->traffic[0] += 1;
  half->traffic[1] += half->bytes;
  if (wait == nullptr) [[unlikely]]
    return true;
  slot_begin(*wait);
  uint64_t send_number = 0, number = 0;
  if (sends) [[likely]]
    send_number = count_one<threads>(out->sent);
  if (receives) [[likely]]
    number = count_one<threads>(in->posted);
  wait->peer = site->world;
  wait->receive_peer = half->world;
  wait->receive_tag = receive_tag;
  wait->send_ordinal = static_cast<uint32_t>(send_number);
  wait->receive_ordinal = static_cast<uint32_t>(number);
  wait->mode = SendMode::kStandard;
  slot_publish(*wait, record_number);
  return true;
}

/// Of a blocking call in one direction or both.
template <CallId id>
[[gnu::always_inline]] inline void message_done(Call call, int result) {
  if (result != 0) [[unlikely]]
    return static_cast<void>(general(call, id, result, nullptr, nullptr, 0, nullptr));
  leave<id>(call);
}

template <class Handle>
[[gnu::always_inline]] inline uint64_t key_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) return reinterpret_cast<uint64_t>(handle);
  else return static_cast<uint32_t>(handle);
}

/// Of a nonblocking message or collective. `request`: where the call has stored the handle.
template <CallId id, class Handle>
[[gnu::always_inline]] inline int started(Call call, int result, Handle* request) {
  constexpr auto* kPending = is_message(id) ? message_pending : collective_pending;
  if (result != 0 || !kPending(call, id, key_of(*request))) [[unlikely]]
    return general(call, id, result, request, nullptr, 1, nullptr);
  if (is_message(id) && messages != nullptr) [[unlikely]]
    message_started(call, id, key_of(*request));
  leave<id>(call);
  return 0;
}

// --- Waits ----------------------------------------------------------------------------------------------------------

/// `saved`: room for the handles of any call that goes this way.
template <CallId id, class Handle>
[[gnu::always_inline]] inline bool wait(Call& call, uint64_t return_address, uint64_t frame, const Handle* requests,
                                        int64_t count, Handle* saved) {
  constexpr bool kOne = call_info(id).completion == Completion::kOne;
  Thread* thread = current_thread;
  SiteEntry* site = repeated<id>(thread, return_address, frame);
  if (site == nullptr) return false;
  if (static_cast<uint64_t>(count) > ring::kWaitedKeys || __atomic_load_n(&statuses_wanted, __ATOMIC_RELAXED) != 0)
      [[unlikely]]
    return false;
  Stamp time;
  if (!stamp<id>(*thread, time)) [[unlikely]]
    return false;
  const uint64_t record_number = record<id>(call, thread, site, frame, time);
  call.record->aux = static_cast<uint64_t>(count);
  ring::Wait* wait = thread->wait;
  if constexpr (kOne) {
    const uint64_t key = key_of(saved[0] = requests[0]);
    const bool shared = request_is_shared(key);
    if (wait == nullptr) [[unlikely]]
      return true;
    slot_begin(*wait);
    wait->keys[0] = key;
    wait->count = wait->kept = !shared;
    wait->flags = shared && key != shared_requests.null_key ? ring::kSatisfied : 0;
  } else {
    if (wait == nullptr) [[unlikely]] {
      for (int64_t i = 0; i < count; ++i) saved[i] = requests[i];
      return true;
    }
    slot_begin(*wait);
    uint32_t kept = 0;
    uint8_t flags = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t key = key_of(saved[i] = requests[i]);
      if (!request_is_shared(key)) [[likely]] {
        wait->keys[kept++] = key;
      } else if (key != shared_requests.null_key) {
        flags = ring::kSatisfied;
      }
    }
    wait->count = wait->kept = kept;
    wait->flags = flags;
  }
  slot_publish(*wait, record_number);
  return true;
}

template <CallId id, class Handle>
[[gnu::always_inline]] inline int waited(Call call, int result, Handle* requests, int64_t count, Handle* saved,
                                         void* statuses) {
  if (result != 0) [[unlikely]]
    return general(call, id, result, requests, saved, count, statuses);
  if constexpr (call_info(id).completion == Completion::kOne) {
    if (const uint64_t key = key_of(saved[0]); !request_is_shared(key)) [[likely]]
      result = request_completed(call, id, key);
  } else {
    const ring::Wait* wait = call.thread->wait;
    if (wait != nullptr && wait->instance == call.thread->trace->current) [[likely]] {
      result = requests_completed(call, id, wait->keys, wait->kept);
    } else {  // no slot, or callbacks' calls have used it
      for (int64_t i = 0; i < count; ++i)
        if (const uint64_t key = key_of(saved[i]); !request_is_shared(key))
          if (const int error = request_completed(call, id, key); result == 0) result = error;
    }
  }
  leave<id>(call);
  return result;
}

// --- Collectives ----------------------------------------------------------------------------------------------------

/// Blocking or nonblocking. `count`, `type`, `op`: of a call with blocks both_counts(), what is sent, and the type of
/// what is received.
template <CallId id, bool threads = false>
[[gnu::always_inline]] inline bool collective(Call& call, uint64_t return_address, uint64_t frame, const void* sent,
                                              const void* received, int64_t count, uint64_t type, int root, uint64_t op,
                                              uint64_t comm) {
  Thread* thread = current_thread;
  constexpr CallInfo info = call_info(id);
  constexpr bool kMoves = moves_data(info.collective), kStarts = info.has(kCallStarts);
  SiteEntry* site =
      equal_call<id>(thread, return_address, frame, comm, kMoves ? type : 0, kMoves ? count : 0,
                     has_root(info.collective) ? root : ring::kNoPeer, [&](const SiteEntry& one) {
                       return one.comm_handle != comm || (has_root(info.collective) && one.peer != root) ||
                              ((is_reduction(info.collective) || info.has(kCallHasBlocks)) && one.op != op) ||
                              (kMoves && (one.count != count || one.type != type));
                     });
  if (site == nullptr) return false;
  if (kMoves && !is_host(*thread, sent, received)) [[unlikely]]
    return false;
  if (kMoves && !threads && !kStarts && checked != nullptr) [[unlikely]] {
    if (check_is_due(*thread)) return false;
    if ((site->check & kNotInPlace) && (sent == received || reinterpret_cast<intptr_t>(sent) == backend->in_place))
      return false;
    thread->checked = {site->check, sent, received};
  }
  Stamp time;
  if (!stamp<id>(*thread, time)) [[unlikely]]
    return false;
  const uint64_t record_number = record<id>(call, thread, site, frame, time);
  ring::Comm& shown = *site->comm->ring;
  call.record->sequence = ++shown.collectives;
  shown.last_collective = static_cast<uint16_t>(id);
  ring::Wait* wait = thread->wait;
  if (wait == nullptr) [[unlikely]]
    return true;
  slot_begin(*wait);
  wait->peer = site->world;
  const uint64_t signature = site->record.aux;
  wait->signature = signature;
  wait->flags = 0;
  const uint64_t number = shown.ordered + 1;
  __atomic_store_n(&shown.ordered, number, __ATOMIC_RELAXED);
  wait->sequence = number;
  ring::history_add_mixed(*site->comm->history, number, signature,
                          {static_cast<uint32_t>(site->mixed >> 32), static_cast<uint32_t>(site->mixed)},
                          site->basic_type);
  if constexpr (!kStarts) slot_publish(*wait, record_number);
  return true;
}

template <CallId id, bool threads>
[[gnu::always_inline]] inline void collective_done(Call call, int result) {
  if (result != 0) [[unlikely]]
    return static_cast<void>(general(call, id, result, nullptr, nullptr, 0, nullptr));
  if (moves_data(call_info(id).collective) && !threads && checked != nullptr) [[unlikely]]
    checked(*call.thread);
  leave<id>(call);
}

// --- Polls ----------------------------------------------------------------------------------------------------------

/// The next of the failing polls that the newest record stands for?
[[gnu::always_inline]] inline bool goes_on(const ring::Record& last, const ring::Record& made) {
  return (last.flags & ring::kFolded) && last.call == made.call && last.site == made.site && last.comm == made.comm &&
         last.peer == made.peer && last.tag == made.tag;
}

/// `key`: MPI_Test's. `peer`, `tag`: as Events have them.
template <CallId id>
[[gnu::always_inline]] inline bool poll(Call& call, uint64_t return_address, uint64_t frame, uint64_t key, int peer,
                                        int tag, uint64_t comm) {
  constexpr bool kTests = call_info(id).call_class == CallClass::kCompletion;
  Thread* thread = current_thread;
  SiteEntry* site = repeated<id>(thread, return_address, frame);
  if (site == nullptr) return false;
  if constexpr (kTests) {
    if (request_is_shared(key) || __atomic_load_n(&statuses_wanted, __ATOMIC_RELAXED) != 0) [[unlikely]]
      return false;
  } else if (site->comm_handle != comm || site->peer != peer || site->tag != tag) [[unlikely]] {
    return false;
  }
  ring::TraceBuffer& trace = *thread->trace;
  ring::Wait* wait = thread->wait;
  const uint64_t head = trace.head, run = wait != nullptr ? ring::kRun | wait->steps : 0;
  ring::Record& last = trace.records[(head - 1) & trace.last_place];  // of a new trace buffer: zeros
  const bool on = goes_on(last, site->record);
  if (wait != nullptr) [[likely]] {
    if ((wait->instance == run) != on) [[unlikely]]
      return false;
    // A run that asks for just this.
    const ring::Probe& asked = wait->probes[0];
    if (on && (kTests ? wait->kept != 1 || wait->keys[0] != key || wait->probe_count != 0 || wait->flags != 0
                      : wait->kept != 0 || wait->probe_count != 1 || asked.comm != site->signature ||
                            asked.peer != site->world || asked.tag != tag || wait->flags != 0)) [[unlikely]]
      return false;
  }
  if (on) [[likely]] {
    if (__atomic_load_n(gate, __ATOMIC_RELAXED) == 0) [[unlikely]]
      return false;
    thread->depth = 1;
    thread->outer_frame = frame;
    ++trace.calls;
    ++trace.counters[static_cast<unsigned>(id)].count;
    __atomic_store_n(&last.state, static_cast<uint8_t>(ring::RecordState::kOpen), __ATOMIC_RELEASE);
    call = {thread, &last};
    __atomic_store_n(&trace.current, head, __ATOMIC_RELEASE);
    return true;
  }
  Stamp time;
  if (!stamp<id>(*thread, time)) [[unlikely]]
    return false;
  record<id>(call, thread, site, frame, time);
  if constexpr (kTests) call.record->aux = 1;
  if (wait == nullptr) [[unlikely]]
    return true;
  __atomic_store_n(&wait->instance, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  wait->flags = 0;
  wait->count = wait->kept = kTests;
  wait->probe_count = !kTests;
  if constexpr (kTests) wait->keys[0] = key;
  else wait->probes[0] = {site->signature, site->world, tag};
  slot_publish(*wait, run);
  return true;
}

/// `key`: what the program's handle was.
template <CallId id, class Handle>
[[gnu::always_inline]] inline int polled(Call call, int result, int flag, Handle* request, Handle saved,
                                         void* statuses) {
  constexpr int64_t kCount = call_info(id).call_class == CallClass::kCompletion;
  if (result != 0 || !is_there(call)) [[unlikely]]
    return general(call, id, result, request, &saved, kCount, statuses, flag);
  Thread& thread = *call.thread;
  ring::Record& record = *call.record;
  ring::Wait* wait = thread.wait;
  if (flag != 0) {
    if constexpr (kCount == 1) result = request_completed(call, id, key_of(saved));
    if (wait != nullptr) [[likely]]
      __atomic_store_n(&wait->steps, wait->steps + 1, __ATOMIC_RELAXED);
  } else if (wait != nullptr) [[likely]] {
    __atomic_store_n(&wait->polls, wait->polls + 1, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&record.state, static_cast<uint8_t>(ring::RecordState::kDone), __ATOMIC_RELEASE);
  if (flag != 0) {
    if (record.flags & ring::kFolded) flight::end_run(thread, record, kCount);
  } else if (record.flags & ring::kFolded) {
    ++record.repeat;
  } else {
    record.flags |= ring::kFolded;
  }
  __atomic_store_n(&thread.trace->current, 0, __ATOMIC_RELEASE);
  thread.depth = 0;
  return result;
}

// --- Local queries --------------------------------------------------------------------------------------------------

/// Counts one. False: nothing was done, and the usual way has to look.
template <CallId id>
[[gnu::always_inline]] inline bool counted(uint64_t return_address, uint64_t frame) {
  Thread* thread = current_thread;
  if (thread == nullptr || thread->depth != 0) [[unlikely]]
    return false;
  const SiteEntry* site = &thread->sites[site_place(return_address)];
  asm("" : "+r"(site));  // one register, not an index worked out again at each use
  if (site->return_address != return_address) [[unlikely]]
    return false;
  if (!to_program(*site, frame, &return_address)) return false;
  flight::count_local(*thread, id, return_address);
  return true;
}

}  // namespace resil::fast
