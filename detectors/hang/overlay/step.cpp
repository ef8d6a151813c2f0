// SPDX-License-Identifier: Apache-2.0
//
// One step of the event loop. Traffic comes before timers: whoever was stopped or starved for a while first reads what
// came meanwhile, and only then decides who has been silent.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "detectors/hang/overlay/internal.h"
#include "shim/base/clock.h"

namespace resil::hang::overlay {

namespace {

constexpr int kEventsAtOnce = 64, kSteps = 16;

void deal_with(Overlay& o, const epoll_event& event) {
  if (event.data.u64 == kListenerEvent) return accept_strangers(o);
  if (event.data.u64 == kWakeEvent) {
    uint64_t count;
    while (read(o.wake, &count, sizeof(count)) > 0) {}
    return;
  }
  const auto slot = static_cast<uint32_t>(event.data.u64), generation = static_cast<uint32_t>(event.data.u64 >> 32);
  Connection& c = o.connections[slot];
  if (c.generation != generation)  // closed, perhaps used anew, since the kernel told
    return;
  if (c.stage == Stage::kConnecting || c.stage == Stage::kProbing) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == ECONNREFUSED && is_probe(c)) probe_ended(o, slot, Reach::kHost);
    if (error != 0) return end_connection(o, slot, End::kLost);
    if ((event.events & EPOLLOUT) == 0) return;
    send_hello(o, slot);
  } else if ((event.events & EPOLLOUT) != 0) {
    write_connection(o, slot);
  }
  if (c.generation == generation && (event.events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0)
    read_connection(o, slot);
}

/// Who has just been silent for long is asked once more, but not waited for as long again: a host takes connections
/// also when the process is stopped.
double handshake_of(const Overlay& o, const Connection& c) {
  const bool again = is_attempt(c) && o.silent != kNoNode && c.node == o.silent;
  const double shorter = o.hurried ? kHurriedStagger : o.options.stagger;
  return again && shorter < o.options.handshake ? shorter : o.options.handshake;
}

void connection_timers(Overlay& o) {
  // Were we ourselves away (stopped, starved), nobody else is to blame.
  const bool amnesty = o.now - o.last_turn > o.options.silence / 2;
  for (uint32_t i = 0; i < o.high; ++i) {
    Connection& c = o.connections[i];
    if (c.stage == Stage::kFree) continue;
    if (is_probe(c)) {
      if (o.now >= probe_deadline(o, i)) end_connection(o, i, End::kLost);
      continue;
    }
    if (!proved(c) || c.stage == Stage::kAwaitWelcome) {
      if (o.now - c.began >= handshake_of(o, c)) {
        o.counters.refused_silent += is_stranger(c) ? 1 : 0;
        end_connection(o, i, End::kLost);
      }
      continue;
    }
    c.heard = amnesty ? o.now : c.heard;
    if (o.now - c.heard >= o.options.silence) end_connection(o, i, End::kSilent);
    else if (o.now - c.spoke >= o.options.keep_alive) send_alive(o, i);
  }
  while (o.high > 0 && o.connections[o.high - 1].stage == Stage::kFree) --o.high;
}

double next_timer(const Overlay& o) {
  double next = parent_next(o);
  const auto sooner = [&next](double time) { next = time < next ? time : next; };
  sooner(accept_next(o));
  sooner(rounds_next(o));
  sooner(urgent_next(o));
  for (uint32_t i = 0; i < o.high; ++i) {
    const Connection& c = o.connections[i];
    if (c.stage == Stage::kFree) continue;
    if (is_probe(c)) {
      sooner(probe_deadline(o, i));
      continue;
    }
    if (!proved(c) || c.stage == Stage::kAwaitWelcome) {
      sooner(c.began + handshake_of(o, c));
      continue;
    }
    sooner(c.heard + o.options.silence);
    sooner(c.spoke + o.options.keep_alive);
  }
  return next;
}

/// A program that closes descriptors which it did not open has closed ours, and may have opened others under their
/// numbers: none of them is touched any more, not even to be closed. This node goes on alone.
void break_off(Overlay& o) {
  o.broken = true;
  for (uint32_t i = 0; i < o.high; ++i) o.connections[i].fd = -1;
  for (uint32_t i = 0; i < o.high; ++i) end_connection(o, i, End::kLost);
}

void step_alone(Overlay& o, double now, int timeout_ms) {
  o.now = now;
  round_timers(o);
  const timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  if (timeout_ms > 0) nanosleep(&time, nullptr);
}

}  // namespace

void watch(Overlay& o, uint32_t slot, bool writes) {
  Connection& c = o.connections[slot];
  if (c.writes == writes) return;
  epoll_event event = {};
  event.events = EPOLLIN | (writes ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = uint64_t{c.generation} << 32 | slot;
  if (epoll_ctl(o.epoll, EPOLL_CTL_MOD, c.fd, &event) == 0) c.writes = writes;
}

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

void overlay_step(Overlay* overlay, double now, int timeout_ms) {
  Overlay& o = *overlay;
  if (o.broken) return step_alone(o, now, timeout_ms);
  if (o.opened == -kNever) {
    o.opened = o.last_turn = now;
    o.accept_tokens = 64, o.accept_refilled = now;
    if (o.own != 0) {
      o.now = now;
      parent_gone(o, kNoNode, false);
    }
  }
  rounds_begin_turn(o, now);
  o.now = now;
  parent_timers(o);
  const double wait = (next_timer(o) - now) * 1e3;
  const int until_timer = wait <= 0 ? 0 : wait < 1e6 ? static_cast<int>(wait) + 1 : 1000000;
  int timeout = timeout_ms >= 0 && timeout_ms < until_timer ? timeout_ms : until_timer;
  const double before = timeout > 0 ? monotonic_seconds() : 0;
  for (int step = 0; step < kSteps; ++step) {
    epoll_event events[kEventsAtOnce];
    const int ready = epoll_wait(o.epoll, events, kEventsAtOnce, timeout);
    if (ready < 0 && errno != EINTR) return break_off(o);
    if (timeout > 0) o.now = now + (monotonic_seconds() - before);
    timeout = 0;
    for (int i = 0; i < ready; ++i) deal_with(o, events[i]);
    if (ready < kEventsAtOnce) break;
  }
  accept_timers(o);
  urgent_timers(o);
  connection_timers(o);
  round_timers(o);
  parent_timers(o);
  o.last_turn = o.now;
  o.counters.most_memory_used = o.buffers.most_used();
}

}  // namespace resil::hang
