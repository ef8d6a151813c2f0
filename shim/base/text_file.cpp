// SPDX-License-Identifier: Apache-2.0
//
// See text_file.h.

#include "shim/base/text_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace resil {

ssize_t read_text_file(const char* path, char* text, size_t bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = file >= 0 ? read(file, text, bytes - 1) : -1;
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  return length;
}

ssize_t read_process_file(int pid, const char* name, char* text, size_t bytes) {
  char path[96];
  snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
  return read_text_file(path, text, bytes);
}

ssize_t read_thread_file(int pid, int tid, const char* name, char* text, size_t bytes) {
  char path[96];
  snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, name);
  return read_text_file(path, text, bytes);
}

TextFileLines::TextFileLines(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}

TextFileLines::~TextFileLines() {
  if (file_ >= 0) close(file_);
}

char* TextFileLines::next() {
  for (;;) {
    char* line = text_ + at_;
    if (auto* end = static_cast<char*>(memchr(line, '\n', used_ - at_)); end != nullptr) {
      *end = 0;
      at_ = static_cast<size_t>(end + 1 - text_);
      if (!too_long_) return line;
      too_long_ = false;
      continue;
    }
    used_ -= at_;
    memmove(text_, line, used_);
    at_ = 0;
    if (used_ == sizeof(text_)) {
      too_long_ = true;
      used_ = 0;
    }
    const ssize_t got = file_ >= 0 ? read(file_, text_ + used_, sizeof(text_) - used_) : 0;
    if (got <= 0) return nullptr;
    used_ += static_cast<size_t>(got);
  }
}

bool read_mapping(const char* line, Mapping* mapping) {
  char* rest = nullptr;
  mapping->low = strtoull(line, &rest, 16);
  mapping->high = *rest == '-' ? strtoull(rest + 1, &rest, 16) : 0;
  const char* field = strchr(rest + (*rest == ' '), ' ');  // behind the permissions
  if (field == nullptr || mapping->high <= mapping->low) return false;
  mapping->offset = strtoull(field, nullptr, 16);
  mapping->path = field + strcspn(field, "/[");
  return true;
}

}  // namespace resil
