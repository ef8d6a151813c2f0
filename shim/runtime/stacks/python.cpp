// SPDX-License-Identifier: Apache-2.0
//
// See python.h. The offsets are those of the internal headers of each version (Include/internal/pycore_runtime.h,
// pycore_interp.h, pycore_frame.h, Include/cpython/code.h, unicodeobject.h), 64-bit, release build with the interpreter
// lock; from 3.13 on the first ones stand in _PyRuntime itself. Lines: Objects/lnotab_notes.txt (3.9, 3.10),
// InternalDocs/code_objects.md (location table, from 3.11 on).

#include "shim/runtime/stacks/python.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace resil::stacks {

namespace {

/// How the instruction that a frame is at is told.
enum class Lines : uint8_t { kPairs, kRanges, kLocations };

struct Layout {
  uint32_t interpreter, threads;  ///< from _PyRuntime; from an interpreter; 0: in _PyRuntime's own table
  uint32_t next, thread_id;  ///< of a thread state; 0: the version has no tid
  uint32_t cframe, current;  ///< thread state: pointer to the frame, behind one more pointer where `cframe` is not 0
  uint32_t previous, code, instruction, owner;  ///< of a frame; owner: 0: the version marks none as its own
  uint32_t file, name, lines, first_line, instructions;  ///< of a code object; instructions: 0: the frame has a number
  uint32_t ascii, compact;  ///< bytes of a string's head, of ASCII and other text
  Lines kind;
};

constexpr uint32_t kFirstVersion = 9, kLastVersion = 14;
constexpr Layout kLayouts[] = {
    {32, 8, 8, 0, 0, 24, 24, 32, 104, 0, 104, 112, 120, 40, 0, 48, 72, Lines::kPairs},
    {32, 8, 8, 0, 0, 24, 24, 32, 96, 0, 104, 112, 120, 40, 0, 48, 72, Lines::kRanges},
    {40, 16, 8, 160, 56, 8, 48, 32, 56, 0, 112, 128, 136, 72, 184, 48, 72, Lines::kLocations},
    {40, 72, 8, 144, 56, 0, 8, 0, 56, 70, 112, 128, 136, 68, 192, 40, 56, Lines::kLocations},
    {0, 0, 8, 160, 0, 72, 8, 0, 56, 70, 112, 128, 136, 68, 200, 40, 56, Lines::kLocations},
    {0, 0, 8, 160, 0, 72, 8, 0, 56, 74, 112, 128, 136, 68, 208, 40, 56, Lines::kLocations},
};
static_assert(sizeof(kLayouts) / sizeof(kLayouts[0]) == kLastVersion - kFirstVersion + 1);

// Of all versions: an object's type; a string's length and state; the size and bytes of a byte string.
constexpr uint32_t kType = 8, kLength = 16, kState = 32, kBytesSize = 16, kBytes = 32;
constexpr uint32_t kMostThreads = 4096, kMostSkipped = 64;
constexpr uint64_t kMostTable = 1 << 20;
constexpr uint8_t kNotTheProgram = 3;  // from this owner on: a frame that the interpreter puts before its own calls
constexpr uint64_t kTag = 3;  // bits of a reference in a frame that are no address

struct Walk {
  OtherProcess& of;
  const PythonAddresses& python;
  const Layout& layout;
  template <class T>
  bool load(uint64_t address, T* to) {
    return of.read(of, address, to, sizeof(T));
  }
};

/// The bytes of a table, one after the other.
struct Table {
  Walk& walk;
  uint64_t at, left;
  uint8_t buffer[128];
  uint32_t used = 0, filled = 0;

  bool next(uint8_t* byte) {
    if (used == filled) {
      filled = static_cast<uint32_t>(left < sizeof(buffer) ? left : sizeof(buffer));
      used = 0;
      if (filled == 0 || !walk.of.read(walk.of, at, buffer, filled)) return false;
      at += filled;
      left -= filled;
    }
    *byte = buffer[used++];
    return true;
  }
  /// Six bits a byte, the lowest first.
  bool number(uint32_t* value) {
    uint8_t byte = 0;
    *value = 0;
    for (uint32_t shift = 0; shift < 32; shift += 6) {
      if (!next(&byte)) return false;
      *value |= uint32_t{byte & 63u} << shift;
      if ((byte & 64) == 0) return true;
    }
    return false;
  }
};

int32_t line_of_location(Table& table, int32_t line, int64_t wanted) {
  int64_t at = 0;
  for (uint8_t head = 0; table.next(&head);) {
    const uint32_t code = head >> 3 & 15, forms[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0, 0};
    uint32_t number = 0;
    uint8_t ignored = 0;
    if (code == 13 || code == 14) {
      if (!table.number(&number)) return 0;
      line += (number & 1) != 0 ? -static_cast<int32_t>(number >> 1) : static_cast<int32_t>(number >> 1);
    } else if (code >= 10 && code <= 12) {
      line += static_cast<int32_t>(code - 10);
    }
    for (uint32_t i = 0; i < forms[code]; ++i)
      if (!table.next(&ignored)) return 0;
    if (code == 14)
      for (int i = 0; i < 3; ++i)
        if (!table.number(&number)) return 0;
    at += 2 * ((head & 7) + 1);
    if (wanted < at) return code == 15 ? 0 : line;
  }
  return 0;
}

int32_t line_of_pairs(Table& table, int32_t line, int64_t wanted, bool ranges) {
  int64_t at = 0;
  for (uint8_t step = 0, change = 0; table.next(&step) && table.next(&change);) {
    const auto signed_change = static_cast<int8_t>(change);
    at += step;
    if (ranges) {  // the line is that of the instructions up to `at`
      if (signed_change != -128) line += signed_change;
      if (step != 0 && wanted < at) return signed_change == -128 ? 0 : line;
    } else {
      if (at > wanted) return line;
      line += signed_change;
    }
  }
  return ranges ? 0 : line;
}

int32_t line_of(Walk& walk, uint64_t code, uint64_t frame) {
  const Layout& layout = walk.layout;
  int32_t first = 0;
  int64_t at = 0;
  uint64_t table = 0, size = 0;
  if (!walk.load(code + layout.first_line, &first) || !walk.load(code + layout.lines, &table) ||
      !walk.load(table + kBytesSize, &size) || size > kMostTable)
    return 0;
  if (layout.instructions == 0) {
    int32_t last = 0;
    if (!walk.load(frame + layout.instruction, &last)) return 0;
    at = layout.kind == Lines::kRanges ? 2 * int64_t{last} : last;
  } else {
    uint64_t instruction = 0;
    if (!walk.load(frame + layout.instruction, &instruction)) return 0;
    at = static_cast<int64_t>(instruction - (code + layout.instructions));
  }
  if (at < 0) return first;  // before the first one
  Table bytes = {walk, table + kBytes, size, {}};
  return layout.kind == Lines::kLocations ? line_of_location(bytes, first, at)
                                          : line_of_pairs(bytes, first, at, layout.kind == Lines::kRanges);
}

/// UTF-8; a character that is cut is left out.
uint32_t put(char* to, uint32_t used, uint32_t capacity, uint32_t character) {
  if (character < 0x20 || character == 0x7f) character = '?';
  const uint32_t bytes = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  if (used + bytes >= capacity) return used;
  if (bytes == 1) {
    to[used] = static_cast<char>(character);
  } else {
    constexpr uint8_t kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = bytes; i-- > 1; character >>= 6) to[used + i] = static_cast<char>(0x80 | (character & 63));
    to[used] = static_cast<char>(kFirst[bytes] | character);
  }
  return used + bytes;
}

/// `tail`: the end of a long one instead of its beginning, from behind the last '/' on.
bool read_string(Walk& walk, uint64_t object, char* to, uint32_t capacity, bool tail) {
  uint64_t type = 0, length = 0;
  uint32_t state = 0;
  if (!walk.load(object + kType, &type) || type != walk.python.string_type || !walk.load(object + kLength, &length) ||
      !walk.load(object + kState, &state))
    return false;
  const uint32_t width = state >> 2 & 7;
  const bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
  if (!compact || (width != 1 && width != 2 && width != 4) || length > kMostTable) return false;
  const uint64_t data = object + (ascii ? walk.layout.ascii : walk.layout.compact);
  constexpr uint64_t kMost = 255;
  uint64_t from = tail && length > kMost ? length - kMost : 0;
  const uint64_t count = length - from < kMost ? length - from : kMost;
  alignas(4) char text[4 * kMost];
  if (!walk.of.read(walk.of, data + from * width, text, count * width)) return false;
  auto at = [&](uint64_t i) {
    uint32_t character = 0;
    memcpy(&character, text + i * width, width);  // little-endian, as all that resil runs on
    return character;
  };
  uint64_t i = 0;
  if (tail)
    for (uint64_t k = 0; k < count; ++k)
      if (at(k) == '/') i = k + 1;
  uint32_t used = 0;
  for (; i < count; ++i) used = put(to, used, capacity, at(i));
  to[used] = 0;
  return true;
}

/// The thread's state; 0: none.
uint64_t find_thread(Walk& walk, int32_t pid, int32_t tid) {
  uint64_t interpreter = walk.layout.interpreter, threads = walk.layout.threads, state = 0;
  if (interpreter == 0) {  // _PyRuntime begins with a cookie, its version, and where what is
    struct {
      char cookie[8];
      uint64_t version, free_threaded, runtime_bytes, finalizing, interpreter, interpreter_bytes, id, next, threads;
    } table;
    if (!walk.load(walk.python.runtime, &table) || memcmp(table.cookie, "xdebugpy", 8) != 0 ||
        (table.version >> 16 & 0xff) != walk.python.version || table.free_threaded != 0)
      return 0;
    interpreter = table.interpreter;
    threads = table.threads;
  }
  if (!walk.load(walk.python.runtime + interpreter, &interpreter) || interpreter == 0 ||
      !walk.load(interpreter + threads, &state))
    return 0;
  uint64_t found = 0;
  for (uint32_t i = 0; state != 0 && i < kMostThreads; ++i) {
    uint64_t id = 0;
    if (walk.layout.thread_id == 0) {
      found = tid == pid ? state : 0;  // the last one in the list is the first that was made
    } else if (!walk.load(state + walk.layout.thread_id, &id)) {
      return 0;
    } else if (id == static_cast<uint64_t>(tid)) {
      return state;
    }
    if (!walk.load(state + walk.layout.next, &state)) return 0;
  }
  return found;
}

/// From 3.14 on the instruction is stored before a call that leaves the interpreter only, and with it the pointer to
/// the frame's values, which is null else: the line is that of an earlier call.
bool is_stale(Walk& walk, uint64_t frame) {
  uint64_t values = 0;
  return walk.python.version >= 14 && walk.load(frame + 64, &values) && values == 0;
}

}  // namespace

PythonAddresses find_python() {
  auto address = [](const char* name) { return reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, name)); };
  PythonAddresses found = {address("_PyRuntime"), 0, 0, 0};
  if (found.runtime == 0) return {};
  found.code_type = address("PyCode_Type");
  found.string_type = address("PyUnicode_Type");
  // "3.11.2 (main, ...)": a function that returns a constant string.
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  const char* text = version != nullptr ? version() : "";
  if (strncmp(text, "3.", 2) == 0) found.version = strtoul(text + 2, nullptr, 10);
  if (found.version < kFirstVersion || found.version > kLastVersion || found.code_type == 0 || found.string_type == 0)
    return {};
  return found;
}

uint32_t python_frames(OtherProcess& of, const PythonAddresses& python, int32_t pid, int32_t thread,
                       PythonFrame* frames, uint32_t most) {
  if (python.runtime == 0 || python.version < kFirstVersion || python.version > kLastVersion) return 0;
  Walk walk = {of, python, kLayouts[python.version - kFirstVersion]};
  const Layout& layout = walk.layout;
  const uint64_t state = find_thread(walk, pid, thread);
  uint64_t frame = state;
  if (state == 0 || (layout.cframe != 0 && !walk.load(state + layout.cframe, &frame)) ||
      !walk.load(frame + layout.current, &frame))
    return 0;
  uint32_t count = 0;
  for (uint32_t skipped = 0; frame != 0 && count < most && skipped < kMostSkipped;) {
    uint64_t code = 0, type = 0, name = 0, file = 0;
    if (!walk.load(frame + layout.code, &code)) break;
    code &= ~kTag;
    PythonFrame& made = frames[count];
    uint8_t owner = 0;
    if (layout.owner != 0 && !walk.load(frame + layout.owner, &owner)) break;
    if (owner < kNotTheProgram && code != 0 && walk.load(code + kType, &type) && type == python.code_type) {
      if (!walk.load(code + layout.name, &name) || !walk.load(code + layout.file, &file) ||
          !read_string(walk, name, made.function, sizeof(made.function), false) ||
          !read_string(walk, file, made.file, sizeof(made.file), true))
        break;
      made.line = is_stale(walk, frame) ? 0 : line_of(walk, code, frame);
      ++count;
    } else {
      ++skipped;  // a frame of the interpreter's own
    }
    if (!walk.load(frame + layout.previous, &frame)) break;
  }
  return count;
}

void python_place(const PythonFrame& frame, char* text, uint32_t bytes) {
  if (frame.line > 0) snprintf(text, bytes, "%s at %s:%d", frame.function, frame.file, frame.line);
  else snprintf(text, bytes, "%s at %s", frame.function, frame.file);
}

}  // namespace resil::stacks
