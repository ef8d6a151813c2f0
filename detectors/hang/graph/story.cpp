// SPDX-License-Identifier: Apache-2.0
//
// The sentences. Whoever reads them was woken up by them: first what happened, then who is odd, then what to do.

#include "detectors/hang/graph/story.h"

#include <string.h>

namespace resil::hang::graph {

namespace {

constexpr uint32_t kToldWaits = 4;  // of one kind, before the rest is only counted

}  // namespace

void Story::tell_wait(const Wait& wait, bool with_why) {
  message_.rank(wait.rank);
  message_.text.str(" waits in ");
  message_.wait(wait);
  message_.site(wait.rank, thread_of(g_, wait));
  if (with_why) message_.why(wait);
}

void Story::tell_wave(const Wave& wave) {
  memset(scratch_, 0, g_.ranks());
  uint32_t waiting = 0;
  for (uint32_t i = g_.late(*wave.comm, wave.sequence); i < wave.comm->count; ++i) {
    const uint32_t rank = g_.in_order(*wave.comm, i).rank;
    const View& view = g_.view(rank);
    for (uint32_t p = 0; g_.deadlocked(rank) && scratch_[rank] == 0 && p < g_.state(rank).part_count; ++p)
      if (view.parts[p].kind == PartKind::kCollective && view.parts[p].comm == wave.comm->id &&
          view.parts[p].sequence == wave.sequence && g_.stuck(g_.target(rank, p))) {
        scratch_[rank] = 1;
        ++waiting;
      }
  }
  const int64_t size = int64_t{wave.comm->size} + (wave.comm->remote_size > 0 ? wave.comm->remote_size : 0);
  message_.text.u64(waiting).str(" of ").i64(size).str(size == 1 ? " rank (" : " ranks (");
  message_.ranks(scratch_, false);
  message_.text.str(waiting == 1 ? ") waits in " : ") wait in ");
  message_.wait(wave.first);
  message_.site(wave.first.rank, thread_of(g_, wave.first));
  message_.text.str(" for ");
  message_.age(thread_of(g_, wave.first));
}

/// What the late ones do instead: those who ended, those who wait elsewhere, and the rest.
void Story::tell_late(const Wave& wave) {
  const uint32_t late = g_.late(*wave.comm, wave.sequence);
  auto group = [&](auto belongs) {
    memset(scratch_, 0, g_.ranks());
    uint32_t count = 0;
    for (uint32_t i = 0; i < late; ++i)
      if (const uint32_t rank = g_.in_order(*wave.comm, i).rank; belongs(rank)) {
        scratch_[rank] = 1;
        ++count;
      }
    if (count != 0) {
      message_.text.str("; ");
      message_.ranks(scratch_);
    }
    return count;
  };
  if (uint32_t count = group([&](uint32_t rank) { return g_.role(rank) == Role::kGone; }); count != 0)
    message_.text.str(" ended without MPI_Finalize and will never make that call");
  if (uint32_t count =
          group([&](uint32_t rank) { return g_.role(rank) == Role::kFinished || g_.role(rank) == Role::kFinalizing; });
      count != 0)
    message_.text.str(count == 1 ? " has" : " have").str(" called MPI_Finalize and will never make that call");
  // Those in the core are told one by one, the others only if there is none.
  uint32_t told = 0, others = 0;
  for (int core = 1; core >= 0; --core)
    for (uint32_t i = 0; i < late && (core == 1 || told == 0); ++i) {
      const uint32_t rank = g_.in_order(*wave.comm, i).rank;
      const Wait wait = g_.deadlocked(rank) && (core_.member[rank] != 0) == (core == 1) ? reason(rank) : Wait{};
      if (!wait.valid()) continue;
      if (told++ >= kToldWaits) {
        ++others;
        continue;
      }
      message_.text.str("; ");
      tell_wait(wait, true);
    }
  if (others != 0)
    message_.text.str("; ").u64(others).str(others == 1 ? " other waits likewise" : " others wait likewise");
}

/// Two communicators (or two calls of one) whose members wait for each other.
void Story::tell_orders() {
  message_.text.str("Collectives are called in different orders: ");
  tell_wave(core_.waves[0]);
  message_.text.str("; ");
  tell_wave(core_.waves[1]);
  const Member* ahead = g_.member(*core_.waves[1].comm, core_.waves[0].first.rank);
  const Member* behind = g_.member(*core_.waves[0].comm, core_.waves[1].first.rank);
  for (int side = 0; side < 2; ++side) {
    const Member* member = side == 0 ? ahead : behind;
    if (member == nullptr) continue;
    message_.text.str("; ");
    message_.rank(member->rank);
    message_.text.str(" has made ").u64(member->sequence).str(member->sequence == 1 ? " call" : " calls").str(" on ");
    message_.comm(core_.waves[1 - side].comm->id);
  }
  if (core_.wave_count > 2) message_.text.str("; ").u64(core_.wave_count - 2).str(" more such calls take part");
}

/// Point to point: along the cycle, beginning with its lowest rank.
void Story::tell_cycle() {
  if (core_.count > 1) {
    message_.ranks(core_.member);
    message_.text.str(" wait for each other: ");
  }
  memset(scratch_, 0, g_.ranks());
  uint32_t told = 0;
  uint32_t rank = core_.first;
  while (told < core_.count && told < kToldWaits) {
    const Wait wait = reason(rank);
    scratch_[rank] = 1;
    if (wait.valid()) {
      message_.text.str(told != 0 ? "; " : "");
      tell_wait(wait, true);
    }
    ++told;
    uint32_t next = wait.valid() ? g_.target(rank, wait.part) : kNone;
    if (next >= g_.ranks() || core_.member[next] == 0 || scratch_[next] != 0 || !g_.deadlocked(next))
      for (next = 0; next < g_.ranks() && (core_.member[next] == 0 || scratch_[next] != 0); ++next) {}
    if (next >= g_.ranks()) break;
    rank = next;
  }
  if (told < core_.count) message_.text.str("; and so on");
}

void Story::tell_near_miss(Words& words) {
  const Part& wanted = part_of(g_, near_.receive);
  words.rank(near_.sender);
  if (near_.send.valid()) {
    words.text.str(" waits in ");
    words.wait(near_.send);
    words.site(near_.sender, thread_of(g_, near_.send));
  } else if (near_.kind == NearMiss::kOtherTag) {
    words.text.str(" has sent rank ").u64(near_.receive.rank).chr(' ').u64(near_.count);
    words.text.str(near_.count == 1 ? " message" : " messages").str(" with another tag that nobody has received, on ");
    words.comm(wanted.comm);
  } else {
    words.text.str(" has sent rank ").u64(near_.receive.rank).chr(' ').u64(near_.count);
    words.text.str(near_.count == 1 ? " message" : " messages").str(" with tag ").i64(wanted.tag);
    words.text.str(" on another communicator that nobody has received");
  }
}

void Story::tell_others() {
  memset(scratch_, 0, g_.ranks());
  uint32_t count = 0;
  const bool wave = wave_story_;
  for (uint32_t rank = 0; rank < g_.ranks(); ++rank) {
    bool in_wave = false;
    for (uint32_t w = 0; wave && w < core_.wave_count && w < 2 && !in_wave && g_.deadlocked(rank); ++w)
      for (uint32_t p = 0; p < g_.state(rank).part_count; ++p) {
        const Part& part = g_.view(rank).parts[p];
        in_wave |= part.kind == PartKind::kCollective && part.comm == core_.waves[w].comm->id &&
                   part.sequence == core_.waves[w].sequence && g_.stuck(g_.target(rank, p));
      }
    if (victim_[rank] == 0 || core_.member[rank] != 0 || in_wave) continue;
    scratch_[rank] = 1;
    ++count;
  }
  if (count == 0) return;
  message_.text.str(" ").u64(count).str(count == 1 ? " other waits" : " others wait").str(" for these: ");
  message_.ranks(scratch_);
  message_.text.chr('.');
}

void Story::message() {
  const bool ended = core_.kind == CoreKind::kEnded || core_.kind == CoreKind::kGone;
  if (core_.kind == CoreKind::kCycle && core_.wave_count > 1) {
    tell_orders();
  } else if (wave_story_) {
    tell_wave(core_.waves[0]);
    tell_late(core_.waves[0]);
  } else if (ended && core_.message.valid()) {
    tell_wait(core_.message, true);
    message_.text.str("; ");
    message_.ranks(core_.member);
    message_.text.str(core_.kind == CoreKind::kGone ? " ended without MPI_Finalize"
                      : core_.count == 1            ? " has called MPI_Finalize"
                                                    : " have called MPI_Finalize");
    message_.text.str(core_.count == 1 ? " and does nothing more" : " and do nothing more");
  } else {
    tell_cycle();
  }
  message_.text.chr('.');
  if (near_.kind != NearMiss::kNothing) {
    message_.text.str(" Nearly: ");
    tell_near_miss(message_);
    message_.text.chr('.');
  }
  tell_others();
  advise();
  message_.done();
  capital(v_.message);
}

void Story::advise() {
  dump::Text& text = message_.text;
  if (g_.lenient())
    text.str(
        " MPI does not demand that all of these calls wait, or a loop of polls was taken for a wait; but nothing has "
        "moved for long.");
  else if (core_.message.valid() && (part_of(g_, core_.message).flags & kPermitted) != 0) {
    text.str(" MPI would let ");
    message_.call(thread_of(g_, core_.message).call);
    text.str(
        " return early, but this library waits in it: it has used half a second of processor time and more there.");
  }
  if (near_.kind == NearMiss::kOtherTag) {
    text.str(" To do: compare the tags at both ends.");
  } else if (near_.kind == NearMiss::kOtherComm) {
    text.str(" To do: compare the communicators at both ends.");
  } else if (core_.kind == CoreKind::kGone) {
    text.str(" To do: see how that process died (its last output, exit status, memory of the node).");
  } else if (core_.kind == CoreKind::kEnded) {
    text.str(" To do: see why not all ranks make as many calls before MPI_Finalize.");
  } else if (core_.kind == CoreKind::kNever) {
    text.str(" To do: see who in that rank was to complete the request.");
  } else if (core_.wave_count > 1) {
    text.str(" To do: make all members call them in the same order.");
  } else if (wave_story_) {
    text.str(" To do: see why ");
    message_.ranks(culprit_);
    text.str(" took another way through the program.");
  } else if (core_.message.valid() && part_of(g_, core_.message).kind == PartKind::kToken) {
    text.str(
        " To do: match every MPI_Win_start and MPI_Win_complete with an MPI_Win_post and MPI_Win_wait that comes "
        "first.");
  } else if (core_.message.valid() && part_of(g_, core_.message).kind == PartKind::kLock) {
    text.str(" To do: let go of the lock (MPI_Win_unlock) before waiting for others.");
  } else if (core_.message.valid() && part_of(g_, core_.message).kind == PartKind::kSend) {
    text.str(" To do: a send of this size waits for its receive; post receives first (MPI_Irecv) or use MPI_Sendrecv.");
  } else if (core_.count > 1) {
    text.str(" To do: one of them must send before it receives.");
  } else {
    text.str(" To do: see who was to send.");
  }
}

}  // namespace resil::hang::graph
