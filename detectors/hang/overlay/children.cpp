// SPDX-License-Identifier: Apache-2.0
//
// The way down: strangers that knock, children that come and go, and the news about them on its way to the root.
//
// Strangers are bounded in number, in rate and in time. When there are too many, the oldest that has not even said who
// it is makes room: who holds the key needs two round trips and gets through a flood, who does not holds a place for a
// moment only. Children are never touched by any of it.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "detectors/hang/overlay/address.h"
#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr int kAcceptsATurn = 32;
constexpr double kAcceptsASecond = 2000, kAcceptBurst = 512;
constexpr double kPauseForDescriptors = 0.1;

bool in_table(const Overlay& o, const Address& address) {
  for (uint32_t i = 0; i < o.count; ++i)
    if (same_ip(o.nodes[i].leader, address) || same_ip(o.nodes[i].standby, address)) return true;
  return false;
}

void evict_stranger(Overlay& o) {
  uint32_t oldest = kNoNode;
  for (uint32_t i = 0; i < o.high; ++i) {
    const Connection& c = o.connections[i];
    if (!is_stranger(c)) continue;
    const Connection* best = oldest == kNoNode ? nullptr : &o.connections[oldest];
    const bool worse =
        best == nullptr || (c.stage != best->stage ? c.stage == Stage::kAwaitHello : c.generation < best->generation);
    oldest = worse ? i : oldest;
  }
  if (oldest == kNoNode) return;
  ++o.counters.refused_full;
  end_connection(o, oldest, End::kQuiet);
}

bool has_news(Overlay& o) {
  if (o.news == nullptr) o.news = static_cast<NodeNews*>(o.buffers.map(o.count * sizeof(NodeNews)));
  return o.news != nullptr;
}

void listen_again(Overlay& o, bool wanted) {
  epoll_event event = {};
  event.events = wanted ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = kNoNode;
  epoll_ctl(o.epoll, EPOLL_CTL_MOD, o.listener, &event);
}

void pause_listening(Overlay& o, double seconds) {
  o.accept_paused = o.now + seconds;
  listen_again(o, false);
}

}  // namespace

void accept_strangers(Overlay& o) {
  o.accept_tokens += (o.now - o.accept_refilled) * kAcceptsASecond;
  o.accept_tokens = o.accept_tokens > kAcceptBurst ? kAcceptBurst : o.accept_tokens;
  o.accept_refilled = o.now;
  for (int i = 0; i < kAcceptsATurn; ++i) {
    if (o.accept_tokens < 1) return pause_listening(o, 16 / kAcceptsASecond);
    SocketAddress from = {};
    socklen_t bytes = sizeof(from);
    const int fd = accept4(o.listener, &from.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      ++o.counters.accept_errors;  // out of descriptors or memory: others may close some
      return pause_listening(o, kPauseForDescriptors);
    }
    o.accept_tokens -= 1;
    Address address;
    if (!from_kernel(from, &address) || !in_table(o, address)) {
      ++o.counters.refused_address;
      close(fd);
      continue;
    }
    if (o.strangers >= o.options.most_strangers) evict_stranger(o);
    no_delay(fd);
    const uint32_t slot = add_connection(o, fd, Stage::kAwaitHello);
    if (slot == kNoNode) ++o.counters.accept_errors;
    else read_connection(o, slot);  // the greeting may be there already
  }
}

void accept_timers(Overlay& o) {
  if (o.accept_paused == 0 || o.now < o.accept_paused) return;
  o.accept_paused = 0;
  listen_again(o, true);
}

double accept_next(const Overlay& o) { return o.accept_paused == 0 ? kNever : o.accept_paused; }

void child_proved(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  for (uint32_t i = 0; i < o.high; ++i) {
    Connection& other = o.connections[i];
    if (i == slot || other.stage != Stage::kChild || other.node != c.node) continue;
    // The node came back by another connection before we noticed that the first is dead; or its standby took over,
    // whose count begins higher, and the leader has woken up: then the standby stays.
    if (other.attach > c.attach) {
      ++o.counters.refused_key;
      return end_connection(o, slot, End::kQuiet);
    }
    end_connection(o, i, End::kMoved);
  }
  if (o.children >= o.options.most_children) {
    ++o.counters.refused_full;
    return end_connection(o, slot, End::kQuiet);
  }
  --o.strangers;
  ++o.children;
  c.stage = Stage::kChild;
  c.heard = o.now;
  const uint32_t node = c.node, attach = c.attach, generation = c.generation;
  send_alive(o, slot);
  if (c.generation != generation) return;
  notice(o, node, attach, NodeState::kUp);
  order_newcomer(o, slot);
  if (c.generation == generation) ask_newcomer(o, slot);
}

void child_gone(Overlay& o, const Connection& was, End why) {
  o.counters.children_lost += why != End::kLeft && why != End::kMoved ? 1 : 0;
  if (why != End::kMoved) notice(o, was.node, was.attach, why == End::kLeft ? NodeState::kLeft : NodeState::kLost);
  if (was.waiting != 0) forget_child(o, was.waiting);
}

void notice(Overlay& o, uint32_t node, uint32_t attach, NodeState state) {
  if (!leads(o)) {
    const NoticeFrame frame = {node, attach, static_cast<uint32_t>(state)};
    const Piece piece = {&frame, sizeof(frame)};
    if (o.parent != kNoNode) send_frame(o, o.parent, FrameType::kNotice, 0, &piece, 1);
    return;
  }
  if (!has_news(o)) return;
  NodeNews& news = o.news[node];
  // A node's old parent may notice later than its new one.
  if (attach < news.attach || (attach == news.attach && news.state == state)) return;
  const bool changed = news.state != state;
  news = {attach, state};
  if (changed && o.handler.node != nullptr) o.handler.node(o.handler.self, node, state);
}

void remember_left(Overlay& o, uint32_t node) {
  if (has_news(o)) o.news[node].state = NodeState::kLeft;
}

void tell_left(Overlay& o) {
  for (uint32_t node = 0; o.news != nullptr && node < o.own; ++node)
    if (o.news[node].state == NodeState::kLeft && o.handler.node != nullptr)
      o.handler.node(o.handler.self, node, NodeState::kLeft);
}

bool take_notice(Overlay& o, const uint8_t* data, uint32_t bytes) {
  NoticeFrame frame;
  if (bytes != sizeof(frame)) return false;
  memcpy(&frame, data, sizeof(frame));
  if (frame.node <= o.own || frame.node >= o.count || frame.state > static_cast<uint32_t>(NodeState::kLeft))
    return false;
  notice(o, frame.node, frame.attach, static_cast<NodeState>(frame.state));
  return true;
}

uint32_t nodes_below(const Overlay& o) {
  uint64_t below = 1;
  for (uint32_t i = 0; i < o.high; ++i) below += o.connections[i].stage == Stage::kChild ? o.connections[i].below : 0;
  return below < o.count ? static_cast<uint32_t>(below) : o.count;
}

void send_alive(Overlay& o, uint32_t slot) {
  const AliveFrame alive = {o.root, nodes_below(o)};
  const Piece piece = {&alive, sizeof(alive)};
  send_frame(o, slot, FrameType::kAlive, 0, &piece, 1);
}

}  // namespace resil::hang::overlay
