// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/reader/stacks.h"

#include <stdio.h>
#include <string.h>

#include <initializer_list>

#include "shim/base/task_list.h"
#include "shim/base/text_file.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/stacks/python.h"
#include "shim/runtime/stacks/remote.h"

namespace resil::hang {

namespace {

constexpr uint64_t kLoop = 250;  // instructions of a loop, as the paper takes it
constexpr long kFirstMilliseconds = 80, kSampleMilliseconds = 10;
constexpr uint32_t kLeastSamples = 4;  // of the paper, for 10^7 threads
constexpr uint32_t kMostFrames = 40, kPythonFrames = 24, kMostText = 2400;

/// What taking needs; too much for a stack.
struct Work {
  stacks::RemoteProcess process;
  stacks::UnwindWork unwind;
  stacks::Stack stack;
  stacks::RemoteThread threads[kStackThreads];
  int32_t ranks[kStackThreads];
  const Watched* watched[kStackThreads];
  bool library[kStackThreads];
  uint64_t counters[kStackThreads];
  bool steady[kStackThreads];
  stacks::PythonFrame python[kPythonFrames];
  char text[kMostText];
  StackEntry entries[kStackThreads];
  char texts[kStackThreads][kMostText];
};

bool is_ours(int32_t pid, int32_t tid) {
  char name[24];
  read_thread_file(pid, tid, "comm", name, sizeof(name));
  return strncmp(name, "resil-", 6) == 0;
}

uint32_t add_threads(Work& work, uint32_t count, const Watched& rank) {
  int32_t tids[kRankThreads];
  char scratch[2048];
  int there = list_threads(rank.pid, tids, kRankThreads, scratch, sizeof(scratch));
  if (there > static_cast<int>(kRankThreads)) there = kRankThreads;
  for (int i = 0; i < there && count < kStackThreads; ++i)
    if (!is_ours(rank.pid, tids[i])) {
      work.threads[count].pid = rank.pid;
      work.threads[count].tid = tids[i];
      work.library[count] = rank.section != nullptr && is_own_thread(*rank.section, tids[i]);
      work.watched[count] = &rank;
      work.ranks[count++] = rank.rank;
    }
  return count;
}

/// Appends one line; false: no room.
bool add_line(Work& work, uint32_t* used, const char* line) {
  const auto length = static_cast<uint32_t>(strlen(line));
  if (*used + length + 1 > kMostText) return false;
  memcpy(work.text + *used, line, length);
  work.text[*used + length] = '\n';
  *used += length + 1;
  return true;
}

bool is_interpreter(const char* name) {
  return strncmp(name, "python3", 7) == 0 || strncmp(name, "libpython3", 10) == 0;
}

/// The outermost frame first. Bytes. Frames of the Python interpreter, and what they call in between, are left out for
/// those of the Python program: "function at file.py:12". These alone where the kernel tells nothing of the thread.
uint32_t write_frames(Work& work, const Watched& rank, int32_t tid) {
  const stacks::Stack& stack = work.stack;
  const uint32_t kept = stack.total < stacks::kInnermost ? stack.total : stacks::kInnermost;
  uint32_t shown = kept < kMostFrames ? kept : kMostFrames, used = 0;
  auto name_of = [&](uint32_t frame, char* name, uint32_t bytes) {
    stacks::remote_name(&work.process, stack.frames[frame] & stacks::kFrameAddress, name, bytes);
    if (name[0] == 0) snprintf(name, bytes, "?");
  };
  char name[stacks::kObjectName + 24];
  if (rank.section != nullptr && rank.section->python.runtime != 0) {
    const stacks::PythonAddresses python = rank.section->python;
    const uint32_t count = stacks::python_frames(work.process, python, rank.pid, tid, work.python, kPythonFrames);
    for (uint32_t i = count; i-- > 0;) {
      char line[stacks::kPythonPlace];
      stacks::python_place(work.python[i], line, sizeof(line));
      add_line(work, &used, line);
    }
    for (uint32_t i = 0; count != 0 && i < shown; ++i)
      if (name_of(i, name, sizeof(name)); is_interpreter(name)) shown = i;
  }
  for (uint32_t i = shown; i-- > 0;) {
    name_of(i, name, sizeof(name));
    if (!add_line(work, &used, name)) break;
  }
  return used;
}

uint32_t padded(uint32_t bytes) { return (bytes + 7) / 8 * 8; }

/// One more entry, or one more rank of an equal one.
bool add_entry(char* answer, uint32_t* bytes, uint32_t room, const StackEntry& entry, const char* text) {
  StackText known;
  for (uint32_t at = sizeof(StacksHead), here = at; next_stack(answer, *bytes, &at, &known); here = at)
    if (known.entry.text_bytes == entry.text_bytes && known.entry.steady == entry.steady &&
        known.entry.sleeps == entry.sleeps && known.entry.library == entry.library &&
        memcmp(known.text, text, entry.text_bytes) == 0) {
      known.entry.threads += entry.threads;
      known.entry.ranks = joined(known.entry.ranks, entry.ranks);
      memcpy(answer + here, &known.entry, sizeof(known.entry));
      return true;
    }
  const uint32_t wanted = static_cast<uint32_t>(sizeof(entry)) + padded(entry.text_bytes);
  if (*bytes > room || wanted > room - *bytes) return false;
  StackEntry made = entry;
  made.bytes = wanted;
  memcpy(answer + *bytes, &made, sizeof(made));
  memset(answer + *bytes + sizeof(made), 0, padded(entry.text_bytes));
  memcpy(answer + *bytes + sizeof(made), text, entry.text_bytes);
  *bytes += wanted;
  return true;
}

uint32_t take(Work& work, Watch& watch, const StacksQuestion& question, char* room, uint32_t room_bytes) {
  const double until = monotonic_seconds() + kStacksSeconds;
  StacksHead head = {};
  uint32_t count = 0, bytes = sizeof(head);
  auto is_first = [&](int32_t rank) {
    for (uint32_t i = 0; i < question.count && i < kStackRanks; ++i)
      if (question.first[i] == rank) return true;
    return false;
  };
  for (const bool first : {true, false})
    for (uint32_t i = 0; i < watch.count; ++i) {
      const Watched& rank = watch.watched[i];
      if (rank.header == nullptr || watch.tracked[i].life == RankActivity::kGone || is_first(rank.rank) != first)
        continue;
      if (head.ranks == kStackRanks || count == kStackThreads) {
        ++head.left_out;
        continue;
      }
      count = add_threads(work, count, rank);
      ++head.ranks;
    }
  stacks::remote_sample(work.threads, count, kFirstMilliseconds);
  for (uint32_t i = 0; i < count; ++i) {
    work.counters[i] = work.threads[i].registers.pc;
    work.steady[i] = work.threads[i].known;
  }
  // The stacks of the first sample, before the threads go on; then the counters of the others.
  int32_t open_pid = 0;
  StackEntry* entries = work.entries;
  for (uint32_t i = 0; i < count; ++i) {
    const stacks::RemoteThread& thread = work.threads[i];
    entries[i] = {};
    if (!thread.known) work.steady[i] = false;
    if (monotonic_seconds() >= until || (thread.pid != open_pid && !stacks::remote_open(&work.process, thread.pid))) {
      ++head.unread;
      work.steady[i] = false;
      continue;
    }
    open_pid = thread.pid;
    work.stack = {};
    if (thread.known) stacks::remote_unwind(&work.process, thread, &work.unwind, &work.stack);
    else stacks::remote_forget(&work.process);
    entries[i].text_bytes = write_frames(work, *work.watched[i], thread.tid);
    if (entries[i].text_bytes == 0) {
      ++head.unread;
      continue;
    }
    entries[i].sleeps = thread.sleeps;
    entries[i].library = work.library[i];
    entries[i].complete = work.stack.end == stacks::StackEnd::kComplete;
    entries[i].threads = 1;
    entries[i].ranks.add(work.ranks[i]);
    memcpy(work.texts[i], work.text, entries[i].text_bytes);
    ++head.threads;
  }
  uint32_t taken = 1;
  for (; taken < question.samples && monotonic_seconds() < until; ++taken) {
    stacks::remote_sample(work.threads, count, kSampleMilliseconds);
    for (uint32_t i = 0; i < count; ++i)
      if (!work.threads[i].known || work.threads[i].registers.pc != work.counters[i]) work.steady[i] = false;
  }
  memcpy(room, &head, sizeof(head));
  for (uint32_t i = 0; i < count; ++i) {
    entries[i].steady = work.steady[i] && taken >= question.samples;
    if (entries[i].text_bytes != 0) add_entry(room, &bytes, room_bytes, entries[i], work.texts[i]);
  }
  return bytes;
}

}  // namespace

RankSet joined(const RankSet& a, const RankSet& b) {
  RankSet made = {};
  uint32_t i = 0, k = 0;
  if (a.named != a.total || b.named != b.total) {  // not all are known by number
    made = a;
    made.total = a.total + b.total;
    return made;
  }
  while (i < a.count || k < b.count) {
    const bool first = k == b.count || (i < a.count && a.ranges[i].first <= b.ranges[k].first);
    const auto& range = first ? a.ranges[i++] : b.ranges[k++];
    const bool all_named = made.count != 0 && made.named == made.total;
    const int32_t above = all_named ? made.ranges[made.count - 1].last + 1 : range.first;
    if (above <= range.last) made.add(above > range.first ? above : range.first, range.last);
  }
  return made;
}

namespace {

/// As add() makes them; what another node sends may be damaged.
bool is_whole(const RankSet& ranks) {
  constexpr int32_t kMostRank = 1 << 30;
  if (ranks.count > RankSet::kMaxRanges) return false;
  int64_t above = -1;
  uint64_t named = 0;
  for (uint32_t i = 0; i < ranks.count; ++i) {
    const auto& range = ranks.ranges[i];
    if (range.first <= above || range.last < range.first || range.last > kMostRank) return false;
    above = range.last;
    named += static_cast<uint64_t>(range.last - range.first) + 1;
  }
  return named == ranks.named && ranks.named <= ranks.total;
}

}  // namespace

uint32_t samples_for(uint64_t threads) {
  uint32_t samples = 2;  // a single one tells nothing
  for (uint64_t power = kLoop; power <= threads && samples < kMostSamples; power *= kLoop) ++samples;
  return samples > kLeastSamples ? samples : kLeastSamples;
}

bool next_stack(const void* answer, uint32_t bytes, uint32_t* at, StackText* found) {
  const auto* data = static_cast<const char*>(answer);
  if (*at > bytes || bytes - *at < sizeof(StackEntry)) return false;
  StackEntry& entry = found->entry;
  memcpy(&entry, data + *at, sizeof(entry));
  if (entry.bytes < sizeof(entry) || entry.bytes % 8 != 0 || entry.bytes > bytes - *at ||
      entry.text_bytes > entry.bytes - sizeof(entry) || !is_whole(entry.ranks))
    return false;
  found->text = data + *at + sizeof(entry);
  *at += entry.bytes;
  return true;
}

uint32_t stacks_collect(Watch& watch, const void* question, uint32_t question_bytes, char* room, uint32_t room_bytes) {
  StacksQuestion asked;
  if (question_bytes != sizeof(asked) || room_bytes < sizeof(StacksHead)) return 0;
  memcpy(&asked, question, sizeof(asked));
  if (asked.samples < 2 || asked.samples > kMostSamples) asked.samples = kMostSamples;
  auto* work = memory::map_array<Work>();
  if (work == nullptr) return 0;
  const uint32_t bytes = take(*work, watch, asked, room, room_bytes < kMostStacks ? room_bytes : kMostStacks);
  memory::unmap_array(work, 1);
  return bytes;
}

bool stacks_merge(void* accumulated, uint32_t* bytes, uint32_t room, const void* incoming, uint32_t incoming_bytes) {
  if (incoming_bytes < sizeof(StacksHead)) return true;  // took none
  if (*bytes < sizeof(StacksHead)) {
    if (incoming_bytes > room) return false;
    memcpy(accumulated, incoming, incoming_bytes);
    *bytes = incoming_bytes;
    return true;
  }
  StacksHead head, other;
  memcpy(&head, accumulated, sizeof(head));
  memcpy(&other, incoming, sizeof(other));
  head.ranks += other.ranks;
  head.threads += other.threads;
  head.unread += other.unread;
  head.left_out += other.left_out;
  const uint32_t most = room < kMostStacks ? room : kMostStacks;
  StackText next;
  for (uint32_t at = sizeof(head); next_stack(incoming, incoming_bytes, &at, &next);)
    if (!add_entry(static_cast<char*>(accumulated), bytes, most, next.entry, next.text)) ++head.left_out;
  memcpy(accumulated, &head, sizeof(head));
  return true;
}

}  // namespace resil::hang
