// SPDX-License-Identifier: Apache-2.0
//
// See input.h. The leader's thread writes what comes into a file, then into a pipe from which the program reads; that
// of a follower reads the file and writes into such a pipe. FILE%gone says that there is no more.

#include "detectors/replicas/input.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "shim/base/helper_thread.h"

namespace resil::replicas {

namespace {

char input_file[1300], end_file[1320];
int source = -1, into = -1, kept = -1;

bool write_all(int file, const char* data, ssize_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(file, data, static_cast<size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    bytes -= written;
  }
  return true;
}

void lead() {
  char data[4096];
  for (;;) {
    const ssize_t bytes = read(source, data, sizeof(data));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    write_all(kept, data, bytes);
    if (!write_all(into, data, bytes)) break;  // the program has closed it
  }
  if (const int end = open(end_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); end >= 0) close(end);
  close(kept);
  close(into);
}

void follow() {
  char data[4096];
  timespec pause = {0, 1000000};
  for (bool last = false;;) {
    if (kept < 0) kept = open(input_file, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = kept >= 0 ? read(kept, data, sizeof(data)) : 0;
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) break;
    if (bytes > 0) {
      if (!write_all(into, data, bytes)) break;
      pause.tv_nsec = 1000000;
      continue;
    }
    if (last) break;  // what was written before the end has been read
    last = access(end_file, F_OK) == 0;
    if (last) continue;
    nanosleep(&pause, nullptr);
    if (pause.tv_nsec < 200000000) pause.tv_nsec += pause.tv_nsec / 2;
  }
  if (kept >= 0) close(kept);
  close(into);
}

}  // namespace

void input_begin(bool leads, const char* file) {
  snprintf(input_file, sizeof(input_file), "%s", file);
  snprintf(end_file, sizeof(end_file), "%s%%gone", file);
  struct stat status;
  const bool closed = fstat(STDIN_FILENO, &status) != 0;
  if (leads) {
    kept = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (kept < 0) return;
    if (closed || (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode))) {
      // /dev/null, a terminal, a file: left to this rank alone.
      if (const int end = open(end_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); end >= 0) close(end);
      close(kept);
      return;
    }
    source = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 200);
    if (source < 0) return;
  } else if (closed) {
    return;
  }
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return;
  into = fcntl(ends[1], F_DUPFD_CLOEXEC, 200);
  close(ends[1]);
  if (into < 0 || !helper_thread_start("resil-input", leads ? lead : follow)) {
    close(ends[0]);
    return;
  }
  syscall(SYS_dup3, ends[0], STDIN_FILENO, 0);
  close(ends[0]);
}

void input_end() {
  if (input_file[0] == 0) return;
  unlink(input_file);
  unlink(end_file);
}

}  // namespace resil::replicas
