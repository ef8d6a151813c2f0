// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/wait_errors.h"

#include <initializer_list>

#include "detectors/hang/reader/records.h"
#include "detectors/hang/root/edges.h"
#include "detectors/hang/verdict/format.h"
#include "shim/base/clock.h"

namespace resil::hang {

namespace {

constexpr uint32_t kLongestChain = 64;
constexpr uint32_t kDistances = 3;
/// Seconds, by type and distance: until enough waits of that kind have ended here to know better.
constexpr double kPreset[][kDistances] = {{5, 10, 15}, {5, 10, 15}, {10, 20, 30}, {10, 20, 30}};

double limit_of(const Root& root, uint64_t timer) {
  if (timer == 0 || root.timers.seen(timer) >= stats::AdaptiveTimeout::kFewest) return root.timers.limit(timer);
  return kPreset[(timer - 1) / kDistances][(timer - 1) % kDistances];
}

/// What the call waits for; a small send beside a receive is no reason.
const Part* reason_of(const RankState& state) {
  const Part* parts = parts_of(state);
  for (uint32_t i = 0; i < state.part_count; ++i)
    if ((parts[i].flags & kMayBuffer) == 0) return &parts[i];
  return first_part(state);
}

WaitType type_of(const Part& part) {
  switch (part.kind) {
    case PartKind::kSend: return WaitType::kSend;
    case PartKind::kCollective: return WaitType::kCollective;
    case PartKind::kToken:
    case PartKind::kLock:
    case PartKind::kHold: return WaitType::kOneSided;
    default: return WaitType::kReceive;
  }
}

const RankState* state_of(const Root& root, int32_t rank) {
  return rank >= 0 && rank < static_cast<int32_t>(root.states.count) ? root.states.by_rank[rank] : nullptr;
}

const ThreadWait* wait_of(const RankState* state) {
  return state != nullptr && state->activity == RankActivity::kBlocked && state->thread_count != 0 ? threads_of(*state)
                                                                                                   : nullptr;
}

/// Of the collectives that were looked at last, the first rank that has not come: most ranks wait in the same ones.
struct Late {
  static constexpr uint32_t kKept = 16;
  uint64_t comm[kKept], sequence[kKept];
  int32_t rank[kKept];
  uint32_t count;
};

/// The rank that it waits for: of a collective the first that has not come.
int32_t destination_of(const Root& root, const Part& part, Late& late) {
  if (part.kind != PartKind::kCollective) return part.peer;
  for (uint32_t k = 0; k < late.count && k < Late::kKept; ++k)
    if (late.comm[k] == part.comm && late.sequence[k] == part.sequence) return late.rank[k];
  int32_t found = -1;
  for (uint32_t i = 0; i < root.states.count && found < 0; ++i)
    if (has_not_come(root.states.by_rank[i], part.comm, part.sequence)) found = static_cast<int32_t>(i);
  const uint32_t at = late.count++ % Late::kKept;
  late.comm[at] = part.comm;
  late.sequence[at] = part.sequence;
  late.rank[at] = found;
  return found;
}

}  // namespace

int32_t node_of(const Root& root, int32_t rank) {
  if (const RankState* state = state_of(root, rank); state != nullptr) return static_cast<int32_t>(state->node);
  for (uint32_t node = 0; node < root.wiring->node_count && root.wiring->nodes != nullptr && rank >= 0; ++node) {
    const NodeEntry& entry = root.wiring->nodes[node];
    if (static_cast<uint32_t>(rank) >= entry.first_rank && static_cast<uint32_t>(rank) < entry.first_rank + entry.ranks)
      return static_cast<int32_t>(node);
  }
  return -1;
}

namespace {

const Way* way_of(const Root& root, int32_t from, int32_t to) {
  return from >= 0 && to >= 0 && from != to
             ? probes_way(root.probes, static_cast<uint32_t>(from), static_cast<uint32_t>(to))
             : nullptr;
}

const char* reach_name(Reach reach) {
  constexpr const char* kNames[] = {"unknown", "under way", "replied", "host only", "no answer"};
  return kNames[static_cast<size_t>(reach)];
}

/// By the message log: was it sent, or a receive posted for it?
bool other_side_is_done(const Root& root, int32_t me, const Part& part) {
  const bool send = part.kind == PartKind::kSend;
  if ((!send && part.kind != PartKind::kReceive) || part.peer < 0 || part.needed == 0) return false;
  uint64_t done = 0;
  bool known = false;
  for (uint32_t i = 0; i < root.answer_count; ++i) {
    const Answer& answer = root.answers[i];
    if (answer.question >= root.question_count) continue;
    const Question& asked = root.questions[answer.question];
    if (asked.comm != part.comm || asked.tag != part.tag || asked.source != (send ? me : part.peer) ||
        asked.destination != (send ? part.peer : me) || (send ? answer.from_destination : answer.from_source) == 0)
      continue;
    known = true;
    done += send ? answer.posted : answer.sent;
  }
  return known && done >= part.needed;
}

/// `way`: between their nodes; null: not probed.
WaitStatus status_of(const Root& root, int32_t me, const Part& part, int32_t destination, const Way* way) {
  if (destination < 0) return WaitStatus::kOpen;
  const RankState* state = state_of(root, destination);
  if (state == nullptr) return WaitStatus::kUnreachable;
  switch (state->activity) {
    case RankActivity::kGone: return WaitStatus::kGone;
    case RankActivity::kStopped: return WaitStatus::kStopped;
    case RankActivity::kFinished: return WaitStatus::kFinished;
    default: break;
  }
  if (way != nullptr && is_broken(*way) && state->activity != RankActivity::kComputing &&
      probes_vote(root.probes, *way).reach_both != 0)
    return WaitStatus::kPathBroken;
  if (other_side_is_done(root, me, part)) return WaitStatus::kNotDelivered;
  if (state->activity == RankActivity::kComputing) return WaitStatus::kComputing;
  return state->activity == RankActivity::kUnknown ? WaitStatus::kUnreachable : WaitStatus::kWaiting;
}

/// Who explains that this rank waits: the end of the chain of those who wait for each other. -1: a cycle, or nobody.
int32_t cause_of(const Root& root, int32_t rank, Late& late) {
  for (uint32_t steps = 0; steps < kLongestChain; ++steps) {
    const RankState* state = state_of(root, rank);
    const Part* part = wait_of(state) != nullptr ? reason_of(*state) : nullptr;
    if (part == nullptr) return rank;
    const int32_t next = destination_of(root, *part, late);
    if (next < 0) return rank;
    rank = next;
  }
  return -1;
}

const char* type_name(WaitType type) {
  constexpr const char* kNames[] = {"receive", "send", "collective", "one-sided"};
  return kNames[static_cast<size_t>(type)];
}

const char* status_name(WaitStatus status) {
  constexpr const char* kNames[] = {"open",      "unreachable",   "gone",        "stopped", "finished",
                                    "computing", "not delivered", "path broken", "waiting"};
  return kNames[static_cast<size_t>(status)];
}

Distance between(const NodeEntry& one, const NodeEntry& other) {
  return one.network != 0 && other.network != 0 && one.network != other.network ? Distance::kOtherSwitch
                                                                                : Distance::kOtherNode;
}

Distance distance_of(const Root& root, const RankState& state, const Part& part) {
  const Wiring& wiring = *root.wiring;
  if (part.kind == PartKind::kCollective || part.peer < 0) {
    return wiring.node_count < 2     ? Distance::kSameNode
           : wiring.several_switches ? Distance::kOtherSwitch
                                     : Distance::kOtherNode;
  }
  const int32_t node = node_of(root, part.peer);
  if (node == static_cast<int32_t>(state.node)) return Distance::kSameNode;
  if (node < 0 || wiring.nodes == nullptr || state.node >= wiring.node_count) return Distance::kOtherNode;
  return between(wiring.nodes[state.node], wiring.nodes[node]);
}

const char* distance_name(Distance distance) {
  constexpr const char* kNames[] = {"same node", "other node", "other switch"};
  return kNames[static_cast<size_t>(distance)];
}

}  // namespace

uint64_t timer_of(const Root& root, const RankState& state) {
  const Part* part = reason_of(state);
  if (part == nullptr) return 0;
  return 1 + kDistances * static_cast<uint64_t>(type_of(*part)) +
         static_cast<uint64_t>(distance_of(root, state, *part));
}

uint32_t find_errors(const Root& root, WaitError* errors, uint32_t room) {
  const uint64_t now = realtime_ns();
  Late late = {};
  uint32_t count = 0;
  for (const bool causes : {true, false})
    for (uint32_t i = 0; i < root.states.count; ++i) {
      const RankState* state = root.states.by_rank[i];
      const ThreadWait* wait = wait_of(state);
      const Part* part = wait != nullptr ? reason_of(*state) : nullptr;
      if (part == nullptr || wait->entered_ns == 0 || wait->entered_ns > now) continue;
      const auto rank = static_cast<int32_t>(i);
      WaitError made = {};
      made.seconds = static_cast<double>(now - wait->entered_ns) * 1e-9;
      made.limit = limit_of(root, timer_of(root, *state));
      if (made.seconds <= made.limit) continue;
      made.source = rank;
      made.destination = destination_of(root, *part, late);
      made.since_ns = wait->entered_ns;
      made.type = type_of(*part);
      made.distance = distance_of(root, *state, *part);
      made.responsible = node_of(root, made.destination);
      const Way* way = way_of(root, static_cast<int32_t>(state->node), made.responsible);
      if (way != nullptr) {
        made.reach = way->reach;
        made.failures = way->failures;
        made.vote = probes_vote(root.probes, *way);
      }
      made.status = status_of(root, rank, *part, made.destination, way);
      // Association: the destination waits itself, and what that comes from is its own error.
      made.follows = made.status == WaitStatus::kWaiting ? cause_of(root, made.destination, late) : -1;
      if ((made.follows < 0) != causes) continue;
      made.sources.add(rank);
      WaitError* same = nullptr;  // merged: several report the same destination, and deduplicated: once each
      for (uint32_t k = 0; k < count && same == nullptr; ++k)
        if (errors[k].destination == made.destination && errors[k].type == made.type &&
            errors[k].status == made.status && errors[k].distance == made.distance && made.destination >= 0)
          same = &errors[k];
      if (same != nullptr) {
        same->sources.add(rank);
        if (made.failures > same->failures) {
          same->reach = made.reach;
          same->failures = made.failures;
          same->vote = made.vote;
        }
        if (made.seconds > same->seconds) {
          same->seconds = made.seconds;
          same->since_ns = made.since_ns;
        }
      } else if (count < room) {
        errors[count++] = made;
      }
    }
  return count;
}

void write_errors(JsonWriter& json, const Root& root) {
  WaitError errors[kMostErrors];
  const uint32_t count = find_errors(root, errors, kMostErrors);
  json.begin_array("errors");
  for (uint32_t i = 0; i < count; ++i) {
    const WaitError& error = errors[i];
    char room[256] = "";
    Text text(room, sizeof(room));
    add_ranks(text, error.sources);
    json.begin_object();
    json.text("sources", room);
    if (error.destination >= 0) json.integer("destination", error.destination);
    else json.null("destination");
    json.integer("since_ns", error.since_ns);
    json.text("type", type_name(error.type));
    json.text("status", status_name(error.status));
    json.text("distance", distance_name(error.distance));
    json.number("seconds", error.seconds);
    json.number("threshold", error.limit);
    if (error.responsible >= 0) json.integer("responsible_node", error.responsible);
    if (error.reach != Reach::kUnknown) json.text("ping", reach_name(error.reach));
    if (error.failures != 0) {
      json.integer("pings_without_reply", error.failures);
      json.begin_object("vote");
      json.integer("asked", error.vote.asked);
      json.integer("reach_source", error.vote.reach_from);
      json.integer("reach_destination", error.vote.reach_to);
      json.integer("reach_both", error.vote.reach_both);
      json.end_object();
    }
    if (error.follows >= 0) json.integer("follows", error.follows);
    json.end_object();
  }
  json.end_array();
}

}  // namespace resil::hang
