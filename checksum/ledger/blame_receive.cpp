// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full, receiving side: what the buffer held before, right at completion and a little later, and a copy of
// what had arrived. 4,096 slots; when all are taken a receive is without evidence.
//
// The digest before is that of the whole buffer, because how much will arrive is not known when a receive is posted. So
// "is the buffer what it was before?" is asked of the whole buffer too: a short receive into a large buffer reads all
// of it twice. How long it is looked at: 2 us after completion; 100 us when the receive has changed nothing, because
// then the data may be late; until 100 us after the last change when it does change, but three looks more at most
// once a look takes longer than that.

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/looked_at.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

constexpr double kShortLook = 2e-6, kLongLook = 100e-6, kLongestLook = 1e-3;

struct Slot {
  Evidence evidence;
  Kept kept;
  Rest rest;
  uint32_t next_free;  // index + 1
  uint16_t generation;
  bool taken;
};

SpinLock lock;
Slot* slots;
Store store;
RestStore rests;
uint32_t free_slots, untouched_slots;  // list of given back ones; from here on never used

uint64_t handle_of(const Slot& slot) {
  return static_cast<uint64_t>(slot.generation) << 16 | (static_cast<uint64_t>(&slot - slots) + 1);
}

Slot* slot_of(uint64_t handle) {
  const uint64_t index = (handle & 0xffff) - 1;
  if (slots == nullptr || index >= kSlots) return nullptr;
  Slot& slot = slots[index];
  return slot.taken && slot.generation == handle >> 16 ? &slot : nullptr;
}

uint64_t take(const Evidence& evidence) {
  Guard guard(lock);
  Slot* slot = nullptr;
  if (free_slots != 0) {
    slot = &slots[free_slots - 1];
    free_slots = slot->next_free;
  } else if (untouched_slots < kSlots) {
    slot = &slots[untouched_slots++];
  } else {
    return 0;
  }
  slot->evidence = evidence;
  slot->kept = {};
  slot->rest = {};
  slot->taken = true;
  return handle_of(*slot);
}

void release(uint64_t handle) {
  if (handle == 0) return;
  Guard guard(lock);
  Slot* slot = slot_of(handle);
  if (slot == nullptr) return;
  touch::drop(slot->evidence.watched);
  slot->taken = false;
  ++slot->generation;
  slot->next_free = free_slots;
  free_slots = static_cast<uint32_t>(slot - slots) + 1;
}

bool readable(const View& view) { return view.reason == ledger::Reason::kNone && view.type != nullptr; }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool as_before(const View& view, const Evidence& evidence, uint64_t received) {
  if (!evidence.has_before || evidence.capacity != view.bytes) return false;
  return (evidence.bytes == view.bytes ? received : view_digest(view, view.bytes)) == evidence.before;
}

/// Reads the buffer again until it has been the same for long enough.
void look(const View& view, Evidence* evidence) {
  const double start = monotonic_seconds();
  evidence->untouched = as_before(view, *evidence, evidence->first);
  double until = start + (evidence->untouched ? kLongLook : kShortLook), now = start;
  do {
    const uint64_t again = view_digest(view, evidence->bytes);
    now = monotonic_seconds();
    ++evidence->looks;
    if (buffer_looked_at != nullptr) [[unlikely]]
      buffer_looked_at(view.buffer, evidence->looks + 1);
    if (again != evidence->last) {
      evidence->changed = true;
      evidence->last = again;
      until = now + kLongLook < start + kLongestLook ? now + kLongLook : start + kLongestLook;
      if (now >= until && evidence->looks < 4) until = now + kLongLook;  // a look takes longer than that: one more
    }
    relax();
  } while (now < until);
  // This thread may have been suspended after the last reading and before the clock: once more, or data that landed
  // meanwhile would be taken for data that was never delivered.
  if (const uint64_t again = evidence->untouched ? view_digest(view, evidence->bytes) : evidence->last;
      again != evidence->last) {
    evidence->changed = true;
    evidence->last = again;
  }
  evidence->looked = now - start;
  if (evidence->untouched && (evidence->changed || !as_before(view, *evidence, evidence->last)))
    evidence->untouched = false;
}

}  // namespace

bool receives_create() {
  free_slots = untouched_slots = 0;
  slots = mode.full ? memory::map_array<Slot>(kSlots) : nullptr;
  return !mode.full || (slots != nullptr && store.create() && rests.create());
}

uint64_t receive_posted(const View& view) {
  if (!mode.full || slots == nullptr || !readable(view)) return 0;
  Evidence evidence = {};
  evidence.capacity = view.bytes;
  evidence.before = view_digest(view, view.bytes);
  evidence.has_before = true;
  return take(evidence);
}

uint64_t receive_pending(const View& view, const Event& event) {
  const uint64_t posted = receive_posted(view);
  if (posted == 0) return 0;
  const uint64_t watched = touch::watch(view, event);
  Guard guard(lock);
  if (Slot* slot = slot_of(posted); slot != nullptr) slot->evidence.watched = watched;
  return posted;
}

uint64_t receive_complete(uint64_t posted, const View& view, uint64_t bytes, uint64_t digest) {
  if (!mode.full || slots == nullptr || !readable(view) || bytes > view.bytes) {
    release(posted);
    return 0;
  }
  Evidence evidence = {};
  {
    Guard guard(lock);
    if (const Slot* slot = slot_of(posted)) evidence = slot->evidence;
    else posted = 0;
  }
  if (posted == 0) {
    evidence.capacity = view.bytes;
    posted = take(evidence);  // without the digest before: still better than nothing
    if (posted == 0) return 0;
  }
  evidence.bytes = bytes;
  evidence.first = evidence.last = digest;
  evidence.touched = touch::end(evidence.watched, view, bytes, &evidence.touch);
  evidence.watched = 0;
  if (view.type->contiguous)
    evidence.address = reinterpret_cast<uint64_t>(view.buffer) + static_cast<uint64_t>(view.type->low);
  Work<Content> room;
  Content& content = *room;
  capture(view, bytes, &content);
  const Rest rest = rests.put(view, bytes);
  if (buffer_looked_at != nullptr) [[unlikely]]
    buffer_looked_at(view.buffer, 1);
  if (bytes != 0) look(view, &evidence);
  evidence.complete = true;
  Guard guard(lock);
  Slot* slot = slot_of(posted);
  if (slot == nullptr) return 0;
  slot->evidence = evidence;
  slot->kept = store.put(content);
  slot->rest = rest;
  return posted;
}

void right(uint64_t evidence) {
  {
    Guard guard(lock);
    if (const Slot* slot = slot_of(evidence); slot != nullptr && slot->evidence.touched)
      touch::tell_receive(slot->evidence.touch);
  }
  release(evidence);
}

void drop(uint64_t evidence) { release(evidence); }

void drop_posted(uint64_t posted) { release(posted); }

bool receive_evidence(uint64_t handle, Evidence* evidence, Content* content) {
  content->bytes = content->leaves = 0;
  if (handle == 0) return false;
  Guard guard(lock);
  const Slot* slot = slot_of(handle);
  if (slot == nullptr || !slot->evidence.complete) return false;
  *evidence = slot->evidence;
  store.get(slot->kept, content);
  return true;
}

uint32_t receive_rest(uint64_t handle, uint64_t from, uint32_t bytes, char* to) {
  Rest rest = {};
  {
    Guard guard(lock);
    if (const Slot* slot = handle != 0 ? slot_of(handle) : nullptr; slot != nullptr && slot->evidence.complete)
      rest = slot->rest;
  }
  return rests.get(rest, from, bytes, to);
}

}  // namespace resil::blame
