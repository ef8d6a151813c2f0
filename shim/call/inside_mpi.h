// SPDX-License-Identifier: Apache-2.0
//
// MPI calls of resil's own where the program has made none (the functions of resil.h): they look like calls from within
// MPI to the wrappers, which let them through. On a thread of the program's that is outside MPI.
#pragma once

#include <cstdint>

#include "shim/call/thread.h"

namespace resil {

class InsideMpi {
 public:
  [[gnu::always_inline]] explicit InsideMpi(Thread& thread) : thread_(thread) {
    thread_.depth = 1;
    thread_.outer_frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  }
  ~InsideMpi() { thread_.depth = 0; }
  InsideMpi(const InsideMpi&) = delete;

 private:
  Thread& thread_;
};

}  // namespace resil
