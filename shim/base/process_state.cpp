// SPDX-License-Identifier: Apache-2.0
//
// See process_state.h.

#include "shim/base/process_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/text_file.h"

namespace resil {

const char* process_fields(int pid, char* text, size_t bytes) {
  // task/..: an emulator (qemu-user) answers for a process's own `stat` itself, with another start time than others
  // see. /proc/self is right in any mount of /proc.
  const ssize_t length = pid == getpid() ? read_text_file("/proc/self/task/../stat", text, bytes)
                                         : read_process_file(pid, "task/../stat", text, bytes);
  if (length <= 0) return nullptr;
  const char* name_end = strrchr(text, ')');
  return name_end != nullptr && name_end[1] == ' ' ? name_end + 2 : "";
}

namespace {

/// State letter and start time. False: no such process, or only a zombie, of which its parent has not heard yet.
bool read_process(int pid, char* state, uint64_t* started) {
  char text[1024];
  const char* field = process_fields(pid, text, sizeof(text));
  if (field == nullptr || *field == 0 || *field == 'Z' || *field == 'X') return false;
  *state = *field;
  for (int i = 0; field != nullptr && i < 19; ++i) field = strchr(field + 1, ' ');
  *started = field != nullptr ? strtoull(field + 1, nullptr, 10) : 0;
  return true;
}

}  // namespace

uint64_t process_start_time(int pid) {
  char state;
  uint64_t started = 0;
  return read_process(pid, &state, &started) ? started : 0;
}

int process_state(int pid, uint64_t started) {
  char state;
  uint64_t found = 0;
  return read_process(pid, &state, &found) && found == started ? state : 0;
}

}  // namespace resil
