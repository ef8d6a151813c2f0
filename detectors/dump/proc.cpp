// SPDX-License-Identifier: Apache-2.0
//
// Parses status, wchan and syscall of /proc/self/task/TID. May touch: /proc, read only.
#include "detectors/dump/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "shim/base/safe_text.h"

namespace resil::dump {
namespace {

int open_file(const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_RDONLY | O_CLOEXEC, 0));
}

/// Reads /proc/self/task/TID/NAME; returns its length with a NUL behind it, -1 with errno.
long read_file(int32_t tid, const char* name, char* to, size_t capacity) {
  char path[64];
  SafeText text(path, sizeof path - 1, -1);
  text.str("/proc/self/task/").i64(tid).chr('/').str(name);
  path[text.size()] = 0;
  const int file = open_file(path, 0);
  if (file < 0) return -1;
  const long length = syscall(SYS_read, file, to, capacity - 1);
  const int error = errno;
  syscall(SYS_close, file);
  errno = error;
  if (length >= 0) to[length] = 0;
  return length;
}

/// The text behind "KEY:" and blanks at the start of a line, or null.
const char* field(const char* text, const char* key) {
  const size_t length = strlen(key);
  for (const char* line = text; line != nullptr; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, key, length) == 0 && line[length] == ':') {
      line += length + 1;
      while (*line == ' ' || *line == '\t') ++line;
      return line;
    }
  }
  return nullptr;
}

uint64_t parse_hex(const char** text) {
  const char* p = *text;
  if (p[0] == '0' && p[1] == 'x') p += 2;
  uint64_t value = 0;
  for (;; ++p) {
    const char c = *p;
    if (c >= '0' && c <= '9') value = value * 16 + static_cast<uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
    else break;
  }
  *text = p;
  return value;
}

void copy_line(const char* from, char* to, size_t capacity) {
  size_t i = 0;
  for (; i + 1 < capacity && from[i] != 0 && from[i] != '\n'; ++i) to[i] = from[i];
  to[i] = 0;
}

/// "running", or "NUMBER ARG0 … ARG5 SP PC", or "-1 SP PC".
void parse_syscall(const char* text, ThreadState* state) {
  if (*text != '-' && (*text < '0' || *text > '9')) return;
  const bool none = *text == '-';
  int number = 0;
  for (const char* p = text; *p >= '0' && *p <= '9'; ++p) number = number * 10 + (*p - '0');
  state->call = none ? -1 : number;
  const char* p = strchr(text, ' ');
  const int skipped = none ? 0 : 6;
  for (int i = 0; p != nullptr && i < skipped; ++i) p = strchr(p + 1, ' ');
  if (p == nullptr) return;
  ++p;
  state->sp = parse_hex(&p);
  if (*p != ' ') return;
  ++p;
  state->pc = parse_hex(&p);
  state->sleeping = true;
}

}  // namespace

void read_thread(int32_t tid, int signal, ThreadState* state, char* scratch, size_t scratch_bytes) {
  *state = ThreadState{};
  state->letter = '?';
  state->call = -1;
  if (read_file(tid, "status", scratch, scratch_bytes) <= 0) {
    state->gone = errno == ENOENT || errno == ESRCH;
    return;
  }
  if (const char* name = field(scratch, "Name")) copy_line(name, state->name, sizeof state->name);
  if (const char* letter = field(scratch, "State")) state->letter = *letter;
  if (const char* mask = field(scratch, "SigBlk")) state->blocks = (parse_hex(&mask) >> (signal - 1) & 1) != 0;
  if (read_file(tid, "wchan", scratch, scratch_bytes) > 0 && strcmp(scratch, "0") != 0) {
    copy_line(scratch, state->wchan, sizeof state->wchan);
  }
  if (read_file(tid, "syscall", scratch, scratch_bytes) > 0) parse_syscall(scratch, state);
}

}  // namespace resil::dump
