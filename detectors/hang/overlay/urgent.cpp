// SPDX-License-Identifier: Apache-2.0
//
// A question waits, and the parent may be stopped: then five seconds of silence are too long. Whoever has passed a
// question on awaits a reply of its parent, which gives one at once, whatever else it is doing. After a quarter of a
// second without one those that have the same parent are called, so that they look for themselves; after a second the
// parent is given up, and the way on is searched as after a silence, but faster. No node is given up on the word of
// another one. A parent that was only slow gets its children back as any node does that comes back.
#include <initializer_list>

#include "detectors/hang/overlay/address.h"
#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr double kCallAfter = 0.25;
constexpr double kTurn = 0.5;  ///< between two steps; in more than that this node did not run

void call(Overlay& o, uint32_t node, uint32_t parent) {
  const int fd = connect_from(o.address, o.nodes[node].leader);
  const uint32_t slot = fd < 0 ? kNoNode : add_connection(o, fd, Stage::kProbing);
  if (slot == kNoNode) return;
  Connection& c = o.connections[slot];
  c.node = node, c.candidate = parent;
  c.purpose = Purpose::kCall;
}

/// The parent's own children in the tree, and those of the node that is ours: it may be dead, and its children here.
void call_siblings(Overlay& o) {
  const uint32_t parent = o.connections[o.parent].node, fan_out = o.options.fan_out;
  const uint32_t ours = (o.own - 1) / fan_out;
  uint32_t made = 0;
  for (const uint32_t of : {parent, ours}) {
    const uint64_t first = uint64_t{of} * fan_out + 1;
    for (uint64_t node = first; node < first + fan_out && node < o.count && made < kMostCalls; ++node)
      if (node != o.own) call(o, static_cast<uint32_t>(node), parent), ++made;
    if (ours == parent) return;
  }
}

}  // namespace

void ping_parent(Overlay& o, double timeout, bool calls) {
  if (o.parent == kNoNode) return;
  if (o.ping_until != kNever) {  // one is awaited: the first one decides
    o.calls = o.calls || calls;
    return;
  }
  const PingFrame frame = {++o.ping};
  const Piece piece = {&frame, sizeof(frame)};
  o.calls = calls;
  o.pinged = o.now;
  o.ping_until = o.now + timeout;
  send_frame(o, o.parent, FrameType::kPing, 0, &piece, 1);
}

void take_pong(Overlay& o, uint64_t number) {
  if (number == o.ping) o.ping_until = kNever;
}

void called(Overlay& o, uint32_t parent) {
  if (o.parent != kNoNode && o.connections[o.parent].node == parent) ping_parent(o, kCalledTimeout, false);
}

void urgent_timers(Overlay& o) {
  if (o.ping_until == kNever || o.parent == kNoNode) return;
  // Were we ourselves away, the parent has that time in addition: it may run on the same machine.
  if (const double away = o.now - o.last_turn; away > kTurn) o.pinged += away, o.ping_until += away;
  if (o.now >= o.ping_until) {
    o.hurried = true;
    return end_connection(o, o.parent, End::kSilent);
  }
  if (o.calls && o.now >= o.pinged + kCallAfter) {
    o.calls = false;
    call_siblings(o);
  }
}

double urgent_next(const Overlay& o) {
  if (o.ping_until == kNever || o.parent == kNoNode) return kNever;
  const double call_at = o.pinged + kCallAfter;
  return o.calls && call_at < o.ping_until ? call_at : o.ping_until;
}

}  // namespace resil::hang::overlay
