// SPDX-License-Identifier: Apache-2.0
//
// See touch.h.
//
// When a call of MPI returns, the buffers of pending receives are copied; when the next one begins they are compared.
// MPI writes into them what the message brings and nothing else, at any time. So a byte that changed meanwhile, and
// holds neither what was there before nor what the message has in this place, was written by the program. What the
// message has is known when it is complete and its digest is the sender's. Program's threads; no MPI.

#include "checksum/ledger/touch.h"

#include <cstring>

#include "shim/base/digest/digest.h"
#include "shim/base/spinlock.h"
#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/runtime/memory.h"

namespace resil::touch {

namespace {

constexpr uint32_t kWatched = 64;  ///< receives at a time
constexpr uint64_t kBytes = 1u << 20;  ///< of each, from its start
constexpr uint64_t kAllBytes = 4u << 20;  ///< of all
constexpr uint32_t kTold = 32;  ///< different places that are told

/// In one piece of memory.
struct Copies {
  char *now, *from, *to, *last_from, *last_to;
};
constexpr uint64_t kCopies = sizeof(Copies) / sizeof(char*);

struct Watched {
  View view;
  uint64_t bytes;  ///< that are watched
  const char *low, *high;  ///< memory that the buffer spans
  Copies copies;
  uint64_t room;  ///< of each copy
  bool taken, valid;  ///< `now` holds
  bool changed;  ///< `from` became `to`; and later `last_from` became `last_to`
  bool shared;  ///< its memory is another one's, too: nothing is known
  uint16_t generation;
  Touch touch;
};

SpinLock lock;
Watched* watched;
char* scratch;
uint32_t watching, highest;
uint64_t watched_bytes;
uint64_t last_site;
uint16_t last_call;
Told queue[kTold];
uint32_t queued, published;

uint64_t pack(const Watched& w, char* to) {
  return type_pack(*w.view.type, w.view.buffer, w.view.count, 0, w.bytes, to);
}

/// Is it known, without a copy, to hold what was copied last? Mostly it does.
bool is_as_copied(const Watched& w) {
  const TypeMap& type = *w.view.type;
  return type.contiguous && memcmp(static_cast<const char*>(w.view.buffer) + type.low, w.copies.now, w.bytes) == 0;
}

}  // namespace

bool enabled;

void entered(const Event& e) {
  if (e.nested) return;
  if (__atomic_load_n(&watching, __ATOMIC_RELAXED) != 0) {
    SpinGuard guard(lock);
    for (uint32_t i = 0; i < highest; ++i) {
      Watched& w = watched[i];
      if (!w.taken || !w.valid || w.shared) continue;
      // The program may be told here that the operation is complete; then the buffer is its own, though the request
      // stays.
      if (class_of(e.id) == CallClass::kGetStatus) {
        w.shared = true;
        continue;
      }
      if (is_as_copied(w)) continue;
      pack(w, scratch);  // the library may be writing: what is judged is one state of it
      if (memcmp(scratch, w.copies.now, w.bytes) == 0) continue;
      if (!w.changed) {
        memcpy(w.copies.from, w.copies.now, w.bytes);
        memcpy(w.copies.to, scratch, w.bytes);
        w.touch.after_site = last_site;
        w.touch.after_call = last_call;
        w.touch.before_site = e.site;
        w.touch.before_call = static_cast<uint16_t>(e.id);
      }
      w.changed = true;
      memcpy(w.copies.last_from, w.copies.now, w.bytes);
      memcpy(w.copies.last_to, scratch, w.bytes);
    }
  }
}

void left(const Event& e) {
  if (e.nested) return;
  if (__atomic_load_n(&watching, __ATOMIC_RELAXED) == 0) return;
  SpinGuard guard(lock);
  last_site = e.site;
  last_call = static_cast<uint16_t>(e.id);
  for (uint32_t i = 0; i < highest; ++i) {
    Watched& w = watched[i];
    if (!w.taken || w.shared || (w.valid && is_as_copied(w))) continue;
    pack(w, w.copies.now);
    w.valid = true;
  }
}

bool next_told(Told* told) {
  if (__atomic_load_n(&queued, __ATOMIC_RELAXED) == __atomic_load_n(&published, __ATOMIC_RELAXED)) return false;
  SpinGuard guard(lock);
  if (published == queued) return false;
  *told = queue[published];
  __atomic_store_n(&published, published + 1, __ATOMIC_RELAXED);
  return true;
}

void prepare() {
  watched = memory::map_array<Watched>(kWatched);
  scratch = memory::map_array<char>(kBytes);
  if (scratch == nullptr) watched = nullptr;
  enabled = watched != nullptr;
}

namespace {

Watched* of_handle(uint64_t handle) {
  const uint64_t index = (handle & 0xffff) - 1;
  if (watched == nullptr || index >= kWatched) return nullptr;
  Watched& w = watched[index];
  return w.taken && w.generation == handle >> 16 ? &w : nullptr;
}

void release(Watched& w) {
  w.taken = false;
  ++w.generation;
  watched_bytes -= w.bytes;
  __atomic_store_n(&watching, watching - 1, __ATOMIC_RELAXED);
}

bool make_room(Watched& w, uint64_t bytes) {
  if (w.room >= bytes) return true;
  const uint64_t room = (bytes + 4095) / 4096 * 4096;
  auto* memory = memory::map_array<char>(room * kCopies);
  if (memory == nullptr) return false;
  memory::unmap_array(w.copies.now, w.room * kCopies);
  w.copies = {memory, memory + room, memory + 2 * room, memory + 3 * room, memory + 4 * room};
  w.room = room;
  return true;
}

void add(const Told& told) {
  SpinGuard guard(lock);
  for (uint32_t i = 0; i < queued; ++i)
    if (queue[i].receive == told.receive && queue[i].touch.posted_site == told.touch.posted_site) return;
  if (queued == kTold) return;
  queue[queued] = told;
  __atomic_store_n(&queued, queued + 1, __ATOMIC_RELAXED);
}

}  // namespace

uint64_t watch(const View& view, const Event& event) {
  if (watched == nullptr || view.reason != Reason::kNone || view.type == nullptr || view.bytes == 0 ||
      view.type->padded)
    return 0;
  int64_t low = 0, high = static_cast<int64_t>(view.bytes);
  type_span(*view.type, view.count, &low, &high);
  SpinGuard guard(lock);
  Watched* free = nullptr;
  bool shared = false;
  const char *begin = static_cast<const char*>(view.buffer) + low, *end = static_cast<const char*>(view.buffer) + high;
  for (uint32_t i = 0; i < kWatched; ++i) {
    Watched& w = watched[i];
    if (!w.taken) {
      if (free == nullptr) free = &w;
    } else if (w.low < end && begin < w.high) {
      w.shared = shared = true;  // two receives into the same memory: whose data it is, is not known
    }
  }
  const uint64_t bytes = view.bytes < kBytes ? view.bytes : kBytes;
  if (free == nullptr || watched_bytes + bytes > kAllBytes || !make_room(*free, bytes)) return 0;
  const uint16_t generation = free->generation;
  free->valid = free->changed = false;
  free->touch = {};
  free->view = view;
  free->bytes = bytes;
  watched_bytes += bytes;
  free->low = begin;
  free->high = end;
  free->shared = shared;
  free->taken = true;
  free->touch.posted_site = event.site;
  free->touch.posted_call = static_cast<uint16_t>(event.id);
  const auto index = static_cast<uint32_t>(free - watched);
  if (highest <= index) highest = index + 1;
  __atomic_store_n(&watching, watching + 1, __ATOMIC_RELAXED);
  return static_cast<uint64_t>(generation) << 16 | (index + 1);
}

bool end(uint64_t watched, const View& view, uint64_t bytes, Touch* touch) {
  if (watched == 0) return false;
  SpinGuard guard(lock);
  Watched* w = of_handle(watched);
  if (w == nullptr) return false;
  *touch = w->touch;
  bool seen = false;
  if (w->changed && !w->shared && view.buffer == w->view.buffer) {
    pack(*w, scratch);
    const Copies& c = w->copies;
    for (uint64_t i = 0; i < w->bytes; ++i) {
      const bool first = c.from[i] != c.to[i] && (i >= bytes || c.to[i] != scratch[i]);
      const bool last = c.last_from[i] != c.last_to[i] && (i >= bytes || c.last_to[i] != scratch[i]);
      if (!first && !last) continue;
      if (i < bytes && touch->bytes++ == 0) touch->first = i;
      if (i >= bytes && touch->behind++ == 0) touch->behind_first = i;
    }
    touch->stayed = bytes <= w->bytes && memcmp(c.last_to, scratch, bytes) == 0;
    if (touch->stayed) touch->landed = digest(c.last_from, bytes);
    seen = touch->bytes != 0 || touch->behind != 0 || touch->stayed;
  }
  release(*w);
  return seen;
}

void drop(uint64_t watched) {
  if (watched == 0) return;
  SpinGuard guard(lock);
  if (Watched* w = of_handle(watched); w != nullptr) release(*w);
}

void tell_receive(const Touch& touch) {
  if (touch.bytes != 0 || touch.behind != 0) add({touch, 0, true});
}

void tell_send(uint64_t site, uint16_t call, uint64_t bytes) {
  if (watched == nullptr) return;
  Touch touch = {};
  touch.posted_site = site;
  touch.posted_call = call;
  add({touch, bytes, false});
}

}  // namespace resil::touch
