// SPDX-License-Identifier: Apache-2.0
//
// Waits. See call.h.

#include "detectors/gpu_runtime/call.h"

#include <sched.h>

#include "shim/base/clock.h"
#include "shim/ring/device_work.h"

namespace resil::gpu_runtime {

constinit Settings settings = {};
constinit std::atomic<bool> running;
constinit thread_local uint32_t inside __attribute__((tls_model("initial-exec"))) = 0;

namespace {

constexpr double kAsk = 100e-6;  // between two questions to the runtime while a word is awaited
constexpr double kForever = 1e18;

bool mark(Call& call, void* stream) {
  const uint32_t i = call.count;
  if (!slot_acquire(*call.driver, call.context, &call.slots[i], &call.why)) return false;
  if (!word_append(*call.driver, call.slots[i], 0, stream, &call.words[i], &call.why)) {
    slot_release(call.slots[i]);
    return false;
  }
  call.streams[i] = stream;
  ++call.count;
  return true;
}

void mark_stream(Call& call) {
  Current current(*call.driver, call.handle);
  call.context = current.context();
  if (is_legacy(call.handle) && call.context != nullptr && !default_stream_safe(*call.driver, call.context)) {
    call.why = Uncovered::kUnseen;
    return;
  }
  if (settings.sync == Sync::kKernel) enqueue_kernel(*call.driver, call.context, call.handle);
  call.complete = mark(call, call.handle);
}

void mark_device(Call& call) {
  StreamEntry* entries[kMarks];
  bool more = false;
  call.context = current_context(*call.driver);
  if (call.context == nullptr) {
    call.why = Uncovered::kContext;
    return;
  }
  if (call.handle != nullptr && call.handle != call.context) {  // a wait for a context that is not current
    call.why = Uncovered::kUnseen;
    return;
  }
  // The default stream first: words in the others would keep it waiting.
  if (default_stream_safe(*call.driver, call.context)) {
    if (settings.sync == Sync::kKernel) enqueue_kernel(*call.driver, call.context, kDefaultStream);
    call.complete = mark(call, kDefaultStream);
  } else {
    call.why = Uncovered::kUnseen;
  }
  const unsigned n = streams_hold(call.api, call.context, entries, kMarks - 1, &more);
  call.complete = call.complete && !more;
  for (unsigned i = 0; i < n; ++i) {
    if (settings.sync == Sync::kKernel) enqueue_kernel(*call.driver, call.context, entries[i]->handle);
    call.complete = mark(call, entries[i]->handle) && call.complete;
    stream_release(entries[i]);
  }
}

void look_at_event(Call& call) {
  call.event = event_words(call.api, call.handle);
  if (!call.event.before.armed()) {
    call.why = Uncovered::kUnseen;
    return;
  }
  call.words[0] = call.event.before;
  call.streams[0] = call.event.stream;
  call.count = 1;
  call.complete = call.event.after.armed();
}

void open(Call& call) {
  call.wait = own_wait();
  if (call.wait == nullptr) return;
  OpenWait& wait = *call.wait;
  wait_write_begins(wait);
  wait.open = true, wait.returned = false, wait.judged = call.complete && call.count != 0;
  wait.kind = call.kind, wait.api = call.api, wait.call = call.name, wait.handle = call.handle, wait.site = call.site;
  wait.since = monotonic_seconds();
  wait.words = call.count;
  for (uint32_t i = 0; i < call.count; ++i)
    wait.word[i] = call.kind == Kind::kEventWait && call.event.after.armed() ? call.event.after : call.words[i];
  wait_write_ends(wait);
  device_wait_begins(wait_number(wait), call.name, call.count == 0 ? DeviceDone::kNotKnown : DeviceDone::kNo,
                     static_cast<uint64_t>(wait.since * 1e9));
}

void set(OpenWait* wait, bool OpenWait::*member, bool value) {
  if (wait == nullptr) return;
  wait_write_begins(*wait);
  wait->*member = value;
  wait_write_ends(*wait);
  if (member == &OpenWait::open && !value) device_wait_ends(wait_number(*wait));
  else if (member == &OpenWait::returned && value && wait->words != 0)
    device_wait_done(wait_number(*wait), DeviceDone::kReturnedEarly);
}

}  // namespace

void call_begin(Call& call) {
  call.count = 0, call.complete = false, call.held = false, call.why = Uncovered::kNone;
  call.driver = nullptr, call.context = nullptr, call.entry = nullptr;
  count_call(call.kind);
  if (settings.check) {
    call.driver = driver(call.api, call.function);
    if (call.driver == nullptr) {
      call.why = Uncovered::kDriver;
    } else if (call.kind == Kind::kEventWait) {
      look_at_event(call);
    } else {
      call.held = true;
      call.kind == Kind::kDeviceWait ? mark_device(call) : mark_stream(call);
    }
    if (call.count != 0) watcher_start();
  }
  open(call);
}

bool call_poll(Call& call, int* result) {
  if (call.count == 0 || !call.complete) return false;
  int error = kSuccess;
  for (uint32_t i = 0; i < call.count; ++i) {
    const Word& word = call.kind == Kind::kEventWait ? call.event.after : call.words[i];
    if (await(*call.driver, word, call.streams[i], kForever, &error) == Arrival::kFailed) break;
    word_seen(call.slots[i]);
  }
  // Asked once, for errors: that it says "not ready" by now is the runtime's own affair, or another thread's work.
  if (error == kSuccess)
    error = call.kind == Kind::kEventWait ? call.driver->event_query(call.handle)
                                          : call.driver->stream_query(call.streams[0]);
  *result = error == kNotReady ? kSuccess : error;
  return true;
}

int call_end(Call& call, int result) {
  double late = 0;
  bool judged = result == kSuccess && call.count != 0;
  for (uint32_t i = 0; i < call.count && result == kSuccess; ++i) {
    const Slot& slot = call.slots[i];
    if (call.words[i].written()) [[likely]] {
      if (call.held) word_seen(slot);
      continue;
    }
    const double returned = monotonic_seconds();
    if (call.kind == Kind::kEventWait && !event_unchanged(call.api, call.handle, call.event)) {
      judged = false, call.why = Uncovered::kRace;
      break;
    }
    set(call.wait, &OpenWait::returned, true);
    const Arrival arrival = await(*call.driver, call.words[i], call.streams[i], kForever, &result);
    const double seconds = monotonic_seconds() - returned;
    if (arrival != Arrival::kArrived) {
      judged = false, call.why = Uncovered::kRefused;
      break;
    }
    late = seconds > late ? seconds : late;
    if (call.kind == Kind::kEventWait && !event_unchanged(call.api, call.handle, call.event)) {
      judged = false, call.why = Uncovered::kRace;
      break;
    }
    if (worth_claiming(seconds)) premature(call, slot, call.words[i], call.streams[i], seconds, false);
  }
  set(call.wait, &OpenWait::open, false);
  if (settings.check) {
    if (judged) count_checked(call.kind, late);
    else if (result == kSuccess) count_uncovered(call.kind, call.why);
  }
  if (call.held)
    for (uint32_t i = 0; i < call.count; ++i) slot_release(call.slots[i]);
  return result;
}

Arrival await(const Driver& driver, const Word& word, void* stream, double limit, int* error) {
  const double began = monotonic_seconds();
  double asked = began;
  for (unsigned turn = 1; !word.written(); ++turn) {
    if (turn % 64 != 0) continue;
    const double now = monotonic_seconds();
    if (now - began > limit) return Arrival::kTimeout;
    if (now - asked > kAsk) {
      // A stream that has failed never comes to its word. The answer "done" is not believed: it is what is in question.
      const int said = driver.stream_query(stream);
      if (said != kSuccess && said != kNotReady && !word.written()) return *error = said, Arrival::kFailed;
      asked = monotonic_seconds();
    }
    sched_yield();
  }
  return Arrival::kArrived;
}

}  // namespace resil::gpu_runtime
