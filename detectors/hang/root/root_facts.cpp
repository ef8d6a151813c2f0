// SPDX-License-Identifier: Apache-2.0
//
// Facts, which are no verdicts: a rank that is stopped or gone, a node that does not answer. Said once in hang.log when
// they begin and once when they end.

#include <stdio.h>
#include <string.h>

#include "detectors/hang/root/publish.h"
#include "detectors/hang/root/root_verdict.h"

namespace resil::hang {

namespace {

constexpr double kSilentSeconds = 1.2, kSilenceSuspected = 15;

}  // namespace

void describe_node(const Root& root, uint32_t node, char* text, size_t bytes) {
  if (root.wiring->nodes == nullptr) {
    snprintf(text, bytes, "node %u", node);
    return;
  }
  const NodeEntry& entry = root.wiring->nodes[node];
  const char* comma = entry.host[0] != 0 ? ", " : "";
  if (entry.ranks == 1) snprintf(text, bytes, "node %u (%s%srank %u)", node, entry.host, comma, entry.first_rank);
  else
    snprintf(text, bytes, "node %u (%s%s%u ranks from rank %u on)", node, entry.host, comma, entry.ranks,
             entry.first_rank);
}

void say_where(const Root& root, Verdict* verdict) {
  constexpr uint32_t kMost = 8;
  if (root.wiring->nodes == nullptr) return;
  char line[kMost * (kHostText + 40)];
  size_t used = 0;
  for (uint32_t i = 0; i < verdict->culprit_count && i < kMaxCulprits && i < kMost; ++i) {
    const int32_t rank = verdict->culprits[i];
    const RankState* state =
        rank >= 0 && rank < static_cast<int32_t>(root.states.count) ? root.states.by_rank[rank] : nullptr;
    if (state == nullptr || state->node >= root.wiring->node_count || root.wiring->nodes[state->node].host[0] == 0)
      continue;
    used += static_cast<size_t>(snprintf(line + used, sizeof(line) - used, "%s rank %d on %s, pid %d",
                                         used == 0 ? "where:" : ";", rank, root.wiring->nodes[state->node].host,
                                         state->pid));
  }
  const size_t old = strlen(verdict->evidence);
  if (used == 0 || used + 1 + old >= sizeof(verdict->evidence)) return;
  line[used++] = '\n';
  memmove(verdict->evidence + used, verdict->evidence, old + 1);
  memcpy(verdict->evidence, line, used);
}

void note_facts(Root& root, double now) {
  const uint32_t count = root.states.count;
  for (uint32_t i = 0; i < count; ++i) root.facts[i].now = false;
  const uint32_t events = root.summary.event_count < kMaxEvents ? root.summary.event_count : kMaxEvents;
  for (uint32_t i = 0; i < events; ++i) {
    const RankEvent& event = root.summary.events[i];
    if (event.rank < 0 || event.rank >= static_cast<int32_t>(count) || event.what == RankActivity::kUnknown) continue;
    Fact& fact = root.facts[event.rank];
    fact.now = true;
    if (fact.said == event.what) continue;
    fact.said = event.what;
    fact.since = now;
    if (event.what == RankActivity::kStopped)
      log_hang("notice", "rank %d is stopped (by a signal or a debugger)", event.rank);
    else log_hang("notice", "rank %d has ended without MPI_Finalize", event.rank);
  }
  for (uint32_t i = 0; i < count && root.summary.event_count <= kMaxEvents; ++i) {
    Fact& fact = root.facts[i];
    if (fact.now || fact.said != RankActivity::kStopped) continue;
    const double lasted = now - fact.since;
    if (lasted > root.longest_stop) root.longest_stop = lasted;
    log_hang("notice", "rank %u runs again after %.1f s", i, lasted);
    fact.said = RankActivity::kUnknown;
  }
}

// Their helper is stopped, their host or the way there is gone, or the whole node is.
void note_silence(Root& root, const uint32_t* unanswered, uint32_t count, double now) {
  uint32_t next = 0;
  char name[96];
  for (uint32_t node = 0; node < root.wiring->node_count; ++node) {
    Silence& silence = root.silences[node];
    const bool missed = next < count && unanswered[next] == node, silent = missed && !silence.left;
    next += missed;
    if (!silent && silence.said) {
      describe_node(root, node, name, sizeof(name));
      log_hang("notice", "%s answers again after %.1f s", name, now - silence.since);
      --root.silent;
    } else if (silent && silence.since != 0 && !silence.said && now - silence.since >= kSilentSeconds) {
      describe_node(root, node, name, sizeof(name));
      log_hang("notice", "%s does not answer", name);
      silence.said = true;
      ++root.silent;
    }
    if (!silent) silence = {0, false, silence.left};
    else if (silence.since == 0) silence.since = now;
  }
  if (root.silent == 0 || root.summary.moved != 0) root.silence_told = false;
  else if (!root.silence_told && now - root.moved_at > kSilenceSuspected) {
    root.silence_told = true;
    log_hang(
        "suspected",
        "no rank that can be asked has made progress for %.1f s (at most %.1f s before, %.1f s watched), and %u node%s"
        " no answer; verified after %.1f s",
        now - root.moved_at, root.learned.longest, root.learned.watched, root.silent,
        root.silent == 1 ? " gives" : "s give", silent_limit(root.learned));
  }
}

}  // namespace resil::hang
