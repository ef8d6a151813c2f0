// SPDX-License-Identifier: Apache-2.0
//
// The call path. Every MPI call that the application makes passes through enter() and leave() once; nothing here may
// allocate, lock or enter the kernel in steady state.

#include "shim/call/dispatch.h"

#include <initializer_list>

#include "shim/call/attach.h"
#include "shim/call/fast_path.h"
#include "shim/call/flight.h"
#include "shim/call/objects.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

Thread* admitted(Event& e) {
  Thread* thread = current_thread;
  if (thread == nullptr) {
    if (!runtime_attached()) {
      // Before MPI_Init, or initialised out of sight (a static or hidden binding).
      bool may_ask = !(e.attributes & (kCallTool | kCallLifecycle)) && e.id != CallId::kMPI_Initialized &&
                     e.id != CallId::kMPI_Finalized;
      if (!may_ask || !backend->initialized() || backend->finalized() || !attach_late()) return nullptr;
    }
    return thread_register();
  }
  if (thread->disabled) return nullptr;
  // Inside MPI already. A frame above the open call's means that the open call was left by an exception or longjmp.
  if (e.frame >= thread->outer_frame) {
    thread->depth = 0;
    thread->trace->current = 0;
    return thread;
  }
  // Application code called back by MPI is application again; MPI calling itself is not.
  if (site_lookup(*thread, e.return_address, e.frame).kind != SiteClass::kApplication) return nullptr;
  e.nested = true;
  return thread;
}

}  // namespace

void admit(Event& e) { e.thread = admitted(e); }

namespace {

/// What says how many bytes a call moves on this rank.
enum class Amount : uint8_t {
  kNone,  ///< it moves none
  kOneArgument,  ///< count, type, peer and communicator alone
  kBlocks,  ///< these, and count and type of the other side
  kSeveral,  ///< arguments of blocks, partitions
};
constexpr auto kAmounts = by_call([](const CallInfo& info) {
  return !has_bytes(info)           ? Amount::kNone
         : info.has(kCallHasData)   ? Amount::kOneArgument
         : info.has(kCallHasBlocks) ? Amount::kBlocks
                                    : Amount::kSeveral;
});

bool fits(int64_t count) { return static_cast<int32_t>(count) == count; }
/// What lies in place has no amount of its own, and two large counts are not one number.
bool says_too_little(const Event& e) {
  const intptr_t in_place = backend->in_place;
  return reinterpret_cast<intptr_t>(e.send.buffer) == in_place ||
         reinterpret_cast<intptr_t>(e.receive.buffer) == in_place ||
         (e.large && !(fits(e.send.count) && fits(e.receive.count)));
}
int64_t counts_of(const Event& e) { return both_counts(e.send.count, e.receive.count); }

/// The general way: looks everything up and leaves the envelope with the call site for the next time.
[[gnu::noinline]] void look_up(Event& e, SiteEntry& site) {
  Thread& thread = *e.thread;
  if (thread.objects_unloaded != objects_unloaded.load(std::memory_order_acquire)) [[unlikely]] {
    sites_forget(thread);  // `site` is the same place of the table
    e.site = site_address(site_resolve(thread, e.return_address, e.frame), e.frame);
  }
  const Amount amount = kAmounts[e.id];
  e.comm = e.comm_handle != 0 ? comm_lookup(thread, e.comm_handle) : nullptr;
  e.bytes = amount == Amount::kNone ? 0 : compute_bytes(e);
  const DataArgument& side = e.attributes & kCallReceives ? e.receive : e.send;
  const bool kept = amount != Amount::kSeveral && (amount != Amount::kBlocks || !says_too_little(e));
  site.id = kept ? static_cast<uint16_t>(e.id) : kNoCall;
  site.site = e.site;
  site.comm_handle = e.comm_handle;
  site.comm = e.comm;
  site.peer = e.peer;
  site.tag = e.tag;
  const bool has_type = kept && amount != Amount::kNone;
  site.count = has_type ? side.count : 0;
  site.type = has_type ? side.type : 0;
  if (has_type) thread.type_sites.add(site.type, site_place(e.return_address));
  if (kept && amount == Amount::kBlocks) {
    site.count = counts_of(e);
    site.receive_type = e.receive.type;
    thread.type_sites.add(site.receive_type, site_place(e.return_address));
  }
  site.generation = call_generation.load(std::memory_order_relaxed);
  flight::prepare(e, site);
}

[[gnu::noinline]] bool blocks_repeat(const Event& e, const SiteEntry& site) {
  return site.count == counts_of(e) && site.type == e.send.type && site.receive_type == e.receive.type &&
         !says_too_little(e);
}

[[gnu::always_inline]] inline bool repeats(const Event& e, const SiteEntry& site) {
  // Loaded apart: the two were stored apart just now, and one wide load would wait for both to reach the cache.
  const int32_t peer = __atomic_load_n(&e.peer, __ATOMIC_RELAXED), tag = __atomic_load_n(&e.tag, __ATOMIC_RELAXED);
  if ((site.id & kNoCall) != static_cast<uint16_t>(e.id) || site.comm_handle != e.comm_handle || site.peer != peer ||
      site.tag != tag || site.generation != call_generation.load(std::memory_order_relaxed))
    return false;
  if (site.offset != 0 && site.site != e.site) return false;
  if (!(e.attributes & kCallHasData)) return !(e.attributes & kCallHasBlocks) || blocks_repeat(e, site);
  const DataArgument& side = e.attributes & kCallReceives ? e.receive : e.send;
  return site.count == side.count && site.type == side.type;
}

/// Polls fold into one record, and what completes requests has no envelope.
bool has_former(const SiteEntry& site) {
  return site.id != kNoCall && site.comm_handle != 0 &&
         !call_info(static_cast<CallId>(site.id & kNoCall)).has(kCallPoll);
}

/// From now on there are so many places, and all are free: each envelope has other ones.
[[gnu::noinline]] void make_more_former(Thread& thread, uint32_t more) {
  for (unsigned i = 0; i < kFewFormer << thread.former_more; ++i) thread.former[i].return_address = 0;
  thread.former_more = more;
}

/// The place of two for an envelope: its own, a free one, or one that another must leave. There are more of them once
/// that has happened often; and more again once a loop over ranks has come round and found them taken, which other tags
/// or amounts each time would not find there next time either.
[[gnu::always_inline]] inline unsigned former_place_for(Thread& thread, const SiteEntry& site) {
  constexpr uint32_t kOften = 16, kOftenRanks = 64;
  const uint64_t bits = former_bits(site.site, site.comm_handle, site.type, site.count, site.peer);
  const unsigned first = former_place(thread, bits), second = former_other(first, bits);
  const auto is_own = [&](const SiteEntry& one) {
    return one.site == site.site && one.comm_handle == site.comm_handle && one.type == site.type &&
           one.count == site.count && one.peer == site.peer && one.tag == site.tag &&
           (one.id & kNoCall) == (site.id & kNoCall);
  };
  const auto is_free = [&](const SiteEntry& one) {
    return one.return_address == 0 || one.id == kNoCall ||
           one.generation != call_generation.load(std::memory_order_relaxed);
  };
  if (is_own(thread.former[first]) || (is_free(thread.former[first]) && !is_own(thread.former[second]))) return first;
  if (is_own(thread.former[second]) || is_free(thread.former[second])) return second;
  if (++thread.former_moved == kOften && thread.former_more == 0) {
    make_more_former(thread, kFormerMore);
    return former_place(thread, bits);
  }
  const unsigned place = thread.former_moved % 2 != 0 ? first : second;
  const SiteEntry& leaves = thread.former[place];
  if (thread.former_more == kFormerMore && leaves.peer != site.peer && leaves.site == site.site &&
      leaves.tag == site.tag && leaves.count == site.count && leaves.type == site.type &&
      leaves.comm_handle == site.comm_handle && ++thread.partners_moved == kOftenRanks) {
    make_more_former(thread, kFormerMost);
    return former_place(thread, bits);
  }
  return place;
}

/// The last envelope of a call site, before another one takes its place.
[[gnu::noinline]] void keep_former(Thread& thread, const SiteEntry& site) {
  if (!has_former(site)) return;
  const unsigned place = former_place_for(thread, site);
  thread.former[place] = site;
  thread.type_sites.add(site.type, kSiteCache + place);
  if (has_two_types(site)) thread.type_sites.add(site.receive_type, kSiteCache + place);
}

/// What an equal call from there has left, though another one has followed it; null: nothing.
[[gnu::always_inline]] inline SiteEntry* former_of(const Event& e) {
  const DataArgument& side = e.attributes & kCallReceives ? e.receive : e.send;
  const Amount amount = kAmounts[e.id];
  const bool moves = amount == Amount::kOneArgument || amount == Amount::kBlocks;
  const int64_t count = amount == Amount::kBlocks ? counts_of(e) : side.count;
  const uint64_t bits = former_bits(e.site, e.comm_handle, moves ? side.type : 0, moves ? count : 0, e.peer);
  const unsigned first = former_place(*e.thread, bits);
  for (const unsigned place : {first, former_other(first, bits)}) {
    SiteEntry& former = e.thread->former[place];
    if (former.return_address != e.return_address || former.site != e.site || !repeats(e, former)) continue;
    // What stood in the way of the fast path may do so no more.
    if (!(former.id & kFast) && (hooks().fast_kinds & fast::kMayBeFast.of[static_cast<unsigned>(e.id)])) return nullptr;
    return &former;
  }
  return nullptr;
}

/// A call that sends and receives, the general way. Once one receives what the last one from its site did, the next may
/// go the fast path: what calls with a new datatype each time would keep is in vain.
[[gnu::noinline]] void exchange_again(Event& e, SiteEntry* site) {
  if (site->return_address != e.return_address || site->site != e.site || !repeats(e, *site)) site = former_of(e);
  if (site == nullptr) return;
  const uint64_t mixed = static_cast<uint64_t>(e.receive_peer) ^ static_cast<uint64_t>(e.receive_tag) << 32 ^
                         e.receive.type * 3 ^ static_cast<uint64_t>(e.receive.count) * 0x9e3779b97f4a7c15;
  const auto half = static_cast<uint32_t>(mixed ^ mixed >> 32);
  if ((site->id & (kSeen | kFast)) != 0 && site->seen == half) return fast::prepare_exchange(e, *site);
  site->seen = half;
  if (!(site->id & kFast)) site->id |= kSeen;
}
[[gnu::always_inline]] inline void exchange_seen(Event& e) {
  SiteEntry& site = e.thread->sites[site_place(e.return_address)];
  if (site.id == static_cast<uint16_t>(e.id)) site.id |= kSeen;
  else exchange_again(e, &site);
}

/// No call that completes requests does anything else that concerns the tables on the way in.
constexpr bool kCompletesAlone = [] {
  for (unsigned id = 0; id < kCallCount; ++id) {
    const uint32_t is = call_info(static_cast<CallId>(id)).attributes;
    if ((is & kCallCompletes) && (is & (kCallActivates | kCallBothWays | kCallCreatesComm | kCallCollective)))
      return false;
  }
  return true;
}();

[[gnu::noinline]] void enter_tables(Event& e) {
  if (e.attributes & kCallCompletes) {
    request_remember(e);
    e.record->aux = static_cast<uint64_t>(e.request_count);
    static_assert(kCompletesAlone);
    return;
  }
  if ((e.attributes & kCallActivates) && hooks().activating[0] != nullptr) request_activating(e);
  if (e.attributes & kCallBothWays) {
    flight::count_receive(e);
    if (hooks().fast_kinds & fast::kOthers) exchange_seen(e);
  }
  if (e.attributes & kCallCreatesComm) e.derived_id = comm_derive_id(e);
  if ((e.attributes & kCallCollective) && e.comm != nullptr) {
    e.sequence = e.record->sequence = ++e.comm->ring->collectives;
    e.comm->ring->last_collective = static_cast<uint16_t>(e.id);
  }
}

[[gnu::noinline]] void leave_tables(Event& e) {
  if (e.attributes & kCallStarts) {
    if (e.result == 0) [[likely]]
      request_started(e);
    else if (e.attributes & kCallCreatesComm) comm_creation_failed(e);
  } else if (e.attributes & kCallCompletes) {
    request_completed(e);
  } else if (e.attributes & kCallActivates) {
    if (e.result == 0) request_activated(e);
  } else if (e.result != 0) {
    comm_creation_failed(e);
  } else {
    comm_creation_succeeded(e);
    comm_register_new(*e.thread, request_handle(e.new_comm, 0), e.derived_id, e.comm, e.id, e.site);
  }
}

/// The call's record, the tables, and then the modules.
[[gnu::always_inline]] inline void record_and_tell(Event& e, SiteEntry& site) {
  if (e.attributes & kCallPoll) flight::enter_poll(e, site);
  else flight::enter(e, site);
  if (e.attributes & (kCallCompletes | kCallActivates | kCallCollective | kCallCreatesComm | kCallBothWays))
    enter_tables(e);
  for (auto* hook = hooks().enter; *hook != nullptr; ++hook) (*hook)(e);
}

/// A call that is not the last one from its site again.
[[gnu::noinline]] bool enter_new(Event& e, SiteEntry& site) {
  // Of calls with several amounts no envelope is kept.
  if (SiteEntry* former = kAmounts[e.id] != Amount::kSeveral ? former_of(e) : nullptr; former != nullptr) {
    e.comm = former->comm;
    e.bytes = former->record.bytes;
    record_and_tell(e, *former);
    return true;
  }
  keep_former(*e.thread, site);
  look_up(e, site);
  record_and_tell(e, site);
  fast::prepare(e, site);
  return true;
}

}  // namespace

bool enter(Event& e) {
  Thread& thread = *e.thread;
  SiteEntry* found = &thread.sites[site_place(e.return_address)];
  asm("" : "+r"(found));  // one register, not an index worked out again at each use
  SiteEntry& site = *found;
  if (site.return_address != e.return_address) [[unlikely]]
    site_resolve(thread, e.return_address, e.frame);
  e.site = e.return_address;
  if (site.special) [[unlikely]] {
    if (site.kind == SiteClass::kInternal) return false;
    e.site = site_address(site, e.frame);
  }
  Timing& timing = thread.timing[static_cast<unsigned>(e.id)];
  e.timing = &timing;
  if (!(e.attributes & kCallPoll)) flight::stamp(e, timing);
  if (e.nested) [[unlikely]] {
    e.outer_depth = thread.depth;
    e.outer_frame = thread.outer_frame;
    e.outer_record = thread.trace->current;
  }
  ++thread.depth;
  thread.outer_frame = e.frame;
  if (!repeats(e, site)) [[unlikely]]
    return enter_new(e, site);
  e.comm = site.comm;
  e.bytes = site.record.bytes;
  record_and_tell(e, site);
  return true;
}

void leave(Event& e) {
  Thread& thread = *e.thread;
  if (e.attributes & (kCallStarts | kCallActivates | kCallCompletes | kCallCreatesComm)) leave_tables(e);
  for (auto* hook = hooks().leave; *hook != nullptr; ++hook) (*hook)(e);
  if (e.attributes & kCallCompletes) request_forget(e);
  if (thread.trace->head - e.record_number <= thread.trace->last_place)
      [[likely]] {  // else callbacks' calls overwrote it
    if (e.attributes & kCallPoll) flight::leave_poll(e);
    else flight::leave(e);
  }
  if (!e.nested) [[likely]] {
    __atomic_store_n(&thread.trace->current, 0, __ATOMIC_RELEASE);
    thread.depth = 0;
    return;
  }
  __atomic_store_n(&thread.trace->current, e.outer_record, __ATOMIC_RELEASE);
  thread.depth = e.outer_depth;
  thread.outer_frame = e.outer_frame;
}

namespace {

/// A call site that is new, or the library's own, or of a binding whose caller must be looked for.
[[gnu::noinline]] void count_elsewhere(Thread* thread, CallId id, uint64_t return_address, uint64_t frame) {
  SiteEntry& site = site_lookup(*thread, return_address, frame);
  if (!site.special || site.kind != SiteClass::kInternal)
    flight::local(*thread, id, site.special ? site_address(site, frame) : return_address);
}

}  // namespace

void count_local(Thread* thread, CallId id, uint64_t return_address, uint64_t frame) {
  const SiteEntry& site = thread->sites[site_place(return_address)];
  if (site.return_address != return_address) [[unlikely]]
    return count_elsewhere(thread, id, return_address, frame);
  uint64_t caller = return_address;
  if (site.special) [[unlikely]] {
    if (site.kind == SiteClass::kInternal || site.offset == kNoPlace)
      return count_elsewhere(thread, id, return_address, frame);
    if (site.offset != 0) {
      caller = *reinterpret_cast<const uint64_t*>(frame + site.offset);
      if (caller - site.module_start >= site.module_bytes) return count_elsewhere(thread, id, return_address, frame);
    }
    caller += site.shift;
  }
  flight::local(*thread, id, caller);
}

bool intercept(Event& e) {
  const Hooks& lists = hooks();
  for (auto* hook = lists.before_call; *hook != nullptr; ++hook) (*hook)(e);
  for (auto* hook = lists.execute_instead; *hook != nullptr; ++hook)
    if ((*hook)(e)) return true;
  return false;
}

void after_call(Event& e) {
  for (auto* hook = hooks().after_call; *hook != nullptr; ++hook) (*hook)(e);
}

bool give_statuses(Event& e) {
  if (!backend->messages->status_ignored(e.given_statuses)) return true;
  // One status: MPI_Recv, MPI_Wait, MPI_Waitany and the like.
  const bool single = !(e.attributes & kCallCompletes) || e.index != nullptr || e.request_count <= 1;
  void* room = single ? e.own_status : e.status_room;
  if (room == nullptr && e.scratch == nullptr)  // few handles, that needed no room: given back with the call's scratch
    room = e.scratch = e.status_room =
        scratch_acquire(*e.thread, static_cast<size_t>(e.request_count) * backend->status_bytes, e.frame);
  if (room == nullptr) return false;
  e.given_statuses = room;
  return true;
}

void look_at_buffer(Thread& thread, const void* buffer) {
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  const Module* module = __atomic_load_n(&dormant, __ATOMIC_ACQUIRE);
  if (module == nullptr) {
    const bool local_calls = hooks().local_enter != nullptr;  // somebody looks at these
    thread.host_ranges.word = &HostRangeCache::kNever;
    thread.host_ranges.value = local_calls ? HostRangeCache::kNever + 1 : HostRangeCache::kNever;
    thread.host_ranges.low = 0;
    thread.host_ranges.bytes = ~uintptr_t{0};
  } else if (address + 1 > 2 && module->activate_on_buffer(buffer, &thread.host_ranges)) {
    registry_activate();  // 0, 1 and -1 are MPI_BOTTOM and MPI_IN_PLACE
  }
}

LocalWay local_enter(Thread& thread, LocalData& data) {
  notice(thread, data.in.buffer);
  notice(thread, data.out.buffer);
  auto* hook = hooks().local_enter;
  return hook != nullptr ? hook(thread, data) : LocalWay::kAsItIs;
}

int local_leave(Thread& thread, LocalData& data, int result, int64_t packed) {
  return hooks().local_leave(thread, data, result, packed);
}

}  // namespace resil
