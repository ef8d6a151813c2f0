// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/report_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/stacks.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/edges.h"
#include "detectors/hang/root/wait_errors.h"
#include "shim/base/version.h"
#include "shim/call/runtime.h"
#include "shim/model/calls.h"
#include "shim/report/json.h"
#include "shim/report/own_files.h"
#include "shim/report/write_shield.h"

namespace resil::hang {

namespace {

constexpr int kSchemaVersion = 1;
constexpr uint32_t kMostListed = 16384;  // ranks in hang-N.json; beyond, culprits and victims only
constexpr uint32_t kMostLines = 64;  // groups of equal ranks in hang-N.txt

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
      json.integer("sequence", part->sequence);
    json.number("age", age(state, now));
  }
  if (state != nullptr) {
    const char kernel[2] = {state->kernel_state, 0};
    json.integer("calls", state->calls);
    json.integer("pid", state->pid);
    if (state->kernel_state != 0) json.text("kernel", kernel);
    json.integer("node", state->node);
    if (state->device.kind != DeviceWorkKind::kNone) {
      char room[256];
      Text text(room, sizeof(room));
      add_device(text, state->device);
      json.text("device", room);
    }
  }
  json.end_object();
}

void ranks(JsonWriter& json, const char* name, const int32_t* list, uint32_t count, uint32_t most) {
  json.begin_array(name);
  for (uint32_t i = 0; i < count && i < most; ++i) json.integer(nullptr, list[i]);
  json.end_array();
}

/// Ranks that the culprits wait for, or that wait for them, in the core of the graph.
void peers(JsonWriter& json, const Verdict& verdict) {
  json.begin_array("peer_ranks");
  uint32_t left = kMaxCulprits;
  for (uint32_t i = 0; i < verdict.statement_count; ++i) {
    const Statement& statement = verdict.statements[i];
    for (uint32_t k = 0; statement.id == Message::kPeerRanks && k < statement.ranks.count; ++k)
      for (int32_t rank = statement.ranks.ranges[k].first; rank <= statement.ranks.ranges[k].last && left != 0; --left)
        json.integer(nullptr, rank++);
  }
  json.end_array();
}

/// What the answer to a question says of the job beside its verdict.
void question_members(JsonWriter& json, const Root& root) {
  json.integer("ticket", root.why);
  json.number("quiet", root.moved_at != 0 ? monotonic_seconds() - root.moved_at : 0);
  json.number("longest_pause", root.learned.longest);
  json.integer("moved", root.summary.moved);
  json.integer("nodes", root.wiring->node_count);
  json.boolean("new_finding", !root.why_only);
}

void write_json(Root& root, HangFile kind, const char* action, uint64_t now, int fd) {
  const Verdict& verdict = root.verdict;
  char time[40], comm[40];
  utc(now, time, sizeof(time));
  snprintf(comm, sizeof(comm), "0x%llx", static_cast<unsigned long long>(verdict.comm));
  writer.restart(fd, false);
  writer.begin_object();
  writer.integer("schema_version", kSchemaVersion);
  writer.text("resil_version", kVersionText);
  writer.text("launch", runtime.launch_key);
  writer.text("time", time);
  writer.integer("time_ns", now);
  writer.text("class", class_name(verdict.type));
  writer.text("confidence", confidence_name(verdict.confidence));
  ranks(writer, "culprit_ranks", verdict.culprits, verdict.culprit_count, kMaxCulprits);
  writer.integer("culprit_count", verdict.culprit_count);
  peers(writer, verdict);
  ranks(writer, "victim_ranks", verdict.victims, verdict.victim_count, kMaxVictims);
  writer.integer("victim_count", verdict.victim_count);
  if (verdict.comm != 0) {
    writer.text("communicator", comm_name(names_of(root.names), verdict.comm));
    writer.text("communicator_id", comm);
  } else {
    writer.null("communicator");
  }
  writer.text("call", call_name(verdict.call));
  writer.integer("sequence", verdict.sequence);
  writer.text("message", root.explanation.message);
  writer.begin_array("evidence");
  for (const char* line = root.explanation.evidence; *line != 0;) {
    const size_t length = strcspn(line, "\n");
    char text[1024];
    snprintf(text, sizeof(text), "%.*s", static_cast<int>(length), line);
    writer.text(nullptr, text);
    line += length + (line[length] != 0);
  }
  writer.end_array();
  writer.text("action", action);
  if (kind == HangFile::kWhy) question_members(writer, root);
  write_edges(writer, root);
  write_errors(writer, root);
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

RankSet of_one(int32_t rank) {
  RankSet made = {};
  made.add(rank);
  return made;
}

/// Whom the ranks of a group wait for, each for one or more of them.
void write_peers(const Part& part, const RankSet& peers, int file) {
  char ranges[512];
  Text text(ranges, sizeof(ranges));
  add_ranks(text, peers);
  dprintf(file, " %s rank%s %s", part.kind == PartKind::kSend ? "to" : "from", peers.total == 1 ? "" : "s", ranges);
}

/// One line for each group of ranks that are in the same place.
void write_groups(Root& root, uint64_t now, int file) {
  const uint32_t count = root.states.count;
  uint32_t lines = 0;
  for (uint32_t first = 0; first < count && lines < kMostLines; ++first) {
    const RankState* state = root.states.by_rank[first];
    bool before = false;
    for (uint32_t i = 0; i < first && !before; ++i) before = same_group(root.states.by_rank[i], state);
    if (before) continue;
    RankSet ranks = {}, peers = {};
    double oldest = 0;
    for (uint32_t i = first; i < count; ++i)
      if (const RankState* other = root.states.by_rank[i]; same_group(state, other)) {
        ranks.add(static_cast<int32_t>(i));
        oldest = age(other, now) > oldest ? age(other, now) : oldest;
        if (const Part* part = part_of(other); part != nullptr && part->peer >= 0)
          peers = joined(peers, of_one(part->peer));
      }
    char ranges[512];
    Text text(ranges, sizeof(ranges));
    add_ranks(text, ranks);
    dprintf(file, "  %-20s %s", ranges, activity_name(state != nullptr ? state->activity : RankActivity::kUnknown));
    if (const ThreadWait* wait = wait_of(state); wait != nullptr) {
      dprintf(file, " in %s", call_name(wait->call));
      const Part* part = part_of(state);
      if (part != nullptr && part->kind == PartKind::kCollective)
        dprintf(file, ", collective %llu on %s", static_cast<unsigned long long>(part->sequence),
                comm_name(names_of(root.names), part->comm));
      else if (peers.total != 0) write_peers(*part, peers, file);
      dprintf(file, ", for %.1f s", oldest);
    }
    dprintf(file, "\n");
    ++lines;
  }
}

void write_text(Root& root, const char* action, uint64_t now, int file) {
  const Verdict& verdict = root.verdict;
  char time[40], room[512];
  utc(now, time, sizeof(time));
  Text culprits(room, sizeof(room));
  add_ranks(culprits, verdict.culprit_set());
  dprintf(file, "%s (%s), found at %s\n\n%s\n\n", class_name(verdict.type), confidence_name(verdict.confidence), time,
          root.explanation.message);
  if (verdict.culprit_count != 0) dprintf(file, "Ranks to look at: %s\n\n", room);
  dprintf(file, "The same with functions and source lines: resil report %s\n\n", runtime.directory);
  if (root.explanation.evidence[0] != 0) dprintf(file, "Evidence\n%s\n", root.explanation.evidence);
  dprintf(file, "All ranks\n");
  write_groups(root, now, file);
  dprintf(file, "\nAction: %s. A stack of every thread: resil dump %s\n", action, runtime.directory);
}

}  // namespace

void write_hang_files(Root& root, HangFile kind, uint32_t number, const char* action, char* json_path, char* text_path,
                      uint32_t path_bytes) {
  json_path[0] = text_path[0] = 0;
  if (runtime.directory[0] == 0) return;
  const uint64_t now = realtime_ns();
  const char* name = kind == HangFile::kWhy ? "why" : "hang";
  char path[1300];
  OwnFile text, json;
  for (uint32_t tries = 0; tries < 1000; ++tries, ++number) {  // another node may have led, and reported, before
    snprintf(path, sizeof(path), "%s/%s-%u.json", runtime.directory, name, number);
    if (!own_file_exists(path)) break;
  }
  snprintf(path, sizeof(path), "%s/%s-%u.txt", runtime.directory, name, number);
  // dprintf: no stream, whose memory might have to be had from a heap that the program holds locked.
  if (own_file_begin(&text, path, 0666)) {
    write_text(root, action, now, text.fd);
    if (own_file_commit(&text)) snprintf(text_path, path_bytes, "%s", path);
  }
  snprintf(path, sizeof(path), "%s/%s-%u.json", runtime.directory, name, number);
  if (!own_file_begin(&json, path, 0666)) return;
  write_json(root, kind, action, now, json.fd);
  if ((fsync(json.fd) != 0 && errno != EINVAL) || writer.error() != 0) own_file_drop(&json);
  else if (own_file_commit(&json)) snprintf(json_path, path_bytes, "%s", path);
}

}  // namespace resil::hang
