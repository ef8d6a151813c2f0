// SPDX-License-Identifier: Apache-2.0
//
// See times.h. The leader never waits: it sends what there is whenever it makes a call that may block, so that whoever
// waits for a value waits for nothing but the leader's own way.

#include "detectors/replicas/times.h"

#include <errno.h>

#include <cstring>

#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/json.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace {

constexpr uint32_t kValues = 63, kMessages = 2048, kPosted = 16;
constexpr uint32_t kMostBetween = 4096;  ///< values between two calls

struct Time {
  uint64_t call;  ///< and in the upper byte the clock; 0: MPI_Wtime
  uint64_t value;
};
constexpr unsigned kClockShift = 56;
constexpr uint64_t kCallMask = (uint64_t{1} << kClockShift) - 1;
struct Message {
  uint64_t complete;  ///< all values asked for before this many calls are here or were sent before
  uint32_t count, last;  ///< last: there are no more
  Time values[kValues];
};

bool open;
uint64_t calls, given, missed;

// The leader's.
Message* messages;
uint64_t requests[3][kMessages];
uint32_t first_sent, to_send,
    filling;  // by number, modulo kMessages: under way, full and waiting for a call, being filled
uint32_t between;
uint64_t last_flush;

// A follower's.
mailbox::Inbox<Message> inbox;
Message* posted;
uint64_t posted_requests[kPosted];
Time* queue;
uint32_t queue_room, head, tail;
uint64_t complete;
bool ended;
struct Last {
  uint64_t value, real;
  bool any;
} lasts[kClockCount];
Thread* own_thread;

size_t bytes_of(const Message& message) { return offsetof(Message, values) + message.count * sizeof(Time); }

void take_back_sent() {
  for (; first_sent != to_send; ++first_sent)
    for (int part = 1; part < place.parts; ++part) {
      uint64_t& request = requests[part - 1][first_sent % kMessages];
      if (request != 0 && !backend->test(&request)) return;
      request = 0;
    }
}

/// Sends what there is. Inside a call.
void flush(bool last) {
  for (; to_send <= filling; ++to_send) {
    Message& message = messages[to_send % kMessages];
    if (message.count == 0 && !last) break;
    message.complete = to_send == filling ? calls : 0;
    message.last = last && to_send == filling;
    for (int part = 1; part < place.parts; ++part) {
      uint64_t& request = requests[part - 1][to_send % kMessages];
      if (!mailbox::send(&message, bytes_of(message), place.partner(part), tags::kReplicas[1], &request)) request = 0;
    }
  }
  filling = to_send;
  messages[filling % kMessages].count = 0;
}

bool has_room() { return filling - first_sent < kMessages - 1; }

void take_what_came() {
  bool failed = false;
  while (inbox.is_open() && inbox.has_come(&failed)) {
    const Message& message = inbox.message();
    if (failed || message.last != 0) ended = true;
    if (!failed) {
      if (message.complete != 0) complete = message.complete;
      if (head == tail) head = tail = 0;
      if (memory::grow_array(&queue, &queue_room, tail + message.count, 4096u)) {
        memcpy(queue + tail, message.values, message.count * sizeof(Time));
        tail += message.count;
      }
    }
    if (failed) inbox.close();
    else inbox.again();
  }
}

}  // namespace

void times_begin() {
  own_thread = current_thread;
  if (place.part == 0) {
    messages = memory::map_array<Message>(kMessages);
    open = messages != nullptr;
    return;
  }
  posted = memory::map_array<Message>(kPosted);
  open = posted != nullptr && inbox.open(tags::kReplicas[1], posted, posted_requests, kPosted);
}

namespace {

/// The leader: as it is, and kept. A follower: what the leader kept. `add`: a value and how much later it is asked.
template <class Add>
uint64_t told(Thread& thread, unsigned clock, uint64_t value, Add add) {
  if (place.part == 0) {
    if (between++ >= kMostBetween || !has_room()) {
      ++missed;
      return value;
    }
    Message& message = messages[filling % kMessages];
    message.values[message.count++] = {calls | uint64_t{clock} << kClockShift, value};
    ++given;
    if (message.count == kValues) messages[++filling % kMessages].count = 0;
    return value;
  }
  const auto is_known = [] {
    take_what_came();
    while (head < tail && (queue[head].call & kCallMask) < calls) ++head;
    return head < tail || complete > calls || ended;
  };
  if (!is_known()) {
    const uint64_t limit =
        ticks() + static_cast<uint64_t>(config_real("RESIL_REPLICAS_SECONDS") * runtime.header->ticks_per_second);
    wait_until(
        thread, [&] { return is_known() || ticks() > limit; }, kForOthers);
    if (!is_known()) {  // the leader is stuck, or the parts have come apart
      open = false;
      may_differ("a clock that the leading part has not asked");
    }
  }
  Last& last = lasts[clock];
  if (head < tail && queue[head].call == (calls | uint64_t{clock} << kClockShift)) {
    last = {queue[head++].value, value, true};
    ++given;
    return last.value;
  }
  ++missed;
  return last.any ? add(last.value, last.real, value) : value;
}

}  // namespace

double times_told(Thread& thread, CallId id, double value) {
  if (!open || &thread != own_thread) return value;
  static CallId first = id;  // there are two, and partners ask them in the same order
  return bit_cast<double>(told(
      thread, id == first ? 0 : kOtherOfMpi, bit_cast<uint64_t>(value), [](uint64_t last, uint64_t real, uint64_t now) {
        return bit_cast<uint64_t>(bit_cast<double>(last) + (bit_cast<double>(now) - bit_cast<double>(real)));
      }));
}

int64_t times_told_by_libc(Clock clock, int64_t value) {
  Thread* thread = current_thread;
  if (!open || thread == nullptr || thread != own_thread || thread->depth != 0) return value;
  const int error = errno;
  const uint64_t told_value = told(*thread, clock, static_cast<uint64_t>(value),
                                   [](uint64_t last, uint64_t real, uint64_t now) { return last + (now - real); });
  errno = error;
  return static_cast<int64_t>(told_value);
}

void random_told(void* bytes, size_t count) {
  Thread* thread = current_thread;
  const bool follows = open && thread != nullptr && thread == own_thread && thread->depth == 0 &&
                       config_integer("RESIL_REPLICAS_FOLLOW") > 1;
  const int error = errno;
  const uint64_t missed_before = missed;
  auto* at = static_cast<unsigned char*>(bytes);
  for (size_t left = follows ? count : 0; left != 0;) {
    const size_t piece = left < 8 ? left : 8;
    uint64_t value = 0;
    memcpy(&value, at, piece);
    value = told(*thread, kRandom, value, [](uint64_t, uint64_t, uint64_t now) { return now; });
    memcpy(at, &value, piece);
    at += piece;
    left -= piece;
  }
  if (!follows || missed != missed_before) may_differ("random numbers");
  errno = error;
}

void times_call(bool poll, uint64_t now) {
  if (!poll) ++calls;
  if (!open || place.part != 0) return;
  if (!poll) between = 0;
  if (to_send == filling && messages[filling % kMessages].count == 0) return;
  if (poll && now - last_flush < runtime.header->ticks_per_second / 5000) return;
  last_flush = now;
  take_back_sent();
  flush(false);
}

void times_end(Thread& thread) {
  if (!open) return;
  open = false;
  ++calls;
  if (place.part == 0) {
    const auto all_sent = [] {
      take_back_sent();
      return first_sent == to_send;
    };
    wait_until(
        thread, [] { return take_back_sent(), has_room(); }, kForOthers);
    flush(true);
    wait_until(thread, all_sent, kForOthers);
    return;
  }
  wait_until(
      thread, [] { return take_what_came(), ended || !inbox.is_open(); }, kForOthers);
  if (inbox.is_open()) inbox.close();
}

void times_report(JsonWriter& json) {
  json.integer("times", static_cast<int64_t>(given));
  json.integer("times_left_out", static_cast<int64_t>(missed));
}

}  // namespace resil::replicas
