// SPDX-License-Identifier: Apache-2.0
//
// dlclose, which every object of the process calls here: what the program unloads may have called MPI, and something
// else may come to lie there (objects.h). Inert in a process without MPI but for the way to libc's own.

#include <dlfcn.h>

#include <atomic>

#include "shim/call/attach.h"
#include "shim/call/next.h"
#include "shim/call/objects.h"
#include "shim/libc/moved.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

/// libc's, or that of a tool behind this library.
int close_object(void* object) {
  using Close = int(void*);
  static std::atomic<Close*> next;
  Close* call = next.load(std::memory_order_acquire);
  if (call == nullptr) {
    void* found = next_in_order("dlclose");
    call = reinterpret_cast<Close*>(found != nullptr ? found : find_in_libdl("dlclose"));
    next.store(call, std::memory_order_release);
  }
  return call != nullptr ? call(object) : -1;
}

}  // namespace

}  // namespace resil

#pragma GCC visibility push(default)

extern "C" int dlclose(void* object) {
  const int result = resil::close_object(object);
  if (result == 0 && resil::runtime_attached() && resil::objects_forget_unloaded())
    resil::forget_calls();  // no call is taken for a repetition: each comes to look_up once
  return result;
}

#pragma GCC visibility pop
