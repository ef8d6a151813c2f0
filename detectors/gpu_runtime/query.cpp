// SPDX-License-Identifier: Apache-2.0
//
// Queries: did the runtime say "done" too early? See call.h.
//
// A word must stand in the stream before the runtime is asked. But each word keeps the stream busy for a moment, and a
// program that asks again and again must not be kept from its answer. So there is one word at a time: it is appended
// when the one before it has been answered upon, and as soon as it is written the next answer is the runtime's own.

#include <sched.h>

#include "detectors/gpu_runtime/call.h"
#include "shim/base/clock.h"

namespace resil::gpu_runtime {

namespace {

constexpr double kWordTime = 20e-6;  // a word in an idle stream is there by then
constexpr double kTimeout = 1e-3;  // how long a query may take when the runtime was wrong

/// The runtime said "done" and the word is not there.
int too_early(Call& call, const Slot& slot, const Word& word, void* stream) {
  const double said = monotonic_seconds();
  int error = kSuccess;
  // A result that cannot be changed any more is made true.
  const Arrival arrival = await(*call.driver, word, stream, call.alters ? kTimeout : 1e18, &error);
  const double late = monotonic_seconds() - said;
  if (arrival == Arrival::kFailed) {
    count_uncovered(call.kind, Uncovered::kRefused);
    return error;
  }
  if (call.kind == Kind::kEventQuery && !event_unchanged(call.api, call.handle, call.event)) {
    count_uncovered(call.kind, Uncovered::kRace);
    return arrival == Arrival::kArrived ? kSuccess : kNotReady;
  }
  // In a context in which no word has come yet one that does not come proves nothing.
  if (arrival == Arrival::kArrived || slot.arena == nullptr || words_proved(slot)) {
    count_checked(call.kind, late);
    if (worth_claiming(late)) premature(call, slot, word, stream, late, arrival != Arrival::kArrived);
  } else {
    count_uncovered(call.kind, Uncovered::kRefused);
  }
  return arrival == Arrival::kArrived ? kSuccess : kNotReady;
}

int event_end(Call& call, int result) {
  if (!call.event.before.armed() || result != kSuccess) {
    if (result == kSuccess) count_uncovered(call.kind, Uncovered::kUnseen);
    return result;
  }
  if (!call.event.before.written()) return too_early(call, Slot{}, call.event.before, call.event.stream);
  count_checked(call.kind, 0);
  return result;
}

}  // namespace

void query_begin(Call& call) {
  call.count = 0, call.complete = false, call.held = false, call.why = Uncovered::kNone;
  call.context = nullptr, call.entry = nullptr, call.wait = nullptr, call.event = {};
  count_call(call.kind);
  call.driver = settings.check ? driver(call.api, call.function) : nullptr;
  if (call.driver == nullptr) return;
  if (call.kind == Kind::kEventQuery) {
    call.event = event_words(call.api, call.handle);
    return;
  }
  Current current(*call.driver, call.handle);
  call.context = current.context();
  // The per-thread default stream is one stream a thread under one handle.
  if (call.handle == kPerThreadStream ||
      (is_legacy(call.handle) && call.context != nullptr && !default_stream_safe(*call.driver, call.context))) {
    call.why = Uncovered::kUnseen;
    return;
  }
  StreamEntry* entry = stream_hold(call.api, call.context, call.handle);
  if (entry == nullptr || entry->querying.exchange(true, std::memory_order_acquire)) {
    call.why = entry == nullptr ? Uncovered::kMany : Uncovered::kRace;
    if (entry != nullptr) stream_release(entry);
    return;
  }
  call.entry = entry;
  call.held = false;
  if (entry->word.armed() && (!entry->word.written() || !entry->consumed)) return;
  if (entry->slot.arena != nullptr && !slot_of(entry->slot, call.context)) slot_release(entry->slot);
  entry->word = {};
  if ((entry->slot.arena != nullptr || slot_acquire(*call.driver, call.context, &entry->slot, &call.why)) &&
      word_append(*call.driver, entry->slot, 0, call.handle, &entry->word, &call.why)) {
    entry->consumed = false;
    call.held = true;  // appended just now
  }
}

int query_end(Call& call, int result, int (*again)(void*)) {
  if (call.driver == nullptr) {
    if (settings.check) count_uncovered(call.kind, Uncovered::kDriver);
    return result;
  }
  if (call.kind == Kind::kEventQuery) return event_end(call, result);
  StreamEntry* entry = call.entry;
  if (entry == nullptr || !entry->word.armed()) {
    count_uncovered(call.kind, call.why);
  } else if (result == kSuccess) {
    if (entry->word.written()) {
      word_seen(entry->slot);
      count_checked(call.kind, 0);
    } else {
      result = too_early(call, entry->slot, entry->word, call.handle);
    }
    entry->consumed = entry->word.written();
  } else if (result == kNotReady && call.held && again != nullptr) {
    // Perhaps it is only the word that the runtime still waits for.
    const double began = monotonic_seconds();
    while (!entry->word.written() && monotonic_seconds() - began < kWordTime) sched_yield();
    if (entry->word.written()) {
      word_seen(entry->slot);
      result = again(call.handle);
      entry->consumed = true;
      if (result == kSuccess) count_checked(call.kind, 0);
    }
  } else if (result == kNotReady && entry->word.written()) {
    entry->consumed = true;
  }
  if (entry != nullptr) {
    entry->querying.store(false, std::memory_order_release);
    stream_release(entry);
  }
  return result;
}

}  // namespace resil::gpu_runtime
