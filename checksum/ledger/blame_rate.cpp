// SPDX-License-Identifier: Apache-2.0
//
// How often? Counts closed cases by verdict, and says once when corruption is no stray event: more than one in a
// thousand packets, or one in a thousand steps of a program that names its steps.
//
// At least three events are wanted: one wrong packet in a run of ten packets is a rate of 10 % and yet may be a stray
// bit. A matching queue that lost a packet is out of step from then on and gives a case for every later packet; that is
// one event. A send buffer that its own program modifies is no fault of the machine and is not counted here.

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "checksum/messages.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/report/json.h"

namespace resil::blame {

namespace {

constexpr uint64_t kLeast = 3, kOneIn = 1000;
constexpr uint32_t kPairs = 64, kSlippedMatchQueues = 64;

struct HostPair {
  char sender[64];
  uint64_t count;
};

struct SlippedMatchQueue {
  const Peer* peer;
  uint64_t comm;
  uint32_t tag;
  uint8_t space;
};

SpinLock lock;
uint64_t by_verdict[static_cast<int>(Verdict::kCount)];
uint64_t total, events, explained;  // explained: events with a verdict
HostPair pairs[kPairs];
uint32_t pair_count;
SlippedMatchQueue slipped[kSlippedMatchQueues];
uint32_t slipped_count;
bool systemic;

/// Is it one more case of a matching queue that got out of step? Under the lock.
bool consequence(const Case& one) {
  if (!one.answered || one.answer.same_total == 0) return false;
  const SlippedMatchQueue match_queue = {one.from, one.sent.comm, one.sent.tag, one.sent.space};
  for (uint32_t i = 0; i < slipped_count && i < kSlippedMatchQueues; ++i)
    if (slipped[i].peer == match_queue.peer && slipped[i].comm == match_queue.comm &&
        slipped[i].tag == match_queue.tag && slipped[i].space == match_queue.space)
      return true;
  slipped[slipped_count++ % kSlippedMatchQueues] = match_queue;
  return false;
}

void count_pair(const char* host) {
  for (uint32_t i = 0; i < pair_count; ++i)
    if (strncmp(pairs[i].sender, host, sizeof(pairs[i].sender)) == 0) {
      ++pairs[i].count;
      return;
    }
  if (pair_count == kPairs) return;
  snprintf(pairs[pair_count].sender, sizeof(pairs[pair_count].sender), "%s", host);
  pairs[pair_count++].count = 1;
}

/// Of the threads' step counters the largest: a step is counted by the thread that names it.
uint64_t steps() {
  uint64_t most = 0;
  for (uint32_t i = 0; i < runtime.trace_count; ++i) {
    const uint64_t here = __atomic_load_n(&runtime.traces[i].step, __ATOMIC_RELAXED);
    most = here > most ? here : most;
  }
  return most;
}

/// `wrong` of `packets`; those that the program modified itself are in neither.
void say_systemic(uint64_t wrong, uint64_t packets, uint64_t step_count) {
  Finding finding;
  finding.start("systemic", explained >= kLeast ? Confidence::kVerified : Confidence::kSuspected);
  finding.victim(runtime.rank);
  char in_steps[48] = "";
  if (step_count != 0) snprintf(in_steps, sizeof(in_steps), " and %" PRIu64 " steps", step_count);
  finding.say(messages::checksum::systemic, wrong, packets, runtime.rank, runtime.host, in_steps,
              explained >= kLeast ? "" : messages::checksum::systemic_unexplained);
  finding.to_do(messages::checksum::systemic_to_do);
  finding.add("events", "%" PRIu64 " (packets that are wrong because a matching queue is out of step count once)",
              events);
  finding.add("packets", "%" PRIu64 " wrong of %" PRIu64, wrong, packets);
  if (step_count != 0) finding.add("steps", "%" PRIu64, step_count);
  // The most frequent first.
  bool told[kPairs] = {};
  for (int line = 0; line < 8; ++line) {
    uint32_t best = kPairs;
    for (uint32_t i = 0; i < pair_count; ++i)
      if (!told[i] && (best == kPairs || pairs[i].count > pairs[best].count)) best = i;
    if (best == kPairs) break;
    told[best] = true;
    char name[28];
    snprintf(name, sizeof(name), "path_%d", line + 1);
    finding.add(name, "%.48s -> %.48s: %" PRIu64, pairs[best].sender, runtime.host, pairs[best].count);
  }
  finding_publish(finding);
}

void publish_systemic(uint64_t wrong, uint64_t packets, uint64_t step_count) {
  on_own_stack([&] { say_systemic(wrong, packets, step_count); });
}

}  // namespace

void count_case(const Case& one, const Judgement& judgement) {
  const uint64_t step_count = steps();
  uint64_t packets = 0, wrong = 0;
  {
    Guard guard(lock);
    ++by_verdict[static_cast<int>(judgement.verdict)];
    ++total;
    if (judgement.verdict == Verdict::kModified || judgement.verdict == Verdict::kReceiveModified || consequence(one))
      return;
    ++events;
    explained += judgement.verdict != Verdict::kUndetermined;
    const char* host = one.answered && one.answer.host[0] != 0 ? one.answer.host : ledger::host_of(*one.from);
    count_pair(host[0] != 0 ? host : "unknown");
    wrong = total - by_verdict[static_cast<int>(Verdict::kModified)] -
            by_verdict[static_cast<int>(Verdict::kReceiveModified)];
    packets = ledger::checked_messages() + wrong;
    const bool often = events * kOneIn > packets || (step_count != 0 && events * kOneIn > step_count);
    if (systemic || events < kLeast || !often) return;
    systemic = true;
  }
  publish_systemic(wrong, packets, step_count);
}

void reset_counts() {
  memset(by_verdict, 0, sizeof(by_verdict));
  total = events = explained = 0;
  pair_count = slipped_count = 0;
  systemic = false;
}

void report(JsonWriter& json) {
  Guard guard(lock);
  // Of all kinds of traffic; the verdicts below are of packets.
  const uint64_t wrong = __atomic_load_n(&ledger::coverage.mismatches, __ATOMIC_RELAXED);
  const uint64_t packets = ledger::checked_messages() + wrong;
  json.integer("mismatches", wrong);
  json.number("mismatch_rate", packets != 0 ? static_cast<double>(wrong) / static_cast<double>(packets) : 0.0);
  json.begin_object("verdicts");
  for (int i = 0; i < static_cast<int>(Verdict::kCount); ++i)
    json.integer(verdict_key(static_cast<Verdict>(i)), by_verdict[i]);
  json.end_object();
  json.boolean("systemic", systemic);
}

}  // namespace resil::blame
