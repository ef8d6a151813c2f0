// SPDX-License-Identifier: Apache-2.0
//
// See python.h. ASYNC-SIGNAL-SAFE but for prepare_python: CPython's faulthandler calls these two functions in handlers
// of user signals (faulthandler.register), too. They take no lock, allocate nothing, need no interpreter lock, and
// write with write(2). Of this thread only: its frames cannot change while it is here; those of other threads could.
#include "detectors/dump/python.h"

#include <dlfcn.h>

namespace resil::dump {
namespace {

void* (*this_thread_state)() = nullptr;
void (*dump_traceback)(int file, void* thread_state) = nullptr;

}  // namespace

void prepare_python() {
  auto* state = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  auto* traceback = reinterpret_cast<void (*)(int, void*)>(dlsym(RTLD_DEFAULT, "_Py_DumpTraceback"));
  if (state == nullptr || traceback == nullptr) return;
  this_thread_state = state;
  dump_traceback = traceback;
}

void put_python(SafeText& text, int file) {
  void* const state = dump_traceback != nullptr ? this_thread_state() : nullptr;
  if (state == nullptr || file < 0) return;
  text.str("\nPython, of the thread that writes this dump. ");
  text.flush();
  dump_traceback(file, state);
}

}  // namespace resil::dump
