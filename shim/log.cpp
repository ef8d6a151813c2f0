// SPDX-License-Identifier: Apache-2.0
//
// Messages and notes, in fixed memory.

#include "shim/log.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "shim/spinlock.h"

namespace resil {

namespace {

constexpr unsigned kNotes = 24;
constexpr size_t kNoteBytes = 320;
char notes[kNotes][kNoteBytes];
std::atomic<unsigned> note_total;
SpinLock notes_lock;

/// Puts `text` behind the first `length` bytes of `line` (1,200 long) and writes both with one call.
void say(char* line, size_t length, const char* text) {
  while (*text != 0 && length < 1199)
    line[length++] = *text++;
  line[length++] = '\n';
  // A failure has nobody to be told to: a message is never worth stopping the program.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line, length);
}

}  // namespace

void log_line(const char* text) {
  char line[1200] = "resil: ";
  say(line, 7, text);
}

void log_raw(const char* text) {
  char line[1200];
  say(line, 0, text);
}

void log_block(const char* text) {
  char newline[] = "\n";
  const iovec parts[] = {{newline, 1}, {const_cast<char*>(text), strlen(text)}, {newline, 1}};
  [[maybe_unused]] ssize_t written = writev(STDERR_FILENO, parts, 3);
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
    if (strncmp(notes[i], text, kNoteBytes - 1) == 0)
      return;
  unsigned index = note_total.load();
  if (index < kNotes)
    strncpy(notes[index], text, kNoteBytes - 1);
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
