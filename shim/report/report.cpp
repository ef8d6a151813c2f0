// SPDX-License-Identifier: Apache-2.0
//
// Writes the report of this rank: the core's members here, the modules' through their `report` hooks.

#include "shim/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/abi/backend.h"
#include "shim/base/version.h"
#include "shim/call/attach.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/messages.h"
#include "shim/report/directory.h"
#include "shim/report/finding.h"
#include "shim/report/found.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

char final_ring[1200], last_words[512];
bool ring_left, checks_incomplete;
int exit_status_in_init = -1;
bool failure_said;
constinit JsonWriter writer;  // static: 64 KiB do not belong on the stack of an application's thread

void say_failure(const char* what, int error) {
  if (failure_said) return;
  failure_said = true;
  log_format(messages::core::report_not_written, runtime.rank, runtime.host, what, strerror(error));
}

void write_members(JsonWriter& json, const char* outcome) {
  const ring::Header& header = *runtime.header;
  char boot[kBootText];
  boot_identity(boot);
  json.begin_object();
  json.integer("schema_version", kReportSchema);
  json.integer("rank", runtime.rank);
  json.integer("world_size", runtime.size);
  json.integer("world", runtime.world);
  json.text("host", runtime.host);
  json.integer("pid", runtime.pid);
  json.text("boot_id", boot);
  json.integer("pid_namespace", header.pid_namespace);
  json.text("launch", runtime.launch_key);
  json.boolean("launch_agreed", runtime.launch_agreed);
  json.text("outcome", outcome);
  json.integer("exit_status", header.exit_status);
  if (exit_status_in_init >= 0) json.integer("exit_in_init", exit_status_in_init);
  json.text("resil_version", kVersionText);
  json.begin_object("mpi");
  json.text("library", header.mpi);
  json.text("abi", backend->abi);
  json.end_object();
  json.text("modes", config_text("RESIL_MODE"));
  json.text("executable", header.executable);
  json.text("directory", runtime.directory);
  json.text("ring", final_ring[0] != 0 ? final_ring : ring_left ? "" : segment_path());
  json.boolean("ring_anonymous", segment_is_anonymous());
  json.number("start_time", static_cast<double>(header.realtime_start_ns) * 1e-9);
  json.number("elapsed_seconds", static_cast<double>(header.realtime_sync_ns - header.realtime_start_ns) * 1e-9);
  json.boolean("all_ranks_preloaded", all_ranks_present());
  json.boolean("private_communicator", private_comm() != 0);
  json.begin_object("config");
  for (size_t i = 0; i < config_count(); ++i) json.text(config_at(i).entry->name, config_at(i).text);
  json.end_object();
  run_hooks(&Module::report, json);
  json.number("overhead_seconds", overhead_seconds());
  json.begin_object("uncovered");
  json.integer("untracked_requests", header.untracked_requests);
  json.integer("unrecorded_calls", header.unrecorded_calls);
  json.end_object();
  json.integer("dumps", header.dumps);
  findings_report(json);
  json.begin_array("notes");
  for (unsigned i = 0; i < note_count(); ++i) json.text(nullptr, note_text(i));
  json.end_array();
  json.integer("notes_dropped", notes_dropped());
  json.end_object();
}

/// 0 or errno; the file stays open.
int write_to(int fd, bool one_line, const char* outcome) {
  last_words[0] = 0;
  checks_incomplete = false;
  writer.restart(fd, one_line);
  write_members(writer, outcome);
  return writer.finish() ? 0 : writer.error();
}

}  // namespace

namespace {

/// A line in the file of the node. 0 or why not.
int append_line(const char* outcome) {
  char path[1200], name[kNodeFileText];
  directory_node_file(name);
  snprintf(path, sizeof(path), "%s/%s", runtime.directory, name);
  const int fd = own_file_append(path, 0666);
  if (fd < 0) return errno;
  const int error = write_to(fd, true, outcome);
  return close(fd) != 0 && error == 0 ? errno : error;
}

/// 0 or why not.
int try_report(const char* outcome) {
  char path[1200];
  if (directory_merges()) {
    const int error = append_line(outcome);
    if (error == 0) directory_merged();
    if (error != EMSGSIZE) return error;  // a line that others' lines could get into has a file of its own
  }
  snprintf(path, sizeof(path), "%s/rank-%05d.json", runtime.directory, runtime.rank >= 0 ? runtime.rank : runtime.pid);
  OwnFile file;
  if (!own_file_begin(&file, path, 0666)) return errno;
  const int error = write_to(file.fd, false, outcome);
  if (error == 0) {
    if (!own_file_commit(&file)) return errno;
    directory_wrote(file.device, file.inode);
    return 0;
  }
  own_file_drop(&file);
  return error;
}

}  // namespace

bool report_write(const char* outcome) {
  if (runtime.directory[0] == 0) return false;
  int error = try_report(outcome);
  if (error != 0) say_failure("its report", error);
  return error == 0;
}

void report_first() {
  int error = runtime.directory[0] != 0 ? try_report("running") : 0;
  if (error != 0) directory_give_up(error);
}

void report_exit_in_init(int status) {
  exit_status_in_init = status;
  report_write("running");
}

void report_last_words(const char* text, bool complete) {
  const size_t used = strlen(last_words);
  snprintf(last_words + used, sizeof(last_words) - used, "; %s", text);
  checks_incomplete = checks_incomplete || !complete;
}

namespace {

/// Whether the recorder of this rank is of use when it has left MPI_Finalize.
bool keeps_ring(const char* outcome) {
  return !config_has("RESIL_FILES", "node") || strcmp(outcome, "finished") != 0 || found_any() ||
         (runtime.size != 1 && !runtime.launch_agreed);
}

const char* verdict(const char* outcome) {
  if (found_any() || strcmp(outcome, "stopped") == 0) return "FINDINGS";
  const bool complete =
      strcmp(outcome, "finished") == 0 && !checks_incomplete && (runtime.size == 1 || all_ranks_present());
  return complete ? "CLEAN" : "INCOMPLETE";
}

/// "1,234,567"
void with_commas(uint64_t number, char (&text)[24]) {
  char digits[24];
  const int length = snprintf(digits, sizeof(digits), "%llu", static_cast<unsigned long long>(number));
  int out = 0;
  for (int i = 0; i < length && out + 2 < static_cast<int>(sizeof(text)); ++i) {
    if (i > 0 && (length - i) % 3 == 0) text[out++] = ',';
    text[out++] = digits[i];
  }
  text[out] = 0;
}

}  // namespace

void report_final(const char* outcome) {
  char path[1200];
  if (runtime.directory[0] != 0 && !keeps_ring(outcome)) {
    ring_left = true;
  } else if (runtime.directory[0] != 0) {
    snprintf(path, sizeof(path), "%s/rank-%05d.ring", runtime.directory,
             runtime.rank >= 0 ? runtime.rank : runtime.pid);
    strcpy(final_ring, path);
    if (!segment_store(path)) {
      say_failure(path, errno);
      final_ring[0] = 0;
    }
  }
  // Without a directory nobody could be told where it is.
  if (!ring_left || runtime.size == 1 || segment_is_anonymous()) segment_discard();
  bool written = report_write(outcome);
  if (ring_left) segment_leave(found_any);
  ring_left = false;
  if (runtime.rank > 0 || config_has("RESIL_LOG", "quiet")) return;
  if (written) {
    char calls[24], share[16];
    const double seconds =
        static_cast<double>(runtime.header->realtime_sync_ns - runtime.header->realtime_start_ns) * 1e-9;
    const uint64_t made = calls_made();
    with_commas(made, calls);
    snprintf(share, sizeof(share), "%.2g", seconds > 0 ? std::min(100.0, 100 * overhead_seconds() / seconds) : 0.0);
    log_format(messages::core::finished, verdict(outcome), config_text("RESIL_MODE"), runtime.size,
               runtime.size == 1 ? "" : "s", runtime.header->mpi, calls, made == 1 ? "" : "s", share, outcome,
               last_words, runtime.directory);
  } else
    log_format(messages::core::finished_without_reports, config_text("RESIL_MODE"), runtime.size,
               runtime.size == 1 ? "" : "s", runtime.header->mpi, outcome,
               directory_problem()[0] != 0 ? directory_problem() : "they could not be written");
}

}  // namespace resil
