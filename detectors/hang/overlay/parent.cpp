// SPDX-License-Identifier: Apache-2.0
//
// The way up. A node's place is below its parent in the k-ary tree over node numbers. Candidates in order: the leader
// and the standby of the parent, of the grandparent, and so on up to node 0, then nodes 1, 2, ... below our own number.
// One after the other is tried, the next at once when one fails and beside it when it takes long; the first that
// proves the key is the parent. A parent has always a lower number, so there is no cycle. A node that finds nobody
// leads those below it: where node 0 is gone, the lowest that can be reached. Whoever is not where it belongs keeps
// looking for a candidate that comes earlier in the list, so that a divided job grows together again.
#include <errno.h>

#include "detectors/hang/overlay/address.h"
#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr uint32_t kShortLived = 3;  ///< parents in a row that dropped us at once
constexpr double kLeaderProbe = 1;  ///< a root above 0 looks for lower nodes so often, unless options.probe is shorter

uint32_t parent_of(const Overlay& o, uint32_t node) { return (node - 1) / o.options.fan_out; }

struct Candidate {
  uint32_t node;
  const Address* address;  ///< null: the node has none of this kind
};

Candidate candidate_at(const Overlay& o, uint32_t position) {
  const uint32_t depth = depth_of(o, o.own);
  const uint32_t index = position / 2;
  uint32_t node = o.own;
  if (index < depth)
    for (uint32_t i = 0; i <= index; ++i) node = parent_of(o, node);
  else node = index - depth + 1;
  const NodeEntry& entry = o.nodes[node];
  const Address& address = position % 2 == 0 ? entry.leader : entry.standby;
  return {node, address.family == 0 ? nullptr : &address};
}

uint32_t candidate_count(const Overlay& o) { return o.own == 0 ? 0 : 2 * (depth_of(o, o.own) + o.own - 1); }

/// False: failed at once.
bool try_candidate(Overlay& o, uint32_t position) {
  const Candidate candidate = candidate_at(o, position);
  if (candidate.address == nullptr) return false;
  const int fd = connect_from(o.address, *candidate.address);
  const uint32_t slot = fd < 0 ? kNoNode : add_connection(o, fd, Stage::kConnecting);
  if (slot == kNoNode) {
    ++o.counters.connect_errors;
    return false;
  }
  o.connections[slot].node = candidate.node;
  o.connections[slot].candidate = position;
  return true;
}

/// Parents that take us and drop us again and again are not asked all the time.
double at_once(const Overlay& o) {
  const double rested = o.short_lived > kShortLived ? o.parent_since + o.options.keep_alive : 0;
  return rested > o.now ? rested : o.now;
}

void search_over(Overlay& o) {
  o.seeking = false;
  if (o.parent != kNoNode) {
    o.next_attempt = o.connections[o.parent].candidate == 0 ? kNever : o.now + o.options.probe;
    return;
  }
  o.next_attempt = o.now + (o.options.probe < kLeaderProbe ? o.options.probe : kLeaderProbe);
  // Who has had a parent does not wait for one that is still to come.
  if (!o.leading && (o.counters.parents != 0 || o.now - o.opened >= o.options.settle)) {
    o.leading = true;
    o.silent = kNoNode;
    o.hurried = false;
    set_root(o, o.own);
    tell_left(o);
  }
}

}  // namespace

uint32_t depth_of(const Overlay& o, uint32_t node) {
  uint32_t depth = 0;
  for (; node != 0; node = parent_of(o, node)) ++depth;
  return depth;
}

bool leads(const Overlay& o) { return o.own == 0 || o.leading; }

void begin_search(Overlay& o, uint32_t limit) {
  o.seeking = true;
  o.position = 0, o.limit = limit;
  o.next_attempt = at_once(o);
}

void attempt_ended(Overlay& o) {
  if (o.seeking) o.next_attempt = at_once(o);
}

void attempt_succeeded(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  if (o.parent != kNoNode && o.connections[o.parent].candidate <= c.candidate) {
    const ByeFrame moved = {1};
    const Piece piece = {&moved, sizeof(moved)};
    const uint32_t generation = c.generation;
    if (send_frame(o, slot, FrameType::kBye, 0, &piece, 1) && c.generation == generation)
      end_connection(o, slot, End::kQuiet);
    return;
  }
  const uint32_t old = o.parent;
  c.stage = Stage::kParent;
  c.heard = o.now;
  --o.attempts;
  o.parent = slot;
  o.silent = o.lost = kNoNode;
  o.hurried = false;
  o.ping_until = kNever;  // of the parent before
  o.parent_since = o.now;
  o.leading = false;
  ++o.counters.parents;
  if (old != kNoNode) {
    const ByeFrame moved = {1};
    const Piece piece = {&moved, sizeof(moved)};
    if (send_frame(o, old, FrameType::kBye, 0, &piece, 1)) end_connection(o, old, End::kQuiet);
  }
  for (uint32_t i = 0; i < o.high; ++i)
    if (is_attempt(o.connections[i]) && o.connections[i].candidate > c.candidate) end_connection(o, i, End::kQuiet);
  o.limit = o.limit < c.candidate ? o.limit : c.candidate;
  attempt_ended(o);  // no other may be under way, and the search must end, so that a better place is looked for later
  if (o.connections[slot].stage == Stage::kParent) send_alive(o, slot);
}

void parent_gone(Overlay& o, uint32_t node, bool left) {
  o.parent = kNoNode;
  o.ping_until = kNever;
  if (left) remember_left(o, node);
  o.short_lived = o.now - o.parent_since < o.options.keep_alive ? o.short_lived + 1 : 0;
  set_root(o, kNoNode);
  begin_search(o, candidate_count(o));
}

void parent_timers(Overlay& o) {
  if (o.own == 0 || o.now < o.next_attempt) return;
  if (!o.seeking) {
    // Not in the middle of a question: the answer goes the way that the question came.
    if (o.parent != kNoNode && round_under_way(o)) {
      o.next_attempt = o.now + o.options.keep_alive;
      return;
    }
    begin_search(o, o.parent == kNoNode ? candidate_count(o) : o.connections[o.parent].candidate);
  }
  while (o.seeking && o.now >= o.next_attempt) {
    if (o.position >= o.limit) {
      if (o.attempts == 0) return search_over(o);
      o.next_attempt = kNever;  // attempt_ended will call again
      return;
    }
    if (o.attempts >= kMostAttempts) {
      o.next_attempt = kNever;
      return;
    }
    errno = 0;
    if (try_candidate(o, o.position)) {
      const bool again = o.hurried && candidate_at(o, o.position).node == o.silent;
      o.next_attempt = o.now + (again && kHurriedStagger < o.options.stagger ? kHurriedStagger : o.options.stagger);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      o.next_attempt = o.now + o.options.stagger;  // says nothing about the candidate: once more
      return;
    }
    ++o.position;
  }
}

double parent_next(const Overlay& o) { return o.own == 0 ? kNever : o.next_attempt; }

void set_root(Overlay& o, uint32_t root) {
  if (o.root == root) return;
  o.root = root;
  for (uint32_t i = 0; i < o.high; ++i)
    if (o.connections[i].stage == Stage::kChild) send_alive(o, i);
}

}  // namespace resil::hang::overlay
