// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/stacks_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detectors/hang/verdict/format.h"
#include "shim/call/runtime.h"
#include "shim/report/json.h"
#include "shim/report/own_files.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostFiles = 64, kMostEntries = 512, kMostLines = 600, kMostDepth = 40;
constexpr uint32_t kMostTries = 3;
constexpr uint64_t kThreadsOfARank = 16;  ///< expected at most, for the number of samples

JsonWriter writer;  // one thread

/// All entries of an answer, and the lines of the text that are still to come.
struct Stacks {
  StackText all[kMostEntries];
  uint32_t count, lines;
  int file;
};

/// Line number `depth` of a stack; its length, 0: it has no more.
uint32_t frame_at(const StackText& stack, uint32_t depth, const char** frame) {
  const char *at = stack.text, *end = stack.text + stack.entry.text_bytes;
  for (;; --depth) {
    const auto* stop = at < end ? static_cast<const char*>(memchr(at, '\n', static_cast<size_t>(end - at))) : nullptr;
    if (stop == nullptr) return 0;
    if (depth == 0) {
      *frame = at;
      return static_cast<uint32_t>(stop - at);
    }
    at = stop + 1;
  }
}

bool same_frame(const StackText& a, const StackText& b, uint32_t depth) {
  const char *one = nullptr, *other = nullptr;
  const uint32_t bytes = frame_at(a, depth, &one);
  return bytes != 0 && bytes == frame_at(b, depth, &other) && memcmp(one, other, bytes) == 0;
}

/// The branch of those in `in` from this frame on.
void write_branch(Stacks& stacks, const uint16_t* in, uint32_t count, uint32_t depth, uint32_t above) {
  uint16_t mine[kMostEntries];
  bool done[kMostEntries] = {};
  if (count > kMostEntries || depth == kMostDepth) return;
  for (uint32_t i = 0; i < count && stacks.lines != 0; ++i) {
    const char* frame = nullptr;
    const uint32_t bytes = done[i] ? 0 : frame_at(stacks.all[in[i]], depth, &frame);
    if (bytes == 0) continue;
    uint32_t some = 0;
    RankSet ranks = {};
    for (uint32_t k = i; k < count; ++k)
      if (!done[k] && same_frame(stacks.all[in[i]], stacks.all[in[k]], depth)) {
        done[k] = true;
        mine[some++] = in[k];
        ranks = joined(ranks, stacks.all[in[k]].entry.ranks);
      }
    char room[256] = "";
    Text text(room, sizeof(room));
    if (some != above || depth == 0) add_ranks(text, ranks);
    dprintf(stacks.file, "  %*s%s%s%.*s\n", static_cast<int>(depth), "", room, room[0] != 0 ? ": " : "",
            static_cast<int>(bytes), frame);
    --stacks.lines;
    write_branch(stacks, mine, some, depth + 1, some);
  }
}

/// A thread of MPI's says nothing of what the program waits for; it may say why MPI does not go on.
bool is_left_out(const Root& root, const StackEntry& entry) {
  return entry.library != 0 && root.verdict.type != HangClass::kInsideMpi;
}

/// The innermost frame.
uint32_t last_frame(const StackText& stack, const char** frame) {
  uint32_t depth = 0;
  while (frame_at(stack, depth + 1, frame) != 0) ++depth;
  return frame_at(stack, depth, frame);
}

/// Threads that did not move at all, by program counter, as the paper groups them.
void write_steady(const Root& root, Stacks& stacks) {
  bool any = false;
  for (uint32_t i = 0; i < stacks.count && stacks.lines != 0; ++i) {
    const char *frame = nullptr, *other = nullptr;
    const StackText& first = stacks.all[i];
    const uint32_t bytes = last_frame(first, &frame);
    if (first.entry.steady == 0 || bytes == 0 || is_left_out(root, first.entry)) continue;
    bool before = false;
    RankSet ranks = {};
    uint32_t threads = 0;
    for (uint32_t k = 0; k < stacks.count && !before; ++k) {
      if (stacks.all[k].entry.steady == 0 || is_left_out(root, stacks.all[k].entry) ||
          last_frame(stacks.all[k], &other) != bytes || memcmp(frame, other, bytes) != 0)
        continue;
      before = k < i;
      ranks = joined(ranks, stacks.all[k].entry.ranks);
      threads += stacks.all[k].entry.threads;
    }
    if (before) continue;
    if (!any)
      dprintf(stacks.file, "\nThreads whose program counter was the same in all of %u samples\n",
              root.stacks_question.samples);
    any = true;
    char room[256] = "";
    Text text(room, sizeof(room));
    add_ranks(text, ranks);
    dprintf(stacks.file, "  %s: %u thread%s at %.*s%s\n", room, threads, threads == 1 ? "" : "s",
            static_cast<int>(bytes), frame, first.entry.sleeps != 0 ? ", in a system call" : "");
    --stacks.lines;
  }
}

void write_text(const Root& root, Stacks& stacks, const StacksHead& head) {
  dprintf(stacks.file,
          "Stacks of %u threads of %u ranks, with %s; the outermost frame first, ranks where stacks part\n"
          "Read from outside: no rank was stopped. addr2line -e OBJECT OFFSET, or resil report, gives lines.\n\n",
          head.threads, head.ranks, root.stacks_of);
  uint16_t all[kMostEntries] = {};
  uint32_t count = 0, of_library = 0;
  for (uint32_t i = 0; i < stacks.count && count < kMostEntries; ++i) {
    const StackEntry& entry = stacks.all[i].entry;
    if (is_left_out(root, entry)) of_library += entry.threads;
    else all[count++] = static_cast<uint16_t>(i);
  }
  write_branch(stacks, all, count, 0, ~0u);
  write_steady(root, stacks);
  if (of_library != 0)
    dprintf(stacks.file, "\nNot shown: %u threads that MPI or its libraries have started (the JSON has them)\n",
            of_library);
  if (head.unread != 0)
    dprintf(stacks.file,
            "\nNot readable: %u threads, which did not run while they were sampled, or the kernel refused\n",
            head.unread);
  if (head.left_out != 0) dprintf(stacks.file, "\nLeft out: %u ranks\n", head.left_out);
}

void write_members(const Root& root, const Stacks& stacks, const StacksHead& head) {
  writer.integer("ranks", head.ranks);
  writer.integer("threads", head.threads);
  writer.integer("unread", head.unread);
  writer.integer("left_out", head.left_out);
  writer.integer("samples", root.stacks_question.samples);
  writer.begin_array("stacks");
  for (uint32_t i = 0; i < stacks.count; ++i) {
    const StackEntry& entry = stacks.all[i].entry;
    char room[256] = "";
    Text text(room, sizeof(room));
    add_ranks(text, entry.ranks);
    writer.begin_object();
    writer.text("ranks", room);
    writer.integer("count", entry.ranks.total);
    writer.integer("threads", entry.threads);
    writer.boolean("steady", entry.steady != 0);
    writer.boolean("library", entry.library != 0);
    writer.boolean("sleeps", entry.sleeps != 0);
    writer.boolean("complete", entry.complete != 0);
    writer.begin_array("frames");
    const char* frame = nullptr;
    for (uint32_t depth = 0; const uint32_t bytes = frame_at(stacks.all[i], depth, &frame); ++depth) {
      char name[128];
      snprintf(name, sizeof(name), "%.*s", static_cast<int>(bytes), frame);
      writer.text(nullptr, name);
    }
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
}

void write_json(const Root& root, const Stacks& stacks, const StacksHead& head, int fd) {
  writer.restart(fd, false);
  writer.begin_object();
  writer.integer("schema_version", 1);
  writer.text("launch", runtime.launch_key);
  writer.integer("time_ns", realtime_ns());
  writer.text("of", root.stacks_of);
  write_members(root, stacks, head);
  writer.end_object();
  writer.finish();
}

/// All of a JSON file but its last bracket, to `to`. False: it is not there, or not what was written.
bool copy_open(const char* path, int to) {
  static char bytes[65536];  // one thread
  const int from = own_file_read(path);
  if (from < 0) return false;
  struct stat status = {};
  char tail[8] = "";
  off_t left = fstat(from, &status) == 0 ? status.st_size - static_cast<off_t>(sizeof(tail)) : -1;
  bool good = left > 0 && pread(from, tail, sizeof(tail), left) == sizeof(tail);
  uint32_t bracket = sizeof(tail);
  while (good && bracket > 0 && tail[bracket - 1] != '}') --bracket;
  good = good && bracket > 0;
  left += bracket - 1;
  while (good && left > 0) {
    const ssize_t got =
        read(from, bytes, static_cast<size_t>(left) < sizeof(bytes) ? static_cast<size_t>(left) : sizeof(bytes));
    good = got > 0 && write(to, bytes, static_cast<size_t>(got)) == got;
    left -= got;
  }
  close(from);
  return good;
}

/// hang-N or why-N itself: the tree behind its text, and member `stacks` in its JSON, which takes the place of the one
/// before. Who has read that one has all but the stacks.
void add_to_owner(const Root& root, Stacks& stacks, const StacksHead& head, const char* file) {
  char path[1300];
  const int length = static_cast<int>(strcspn(root.stacks_of, "."));
  if (root.stacks_of[length] == 0) return;  // of a notice, which has no file
  snprintf(path, sizeof(path), "%s/%.*s.txt", runtime.directory, length, root.stacks_of);
  if (own_file_exists(path))
    if (const int fd = own_file_append(path, 0666); fd >= 0) {
      stacks.file = fd;
      stacks.lines = kMostLines;
      dprintf(fd, "\n");
      write_text(root, stacks, head);
      close(fd);
    }
  OwnFile json;
  snprintf(path, sizeof(path), "%s/%s", runtime.directory, root.stacks_of);
  if (!own_file_exists(path) || !own_file_begin(&json, path, 0666)) return;
  bool good = copy_open(path, json.fd) && dprintf(json.fd, ", \"stacks\": ") > 0;
  if (good) {
    writer.restart(json.fd, false);
    writer.begin_object();
    writer.text("file", file);
    write_members(root, stacks, head);
    writer.end_object();
    good = writer.finish() && dprintf(json.fd, "}\n") > 0 && (fsync(json.fd) == 0 || errno == EINVAL);
  }
  if (good) own_file_commit(&json);
  else own_file_drop(&json);
}

}  // namespace

void want_stacks(Root& root, const char* of) {
  if (!root.stacks || of[0] == 0) return;
  const char* slash = strrchr(of, '/');
  snprintf(root.stacks_of, sizeof(root.stacks_of), "%s", slash != nullptr ? slash + 1 : of);
  root.stacks_due = true;
  root.stacks_tries = 0;
}

uint32_t stacks_question(Root& root) {
  StacksQuestion& question = root.stacks_question;
  question = {};
  question.samples = samples_for(root.states.count * kThreadsOfARank);
  for (uint32_t i = 0; i < root.verdict.culprit_count && i < kMaxCulprits && question.count < kStackRanks; ++i)
    question.first[question.count++] = root.verdict.culprits[i];
  return sizeof(question);
}

void write_stacks(Root& root, const void* merged, uint32_t bytes) {
  static Stacks stacks;
  StacksHead head = {};
  char path[1300];
  if (runtime.directory[0] == 0) return;
  if (bytes >= sizeof(head)) memcpy(&head, merged, sizeof(head));
  if ((head.ranks == 0 || 2 * head.unread >= head.ranks) && ++root.stacks_tries < kMostTries && !root.aborts) {
    root.stacks_due = true;
    return;
  }
  if (bytes < sizeof(head)) return;
  stacks.count = 0;
  for (uint32_t at = sizeof(head);
       stacks.count < kMostEntries && next_stack(merged, bytes, &at, &stacks.all[stacks.count]);)
    ++stacks.count;
  if (stacks.count == 0) return;
  uint32_t number = 0;
  for (; number < kMostFiles; ++number) {
    snprintf(path, sizeof(path), "%s/stacks-%u.json", runtime.directory, number);
    if (!own_file_exists(path)) break;
  }
  if (number == kMostFiles) return;
  OwnFile text, json;
  snprintf(path, sizeof(path), "%s/stacks-%u.txt", runtime.directory, number);
  if (own_file_begin(&text, path, 0666)) {
    stacks.file = text.fd;
    stacks.lines = kMostLines;
    write_text(root, stacks, head);
    own_file_commit(&text);
  }
  snprintf(path, sizeof(path), "%s/stacks-%u.json", runtime.directory, number);
  if (!own_file_begin(&json, path, 0666)) return;
  write_json(root, stacks, head, json.fd);
  if (writer.error() != 0) own_file_drop(&json);
  else own_file_commit(&json);
  snprintf(path, sizeof(path), "stacks-%u.json", number);
  add_to_owner(root, stacks, head, path);
}

}  // namespace resil::hang
