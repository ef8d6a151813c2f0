// SPDX-License-Identifier: Apache-2.0
//
// See process_state.h.

#include "shim/base/process_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace resil {

namespace {

/// The fields of /proc/PID/stat behind the name: state letter and start time. False: no such process, or only a zombie.
bool read_process(int pid, char* state, uint64_t* started) {
  char text[1024];
  // task/..: an emulator (qemu-user) answers for a process's own `stat` itself, with another start time than others
  // see.
  if (pid == getpid()) strcpy(text, "/proc/self/task/../stat");  // right in any mount of /proc
  else snprintf(text, sizeof(text), "/proc/%d/task/../stat", pid);
  int fd = open(text, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
  if (fd >= 0) close(fd);
  if (length <= 0) return false;
  text[length] = 0;
  const char* field = strrchr(text, ')');  // the name may hold spaces and parentheses
  if (field == nullptr || strlen(field) <= 2 || field[2] == 'Z' || field[2] == 'X')
    return false;  // only its parent's question about it is left
  *state = field[2];
  for (int i = 0; field != nullptr && i < 20; ++i) field = strchr(field + 1, ' ');
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
