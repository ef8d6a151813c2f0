// SPDX-License-Identifier: Apache-2.0
//
// Life of an overlay: what it begins with, what it shows, how it ends.
#include "detectors/hang/overlay/overlay.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <initializer_list>

#include "detectors/hang/overlay/internal.h"
#include "shim/runtime/memory.h"

namespace resil::hang::overlay {

namespace {

constexpr uint32_t kStandbyAttach = 0x80000000;

template <class T>
void set_default(T& option, T value) {
  option = option > 0 ? option : value;
}

OverlayOptions completed(OverlayOptions options) {
  set_default(options.fan_out, kFanOut);
  set_default(options.most_children, options.fan_out + 128);
  set_default(options.most_strangers, 32u);
  set_default(options.most_request, 64u << 10);
  set_default(options.most_answer, 4u << 20);
  set_default(options.most_memory, uint64_t{64} << 20);
  set_default(options.keep_alive, 1.0);
  set_default(options.silence, 5.0);
  set_default(options.leg, 1.0);
  set_default(options.leg_margin, 0.25);
  set_default(options.handshake, 2.0);
  set_default(options.settle, 10.0);
  set_default(options.stagger, 0.5);
  set_default(options.probe, 10.0);
  return options;
}

bool watch_fixed(const Overlay& o, int fd, uint64_t data) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = data;
  return epoll_ctl(o.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// The bytes of the object itself and of its connections, which are one mapping.
uint64_t mapping_bytes(uint32_t capacity) { return sizeof(Overlay) + uint64_t{capacity} * sizeof(Connection); }

}  // namespace

uint64_t own_series(const Overlay& o) { return uint64_t{o.own} << 40 | uint64_t{o.standby} << 39; }

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

Overlay* overlay_open(int listener, const NodeEntry* nodes, uint32_t count, uint32_t own, bool standby,
                      const uint8_t key[16], const OverlayHandler& handler, const OverlayOptions& options) {
  if (own >= count) {
    close(listener);
    errno = EINVAL;
    return nullptr;
  }
  const OverlayOptions all = completed(options);
  const uint32_t capacity = all.most_children + all.most_strangers + kMostAttempts + kMostProbes + kMostCalls + 2;
  void* memory = memory::map(mapping_bytes(capacity));
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (memory != nullptr) {
    auto& o = *static_cast<Overlay*>(memory);
    o.epoll = epoll, o.listener = listener, o.wake = wake;
    o.nodes = nodes, o.count = count, o.own = own, o.standby = standby;
    o.address = standby ? nodes[own].standby : nodes[own].leader;
    o.key = MacKey(key, 16);
    o.handler = handler;
    o.options = all;
    o.buffers.open(all.most_memory);
    o.connections = reinterpret_cast<Connection*>(&o + 1);
    o.capacity = capacity;
    o.attach = standby ? kStandbyAttach : 0;
    o.parent = o.silent = o.lost = kNoNode;
    o.ping_until = kNever;
    o.parent_since = -kNever;
    o.root = own == 0 ? 0 : kNoNode;
    o.opened = -kNever;  // set by the first step
    if (epoll >= 0 && wake >= 0 && watch_fixed(o, listener, kListenerEvent) && watch_fixed(o, wake, kWakeEvent))
      return &o;
  }
  const int why = errno;
  memory::unmap(memory, mapping_bytes(capacity));
  for (const int fd : {epoll, wake, listener})
    if (fd >= 0) close(fd);
  errno = why;
  return nullptr;
}

OverlayState overlay_state(const Overlay* overlay) {
  const Overlay& o = *overlay;
  const uint32_t parent = o.parent == kNoNode ? kNoNode : o.connections[o.parent].node;
  return {parent, o.root, leads(o), nodes_below(o), o.children, o.strangers, o.lost, o.lost_heard};
}

const OverlayCounters& overlay_counters(const Overlay* overlay) { return overlay->counters; }

int overlay_descriptor(const Overlay* overlay) { return overlay->epoll; }

void overlay_wake(const Overlay* overlay) {
  if (overlay->broken) return;
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(overlay->wake, &one, sizeof(one));  // full: it wakes anyway
  errno = saved;
}

bool overlay_flushed(const Overlay* overlay) {
  for (uint32_t i = 0; i < overlay->high; ++i)
    if (proved(overlay->connections[i]) && overlay->connections[i].out != nullptr) return false;
  return true;
}

void overlay_drop(Overlay* overlay) {
  Overlay& o = *overlay;
  for (uint32_t i = 0; i < o.high; ++i) {
    Connection& c = o.connections[i];
    if (c.stage == Stage::kFree) continue;
    close(c.fd);
    o.buffers.release(c.in);
    o.buffers.release_chain(c.out);
  }
  for (const int fd : {o.epoll, o.wake, o.listener})
    if (!o.broken) close(fd);
  o.buffers.close();
  memory::unmap(&o, mapping_bytes(o.capacity));
}

void overlay_close(Overlay* overlay) {
  Overlay& o = *overlay;
  o.handler = {};  // nobody is told what happens on the way out
  const ByeFrame bye = {0};
  const Piece piece = {&bye, sizeof(bye)};
  for (uint32_t i = 0; i < o.high; ++i) {
    Connection& c = o.connections[i];
    const uint32_t generation = c.generation;
    if (!proved(c) || c.stage == Stage::kAwaitWelcome || !send_frame(o, i, FrameType::kBye, 0, &piece, 1) ||
        c.generation != generation)
      continue;
    // Closing a socket with something unread in it resets the connection, and the good-bye would be lost.
    shutdown(c.fd, SHUT_WR);
    char unread[4096];
    for (int reads = 0; reads < 64 && recv(c.fd, unread, sizeof(unread), MSG_DONTWAIT) > 0; ++reads) {}
  }
  overlay_drop(overlay);
}

}  // namespace resil::hang
