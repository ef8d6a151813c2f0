// SPDX-License-Identifier: Apache-2.0
//
// Frames of the Python interpreter, where the program is one (mpi4py): function, file and line of the thread that
// dumps.
#pragma once

#include "shim/base/safe_text.h"

namespace resil::dump {

/// Looks for the interpreter's own functions; nothing where there is none. Normal context.
void prepare_python();
/// A section of the dump, written by the interpreter itself into `file`, which `text` goes to. Async-signal-safe.
void put_python(SafeText& text, int file);

}  // namespace resil::dump
