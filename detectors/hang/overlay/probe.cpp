// SPDX-License-Identifier: Apache-2.0
//
// Signs of life between any two nodes, whatever the tree looks like: a connection of its own to the other node's
// leader, a greeting, its challenge, the end. A host that takes or refuses the connection is reached, whether or not
// its helper replies. A connection goes both ways, so a way that is broken in one direction is broken here.
#include <errno.h>

#include "detectors/hang/overlay/address.h"
#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

Probe* find(Overlay& o, uint32_t node) {
  for (Probe& probe : o.probes)
    if (probe.found.reach != Reach::kUnknown && probe.node == node) return &probe;
  return nullptr;
}

/// Room for one more: the oldest that is over makes it.
Probe* room(Overlay& o) {
  for (uint32_t i = 0; i < kMostProbes; ++i)
    if (Probe& probe = o.probes[o.probe_next++ % kMostProbes]; probe.found.reach != Reach::kAsking) return &probe;
  return nullptr;
}

const Probe* of_slot(const Overlay& o, uint32_t slot) {
  for (const Probe& probe : o.probes)
    if (probe.found.reach == Reach::kAsking && probe.slot == slot) return &probe;
  return nullptr;
}

}  // namespace

void probe_ended(Overlay& o, uint32_t slot, Reach reach) {
  for (Probe& probe : o.probes)
    if (probe.found.reach == Reach::kAsking && probe.slot == slot) {
      probe.slot = kNoNode;
      probe.found.reach = reach;
      probe.found.seconds = o.now - probe.found.began;
      o.counters.probes_answered += reach == Reach::kReplied ? 1 : 0;
    }
}

double probe_deadline(const Overlay& o, uint32_t slot) {
  const Connection& c = o.connections[slot];
  if (c.purpose == Purpose::kCall) return c.began + o.options.handshake;
  const Probe* probe = of_slot(o, slot);
  return probe != nullptr ? probe->deadline : o.now;
}

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

bool overlay_probe(Overlay* overlay, uint32_t node, double timeout) {
  Overlay& o = *overlay;
  if (node >= o.count || o.broken) return false;
  Probe* probe = find(o, node);
  if (probe != nullptr && probe->found.reach == Reach::kAsking) return true;
  if (probe == nullptr) probe = room(o);
  if (probe == nullptr) return false;
  *probe = {node, kNoNode, o.now + timeout, {Reach::kReplied, o.now, 0}};
  if (node == o.own) return true;
  ++o.counters.probes;
  errno = 0;
  const int fd = connect_from(o.address, o.nodes[node].leader);
  const int why = errno;
  const uint32_t slot = fd < 0 ? kNoNode : add_connection(o, fd, Stage::kProbing);
  if (slot == kNoNode) {
    // No way to that host, or none of our own to find out.
    const bool unreachable = why == ENETUNREACH || why == EHOSTUNREACH || why == ETIMEDOUT;
    probe->found.reach = why == ECONNREFUSED ? Reach::kHost : unreachable ? Reach::kNothing : Reach::kUnknown;
    return probe->found.reach != Reach::kUnknown;
  }
  probe->slot = slot;
  probe->found.reach = Reach::kAsking;
  o.connections[slot].node = node;
  o.connections[slot].purpose = Purpose::kProbe;
  return true;
}

Probed overlay_probed(const Overlay* overlay, uint32_t node) {
  for (const Probe& probe : overlay->probes)
    if (probe.found.reach != Reach::kUnknown && probe.node == node) return probe.found;
  return {Reach::kUnknown, 0, 0};
}

}  // namespace resil::hang
