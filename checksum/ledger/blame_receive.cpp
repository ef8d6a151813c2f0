// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full, receiving side: what the buffer held before, right at completion and a little later, and a copy of
// what had arrived. 4,096 slots; when all are taken a receive is without evidence.
//
// The digest before is that of the whole buffer, because how much will arrive is not known when a receive is posted. So
// "is the buffer what it was before?" is asked of the whole buffer too: a short receive into a large buffer reads all
// of it twice. How long it is looked at, where the sender's record has not come or is another one: 2 us after
// completion; 100 us when the receive has changed nothing, because then the data may be late; until 100 us after the
// last change when it does change, but three looks more at most once a look takes longer than that.
//
// Where the sender's record says that what is there is right, nothing is late. So the looks of a call begin when it is
// about to return (looks_finish), and end as soon as the record has come; open_case() makes a look to its end when the
// record says that the data is wrong. Under MPI_THREAD_MULTIPLE, where other threads compare, and where the memory may
// be another message's before the call returns, a receive is looked at right where it completes.

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/looked_at.h"
#include "shim/runtime/memory.h"
#include "shim/tables/type_maps.h"

namespace resil::blame {

namespace {

constexpr double kShortLook = 2e-6, kLongLook = 100e-6, kLongestLook = 1e-3;
constexpr uint32_t kFirst = 16;  // turns at the records before the first look: most come by then
constexpr uint32_t kPollEvery = 16;  // turns, of which one looks for messages

struct Slot {
  Evidence evidence;
  Kept kept;
  Rest rest;
  View view;  // while it is looked at
  double start, until;
  uint32_t looking;  // place in looked_at + 1; 0: it is not
  bool begun;
  uint32_t next_free;  // index + 1
  uint16_t generation;
  bool taken;
};

SpinLock lock;
Slot* slots;
Store store;
RestStore rests;
uint32_t free_slots, untouched_slots;  // list of given back ones; from here on never used
Slot** looked_at;  // not under the lock: below MPI_THREAD_MULTIPLE only
uint32_t looked_at_count;

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

void look_later(Slot& slot, const View& view) {
  type_map_hold(view.type);
  slot.view = view;
  slot.begun = false;
  looked_at[looked_at_count++] = &slot;
  slot.looking = looked_at_count;
}

void look_no_more(Slot& slot) {
  if (slot.looking == 0) return;
  Slot* last = looked_at[--looked_at_count];
  looked_at[slot.looking - 1] = last;
  last->looking = slot.looking;
  slot.looking = 0;
  type_map_release(slot.view.type);
}

void release(uint64_t handle) {
  if (handle == 0) return;
  Guard guard(lock);
  Slot* slot = slot_of(handle);
  if (slot == nullptr) return;
  look_no_more(*slot);
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

struct Look {
  double start, until;
};

Look begin_look(const View& view, Evidence* evidence) {
  const double start = monotonic_seconds();
  evidence->untouched = as_before(view, *evidence, evidence->first);
  return {start, start + (evidence->untouched ? kLongLook : kShortLook)};
}

/// Reads the buffer again. True: it has been the same for long enough.
bool look_once(const View& view, Look* look, Evidence* evidence) {
  const uint64_t again = view_digest(view, evidence->bytes);
  const double now = monotonic_seconds();
  ++evidence->looks;
  if (buffer_looked_at != nullptr) [[unlikely]]
    buffer_looked_at(view.buffer, evidence->looks + 1);
  if (again != evidence->last) {
    evidence->changed = true;
    evidence->last = again;
    look->until = now + kLongLook < look->start + kLongestLook ? now + kLongLook : look->start + kLongestLook;
    if (now >= look->until && evidence->looks < 4)
      look->until = now + kLongLook;  // a look takes longer than that: one more
  }
  evidence->looked = now - look->start;
  return now >= look->until;
}

void end_look(const View& view, Evidence* evidence) {
  // This thread may have been suspended after the last reading and before the clock: once more, or data that landed
  // meanwhile would be taken for data that was never delivered.
  if (const uint64_t again = evidence->untouched ? view_digest(view, evidence->bytes) : evidence->last;
      again != evidence->last) {
    evidence->changed = true;
    evidence->last = again;
  }
  if (evidence->untouched && (evidence->changed || !as_before(view, *evidence, evidence->last)))
    evidence->untouched = false;
}

/// What arrived, as it is now.
void keep(const View& view, uint64_t bytes, Content* content, Rest* rest) {
  capture(view, bytes, content);
  *rest = rests.put(view, bytes);
  if (buffer_looked_at != nullptr) [[unlikely]]
    buffer_looked_at(view.buffer, 1);
}

void look_now(const View& view, Evidence* evidence, Content* content, Rest* rest, const Right* right) {
  bool over = false;
  for (uint32_t turn = 0; turn < kFirst && right != nullptr && !over; ++turn) over = right->holds(right->of);
  if (over) {
    evidence->untouched = as_before(view, *evidence, evidence->first);
    return;
  }
  keep(view, evidence->bytes, content, rest);
  if (evidence->bytes == 0) return;
  Look look = begin_look(view, evidence);
  while (!look_once(view, &look, evidence) && (right == nullptr || !right->holds(right->of))) relax();
  end_look(view, evidence);
}

// --- Looks that are made when the call is about to return; below MPI_THREAD_MULTIPLE --------------------------------

void begin(Slot& slot) {
  Work<Content> room;
  keep(slot.view, slot.evidence.bytes, room.get(), &slot.rest);
  slot.kept = store.put(*room);
  const Look look = begin_look(slot.view, &slot.evidence);
  slot.start = look.start;
  slot.until = look.until;
  slot.begun = true;
}

/// One look. True: it was the last one.
bool look_on(Slot& slot) {
  Look look = {slot.start, slot.until};
  const bool over = look_once(slot.view, &look, &slot.evidence);
  slot.until = look.until;
  if (!over) return false;
  end_look(slot.view, &slot.evidence);
  look_no_more(slot);
  return true;
}

}  // namespace

bool receives_create() {
  free_slots = untouched_slots = 0;
  looked_at_count = 0;
  slots = mode.full ? memory::map_array<Slot>(kSlots) : nullptr;
  looked_at = mode.full ? memory::map_array<Slot*>(kSlots) : nullptr;
  return !mode.full || (slots != nullptr && looked_at != nullptr && store.create() && rests.create());
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

uint64_t receive_complete(uint64_t posted, const View& view, uint64_t bytes, uint64_t digest, LookWhen when,
                          const Right* right) {
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
  evidence.complete = true;
  Work<Content> room;
  room->bytes = room->leaves = 0;
  Rest rest = {};
  const bool later = when == LookWhen::kAtReturn && bytes != 0 && !mode.concurrent;
  if (!later) look_now(view, &evidence, room.get(), &rest, right);
  Guard guard(lock);
  Slot* slot = slot_of(posted);
  if (slot == nullptr) return 0;
  slot->evidence = evidence;
  slot->kept = later ? Kept{} : store.put(*room);
  slot->rest = rest;
  if (later) look_later(*slot, view);
  return posted;
}

void looks_finish(Thread& thread) {
  if (looked_at_count == 0) [[likely]]
    return;
  for (uint32_t turn = 0; turn < kFirst && looked_at_count != 0; ++turn) ledger::take_come(thread, false);
  for (uint32_t i = 0; i < looked_at_count; ++i)
    if (!looked_at[i]->begun) begin(*looked_at[i]);
  for (uint32_t turn = 1; looked_at_count != 0; ++turn) {
    for (uint32_t i = looked_at_count; i-- > 0;) look_on(*looked_at[i]);
    if (looked_at_count != 0) ledger::take_come(thread, turn % kPollEvery == 0);
  }
}

void look_to_end(uint64_t evidence) {
  Slot* slot = evidence != 0 ? slot_of(evidence) : nullptr;
  if (slot == nullptr || slot->looking == 0) return;
  if (!slot->begun) begin(*slot);
  while (!look_on(*slot)) relax();
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
