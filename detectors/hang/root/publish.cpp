// SPDX-License-Identifier: Apache-2.0
//
// See publish.h. Files first, then standard error, then the hook, then the action: who reads only one of them finds the
// others there.

#include "detectors/hang/root/publish.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detectors/hang/monitor/monitor_internal.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/root/report_files.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/log.h"

extern char** environ;

namespace resil::hang {

namespace {

constexpr uint32_t kRemembered = sizeof(NodeBoard::seen) / sizeof(NodeBoard::seen[0]);
constexpr uint32_t kMostLines = 8;  // of evidence on standard error
constexpr uint32_t kMostReports = 16;  // of one job; a broken program could find ever new ones

/// False: this has been said before, by this leader or the one before it.
bool is_new(NodeBoard& board, uint64_t signature) {
  for (uint64_t& seen : board.seen)
    if (__atomic_load_n(&seen, __ATOMIC_RELAXED) == signature) return false;
  __atomic_store_n(&board.seen[board.reported % kRemembered], signature, __ATOMIC_RELAXED);
  return board.reported < kMostReports;
}

/// The short form: what, who, the evidence, and the file to read next. One write, so that lines of ranks do not mix.
void print_block(const Verdict& verdict, const char* text_path) {
  static char block[6400];  // one thread
  constexpr const char* kConfidence[] = {"proved", "verified", "suspected"};
  int used = snprintf(block, sizeof(block), "resil: hang [%s, %s] %s", class_name(verdict.type),
                      kConfidence[static_cast<int>(verdict.confidence)], verdict.message);
  uint32_t lines = 0;
  for (const char* line = verdict.evidence;
       *line != 0 && lines < kMostLines && used < static_cast<int>(sizeof(block)) - 200; ++lines) {
    const char* end = strchr(line, '\n');
    const int length = static_cast<int>(end != nullptr ? end - line : static_cast<long>(strlen(line)));
    used += snprintf(block + used, sizeof(block) - static_cast<size_t>(used), "\nresil:     %.*s",
                     length > 180 ? 180 : length, line);
    line += length + (end != nullptr);
  }
  if (text_path[0] != 0)
    snprintf(block + used, sizeof(block) - static_cast<size_t>(used), "\nresil:     next: less %s", text_path);
  log_block(block);
}

/// The hook's environment: this process's, but nothing is preloaded into it, and the report is named.
char** hook_environment(char* report) {
  static char* list[4096];
  uint32_t count = 0;
  for (char** variable = environ; *variable != nullptr && count + 2 < sizeof(list) / sizeof(list[0]); ++variable)
    if (strncmp(*variable, "LD_PRELOAD=", 11) != 0 && strncmp(*variable, "RESIL_HANG_REPORT=", 18) != 0)
      list[count++] = *variable;
  list[count++] = report;
  list[count] = nullptr;
  return list;
}

/// The command comes from the environment of the job's owner and from nowhere else.
void run_hook(const char* json_path) {
  const char* command = config_text("RESIL_HANG_HOOK");
  if (command[0] == 0) return;
  static char report[1400], text[4096];
  snprintf(report, sizeof(report), "RESIL_HANG_REPORT=%s", json_path);
  snprintf(text, sizeof(text), "%s", command);
  char shell[] = "/bin/sh", option[] = "-c";
  char* arguments[] = {shell, option, text, nullptr};
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  if (posix_spawn(&child, shell, nullptr, &attributes, arguments, hook_environment(report)) != 0)
    log_format("the hook of RESIL_HANG_HOOK could not be started");
  else reap_later(child);
  posix_spawnattr_destroy(&attributes);
}

/// Nobody who answered knows it: all of its members are gone, or it is one of too many.
const char* unknown_name(NameKind kind) {
  return kind == NameKind::kComm ? "a communicator that no rank knows any more" : "?";
}

}  // namespace

const char* name_of(Root& root, int32_t rank, NameKind kind, uint64_t value) {
  NameList& names = root.names;
  for (uint32_t i = 0; i < names.count; ++i)
    if (names.questions[i].rank == rank && names.questions[i].kind == kind && names.questions[i].value == value)
      return names.texts[i][0] != 0 ? names.texts[i] : unknown_name(kind);
  if (names.count < kMaxNames) {
    names.questions[names.count] = {rank, kind, {}, value};
    char* text = names.texts[names.count++];
    text[0] = 0;
    if (monitor_local_name(names.questions[names.count - 1], text, sizeof(names.texts[0]))) return text;
    names.asked = true;
  }
  return unknown_name(kind);
}

void publish(Root& root, const Verdict& verdict) {
  if (!is_new(*root.board, verdict.signature)) return;
  if (verdict.confidence == Confidence::kSuspected) {
    log_hang("suspected", "%s: %s", class_name(verdict.type), verdict.message);
    return;
  }
  const bool abort = config_has("RESIL_HANG", "abort");
  log_hang(verdict.confidence == Confidence::kProved ? "proved" : "verified", "%s: %s", class_name(verdict.type),
           verdict.message);
  char json_path[1300] = "", text_path[1300] = "";
  write_hang_files(root, verdict, root.board->reported, abort ? "abort" : "report", json_path, text_path,
                   sizeof(json_path));
  root.board->reported += 1;
  print_block(verdict, text_path);
  run_hook(json_path);
  if (abort) {
    log_format("RESIL_HANG=abort: ending the job with exit status 92");
    monitor_order_abort();
  }
}

}  // namespace resil::hang
