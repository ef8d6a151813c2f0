// SPDX-License-Identifier: Apache-2.0
//
// See monitor.h. A job on one node has no overlay: a round is then answered and finished at once, by the same
// functions.

#include "detectors/hang/monitor/monitor.h"

#include <string.h>

#include <climits>

#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/mismatch/unmatched.h"
#include "detectors/hang/monitor/overlay_report.h"
#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/stacks.h"
#include "detectors/hang/root/action.h"
#include "detectors/hang/root/hook.h"
#include "detectors/hang/root/root.h"
#include "detectors/hang/verdict/note.h"
#include "shim/base/futex.h"
#include "shim/call/runtime.h"
#include "shim/runtime/memory.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostAnswer = 64u << 20;  // address space until it is used
constexpr uint32_t kMostRequest = 1u << 20;
constexpr double kRoundSeconds = 3;
constexpr int kTurnMilliseconds = 200;
constexpr double kGather = 0.3;  ///< a node that takes the root's place asks nobody before others had this long to come

struct Monitor {
  Overlay* overlay;
  Watch watch;
  Root root;
  bool counted;  ///< has been asked for its unmatched messages
  uint32_t compared;  ///< ControlBlock::asked when the last comparison for a rank that ends the job began; 0: told
  double compared_at;
  uint64_t passed_on;  ///< the latest question of `resil why` that the root has heard of
  uint32_t passed_to;  ///< that root's node
  bool leads;  ///< as root of several nodes, since:
  double leads_since;
  char* answer;  ///< kMostAnswer bytes: this node's part of a round, with one node the whole
};
Monitor* monitor;
Monitor* prepared;  ///< of the next monitor_begin

/// ControlBlock::ender of a rank of this node that waits for a last look; 0: none does.
uint32_t waiting_ender() {
  const ControlBlock& control = *monitor->root.control;
  const uint32_t asked = __atomic_load_n(&control.asked, __ATOMIC_ACQUIRE);
  return asked != __atomic_load_n(&control.answered, __ATOMIC_RELAXED)
             ? __atomic_load_n(&control.ender, __ATOMIC_ACQUIRE)
             : 0;
}

/// This node's part of a round.
uint32_t own_answer(void*, uint16_t kind, const void* request, uint32_t bytes, void* room, uint32_t room_bytes) {
  auto* text = static_cast<char*>(room);
  Watch& watch = monitor->watch;
  switch (static_cast<Round>(kind)) {
    case Round::kNone: break;
    case Round::kSummary: {
      if (bytes == sizeof(Learned)) {
        Learned learned;
        memcpy(&learned, request, sizeof(learned));
        root_learn(monitor->root, learned);
      }
      Summary summary;
      watch_sample(watch, monotonic_seconds(), &summary);
      if (const uint32_t ender = waiting_ender(); ender != 0) summary.ending = watch_ending(watch, ender);
      memcpy(room, &summary, sizeof(summary));
      return sizeof(summary);
    }
    case Round::kStates: {
      const auto wanted = static_cast<uint32_t>(bytes / sizeof(uint64_t));
      return watch_states(watch, monotonic_seconds(),
                          {static_cast<const uint64_t*>(request), wanted < kMostWanted ? wanted : kMostWanted}, text,
                          room_bytes);
    }
    case Round::kAnswers:
      return sizeof(Answer) * answer(watch.watched, watch.count, static_cast<const Question*>(request),
                                     bytes / sizeof(Question), static_cast<Answer*>(room), room_bytes / sizeof(Answer));
    case Round::kNames:
      return watch_names(watch, static_cast<const NameQuestion*>(request), bytes / sizeof(NameQuestion), text,
                         room_bytes);
    case Round::kMismatch:
      if (waiting_ender() != 0) {
        monitor->compared = __atomic_load_n(&monitor->root.control->asked, __ATOMIC_ACQUIRE);
        monitor->compared_at = monotonic_seconds();
      }
      return mismatch_collect(*monitor->root.mismatch, watch.watched, watch.count, text, room_bytes);
    case Round::kSearch:
      return sizeof(FoundMessage) * search(watch.watched, watch.count, static_cast<const SearchQuestion*>(request),
                                           bytes / sizeof(SearchQuestion), static_cast<FoundMessage*>(room),
                                           room_bytes / sizeof(FoundMessage));
    case Round::kProbe:
      return sizeof(ProbeAnswer) * answer_probes(monitor->overlay, watch.node, monotonic_seconds(),
                                                 static_cast<const ProbeQuestion*>(request),
                                                 bytes / sizeof(ProbeQuestion), static_cast<ProbeAnswer*>(room),
                                                 room_bytes / sizeof(ProbeAnswer));
    case Round::kStacks: return stacks_collect(watch, request, bytes, text, room_bytes);
    case Round::kUnmatched:
      monitor->counted = true;
      return unmatched_collect(watch.watched, watch.count, text, room_bytes);
  }
  return 0;
}

bool merge(void*, uint16_t kind, void* accumulated, uint32_t* bytes, uint32_t room, const void* incoming,
           uint32_t incoming_bytes) {
  switch (static_cast<Round>(kind)) {
    case Round::kSummary:
      if (*bytes != sizeof(Summary) || incoming_bytes != sizeof(Summary)) return false;
      summary_add(static_cast<Summary*>(accumulated), *static_cast<const Summary*>(incoming));
      return true;
    case Round::kMismatch:
      return mismatch_merge(*monitor->root.mismatch, accumulated, bytes, room, incoming, incoming_bytes);
    case Round::kStacks: return stacks_merge(accumulated, bytes, room, incoming, incoming_bytes);
    case Round::kUnmatched: return unmatched_merge(accumulated, bytes, room, incoming, incoming_bytes);
    default:
      if (*bytes > room || incoming_bytes > room - *bytes) return false;
      memcpy(static_cast<char*>(accumulated) + *bytes, incoming, incoming_bytes);
      *bytes += incoming_bytes;
      return true;
  }
}

/// Every node makes its ranks leave with exit status 92.
void order_abort() {
  action_tell_launcher(monitor->overlay != nullptr);
  if (monitor->overlay == nullptr) action_begin(monitor->watch);
  else overlay_order(monitor->overlay, static_cast<uint16_t>(Order::kAbort), nullptr, 0);
}

/// Puts the root's question to the nodes; with one node, answers it, and those that follow.
void put(Ask ask) {
  Root& root = monitor->root;
  while (ask.kind != Round::kNone) {
    const auto kind = static_cast<uint16_t>(ask.kind);
    if (monitor->overlay == nullptr) {
      const uint32_t length = own_answer(nullptr, kind, ask.payload, ask.bytes, monitor->answer, kMostAnswer);
      ask = root_finished(root, ask.kind, monitor->answer, length, nullptr, 0);
    } else if (overlay_ask(monitor->overlay, kind, ask.payload, ask.bytes, monotonic_seconds() + kRoundSeconds) != 0) {
      break;
    } else {
      ask = root_refused(root);
    }
  }
  if (root.phase == Phase::kStacking) return;  // before the ranks leave
  if (root.abort_wanted) order_abort();
  root.abort_wanted = false;
}

void finished(void*, uint64_t, uint16_t kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
              uint32_t count) {
  put(root_finished(monitor->root, static_cast<Round>(kind), merged, bytes, unanswered, count));
}

void order(void*, uint16_t kind, const void*, uint32_t) {
  if (static_cast<Order>(kind) == Order::kAbort) action_begin(monitor->watch);
}

void node_changed(void*, uint32_t node, NodeState state) { root_node(monitor->root, node, state); }

/// A rank of this node is about to end the job and waits for one more comparison of all collectives. The root of
/// several nodes learns of it with the next summary, or here where it is the root of them.
void last_look(double now, bool root) {
  constexpr double kOnItsWay = 0.2;  // seconds until the root of another node has said what it found
  ControlBlock& control = *monitor->root.control;
  if (const uint32_t ender = waiting_ender(); root && ender != 0 && monitor->compared == 0 && !root_busy(monitor->root))
    put(root_last_look(monitor->root, watch_ending(monitor->watch, ender)));
  if (monitor->compared == 0 || (root ? root_busy(monitor->root) : now - monitor->compared_at < kOnItsWay)) return;
  __atomic_store_n(&control.answered, monitor->compared, __ATOMIC_RELEASE);
  monitor->compared = 0;
  futex_wake(&control.answered, INT_MAX, FutexScope::kShared);
}

void raised(void*, uint32_t, uint16_t kind, const void*, uint32_t) {
  if (static_cast<Raised>(kind) == Raised::kWhy) root_asked(monitor->root, monotonic_seconds());
}

/// A question to a rank of this node does not wait for the root's next look. Without a way to the root: again in the
/// next turn. A root that takes another one's place may not have heard of it.
void pass_on_question(bool root) {
  const uint64_t asked = watch_asked(monitor->watch);
  const uint32_t to = monitor->overlay != nullptr ? overlay_state(monitor->overlay).root : monitor->watch.node;
  const bool moved = to != monitor->passed_to && to != kNoNode && realtime_ns() < asked + kAskedBefore;
  if (asked <= monitor->passed_on && !moved) return;
  if (root) root_asked(monitor->root, monotonic_seconds());
  else if (!overlay_raise(monitor->overlay, static_cast<uint16_t>(Raised::kWhy), nullptr, 0)) return;
  monitor->passed_on = asked;
  monitor->passed_to = to;
}

bool is_root() { return monitor->overlay == nullptr || overlay_state(monitor->overlay).is_root; }

/// Seconds that are left of the time in which others come to a node that has just taken the root's place.
double gathers(bool root, double now) {
  if (root && !monitor->leads) {
    const OverlayState state = monitor->overlay != nullptr ? overlay_state(monitor->overlay)
                                                           : OverlayState{kNoNode, 0, true, 1, 0, 0, kNoNode, 0};
    const bool instead = monitor->overlay != nullptr && monitor->watch.node != 0;
    monitor->leads_since = instead ? now : now - kGather;
    if (instead) root_instead(monitor->root, state.lost, state.lost_heard);
  }
  monitor->leads = root;
  const double left = monitor->leads_since + kGather - now;
  return root && left > 0 ? left : 0;
}

}  // namespace

bool monitor_stand_by(const Wiring& wiring) {
  if (prepared == nullptr) prepared = memory::map_array<Monitor>();
  if (prepared == nullptr) return true;
  watch_start(prepared->watch, wiring.own_node, wiring.ranks, wiring.rank_count);
  return prepared->watch.seen == prepared->watch.count;
}

bool monitor_begin(Wiring& wiring, ControlBlock& control) {
  monitor_stand_by(wiring);
  Monitor* made = prepared;
  if (made == nullptr) return false;
  made->answer = memory::map_array<char>(kMostAnswer);
  if (made->answer == nullptr || !root_begin(made->root, wiring, control, made->watch)) {
    note(Message::kNoHelperMemory);
    return false;
  }
  __atomic_store_n(&monitor, made, __ATOMIC_RELEASE);
  prepared = nullptr;
  if (wiring.nodes != nullptr && wiring.listener >= 0) {
    OverlayOptions options = {};
    options.most_answer = kMostAnswer;
    options.most_request = kMostRequest;
    options.most_memory = uint64_t{4} * kMostAnswer;
    const OverlayHandler handler = {nullptr, own_answer, merge, finished, order, raised, node_changed};
    const bool standby = runtime.rank != wiring.leader;
    __atomic_store_n(&made->overlay,
                     overlay_open(wiring.listener, wiring.nodes, wiring.node_count, wiring.own_node, standby,
                                  wiring.key, handler, options),
                     __ATOMIC_RELEASE);
    wiring.listener = -1;  // the overlay's now, open or not
    if (made->overlay == nullptr) note(Message::kNotConnected);
  }
  return true;
}

double monitor_step(double now) {
  reap_hooks();
  double rest = action_step(monitor->watch, now);
  if (rest >= 0 && (monitor->overlay == nullptr || overlay_flushed(monitor->overlay))) {
    if (rest == 0) action_end();
  } else {
    rest = 1;
  }
  const bool root = is_root();
  last_look(now, root);
  pass_on_question(root);
  if (const double left = gathers(root, now); left > 0) {
    rest = left < rest ? left : rest;
  } else if (root) {
    Ask ask;
    const double until = root_step(monitor->root, now, &ask);
    put(ask);
    rest = until < rest ? until : rest;
  }
  if (monitor->overlay != nullptr) {
    const int milliseconds = static_cast<int>(rest * 1000) + 1;  // never a busy turn
    overlay_step(monitor->overlay, monotonic_seconds(),
                 milliseconds < kTurnMilliseconds ? milliseconds : kTurnMilliseconds);
    overlay_keep_counters(monitor->overlay);
  }
  return rest;
}

bool monitor_waits() { return monitor->overlay != nullptr; }

void monitor_wake() {
  const Monitor* known = __atomic_load_n(&monitor, __ATOMIC_ACQUIRE);
  const Overlay* overlay = known != nullptr ? __atomic_load_n(&known->overlay, __ATOMIC_ACQUIRE) : nullptr;
  if (overlay != nullptr) overlay_wake(overlay);
}

void monitor_unmatched() {
  constexpr double kSeconds = 1;
  const double until = monotonic_seconds() + kSeconds;
  auto goes_on = [&] {
    overlay_step(monitor->overlay, monotonic_seconds(), 20);
    return monotonic_seconds() < until;
  };
  if (monitor->overlay == nullptr) {
    put(root_unmatched(monitor->root));
  } else if (is_root()) {
    while (root_busy(monitor->root) && goes_on())  // a round is on its way
      ;
    put(root_unmatched(monitor->root));
    while (root_busy(monitor->root) && goes_on())
      ;
  } else {
    // Stays until it has answered and passed on what its children said; a root that has gone asks nothing any more.
    while (!is_root() &&
           !(monitor->counted && overlay_state(monitor->overlay).children == 0 && overlay_flushed(monitor->overlay)) &&
           goes_on())
      ;
  }
}

MismatchCoverage monitor_compared() {
  const Monitor* known = __atomic_load_n(&monitor, __ATOMIC_ACQUIRE);
  return known != nullptr ? mismatch_coverage(*known->root.mismatch) : MismatchCoverage{};
}

void monitor_end() {
  Overlay* overlay = monitor->overlay;
  __atomic_store_n(&monitor->overlay, nullptr, __ATOMIC_RELEASE);
  if (overlay != nullptr) overlay_close(overlay);
  root_end(monitor->root);
  memory::unmap(monitor->answer, kMostAnswer);
  // The rest stays: a thread of the program may be in monitor_wake. One leader a life, or two.
}

}  // namespace resil::hang
