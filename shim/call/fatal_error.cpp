// SPDX-License-Identifier: Apache-2.0
//
// An MPI library that ends the job upon an error (MPI_ERRORS_ARE_FATAL, the default) calls no function of the standard
// to do so. The last of its own functions on that way that can be seen from outside is taken here: modules learn of it
// (Module::before_abort), and the library's own goes on as if nobody had been there. Where a library hides it, nothing
// is seen, as before.
//
// Open MPI 3 to 6: ompi_mpi_abort, for errors and for MPI_Abort. MPICH: MPIR_Err_return_comm, for all errors of calls
// on communicators; they are fatal where the program has set no handler.
//
// On the program's thread, inside its call.

#include <unistd.h>

#include "shim/abi/handler_change.h"
#include "shim/call/attach.h"
#include "shim/call/next.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"

namespace resil {

namespace {

/// Once a process, and not where the end is known already: MPI_Abort, or resil's own (stop_job).
void job_ends(int code) {
  static std::atomic<bool> told;
  if (runtime.header == nullptr || runtime.pid != getpid() || !runtime_attached() ||
      runtime.header->phase != static_cast<uint32_t>(ring::Phase::kRunning) || told.exchange(true))
    return;
  run_hooks_reverse(&Module::before_abort, code, true);
}

}  // namespace

}  // namespace resil

#pragma GCC visibility push(default)

extern "C" int ompi_mpi_abort(void* comm, int code);
extern "C" int MPIR_Err_return_comm(void* comm, const char* function, int code);

extern "C" int ompi_mpi_abort(void* comm, int code) {
  resil::job_ends(code);
  const auto next =
      reinterpret_cast<int (*)(void*, int)>(resil::next_function("ompi_mpi_abort", __builtin_return_address(0)));
  if (next == nullptr) _exit(code);
  return next(comm, code);
}

extern "C" int MPIR_Err_return_comm(void* comm, const char* function, int code) {
  if (!resil::handlers_were_set.load(std::memory_order_relaxed)) resil::job_ends(code);
  const auto next = reinterpret_cast<int (*)(void*, const char*, int)>(
      resil::next_function("MPIR_Err_return_comm", __builtin_return_address(0)));
  return next != nullptr ? next(comm, function, code) : code;
}

#pragma GCC visibility pop
