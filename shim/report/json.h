// SPDX-License-Identifier: Apache-2.0
//
// A JSON appender over a file descriptor: no allocation, always well-formed text (strings are made valid UTF-8,
// non-finite numbers become null).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace resil {

class JsonWriter {
 public:
  explicit JsonWriter(int fd, bool one_line = false) : fd_(fd), one_line_(one_line) {}
  constexpr JsonWriter() = default;
  /// `one_line`: for a file of many writers. What is longer than kBuffer is not written at all: EMSGSIZE.
  void restart(int fd, bool one_line) { fd_ = fd, one_line_ = one_line, error_ = depth_ = 0, used_ = 0, first_ = true; }

  void begin_object(const char* key = nullptr) { open(key, '{'); }
  void end_object() { shut('}'); }
  void begin_array(const char* key = nullptr) { open(key, '['); }
  void end_array() { shut(']'); }
  void text(const char* key, const char* value);
  /// Any whole number; one without a sign must be below 2^63.
  template <std::integral Number>
  void integer(const char* key, Number value) {
    whole(key, static_cast<int64_t>(value));
  }
  void number(const char* key, double value);
  void boolean(const char* key, bool value);
  void null(const char* key);

  /// Writes what is buffered and a final newline. False when any write failed; errno of the first failure in error().
  bool finish();
  int error() const { return error_; }

 private:
  void whole(const char* key, int64_t value);
  void open(const char* key, char bracket);
  void shut(char bracket);
  void separate(const char* key);
  void put(char c);
  void put_bytes(const char* from, size_t bytes);
  void put_text(const char* text);
  void put_string(const char* text);
  void flush();

  static constexpr size_t kBuffer = 65536;  // one write(2) for any usual report: lines of one file do not mix
  int fd_ = -1, error_ = 0, depth_ = 0;
  bool one_line_ = false, first_ = true;
  size_t used_ = 0;
  char buffer_[kBuffer] = {};
};

}  // namespace resil
