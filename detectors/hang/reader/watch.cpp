// SPDX-License-Identifier: Apache-2.0
//
// See watch.h. Deadlock is a stable property, so two looks are enough: a thread that is in the same call at two
// instants was in it all the time between, and all ranks whose intervals overlap were blocked together.

#include "detectors/hang/reader/watch.h"

#include "detectors/hang/reader/records.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <initializer_list>

#include "shim/base/clock.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

constexpr double kWaitingSeconds = 0.5;
constexpr double kLifeSeconds = 0.8;  // between two looks at /proc for a rank that does not move
constexpr double kAskAfter = 2;  // seconds of quiet, after which a rank outside MPI is looked at closely
constexpr uint32_t kAskedEarly = 64;  // ranks that are asked at once whether they wait for a CPU, in one sample
constexpr double kReopenSeconds = 0.5, kReopenLater = 5;
constexpr uint64_t kStoodNs = 1000000000;  ///< a call entered or left since is a move of now
constexpr double kNeverSeen = 1e9;

bool lives(const Tracked& rank) { return rank.life == RankActivity::kUnknown || rank.life == RankActivity::kStopped; }

void check_life(Watched& watched, Tracked& rank, double now) {
  if (now - rank.life_checked < kLifeSeconds || !lives(rank)) return;
  rank.life_checked = now;
  const RankActivity life = liveness(watched, &rank.kernel_state, &rank.cpu_ns);
  const RankActivity kept =
      life == RankActivity::kGone || life == RankActivity::kStopped ? life : RankActivity::kUnknown;
  if (kept != rank.life) {
    rank.life = kept;
    rank.life_since = now;
  }
}

/// Rings appear when their rank enters MPI_Init; one that is missing later is asked for less and less often.
void open_missing(Watch& watch, double now) {
  if (watch.seen == watch.count || now - watch.opened_at < (watch.open_attempts < 20 ? kReopenSeconds : kReopenLater))
    return;
  watch.opened_at = now;
  ++watch.open_attempts;
  watch.seen = watched_open(watch.watched, watch.ranks, watch.count);
}

void add_event(Summary* summary, int32_t rank, RankActivity what, bool memory = false) {
  if (summary->event_count < kMaxEvents) summary->events[summary->event_count] = {rank, what, memory, {}};
  ++summary->event_count;
}

/// What takes time off the quiet of a rank that was outside MPI since the last sample, and moved now or did not.
void sample_kernel_state(Watch& watch, uint32_t i, bool still_out, double now, Summary* summary) {
  Tracked& rank = watch.tracked[i];
  const double step = now - watch.sampled_at;
  const bool closely = still_out && now - rank.moved_at > kAskAfter;
  // Waiting for a CPU makes up most of a usual pause where cores are shared, so that counts from the start to the end.
  const bool asked = rank.delay_ns != kNotRead || closely || (still_out && watch.starved_asked++ < kAskedEarly);
  const double waited = asked ? starved(watch.watched[i], rank, step) : 0;
  const bool kernel = closely && works_in_kernel(watch.watched[i], rank, now);
  if (kernel && step > summary->excused) {
    summary->excused = step;
    summary->starved = 0;
  } else if (!kernel && waited > summary->excused) {
    summary->excused = summary->starved = waited;
  }
  if (!still_out) rank.delay_ns = kNotRead;
  if (!closely) rank.traffic = kNotRead;
}

/// Who asks for the state of one rank is told of all: a state dump, or `resil why`. Dumps of many ranks in two seconds
/// are one question.
void note_questions(Watch& watch, uint32_t i, uint64_t now_ns, Summary* summary) {
  constexpr uint64_t kOneQuestion = 2000000000;
  Tracked& rank = watch.tracked[i];
  const Watched& watched = watch.watched[i];
  const uint32_t dumps = __atomic_load_n(&watched.header->dumps, __ATOMIC_RELAXED);
  if (rank.seen && dumps != rank.dumps && now_ns - watch.why > kOneQuestion) watch.why = now_ns;
  rank.dumps = dumps;
  const uint64_t asked = __atomic_load_n(&watched.section->control.why, __ATOMIC_RELAXED);
  for (const uint64_t ticket : {asked, watch.why})
    if (ticket > summary->why) summary->why = ticket;
}

/// The first look of who takes over from a leader that is stopped or gone: the record tells since when a rank that
/// stands still has done so. False: it moves, or is not known not to.
bool stood_before(const Watch& watch, Tracked& rank, const QuickLook& quick, double now, uint64_t now_ns) {
  if (rank.seen || watch.sampled_at != 0 || quick.last_ns == 0 || now_ns - quick.last_ns < kStoodNs) return false;
  const auto before = [&](uint64_t ns) { return now - static_cast<double>(now_ns - ns) * 1e-9; };
  rank.moved_at = before(quick.last_ns);
  rank.open_since = quick.in_mpi ? before(quick.open_since_ns) : rank.moved_at;
  rank.instance = quick.instance;
  rank.seen = true;
  return true;
}

void sample_rank(Watch& watch, uint32_t i, double now, uint64_t now_ns, Summary* summary) {
  Tracked& rank = watch.tracked[i];
  Watched& watched = watch.watched[i];
  if (watched.header == nullptr || watched.section == nullptr) {
    ++summary->ranks;  // not seen: taken for computing, which never makes a suspicion
    ++summary->out;
    add_event(summary, watch.ranks[i], RankActivity::kUnknown);
    return;
  }
  note_questions(watch, i, now_ns, summary);
  const QuickLook quick = look(watched, now_ns);
  if (!stood_before(watch, rank, quick, now, now_ns) &&
      (!rank.seen || quick.moved || quick.instance != rank.instance)) {
    rank.moved_at = rank.open_since = rank.life_checked = now;
    rank.instance = quick.instance;
    rank.seen = true;
    ++summary->moved;
    if (rank.life == RankActivity::kStopped) rank.life = RankActivity::kUnknown;
  }
  if (quick.finished) {
    rank.life = RankActivity::kFinished;
    ++summary->finished;
    return;
  }
  const bool was_gone = rank.life == RankActivity::kGone;
  check_life(watched, rank, now);
  if (rank.life == RankActivity::kGone) {
    if (!was_gone) rank.memory = oom_kills() > watch.oom_kills;
    ++summary->gone;
    add_event(summary, watch.ranks[i], RankActivity::kGone, rank.memory);
    return;
  }
  ++summary->ranks;
  if (rank.life == RankActivity::kStopped) {
    ++summary->stopped;
    add_event(summary, watch.ranks[i], RankActivity::kStopped);
  }
  if (const uint64_t before = familiar(watched); before < summary->familiar) summary->familiar = before;
  if (quick.inside_finalize) ++summary->finalizing;
  if (quick.polling) ++summary->polling;
  else if (!quick.in_mpi) ++summary->out;
  if (now - rank.moved_at < summary->quiet) summary->quiet = now - rank.moved_at;
  if (watch.sampled_at != 0)  // what lies before the first sample is not this leader's to take off
    sample_kernel_state(watch, i, !quick.in_mpi && !quick.polling && rank.moved_at != now, now, summary);
  if ((quick.in_mpi || quick.polling) && now - rank.open_since >= kWaitingSeconds) {
    ++summary->waiting;
    const uint64_t open_ns = static_cast<uint64_t>((now - rank.open_since) * 1e9);
    if (open_ns > summary->oldest_open_ns) summary->oldest_open_ns = open_ns;
  }
}

uint64_t hash_of_calls(const RankState& state) {
  auto* threads = reinterpret_cast<const ThreadWait*>(&state + 1);
  uint64_t hash = static_cast<uint64_t>(state.activity) + 1;
  for (uint32_t i = 0; i < state.thread_count; ++i)
    hash = hash_combine(hash_combine(hash, threads[i].instance), static_cast<uint64_t>(threads[i].tid));
  // Computing: no call of its own tells two instants apart, but the number of calls does.
  return state.activity == RankActivity::kBlocked ? hash : hash_combine(hash, state.calls - state.polls);
}

}  // namespace

/// Nobody has looked for a while: this process was stopped, maybe with all others, or got no CPU. What has been seen to
/// last since before is worth nothing.
void forget_times(Watch& watch, double now) {
  for (uint32_t i = 0; i < watch.count; ++i) {
    Tracked& rank = watch.tracked[i];
    rank.open_since = rank.moved_at = rank.life_since = now;
    rank.stable_since = 0;
    rank.delay_ns = rank.traffic = kNotRead;
    rank.sleeping_since = 0;
  }
}

void watch_start(Watch& watch, uint32_t node, const int32_t* ranks, uint32_t count) {
  watch.node = node;
  watch.count = count < kMaxWatched ? count : kMaxWatched;
  memcpy(watch.ranks, ranks, watch.count * sizeof(watch.ranks[0]));
  watch.seen = watched_open(watch.watched, watch.ranks, watch.count);
  watch.oom_kills = oom_kills();
  forget_times(watch, 0);
}

void watch_sample(Watch& watch, double now, Summary* summary) {
  *summary = {};
  summary->familiar = ~uint64_t{0};
  summary->quiet = kNeverSeen;
  open_missing(watch, now);
  watch.starved_asked = 0;
  const uint64_t now_ns = realtime_ns();
  if (watch.sampled_at != 0 && now - watch.sampled_at > kGapSeconds) forget_times(watch, now);
  for (uint32_t i = 0; i < watch.count; ++i) sample_rank(watch, i, now, now_ns, summary);
  watch.sampled_at = now;
}

uint64_t watch_asked(const Watch& watch) {
  uint64_t latest = 0;
  for (uint32_t i = 0; i < watch.count; ++i) {
    const Watched& watched = watch.watched[i];
    if (watched.header == nullptr || watched.section == nullptr) continue;
    const uint64_t asked = __atomic_load_n(&watched.section->control.why, __ATOMIC_RELAXED);
    latest = asked > latest ? asked : latest;
  }
  return latest;
}

Ending watch_ending(Watch& watch, uint32_t ender) {
  const auto name = static_cast<int32_t>(ender & ~kByLibrary);
  Ending ending = {name, (ender & kByLibrary) != 0, 0, 0};
  alignas(8) static char room[kStateRoom];  // helper thread
  for (uint32_t i = 0; i < watch.count; ++i) {
    if (watch.ranks[i] != name - 1 || watch.watched[i].header == nullptr || watch.watched[i].section == nullptr ||
        snapshot(watch.watched[i], room, sizeof(room)) == 0)
      continue;
    const auto& state = *reinterpret_cast<const RankState*>(room);
    for (uint32_t k = 0; k < state.part_count && ending.comm == 0; ++k)
      if (const Part& part = parts_of(state)[k]; part.kind == PartKind::kCollective) {
        ending.comm = part.comm;
        ending.sequence = part.sequence;
      }
  }
  return ending;
}

uint32_t watch_states(Watch& watch, double now, WantedComms wanted, char* room, uint32_t room_bytes) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < watch.count; ++i) {
    Tracked& rank = watch.tracked[i];
    if (watch.watched[i].header == nullptr || watch.watched[i].section == nullptr) continue;
    const uint32_t bytes = snapshot(watch.watched[i], room + used, room_bytes - used, wanted);
    if (bytes == 0) continue;
    auto& state = *reinterpret_cast<RankState*>(room + used);
    state.rank = watch.ranks[i];
    state.node = watch.node;
    state.kernel_state = rank.kernel_state;
    state.cpu_ns = rank.cpu_ns;
    if (rank.life != RankActivity::kUnknown) state.activity = rank.life;
    const uint64_t hash = hash_of_calls(state);
    if (hash != rank.calls_hash || rank.stable_since == 0) {
      rank.calls_hash = hash;
      rank.stable_since = now;
    }
    state.stable = now - rank.stable_since >= kStableSeconds || !lives(rank);
    used += bytes;
  }
  return used;
}

namespace {

bool name(const Watched& watched, const NameQuestion& question, char* text, uint32_t bytes) {
  switch (question.kind) {
    case NameKind::kSite: return site_name(watched, question.value, text, bytes);
    case NameKind::kComm: return comm_name(watched, question.value, text, bytes);
    case NameKind::kHost: return host_name(watched, text, bytes);
    case NameKind::kLast: return last_call(watched, text, bytes);
    case NameKind::kPlace: return computing_place(watched, text, bytes);
    case NameKind::kNode: return false;
  }
  return false;
}

}  // namespace

uint32_t watch_names(Watch& watch, const NameQuestion* questions, uint32_t count, char* room, uint32_t room_bytes) {
  uint32_t used = 0;
  for (uint32_t q = 0; q < count; ++q) {
    for (uint32_t i = 0; i < watch.count; ++i) {
      if ((watch.ranks[i] != questions[q].rank && questions[q].rank >= 0) || watch.watched[i].header == nullptr)
        continue;
      NameAnswer answer = {q, ""};
      const bool known = name(watch.watched[i], questions[q], answer.text, sizeof(answer.text));
      if (known && used + sizeof(answer) <= room_bytes) {
        memcpy(room + used, &answer, sizeof(answer));
        used += sizeof(answer);
        break;
      }
    }
  }
  return used;
}

}  // namespace resil::hang
