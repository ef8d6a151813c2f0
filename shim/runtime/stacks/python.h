// SPDX-License-Identifier: Apache-2.0
//
// Frames of the Python interpreter (mpi4py) of another process that goes on meanwhile, out of its memory: CPython 3.9
// to 3.14. Its structures are private to each minor version; python.cpp has what of them is needed. What is read is not
// trusted: a code object that is none, or a name that is no string, ends the walk.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/memory.h"

namespace resil::stacks {

/// Where a process has its interpreter. All zeros: none, or a version that is not known.
struct PythonAddresses {
  uint64_t runtime;  ///< _PyRuntime
  uint64_t code_type, string_type;  ///< PyCode_Type, PyUnicode_Type
  uint64_t version;  ///< minor: 9 to 14
};

/// Of this process. Ordinary context; a look through the symbol tables of all objects.
PythonAddresses find_python();

struct PythonFrame {
  char function[80];  ///< qualified where the version has that; UTF-8, cut
  char file[48];  ///< without its folder
  int32_t line;  ///< 0: not known
};

/// Frames of that thread, the innermost first; how many. `thread`: its tid; versions before 3.11 know the main thread
/// only. Ordinary context; memory of the caller and 1 KiB of stack.
uint32_t python_frames(OtherProcess& of, const PythonAddresses& python, int32_t pid, int32_t thread,
                       PythonFrame* frames, uint32_t most);

constexpr uint32_t kPythonPlace = sizeof(PythonFrame) + 16;
/// "relax at spin.py:6"; without the line where it is not known.
void python_place(const PythonFrame& frame, char* text, uint32_t bytes);

}  // namespace resil::stacks
