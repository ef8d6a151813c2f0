// SPDX-License-Identifier: Apache-2.0
//
// See json.h.

#include "shim/report/json.h"
#include "shim/report/write_shield.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

namespace resil {

namespace {

/// Length of a valid UTF-8 sequence at `s` (RFC 3629), 0 if there is none.
int utf8_length(const unsigned char* s) {
  if (s[0] < 0x80) return 1;
  int length = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
  for (int i = 1; i < length; ++i)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
      (s[0] == 0xf4 && s[1] > 0x8f))
    return 0;
  return length;
}

}  // namespace

void JsonWriter::put_bytes(const char* from, size_t bytes) {
  while (bytes != 0) {
    if (used_ == kBuffer && one_line_) error_ = EMSGSIZE, used_ = 0;
    if (used_ == kBuffer) flush();
    const size_t part = bytes < kBuffer - used_ ? bytes : kBuffer - used_;
    memcpy(buffer_ + used_, from, part);
    used_ += part;
    from += part;
    bytes -= part;
  }
}

void JsonWriter::put(char c) {
  if (used_ == kBuffer) [[unlikely]]
    return put_bytes(&c, 1);
  buffer_[used_++] = c;
}

void JsonWriter::put_text(const char* text) { put_bytes(text, strlen(text)); }

void JsonWriter::put_string(const char* text) {
  put('"');
  for (auto* s = reinterpret_cast<const unsigned char*>(text); *s != 0;) {
    const unsigned char* plain = s;
    while (*s >= 0x20 && *s < 0x7f && *s != '"' && *s != '\\') ++s;
    put_bytes(reinterpret_cast<const char*>(plain), static_cast<size_t>(s - plain));
    if (*s == 0) break;
    char escape[8];
    int length = utf8_length(s);
    if (*s == '"' || *s == '\\') {
      put('\\');
      put(static_cast<char>(*s++));
    } else if (*s < 0x20 || *s == 0x7f) {
      snprintf(escape, sizeof(escape), "\\u%04x", *s++);
      put_text(escape);
    } else if (length == 0) {
      put_text("\\ufffd");
      ++s;
    } else {
      while (length-- > 0) put(static_cast<char>(*s++));
    }
  }
  put('"');
}

void JsonWriter::separate(const char* key) {
  if (!first_) put(',');
  if (!one_line_ && depth_ > 0 && depth_ <= 2) {
    put('\n');
    for (int i = 0; i < depth_; ++i) put(' ');
  } else if (!first_) {
    put(' ');
  }
  first_ = false;
  if (key != nullptr) {
    put_string(key);
    put_text(": ");
  }
}

void JsonWriter::open(const char* key, char bracket) {
  separate(key);
  put(bracket);
  ++depth_;
  first_ = true;
}

void JsonWriter::shut(char bracket) {
  --depth_;
  put(bracket);
  first_ = false;
}

void JsonWriter::text(const char* key, const char* value) {
  separate(key);
  put_string(value);
}

void JsonWriter::whole(const char* key, int64_t value) {
  char digits[24];
  separate(key);
  snprintf(digits, sizeof(digits), "%lld", static_cast<long long>(value));
  put_text(digits);
}

void JsonWriter::number(const char* key, double value) {
  char digits[40];
  separate(key);
  if (!std::isfinite(value)) {
    put_text("null");
    return;
  }
  snprintf(digits, sizeof(digits), "%.15g", value);
  // The application may have set a locale, whose decimal point may be any text.
  bool point = false;
  for (const char* c = digits; *c != 0; ++c) {
    const bool foreign = strchr("0123456789+-e", *c) == nullptr;
    if (!foreign || !point) put(foreign ? '.' : *c);
    point = foreign;
  }
}

void JsonWriter::boolean(const char* key, bool value) {
  separate(key);
  put_text(value ? "true" : "false");
}

void JsonWriter::null(const char* key) {
  separate(key);
  put_text("null");
}

void JsonWriter::flush() {
  const WriteShield shield;
  for (size_t done = 0; done < used_ && error_ == 0;) {
    ssize_t written = write(fd_, buffer_ + done, used_ - done);
    if (written > 0) done += static_cast<size_t>(written);
    else if (written == 0 || errno != EINTR) error_ = written == 0 ? ENOSPC : errno;
  }
  used_ = 0;
}

bool JsonWriter::finish() {
  put('\n');
  flush();
  return error_ == 0;
}

}  // namespace resil
