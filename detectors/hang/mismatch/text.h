// SPDX-License-Identifier: Apache-2.0
//
// Text into fixed room, cut at its end.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace resil::hang {

struct Text {
  char* room;
  size_t bytes, used;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(room + used, bytes - used, format, arguments);
    va_end(arguments);
    if (wanted > 0) used = used + static_cast<size_t>(wanted) < bytes ? used + static_cast<size_t>(wanted) : bytes - 1;
  }
};

}  // namespace resil::hang
