// SPDX-License-Identifier: Apache-2.0
//
// Text that the kernel keeps in files (/proc, /sys), read without a stream: the heap may be held by the program. Any
// thread; read_text_file and TextFileLines in signal handlers, too. May touch: these files, read only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace resil {

/// What a file holds, as far as there is room, and an end. Returns its bytes; -1: it cannot be read, and `text` is
/// empty.
ssize_t read_text_file(const char* path, char* text, size_t bytes);
/// /proc/PID/NAME.
ssize_t read_process_file(int pid, const char* name, char* text, size_t bytes);
/// /proc/PID/task/TID/NAME.
ssize_t read_thread_file(int pid, int tid, const char* name, char* text, size_t bytes);

/// The lines of a file, one after the other.
class TextFileLines {
 public:
  explicit TextFileLines(const char* path);
  ~TextFileLines();
  TextFileLines(const TextFileLines&) = delete;
  TextFileLines& operator=(const TextFileLines&) = delete;

  /// Without its end; valid until the next one is asked for. One that is longer than 4,095 bytes is passed over. Null:
  /// there is none any more, or the file cannot be read.
  char* next();
  bool readable() const { return file_ >= 0; }

 private:
  int file_;
  bool too_long_ = false;  ///< what comes next is the rest of such a line
  size_t at_ = 0, used_ = 0;
  char text_[4096];
};

/// A line of /proc/PID/maps.
struct Mapping {
  uint64_t low, high;
  uint64_t offset;  ///< in the file
  const char* path;  ///< "/usr/lib/libc.so.6", "[heap]", "": of no file
};
bool read_mapping(const char* line, Mapping* mapping);

}  // namespace resil
