// SPDX-License-Identifier: Apache-2.0
//
// The request table: what is pending, where it was posted. Lock-free: a key slot is claimed by compare-and-swap and
// given back by a store. Keys sit in buckets of one cache line beside the ring's entries, so that the usual answer,
// "not here", costs one line. Operations that complete at once share a handle and never enter the table. What finds no
// place goes to the second level (request_overflow.h) when a module must see it complete: out of sight of dumps.

#include "shim/abi/backend.h"
#include "shim/abi/request_failure.h"
#include "shim/call/fast_messages.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/messages.h"
#include "shim/model/request_class.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/request_duplicates.h"
#include "shim/tables/request_entry.h"
#include "shim/tables/request_overflow.h"
#include "shim/tables/request_serial.h"
#include "shim/tables/request_starts.h"
#include "shim/tables/tables.h"

namespace resil {

using namespace request_entry;

uint64_t* request_words;
SharedRequests shared_requests;

namespace {

constexpr uint32_t kBucket = ring::kRequestBucket, kReach = ring::kRequestReach;
constexpr uint32_t kNone = ~0u;
constexpr int kUndefinedIndex = -32766;  // MPI_UNDEFINED in all three ABIs

uint64_t* keys;
Cookies* cookies;  // by entry
uint32_t* spilled;  // by bucket: live keys that found it full and went on
uint32_t bucket_count;
bool concurrent = true;  // until MPI_Init has told otherwise

uint32_t home_of(uint64_t key) { return ring::request_home(key, bucket_count); }

/// Entry of a key. Should the handle have been reused while its completion was under way in another thread, there are
/// two (request_serial.h). An entry that is still being filled in shows no key of its own yet: nobody but its own
/// thread can know that operation.
[[gnu::noinline]] uint32_t find_elsewhere(uint64_t key, RequestAsker asker) {
  uint32_t home = home_of(key), best = kNone;
  for (uint32_t step = 0; step < kReach; ++step) {
    uint32_t first = ((home + step) & (bucket_count - 1)) * kBucket;
    for (uint32_t i = first; i < first + kBucket; ++i)
      if (__atomic_load_n(&keys[i], __ATOMIC_ACQUIRE) == key &&
          __atomic_load_n(&runtime.requests[i].key, __ATOMIC_ACQUIRE) == key &&
          (best == kNone || better(runtime.requests[i], runtime.requests[best], asker))) {
        best = i;
        if (!concurrent) return i;  // a handle is reused only after its completion was seen here
      }
    if (__atomic_load_n(&spilled[home], __ATOMIC_RELAXED) == 0) break;
  }
  return best;
}

/// Most lie in the first place of their bucket; below MPI_THREAD_MULTIPLE there is no other of the same key.
[[gnu::always_inline]] inline uint32_t find(uint64_t key, RequestAsker asker) {
  const uint32_t first = home_of(key) * kBucket;
  if (!concurrent && load(keys[first]) == key && load(runtime.requests[first].key) == key) [[likely]]
    return first;
  return find_elsewhere(key, asker);
}

/// Puts the key into a free place. The locked instruction costs as much as the rest of the way, and below
/// MPI_THREAD_MULTIPLE nobody else can be here.
bool take(uint64_t* place, uint64_t key) {
  if (!concurrent) {
    __atomic_store_n(place, key, __ATOMIC_RELEASE);
    return true;
  }
  uint64_t free_key = 0;
  return __atomic_compare_exchange_n(place, &free_key, key, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

[[gnu::always_inline]] inline uint32_t claim(uint64_t key) {
  uint32_t home = home_of(key);
  for (uint32_t step = 0; step < kReach; ++step) {
    uint32_t first = ((home + step) & (bucket_count - 1)) * kBucket;
    for (uint32_t i = first; i < first + kBucket; ++i) {
      if (__atomic_load_n(&keys[i], __ATOMIC_RELAXED) == 0 && take(&keys[i], key)) {
        if (step != 0) __atomic_fetch_add(&spilled[home], 1, __ATOMIC_RELAXED);
        return i;
      }
    }
  }
  return kNone;
}

/// Gives the entry back. False: another thread, completing an operation of the same handle, was faster.
bool release_entry(uint32_t index, uint64_t key, uint64_t* cleanup, uint64_t* words) {
  uint32_t home = home_of(key);
  uint64_t shown = key;
  ring::Request& entry = runtime.requests[index];
  if (!concurrent) __atomic_store_n(&entry.key, 0, __ATOMIC_RELAXED);
  else if (!__atomic_compare_exchange_n(&entry.key, &shown, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return false;
  *cleanup = load(entry.cleanup);  // nobody else's until the place is free
  copy(words, cookies[index].word);
  if (index / kBucket != home) __atomic_fetch_sub(&spilled[home], 1, __ATOMIC_RELAXED);
  __atomic_store_n(&keys[index], 0, __ATOMIC_RELEASE);
  return true;
}

uint32_t serial_of(const Event& e) { return request_serial(concurrent ? ticks() : e.time); }

constexpr unsigned kReductionWord = request_word(Stage::kReduction);

/// The second level knows no call: the class lies above the flags.
constexpr unsigned kClassShift = 4;
static_assert(static_cast<unsigned>(RequestClass::kCount) <= 16 && ring::kPostedLater < 1u << kClassShift);

[[gnu::always_inline]] inline void tell(Event& e, int64_t place, uint64_t* words, bool freed) {
  const Hooks& lists = hooks();
  for (uint32_t i = 0; lists.completed[i] != nullptr; ++i)
    if (uint64_t* cookie = &words[lists.completed_word[i]]; *cookie != 0) lists.completed[i](e, place, cookie, freed);
}

/// Whoever asks on the way into MPI, or about a request that lives on: no younger one has its handle.
RequestAsker asking(const Thread& thread) { return {thread.trace_index, 0, false}; }

/// On the way out of a call that completes requests.
RequestAsker completing(const Event& e) { return {e.thread->trace_index, e.entered, true}; }

[[gnu::noinline]] Found find_both(uint64_t key, RequestAsker asker, uint32_t index) {
  Found found = {index, nullptr, {}};
  found.entry = overflow_find(key, asker, concurrent, &found.state);
  if (found.entry != nullptr && index != kNone) {
    const ring::Request& shown = runtime.requests[index];
    if (!overflow_preferred(found.state, {load(shown.serial), load(shown.trace), 0, 0}, asker)) found.entry = nullptr;
  }
  return found;
}

/// Whether the second level has to be asked when the first one says `index`. Most of the time nobody is there.
bool may_overflow(uint32_t index) {
  return (index == kNone || concurrent) && __atomic_load_n(&overflow_in_use, __ATOMIC_RELAXED) != 0;
}

/// Entry of a key on either level.
Found find_any(uint64_t key, RequestAsker asker) {
  const uint32_t index = find(key, asker);
  if (may_overflow(index)) [[unlikely]]
    return find_both(key, asker, index);
  return {index, nullptr, {}};
}

/// False: another thread, completing an operation of the same handle, was faster.
[[gnu::noinline]] bool complete_overflow(Event& e, OverflowEntry* entry, uint64_t key, OverflowState state,
                                         int64_t place, bool freed) {
  if ((state.flags & ring::kPersistent) && !freed) {
    if (!overflow_set_flags(entry, state, static_cast<uint8_t>(state.flags & ~ring::kActive))) return false;
    if (state.flags & ring::kActive) tell(e, place, entry->cookies, false);
    return true;
  }
  uint64_t own[kRequestWords];
  if (!overflow_release(entry, key, state, concurrent, own)) return false;
  tell(e, place, own, freed);
  if (state.duplicate != 0) finish_duplicate(*e.thread, state.duplicate, freed || !succeeded(e, place));
  return true;
}

/// Likewise. One that was persistent stays.
bool complete_shown(Event& e, uint32_t index, uint64_t key, int64_t place, bool freed) {
  ring::Request& entry = runtime.requests[index];
  const uint8_t flags = __atomic_load_n(&entry.flags, __ATOMIC_ACQUIRE);  // before the key is looked at again
  if ((flags & ring::kPersistent) && !freed && __atomic_load_n(&entry.key, __ATOMIC_ACQUIRE) == key) {
    store(entry.flags, static_cast<uint8_t>(flags & ~ring::kActive));
    if (flags & ring::kActive) tell(e, place, cookies[index].word, false);
    return true;
  }
  uint64_t duplicate;
  uint64_t own[kRequestWords];
  if (!release_entry(index, key, &duplicate, own)) return false;
  tell(e, place, own, freed);
  if (duplicate != 0) finish_duplicate(*e.thread, duplicate, freed || !succeeded(e, place));
  return true;
}

[[gnu::noinline]] void complete_elsewhere(Event& e, uint64_t key, int64_t place, bool freed) {
  for (;;) {
    const uint32_t index = find(key, completing(e));
    if (may_overflow(index)) [[unlikely]] {
      const Found found = find_both(key, completing(e), index);
      if (found.entry != nullptr) {
        if (complete_overflow(e, found.entry, key, found.state, place, freed)) return;
        continue;
      }
    }
    if (index == kNone || complete_shown(e, index, key, place, freed)) return;
  }
}

/// The usual request, straight: below MPI_THREAD_MULTIPLE, in the first place of its bucket, over when it is complete.
[[gnu::noinline]] void complete_known(Event& e, uint64_t key, int64_t place, bool freed) {
  const uint32_t first = home_of(key) * kBucket;
  ring::Request& entry = runtime.requests[first];
  if (concurrent || load(keys[first]) != key || load(entry.key) != key || (load(entry.flags) & ring::kPersistent) ||
      load(entry.cleanup) != 0) [[unlikely]]
    return complete_elsewhere(e, key, place, freed);
  store(entry.key, uint64_t{0});
  uint64_t own[kRequestWords];
  copy(own, cookies[first].word);
  __atomic_store_n(&keys[first], 0, __ATOMIC_RELEASE);
  tell(e, place, own, freed);
}

/// `place`: index of the request's status among those that the call fills.
[[gnu::always_inline]] inline void complete(Event& e, uint64_t key, int64_t place, bool freed) {
  if (!request_is_shared(key)) complete_known(e, key, place, freed);
}

uint64_t* cookies_of(const Found& found) {
  return found.entry != nullptr ? found.entry->cookies : found.index != kNone ? cookies[found.index].word : nullptr;
}

uint8_t flags_of(const Event& e) {
  return static_cast<uint8_t>(kStarts.flags[static_cast<unsigned>(e.id)] | (e.untimed != 0 ? ring::kPostedLater : 0));
}

/// The way of a request that found no place among those that are shown.
[[gnu::noinline]] void start_overflow(Event& e, uint64_t key) {
  __atomic_fetch_add(&runtime.header->untracked_requests, 1, __ATOMIC_RELAXED);
  if (hooks().completed[0] == nullptr) return;  // nobody wants to know when it is complete
  OverflowEntry* entry = overflow_claim(key, concurrent);
  if (entry == nullptr) return;
  clear(e.cookies = entry->cookies);
  const bool creates = (e.attributes & kCallCreatesComm) != 0;
  const auto of = static_cast<uint8_t>(kStarts.of[static_cast<unsigned>(e.id)] << kClassShift);
  const OverflowState state = {serial_of(e), e.thread->trace_index, static_cast<uint8_t>(flags_of(e) | of),
                               static_cast<uint8_t>(creates ? keep_duplicate(e) : 0)};
  __atomic_store_n(&entry->state, state.word(), __ATOMIC_RELEASE);
}

}  // namespace

bool request_table_create() {
  const uint64_t null_key = backend->request_null(), empty_key = backend->request_empty();
  shared_requests = {null_key, empty_key != 0 ? empty_key : null_key};
  overflow_reset();
  request_serial_prepare();
  bucket_count = runtime.request_count / kBucket;
  size_t bytes = bucket_count * kBucket * (sizeof(uint64_t) + sizeof(Cookies)) + bucket_count * sizeof(uint32_t);
  keys = static_cast<uint64_t*>(memory::map(bytes));
  if (keys == nullptr) return false;
  cookies = reinterpret_cast<Cookies*>(keys + bucket_count * kBucket);
  request_words = cookies->word;
  spilled = reinterpret_cast<uint32_t*>(cookies + bucket_count * kBucket);
  return true;
}

uint64_t requests_left(void (*visit)(const ring::Request&, void* context), void* context) {
  for (uint32_t bucket = 0; bucket < bucket_count; ++bucket) {
    const uint32_t first = bucket * kBucket;
    const uint64_t* place = keys + first;
    uint64_t any = 0;
    for (uint32_t i = 0; i < kBucket; ++i) any |= __atomic_load_n(&place[i], __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; any != 0 && i < kBucket; ++i)
      if (load(place[i]) != 0 && load(runtime.requests[first + i].key) != 0)
        visit(runtime.requests[first + i], context);
  }
  return __atomic_load_n(&overflow_in_use, __ATOMIC_RELAXED);
}

void request_table_threads(bool multiple) {
  if (concurrent != multiple) forget_calls();  // call sites that went the fast path
  if (multiple) __atomic_store_n(&fast::enabled, uint8_t{0}, __ATOMIC_RELAXED);
  concurrent = multiple;
}

bool request_table_has_threads() { return concurrent; }

uint64_t* request_cookies(const Thread& thread, uint64_t key) {
  return request_is_shared(key) ? nullptr : cookies_of(find_any(key, asking(thread)));
}

uint64_t request_handle(const void* array, int64_t index) {
  return backend->handle_bytes == 4 ? static_cast<const uint32_t*>(array)[index]
                                    : static_cast<const uint64_t*>(array)[index];
}

/// MPI_Comm_idup whose request was complete at once.
[[gnu::noinline]] static void made_at_once(const Event& e) {
  const uint64_t handle = request_handle(e.new_comm, 0);
  object_made_at(MpiObject::kCommunicator, handle, e.id, e.site);
  comm_register_new(*e.thread, handle, e.derived_id, e.comm, e.id, e.site);
}

void request_started(Event& e) {
  uint64_t key = request_handle(e.requests, 0);
  if (request_is_shared(key)) {
    if (e.attributes & kCallCreatesComm) [[unlikely]]
      made_at_once(e);
    return;
  }
  e.request_key = key;
  uint32_t index = claim(key);
  if (index == kNone) [[unlikely]]
    return start_overflow(e, key);
  e.record->aux = key;
  clear(e.cookies = cookies[index].word);
  ring::Request& entry = runtime.requests[index];
  entry.time = e.time;
  entry.site = e.site;
  entry.bytes = e.bytes;
  store(entry.serial, serial_of(e));
  store(entry.comm, e.comm != nullptr ? e.comm->index : 0);
  entry.peer = e.peer;
  entry.tag = e.tag;
  entry.call = static_cast<uint16_t>(e.id);
  store(entry.kind, kStarts.kind[static_cast<unsigned>(e.id)]);
  store(entry.flags, flags_of(e));
  store(entry.trace, e.thread->trace_index);
  store(entry.cleanup, e.attributes & kCallCreatesComm ? keep_duplicate(e) : uint64_t{0});
  __atomic_store_n(&entry.key, key, __ATOMIC_RELEASE);
}

static uint32_t claim_elsewhere(uint64_t key) { return claim(key); }

namespace {

template <bool collective>
[[gnu::always_inline]] inline bool is_pending(fast::Call call, CallId id, uint64_t key) {
  if (request_is_shared(key)) return true;
  if (!fast::is_there(call)) [[unlikely]] {
    if (collective && call.thread->started != 0) return false;
    __atomic_fetch_add(&runtime.header->untracked_requests, 1, __ATOMIC_RELAXED);
    return true;
  }
  uint32_t index = home_of(key) * kBucket;
  if (load(keys[index]) == 0) [[likely]] {
    __atomic_store_n(&keys[index], key, __ATOMIC_RELEASE);  // nobody else can be here: take()
  } else if (index = claim_elsewhere(key); index == kNone) {
    return false;
  }
  clear(cookies[index].word);
  if constexpr (collective) {
    cookies[index].word[kReductionWord] = call.thread->started;
    call.thread->started = 0;
  }
  ring::Record& record = *call.record;
  record.aux = key;
  ring::Request& entry = runtime.requests[index];
  entry.time = record.time;
  entry.site = record.site;
  entry.bytes = record.bytes;
  store(entry.serial, request_serial(record.time));
  entry.comm = record.comm;
  entry.peer = record.peer;
  entry.tag = record.tag;
  entry.call = static_cast<uint16_t>(id);
  entry.kind = kStarts.kind[static_cast<unsigned>(id)];
  static_assert(int{ring::kUntimed} == int{ring::kPostedLater});
  store(entry.flags, static_cast<uint8_t>(kStarts.flags[static_cast<unsigned>(id)] | (record.flags & ring::kUntimed)));
  store(entry.trace, call.thread->trace_index);
  store(entry.cleanup, uint64_t{0});
  if (const ring::Wait* wait = call.thread->wait; wait != nullptr) [[likely]] {
    ring::Pending& pending = fast::pending[index];
    pending.peer = wait->peer;
    pending.both = 0;
    if constexpr (collective) ring::keep_collective(pending, *wait, wait->sequence);
    else ring::keep_message(pending, *wait, call_info(id));
  }
  __atomic_store_n(&entry.key, key, __ATOMIC_RELEASE);
  return true;
}

}  // namespace

bool fast::message_pending(Call call, CallId id, uint64_t key) { return is_pending<false>(call, id, key); }
bool fast::collective_pending(Call call, CallId id, uint64_t key) { return is_pending<true>(call, id, key); }

void fast::message_started(Call call, CallId id, uint64_t key) {
  const uint32_t first = home_of(key) * kBucket;
  if (load(keys[first]) == key && load(runtime.requests[first].key) == key) [[likely]]
    return messages->started(call, id, cookies[first].word, key);
  const bool shared = request_is_shared(key);
  messages->started(call, id, shared ? nullptr : request_cookies(*call.thread, key), shared ? 0 : key);
}

RequestClass request_class(const Thread& thread, uint64_t key) {
  if (request_is_shared(key)) return RequestClass::kNothing;
  const Found found = find_any(key, asking(thread));
  if (found.entry != nullptr) return static_cast<RequestClass>(found.state.flags >> kClassShift);
  if (found.index == kNone) return RequestClass::kUnknown;
  return static_cast<RequestClass>(kStarts.of[load(runtime.requests[found.index].call)]);
}

/// ring::RequestFlag; 0: no such request.
static uint32_t flags_at(const Found& found) {
  if (found.entry != nullptr) return found.state.flags;
  return found.index != kNone ? load(runtime.requests[found.index].flags) : 0;
}

bool request_is_inactive(const Thread& thread, uint64_t key) {
  const Found found = find_any(key, asking(thread));
  return (found.entry != nullptr || found.index != kNone) && (flags_at(found) & ring::kActive) == 0;
}

bool request_is_persistent(const Thread& thread, uint64_t key) {
  return !request_is_shared(key) && (flags_at(find_any(key, asking(thread))) & ring::kPersistent) != 0;
}

namespace {

[[gnu::noinline]] bool testable_from(const Thread& thread, const void* requests, int64_t count, int64_t first) {
  for (int64_t i = first; i < count; ++i)
    if (!may_be_tested(request_class(thread, request_handle(requests, i)))) return false;
  return true;
}

template <class Handle>
[[gnu::always_inline]] inline bool all_testable(const Thread& thread, const void* requests, int64_t count) {
  const auto* handles = static_cast<const Handle*>(requests);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = handles[i];
    if (request_is_shared(key)) continue;
    const uint32_t first = home_of(key) * kBucket;
    if (concurrent || load(keys[first]) != key || load(runtime.requests[first].key) != key) [[unlikely]]
      return testable_from(thread, requests, count, i);
    if (!kStarts.testable[load(runtime.requests[first].call)]) return false;
  }
  return true;
}

}  // namespace

bool requests_may_be_tested(const Thread& thread, const void* requests, int64_t count) {
  return backend->handle_bytes == 4 ? all_testable<uint32_t>(thread, requests, count)
                                    : all_testable<uint64_t>(thread, requests, count);
}

void request_activating(Event& e) {
  const Hooks& lists = hooks();
  for (int64_t i = 0; i < e.request_count; ++i) {
    const Found found = find_any(request_handle(e.requests, i), asking(*e.thread));
    if (uint64_t* words = cookies_of(found); words != nullptr)
      for (unsigned k = 0; lists.activating[k] != nullptr; ++k)
        if (uint64_t* cookie = &words[lists.activating_word[k]]; *cookie != 0) lists.activating[k](e, cookie);
  }
}

void request_activated(Event& e) {
  const Hooks& lists = hooks();
  const bool start = e.id == CallId::kMPI_Start || e.id == CallId::kMPI_Startall;
  for (int64_t i = 0; i < e.request_count; ++i) {
    const uint64_t key = request_handle(e.requests, i);
    Found found;
    do {
      found = find_any(key, asking(*e.thread));
    } while (start && found.entry != nullptr &&
             !overflow_set_flags(found.entry, found.state, static_cast<uint8_t>(found.state.flags | ring::kActive)));
    uint64_t* words = cookies_of(found);
    if (words == nullptr) continue;
    for (unsigned k = 0; lists.activated[k] != nullptr; ++k)
      if (uint64_t* cookie = &words[lists.activated_word[k]]; *cookie != 0) lists.activated[k](e, cookie);
    if (!start || found.entry != nullptr) continue;
    ring::Request& entry = runtime.requests[found.index];
    entry.time = e.time;
    const auto kept = static_cast<uint8_t>(load(entry.flags) & ~ring::kPostedLater);
    store(entry.flags, static_cast<uint8_t>(kept | ring::kActive | (e.untimed != 0 ? ring::kPostedLater : 0)));
  }
}

namespace {

bool is_persistent(const Event& e, uint64_t key) {
  return !request_is_shared(key) && (flags_at(find_any(key, completing(e))) & ring::kPersistent) != 0;
}

/// After a call that returned an error: is this request of it complete? What has become null is; a persistent one keeps
/// its handle, and its own error tells.
bool failed(const Event& e, int64_t i) {
  if (request_handle(e.requests, i) == backend->request_null()) return true;
  if (e.index != nullptr || e.outcount != nullptr || !is_persistent(e, request_handle(e.requests, i))) return false;
  const ErrorKind error = error_kind(e.result);
  if (error == ErrorKind::kTruncated) return e.request_count == 1;
  if (error != ErrorKind::kInStatus || backend->messages->status_ignored(e.given_statuses)) return false;
  StatusInfo status;
  backend->messages->status_read(e.given_statuses, i, &status);
  return error_kind(status.error) != ErrorKind::kPending;
}

[[gnu::noinline]] int complete_unusual(fast::Call call, CallId id, uint64_t key, void* statuses = nullptr,
                                       int64_t place = 0) {
  Event e;
  fast::event_of(e, call, id, 0);
  e.statuses = e.given_statuses = statuses;
  if (!request_is_shared(key)) complete_elsewhere(e, key, place, false);
  return e.result;
}

[[gnu::noinline]] void tell_completed(fast::Call call, CallId id, uint64_t word, void* statuses, int64_t place) {
  Event e;
  fast::event_of(e, call, id, 0);
  e.statuses = e.given_statuses = statuses;
  uint64_t words[kRequestWords] = {};
  words[fast::kMessageWord] = word;
  tell(e, place, words, false);
}

/// Who is on the fast path and keeps a word beside requests keeps one of these, or counts them in
/// fast::statuses_wanted.
constexpr unsigned kFastWord = request_word(Stage::kHang);

/// Below MPI_THREAD_MULTIPLE: in the first place of its bucket, over when it is complete, no word but a reduction's.
[[gnu::always_inline]] inline bool complete_usual(uint64_t key, uint64_t* reduction) {
  const uint32_t first = home_of(key) * kBucket;
  ring::Request& entry = runtime.requests[first];
  if (load(keys[first]) != key || load(entry.key) != key || (load(entry.flags) & ring::kPersistent) ||
      load(entry.cleanup) != 0 || cookies[first].word[kFastWord] != 0) [[unlikely]]
    return false;
  store(entry.key, uint64_t{0});
  *reduction = cookies[first].word[kReductionWord];
  __atomic_store_n(&keys[first], 0, __ATOMIC_RELEASE);
  return true;
}

}  // namespace

void fast::request_checked(Call call, CallId id, uint64_t key, void* statuses, int64_t place) {
  const uint64_t word = cookies[home_of(key) * kBucket].word[kMessageWord];
  uint64_t reduction = 0;  // none: while one is pending, waits go the general way here
  if (!complete_usual(key, &reduction)) [[unlikely]]
    return static_cast<void>(complete_unusual(call, id, key, statuses, place));
  if (word != 0 && !messages->completed(*call.thread, word, statuses, place)) [[unlikely]]
    tell_completed(call, id, word, statuses, place);
}

int fast::request_completed(Call call, CallId id, uint64_t key) {
  uint64_t word;
  if (!complete_usual(key, &word)) return complete_unusual(call, id, key);
  return word != 0 ? reduction_over(*call.thread, word) : 0;
}

/// From the first that is not usual on; `word`: its reduction's. A call from a callback writes where the handles lie.
[[gnu::noinline]] static int complete_from(fast::Call call, CallId id, const uint64_t* handles, uint32_t count,
                                           uint64_t word) {
  uint64_t own[ring::kWaitedKeys];
  memcpy(own, handles, count * sizeof(uint64_t));
  int result = word != 0 ? fast::reduction_over(*call.thread, word) : complete_unusual(call, id, own[0]);
  for (uint32_t i = 1; i < count; ++i)
    if (const int error = fast::request_completed(call, id, own[i]); result == 0) result = error;
  return result;
}

int fast::requests_completed(Call call, CallId id, const uint64_t* handles, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t word = 0;
    if (!complete_usual(handles[i], &word) || word != 0) [[unlikely]]
      return complete_from(call, id, handles + i, count - i, word);
  }
  return 0;
}

void request_completed(Event& e) {
  const bool freed = e.id == CallId::kMPI_Request_free;
  if (e.request_count == 1) {
    bool done = e.result == 0 && (e.flag == nullptr || *e.flag != 0);
    if (done && e.outcount != nullptr) done = *e.outcount == 1;
    if (done || (e.result != 0 && failed(e, 0))) complete(e, e.saved_few[0], 0, freed);
    return;
  }
  if (e.request_count <= 0) return;
  if (e.saved_requests == nullptr) {  // no memory for the copy: the table may now show requests that are complete
    add_note(messages::core::many_requests);
    return;
  }
  if (e.result != 0 && e.outcount != nullptr && error_kind(e.result) == ErrorKind::kInStatus) {
    for (int i = 0; i < *e.outcount && i < e.request_count; ++i)
      complete(e, request_handle(e.saved_requests, e.indices[i]), i, freed);
  } else if (e.result != 0) {
    const bool one_status = e.index != nullptr || e.outcount != nullptr;
    for (int64_t i = 0; i < e.request_count; ++i)
      if (failed(e, i)) complete(e, request_handle(e.saved_requests, i), one_status ? 0 : i, freed);
  } else if (e.outcount != nullptr) {  // Waitsome, Testsome
    for (int i = 0; *e.outcount != kUndefinedIndex && i < *e.outcount; ++i)
      complete(e, request_handle(e.saved_requests, e.indices[i]), i, freed);
  } else if (e.index != nullptr) {  // Waitany, Testany
    if ((e.flag == nullptr || *e.flag != 0) && *e.index >= 0)
      complete(e, request_handle(e.saved_requests, *e.index), 0, freed);
  } else if (e.flag == nullptr || *e.flag != 0) {  // Waitall, Testall
    for (int64_t i = 0; i < e.request_count; ++i) complete(e, request_handle(e.saved_requests, i), i, freed);
  }
}

}  // namespace resil
