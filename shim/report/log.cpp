// SPDX-License-Identifier: Apache-2.0
//
// Messages and notes, in fixed memory.

#include "shim/report/log.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "shim/base/spinlock.h"
#include "shim/report/write_shield.h"

namespace resil {

namespace {

constexpr unsigned kNotes = 24;
constexpr size_t kNoteBytes = 320;
char notes[kNotes][kNoteBytes];
std::atomic<unsigned> note_total;
SpinLock notes_lock;

/// Which files standard output and standard error were when the program called MPI_Init.
struct {
  bool known;
  dev_t device[2];
  ino_t inode[2];
} standard;

/// Where messages go.
constinit int standard_error = STDERR_FILENO;

/// A program may have closed standard error and opened a file of data or a connection, which then has its number:
/// nothing is written there. Redirected to standard output it still is what it was.
bool is_standard_error() {
  struct stat status;
  if (fstat(standard_error, &status) != 0) return false;
  for (int i = 0; i < 2; ++i)
    if (!standard.known || (status.st_dev == standard.device[i] && status.st_ino == standard.inode[i])) return true;
  return false;
}

/// A failure has nobody to be told to: a message is never worth stopping the program.
void put(const iovec* parts, int count) {
  const WriteShield shield;
  if (is_standard_error()) { [[maybe_unused]] ssize_t written = writev(standard_error, parts, count); }
}

/// Puts `text` behind the first `length` bytes of `line` (1,200 long) and writes both with one call.
void say(char* line, size_t length, const char* text) {
  while (*text != 0 && length < 1199) line[length++] = *text++;
  line[length++] = '\n';
  const iovec whole = {line, length};
  put(&whole, 1);
}

}  // namespace

void log_begin() {
  standard.known = true;
  for (int i = 0; i < 2; ++i) {
    struct stat status = {};
    if (fstat(i == 0 ? STDERR_FILENO : STDOUT_FILENO, &status) != 0)
      status.st_ino = 0;  // closed: what is opened there later is another's
    standard.device[i] = status.st_dev;
    standard.inode[i] = status.st_ino;
  }
}

void log_apart() {
  const int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 200);
  if (copy >= 0) standard_error = copy;
}

void log_line(const char* text) {
  char line[1200] = "resil: ";
  say(line, 7, text);
}

void log_taken() {
  struct stat status;
  if (fstat(standard_error, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  const timespec pause = {0, 1000000}, passing_on = {0, 20000000};
  int unread = 0;
  for (int i = 0; i < 200 && syscall(SYS_ioctl, standard_error, FIONREAD, &unread) == 0 && unread > 0; ++i)
    nanosleep(&pause, nullptr);
  nanosleep(&passing_on, nullptr);  // from the launcher's part on this node to the part that prints
}

void log_raw(const char* text) {
  char line[1200];
  say(line, 0, text);
}

void log_text(const char* text) {
  const iovec whole = {const_cast<char*>(text), strlen(text)};
  put(&whole, 1);
}

void log_block(const char* text) {
  char newline[] = "\n";
  const iovec parts[] = {{newline, 1}, {const_cast<char*>(text), strlen(text)}, {newline, 1}};
  put(parts, 3);
}

size_t sentence_bytes(const char* text) {
  for (size_t i = 1; text[0] != 0 && text[i] != 0; ++i)
    if (text[i - 1] == '.' && text[i] == ' ' && text[i + 1] >= 'A' && text[i + 1] <= 'Z') return i;
  return strlen(text);
}

void log_format(const char* format, ...) {
  char text[1100];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  log_line(text);
}

void add_note(const char* text) {
  SpinGuard guard(notes_lock);
  for (unsigned i = 0; i < note_count(); ++i)
    if (strncmp(notes[i], text, kNoteBytes - 1) == 0) return;
  unsigned index = note_total.load();
  if (index < kNotes) strncpy(notes[index], text, kNoteBytes - 1);
  note_total.store(index + 1);
}

void add_note_format(const char* format, ...) {
  char text[kNoteBytes];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  add_note(text);
}

unsigned note_count() {
  unsigned total = note_total.load();
  return total < kNotes ? total : kNotes;
}

const char* note_text(unsigned index) { return notes[index]; }

unsigned notes_dropped() {
  unsigned total = note_total.load();
  return total > kNotes ? total - kNotes : 0;
}

}  // namespace resil
