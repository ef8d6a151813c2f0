// SPDX-License-Identifier: Apache-2.0
//
// Reads the variable-length encodings of .eh_frame through the guarded reader (LSB Core, "DWARF Extensions"; DWARF 5,
// 7.6). May touch: loaded objects, read only.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/memory.h"

namespace resil::stacks {

/// A position that only moves forward. After a failed read `ok` is false and everything reads as 0.
struct Cursor {
  Reader& reader;
  uint64_t at;
  uint64_t end;
  bool ok = true;

  bool more() const { return ok && at < end; }

  template <class T>
  T get() {
    T value{};
    if (!ok || at > end || end - at < sizeof(T) || !reader.load(at, &value)) {
      ok = false;
      return T{};
    }
    at += sizeof(T);
    return value;
  }

  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = get<uint8_t>();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  int64_t sleb() {
    uint64_t value = 0;
    for (int shift = 0;;) {
      const auto byte = get<uint8_t>();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
      return static_cast<int64_t>(value);
    }
  }

  void skip(uint64_t bytes) {
    if (!ok || at > end || bytes > end - at) {
      ok = false;
    } else {
      at += bytes;
    }
  }

  /// A pointer in encoding DW_EH_PE_… `data` is the base of data-relative ones. Indirect ones are not followed.
  uint64_t pointer(uint8_t encoding, uint64_t data) {
    if (encoding == 0xff) return 0;
    const uint64_t here = at;
    uint64_t value = 0;
    switch (encoding & 0x0f) {
      case 0x00:
      case 0x04:
      case 0x0c: value = get<uint64_t>(); break;
      case 0x01: value = uleb(); break;
      case 0x02: value = get<uint16_t>(); break;
      case 0x03: value = get<uint32_t>(); break;
      case 0x09: value = static_cast<uint64_t>(sleb()); break;
      case 0x0a: value = static_cast<uint64_t>(int64_t{get<int16_t>()}); break;
      case 0x0b: value = static_cast<uint64_t>(int64_t{get<int32_t>()}); break;
      default: ok = false;
    }
    if ((encoding & 0x70) == 0x10) value += here;
    if ((encoding & 0x70) == 0x30) value += data;
    return value;
  }
};

}  // namespace resil::stacks
