// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/hang_log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "detectors/hang/reader/watch.h"
#include "shim/call/runtime.h"
#include "shim/report/own_files.h"
#include "shim/report/write_shield.h"

namespace resil::hang {

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

void append_event(const char* what, const char* text) {
  char room[2048];
  Text line(room, sizeof(room) - 1);
  line.add("%llu %s ", static_cast<unsigned long long>(realtime_ns()), what);
  for (; *text != 0; ++text) line.add(*text == '\n' ? ' ' : *text);
  strcat(room, "\n");
  append_line("hang.log", room);
}

bool is_site(Message id) {
  return id == Message::kOddSite || id == Message::kUsualSite || id == Message::kSendSite ||
         id == Message::kReceiveSite;
}

}  // namespace

void log_hang(const char* what, const char* text) {
  static bool named;  // helper thread only
  if (!named) append_event("launch", runtime.launch_key);  // whose lines follow: a directory may have been used before
  named = true;
  append_event(what, text);
}

void log_hang(const char* what, const Statement& statement, const Names& names) {
  char text[1024];
  explain(statement, names, text, sizeof(text));
  log_hang(what, text);
}

void log_hang(const char* what, const Verdict& verdict, const Explanation& explanation, const Names& names) {
  char room[sizeof(explanation.message) + 400];
  Text text(room, sizeof(room));
  text.add("%s: %s", class_name(verdict.type), explanation.message);
  const char* between = " (";
  for (uint32_t i = 0; i < verdict.statement_count; ++i) {
    const Statement& statement = verdict.statements[i];
    if (!is_site(statement.id)) continue;
    char site[160];
    explain(statement, names, site, sizeof(site));
    text.add("%s%s", between, site);
    between = "; ";
  }
  if (between[0] == ';') text.add(")");
  log_hang(what, room);
}

void trace_look(const stats::Look& look) {
  char line[160];
  snprintf(line, sizeof(line), "%.3f %u %u %llu %llu %.3f %.3f\n", look.now, look.out, look.total,
           static_cast<unsigned long long>(look.moves), static_cast<unsigned long long>(look.familiar), look.excused,
           look.starved);
  append_line("hang-trace.txt", line);
}

}  // namespace resil::hang
