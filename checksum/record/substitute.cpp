// SPDX-License-Identifier: Apache-2.0
//
// Verify: a persistent receive with wildcards may get another message each time it is started, and its arguments cannot
// be changed any more. So it is never started: in its place goes a receive with the recorded source and tag, and every
// call that tests or completes the program's request looks at that one.

#include <atomic>
#include <cstring>

#include "checksum/record/state.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/pool.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"

namespace resil::record {

struct Substitute {
  uint64_t handle;  ///< the program's request
  uint64_t request;  ///< what stands for it
  uint64_t comm, type;
  void* buffer;
  int64_t count;
  Substitute* next;  ///< in its bucket; free ones
  uint64_t status[4];
  bool posted, done;
};

namespace {

constexpr unsigned kBuckets = 64;
memory::Pool<Substitute, &Substitute::next, 64, 1u << 16> pool;
Substitute* buckets[kBuckets];
SpinLock lock;
std::atomic<uint32_t> used;

Substitute*& bucket(uint64_t handle) { return buckets[handle * 0x9e3779b97f4a7c15 >> 58]; }

Substitute* find(uint64_t handle) {
  SpinGuard guard(lock);
  Substitute* found = bucket(handle);
  while (found != nullptr && found->handle != handle) found = found->next;
  return found;
}

int post(Substitute& s, const Match& match, bool nothing) {
  s.posted = true;
  s.done = false;
  if (nothing) return mailbox::post_nobody(s.buffer, s.type, &s.request);
  return backend->replay->post(s.comm, s.buffer, s.count, s.type, match.source, match.tag, &s.request);
}

}  // namespace

bool substitutes_used() { return used.load(std::memory_order_relaxed) != 0; }

void substitute_prepare(const Event& e, Entry& entry) {
  entry.substitute = nullptr;
  if (mode.recording || !entry.wild || !entry.persistent || (e.attributes & kCallPartitioned)) return;
  uint64_t type;
  if (!backend->replay->keep_type(e.receive.type, &type)) return;
  SpinGuard guard(lock);
  Substitute* s = pool.allocate();
  if (s == nullptr) return backend->replay->drop_type(type);
  Substitute*& first = bucket(e.request_key);
  void* buffer = const_cast<void*>(e.receive.buffer);
  *s = {e.request_key, 0, e.comm_handle, type, buffer, e.receive.count, first, {}, false, false};
  first = s;
  entry.substitute = s;
  used.fetch_add(1, std::memory_order_relaxed);
}

void substitute_drop(Entry& entry) {
  Substitute* s = entry.substitute;
  if (s == nullptr) return;
  backend->replay->drop_type(s->type);
  SpinGuard guard(lock);
  Substitute** place = &bucket(s->handle);
  while (*place != s) place = &(*place)->next;
  *place = s->next;
  pool.release(s);
  used.fetch_sub(1, std::memory_order_relaxed);
}

bool substitute_start(Event& e, PerThread& t, Call& call) {
  // All persistent requests are noted where they are recorded, else receives with wildcards.
  const auto count = static_cast<uint32_t>(e.request_count);
  if (!substitutes_used() || (!mode.live && t.noted_count != count)) return false;
  bool any = false;
  for (uint32_t i = 0; i < t.noted_count; ++i) any = any || t.noted[i]->substitute != nullptr;
  if (!any) return false;
  e.result = 0;
  uint32_t noted = 0;
  for (uint32_t i = 0; i < count && e.result == 0; ++i) {
    const bool known = !mode.live || find(request_handle(e.requests, i)) != nullptr;
    const uint32_t number = noted;
    if (known) ++noted;
    const Entry* entry = known && number < t.noted_count ? t.noted[number] : nullptr;
    const bool alive = entry != nullptr && entry->comm != nullptr &&
                       entry->comm->ring->id == entry->comm_id;  // else its handle may be another's
    Substitute* s = alive ? entry->substitute : nullptr;
    Match match;
    const Reading reading = s != nullptr ? match_of(e, t, call.ordinal + number, &match) : Reading::kCut;
    const bool found = reading == Reading::kItem && !(match.flags & kCompletionCancelled) && match.source >= 0;
    const bool freed = reading == Reading::kItem && (match.flags & kCompletionFreed);
    const bool nothing =
        !found && !freed && (reading == Reading::kItem || reading == Reading::kEnd) && mailbox::is_open();
    if (found || nothing) {
      counts.forced += 1;
      e.result = post(*s, match, nothing);
    } else {
      e.result = backend->replay->start(e, i);
    }
  }
  return true;
}

bool substitute_cancel(Event& e) {
  Substitute* s = substitutes_used() ? find(request_handle(e.requests, 0)) : nullptr;
  if (s == nullptr || !s->posted || s->done) return false;
  e.result = backend->replay->cancel(&s->request);
  return true;
}

int test_request(Event& e, int64_t index, int* flag, void* status) {
  Substitute* s = substitutes_used() ? find(request_handle(e.requests, index)) : nullptr;
  int result = 0;
  if (s == nullptr || !s->posted) {
    if (staged_requests != nullptr && staged_requests->test(e, index, flag, status, &result)) return result;
    return class_of(e.id) == CallClass::kGetStatus ? backend->replay->get_status(e, flag)
                                                   : backend->replay->test(e, index, flag, status);
  }
  if (!s->done) {
    result = backend->messages->test(&s->request, flag, s->status);
    if (result == 0 && *flag == 0) return 0;
    s->done = true;
  }
  *flag = 1;
  if (status != nullptr) memcpy(status, s->status, backend->status_bytes);
  if (class_of(e.id) != CallClass::kGetStatus) s->posted = false;
  return result;
}

}  // namespace resil::record
