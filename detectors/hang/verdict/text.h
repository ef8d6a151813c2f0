// SPDX-License-Identifier: Apache-2.0
//
// Text into fixed room, cut at its end. Always ends with NUL.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace resil::hang {

struct Text {
  char* room;
  size_t bytes, used;

  Text(char* to, size_t room_bytes) : room(to), bytes(room_bytes), used(0) { room[0] = 0; }

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(room + used, bytes - used, format, arguments);
    va_end(arguments);
    if (wanted > 0) used = used + static_cast<size_t>(wanted) < bytes ? used + static_cast<size_t>(wanted) : bytes - 1;
  }
  void add(char c) {
    if (used + 1 >= bytes) return;
    room[used++] = c;
    room[used] = 0;
  }
  /// What others have named: at most `limit` bytes, and what does not print as '?'.
  void add_name(const char* name, size_t limit) {
    for (; *name != 0 && limit > 0; ++name, --limit) add(*name >= ' ' && *name != 0x7f ? *name : '?');
  }
  /// "0.4 s", "754 s (12 min 34 s)"; negative, or absurd: "an unknown time".
  void add_seconds(double value) {
    if (!(value > -1e-3 && value < 1e10)) add("%s", "an unknown time");
    else if (value < 120) add("%.1f s", value < 0 ? 0.0 : value);
    else add("%.0f s (%d min %d s)", value, static_cast<int>(value) / 60, static_cast<int>(value) % 60);
  }
};

}  // namespace resil::hang
