// SPDX-License-Identifier: Apache-2.0
//
// Makes one dump: file, then the short form on standard error. Async-signal-safe; one at a time (handler.cpp sees to
// it). May touch: RESIL_DIR, standard error, Header::dumps.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "detectors/dump/content.h"
#include "detectors/dump/threads.h"
#include "shim/runtime/stacks/symbols.h"

namespace resil::dump {

/// What `resil dump` sends along with the signal.
constexpr uintptr_t kToolMark = 0x6c69736572;

/// All memory of the dump, mapped in MPI_Init; pages cost nothing until the first dump.
struct Workspace {
  bool quiet;  ///< the file is enough, unless it cannot be written
  Threads threads;
  Symbols symbols;
  Pending pending;
  char reason[256];
  char path[1200];
  char brief[4096];  ///< one write(2) of at most PIPE_BUF bytes is not torn apart
  char buffer[32768];
};
static_assert(sizeof(Workspace) <= 512 * 1024);

/// Writes a dump. `signal`: with which other threads can be asked, 0: none. `context`: of the calling thread.
/// `requests`: when not null, requests that came in meanwhile; taken (set to 0) and mentioned as answered by this dump.
void write_dump(Workspace* workspace, int signal, const ucontext_t& context, std::atomic<uint32_t>* requests);

/// Runs through everything once, writing nothing, so that no function is bound by the loader within the handler.
void rehearse(Workspace* workspace);

}  // namespace resil::dump
