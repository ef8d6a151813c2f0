// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/report_files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/publish.h"
#include "detectors/hang/root/root_verdict.h"
#include "shim/base/version.h"
#include "shim/call/runtime.h"
#include "shim/model/call_info.h"
#include "shim/report/json.h"
#include "shim/report/own_files.h"
#include "shim/report/write_shield.h"

namespace resil::hang {

namespace {

constexpr int kSchemaVersion = 1;
constexpr uint32_t kMostListed = 16384;  // ranks in hang-N.json; beyond, culprits and victims only
constexpr uint32_t kMostLines = 64;  // groups of equal ranks in hang-N.txt
constexpr const char* kConfidence[] = {"proved", "verified", "suspected"};

JsonWriter writer;  // one thread

const char* call_name(uint16_t id) { return id < kCallCount ? call_info(static_cast<CallId>(id)).name : ""; }

void utc(uint64_t ns, char* text, size_t bytes) {
  const auto seconds = static_cast<time_t>(ns / 1000000000u);
  struct tm parts;
  gmtime_r(&seconds, &parts);
  snprintf(text, bytes, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
           parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<unsigned>(ns / 1000000u % 1000u));
}

const ThreadWait* wait_of(const RankState* state) {
  return state != nullptr && state->thread_count != 0 ? threads_of(*state) : nullptr;
}

const Part* part_of(const RankState* state) { return state != nullptr ? first_part(*state) : nullptr; }

double age(const RankState* state, uint64_t now) {
  const ThreadWait* wait = wait_of(state);
  return wait != nullptr && wait->entered_ns != 0 && wait->entered_ns < now
             ? static_cast<double>(now - wait->entered_ns) * 1e-9
             : 0;
}

void rank_member(JsonWriter& json, const Root& root, uint32_t rank, uint64_t now) {
  const RankState* state = root.states.by_rank[rank];
  json.begin_object();
  json.integer("rank", rank);
  json.text("state", activity_name(state != nullptr ? state->activity : RankActivity::kUnknown));
  if (const ThreadWait* wait = wait_of(state); wait != nullptr) {
    json.text("call", call_name(wait->call));
    if (const Part* part = part_of(state); part != nullptr && part->kind == PartKind::kCollective)
      json.integer("sequence", static_cast<int64_t>(part->sequence));
    json.number("age", age(state, now));
  }
  if (state != nullptr) {
    json.integer("calls", static_cast<int64_t>(state->calls));
    json.integer("pid", state->pid);
    json.integer("node", state->node);
    if (state->device.kind != DeviceWorkKind::kNone) {
      char text[256];
      describe_device(*state, text, sizeof(text));
      json.text("device", text);
    }
  }
  json.end_object();
}

void ranks(JsonWriter& json, const char* name, const int32_t* list, uint32_t count, uint32_t most) {
  json.begin_array(name);
  for (uint32_t i = 0; i < count && i < most; ++i) json.integer(nullptr, list[i]);
  json.end_array();
}

void write_json(Root& root, const Verdict& verdict, const char* action, uint64_t now, int fd) {
  char time[40], comm[40];
  utc(now, time, sizeof(time));
  snprintf(comm, sizeof(comm), "0x%llx", static_cast<unsigned long long>(verdict.comm));
  writer.restart(fd, false);
  writer.begin_object();
  writer.integer("schema_version", kSchemaVersion);
  writer.text("resil_version", kVersionText);
  writer.text("launch", runtime.launch_key);
  writer.text("time", time);
  writer.integer("time_ns", static_cast<int64_t>(now));
  writer.text("class", class_name(verdict.type));
  writer.text("confidence", kConfidence[static_cast<int>(verdict.confidence)]);
  ranks(writer, "culprit_ranks", verdict.culprits, verdict.culprit_count, kMaxCulprits);
  writer.integer("culprit_count", verdict.culprit_count);
  ranks(writer, "victim_ranks", verdict.victims, verdict.victim_count, kMaxVictims);
  writer.integer("victim_count", verdict.victim_count);
  if (verdict.comm != 0) {
    writer.text("communicator", name_of(root, -1, NameKind::kComm, verdict.comm));
    writer.text("communicator_id", comm);
  } else {
    writer.null("communicator");
  }
  writer.text("call", call_name(verdict.call));
  writer.integer("sequence", static_cast<int64_t>(verdict.sequence));
  writer.text("message", verdict.message);
  writer.begin_array("evidence");
  for (const char* line = verdict.evidence; *line != 0;) {
    const char* end = strchr(line, '\n');
    char text[1024];
    snprintf(text, sizeof(text), "%.*s",
             static_cast<int>(end != nullptr ? end - line : static_cast<long>(strlen(line))), line);
    writer.text(nullptr, text);
    line = end != nullptr ? end + 1 : line + strlen(line);
  }
  writer.end_array();
  writer.text("action", action);
  writer.begin_array("unanswered");
  for (uint32_t i = 0; i < root.states.count; ++i)
    if (root.states.by_rank[i] == nullptr) writer.integer(nullptr, i);
  writer.end_array();
  writer.begin_array("ranks");
  for (uint32_t i = 0; i < root.states.count && i < kMostListed; ++i) rank_member(writer, root, i, now);
  writer.end_array();
  writer.end_object();
  writer.finish();
}

bool same_group(const RankState* a, const RankState* b) {
  if (a == nullptr || b == nullptr) return a == b;
  const ThreadWait *wait = wait_of(a), *other = wait_of(b);
  const Part *part = part_of(a), *others = part_of(b);
  if (a->activity != b->activity || (wait == nullptr) != (other == nullptr) || (part == nullptr) != (others == nullptr))
    return false;
  if (wait != nullptr && wait->call != other->call) return false;
  return part == nullptr ||
         (part->kind == others->kind && part->comm == others->comm && part->sequence == others->sequence);
}

/// One line for each group of ranks that are in the same place.
void write_groups(Root& root, uint64_t now, int file) {
  const uint32_t count = root.states.count;
  static int32_t list[4096];
  uint32_t lines = 0;
  for (uint32_t first = 0; first < count && lines < kMostLines; ++first) {
    const RankState* state = root.states.by_rank[first];
    bool before = false;
    for (uint32_t i = 0; i < first && !before; ++i) before = same_group(root.states.by_rank[i], state);
    if (before) continue;
    uint32_t listed = 0, total = 0;
    double oldest = 0;
    for (uint32_t i = first; i < count; ++i)
      if (same_group(state, root.states.by_rank[i])) {
        if (listed < sizeof(list) / sizeof(list[0])) list[listed++] = static_cast<int32_t>(i);
        ++total;
        oldest = age(root.states.by_rank[i], now) > oldest ? age(root.states.by_rank[i], now) : oldest;
      }
    char ranges[512];
    rank_ranges(list, listed, total, ranges, sizeof(ranges));
    dprintf(file, "  %-20s %s", ranges, activity_name(state != nullptr ? state->activity : RankActivity::kUnknown));
    if (const ThreadWait* wait = wait_of(state); wait != nullptr) {
      dprintf(file, " in %s", call_name(wait->call));
      const Part* part = part_of(state);
      if (part != nullptr && part->kind == PartKind::kCollective)
        dprintf(file, ", collective %llu on %s", static_cast<unsigned long long>(part->sequence),
                name_of(root, -1, NameKind::kComm, part->comm));
      else if (part != nullptr && part->peer >= 0)
        dprintf(file, " %s rank %d", part->kind == PartKind::kSend ? "to" : "from", part->peer);
      dprintf(file, ", for %.1f s", oldest);
    }
    dprintf(file, "\n");
    ++lines;
  }
}

void write_text(Root& root, const Verdict& verdict, const char* action, uint64_t now, int file) {
  char time[40], culprits[1024];
  utc(now, time, sizeof(time));
  rank_ranges(verdict.culprits, verdict.culprit_count < kMaxCulprits ? verdict.culprit_count : kMaxCulprits,
              verdict.culprit_count, culprits, sizeof(culprits));
  dprintf(file, "%s (%s), found at %s\n\n%s\n\n", class_name(verdict.type),
          kConfidence[static_cast<int>(verdict.confidence)], time, verdict.message);
  if (verdict.culprit_count != 0) dprintf(file, "Ranks to look at: %s\n\n", culprits);
  if (verdict.evidence[0] != 0) dprintf(file, "Evidence\n%s\n", verdict.evidence);
  dprintf(file, "All ranks\n");
  write_groups(root, now, file);
  dprintf(file, "\nAction: %s. A stack of every thread: scripts/resil dump %s\n", action, runtime.directory);
}

}  // namespace

const char* activity_name(RankActivity activity) {
  constexpr const char* kNames[] = {"unknown", "computing", "blocked", "polling", "finished", "gone", "stopped"};
  const auto index = static_cast<unsigned>(activity);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown";
}

void describe_device(const RankState& state, char* text, size_t bytes) {
  constexpr const char* kDone[] = {"", "; the device is not done", "; the device is done, the wait has not returned",
                                   "; it returned too early, resil waits for the device"};
  const DeviceSeen& seen = state.device;
  const double seconds = static_cast<double>(seen.age_ns) * 1e-9;
  char amount[32], tag[24] = "", peer[40] = "";
  if (seen.bytes >= 1u << 20 && seen.bytes % (1u << 20) == 0)
    snprintf(amount, sizeof(amount), "%llu MiB", static_cast<unsigned long long>(seen.bytes >> 20));
  else snprintf(amount, sizeof(amount), "%llu bytes", static_cast<unsigned long long>(seen.bytes));
  if (seen.tag >= 0) snprintf(tag, sizeof(tag), ", tag %d", seen.tag);
  if (seen.peer >= 0)
    snprintf(peer, sizeof(peer), " %s rank %d", seen.kind == DeviceWorkKind::kCopyDown ? "to" : "from", seen.peer);
  const auto done = static_cast<unsigned>(seen.done);
  if (seen.kind == DeviceWorkKind::kWait)
    snprintf(text, bytes, "waits for its device in %s for %.1f s%s", seen.call, seconds,
             kDone[done < sizeof(kDone) / sizeof(kDone[0]) ? done : 0]);
  else
    snprintf(text, bytes, "the copy %s of a staged message of %s%s%s has been under way for %.1f s",
             seen.kind == DeviceWorkKind::kCopyDown ? "down" : "up", amount, peer, tag, seconds);
}

void add_device_evidence(const Root& root, Verdict* verdict) {
  constexpr uint32_t kMost = 8;
  uint32_t lines = 0;
  for (uint32_t i = 0; i < root.states.count && lines < kMost; ++i) {
    const RankState* state = root.states.by_rank[i];
    if (state == nullptr || state->device.kind == DeviceWorkKind::kNone) continue;
    char text[256];
    describe_device(*state, text, sizeof(text));
    const size_t used = strlen(verdict->evidence);
    snprintf(verdict->evidence + used, sizeof(verdict->evidence) - used, "rank %u: %s\n", i, text);
    if (const size_t said = strlen(verdict->message); lines == 0 && said + 1 < sizeof(verdict->message))
      snprintf(verdict->message + said, sizeof(verdict->message) - said, " Rank %u: %s.", i, text);
    ++lines;
  }
}

const char* class_name(HangClass of) {
  constexpr const char* kNames[] = {"none",
                                    "deadlock",
                                    "collective_mismatch",
                                    "missing_rank",
                                    "rank_gone",
                                    "rank_stopped",
                                    "unmatched_message",
                                    "inside_mpi",
                                    "computation",
                                    "unreceived_messages",
                                    "unequal_collectives",
                                    "node_silent",
                                    "no_progress"};
  const auto index = static_cast<unsigned>(of);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "no_progress";
}

namespace {

/// Adds one line to a file of the report directory. A full disk loses it: standard error says what matters.
void append_line(const char* name, const char* line) {
  char path[1300];
  snprintf(path, sizeof(path), "%s/%s", runtime.directory, name);
  const int fd = runtime.directory[0] != 0 ? own_file_append(path, 0666) : -1;
  if (fd < 0) return;
  const WriteShield shield;
  if (write(fd, line, strlen(line)) < 0) errno = 0;
  close(fd);
}

}  // namespace

void log_hang(const char* what, const char* format, ...) {
  static bool named;  // helper thread only
  char line[2048];
  if (!named) {  // whose lines follow: a directory may have been used before
    snprintf(line, sizeof(line), "%llu launch %s\n", static_cast<unsigned long long>(realtime_now_ns()),
             runtime.launch_key);
    append_line("hang.log", line);
    named = true;
  }
  const int begin = snprintf(line, sizeof(line), "%llu %s ", static_cast<unsigned long long>(realtime_now_ns()), what);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + begin, sizeof(line) - static_cast<size_t>(begin) - 1, format, arguments);
  va_end(arguments);
  for (char* c = line; *c != 0; ++c)
    if (*c == '\n') *c = ' ';
  strcat(line, "\n");
  append_line("hang.log", line);
}

void trace_look(const stats::Look& look) {
  char line[160];
  snprintf(line, sizeof(line), "%.3f %u %u %llu %llu %.3f %.3f\n", look.now, look.out, look.total,
           static_cast<unsigned long long>(look.moves), static_cast<unsigned long long>(look.familiar), look.excused,
           look.starved);
  append_line("hang-trace.txt", line);
}

void write_hang_files(Root& root, const Verdict& verdict, uint32_t number, const char* action, char* json_path,
                      char* text_path, uint32_t path_bytes) {
  json_path[0] = text_path[0] = 0;
  if (runtime.directory[0] == 0) return;
  const uint64_t now = realtime_now_ns();
  char path[1300];
  OwnFile text, json;
  for (uint32_t tries = 0; tries < 1000; ++tries, ++number) {  // another node may have led, and reported, before
    snprintf(path, sizeof(path), "%s/hang-%u.json", runtime.directory, number);
    if (!own_file_exists(path)) break;
  }
  snprintf(path, sizeof(path), "%s/hang-%u.txt", runtime.directory, number);
  // dprintf: no stream, whose memory might have to be had from a heap that the program holds locked.
  if (own_file_begin(&text, path, 0666)) {
    write_text(root, verdict, action, now, text.fd);
    if (own_file_commit(&text)) snprintf(text_path, path_bytes, "%s", path);
  }
  snprintf(path, sizeof(path), "%s/hang-%u.json", runtime.directory, number);
  if (!own_file_begin(&json, path, 0666)) return;
  write_json(root, verdict, action, now, json.fd);
  if ((fsync(json.fd) != 0 && errno != EINVAL) || writer.error() != 0) own_file_drop(&json);
  else if (own_file_commit(&json)) snprintf(json_path, path_bytes, "%s", path);
}

namespace {

pid_t children[16];

}  // namespace

void reap_later(pid_t child) {
  for (pid_t& place : children)
    if (place == 0) {
      place = child;
      return;
    }
}

void reap_now() {
  for (pid_t& place : children)
    if (place != 0 && waitpid(place, nullptr, WNOHANG) != 0) place = 0;
}

}  // namespace resil::hang
