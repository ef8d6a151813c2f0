// SPDX-License-Identifier: Apache-2.0
//
// See request_duplicates.h. A short lock; 32 at a time.

#include "shim/tables/request_duplicates.h"

#include "shim/abi/backend.h"
#include "shim/base/readable.h"
#include "shim/base/spinlock.h"
#include "shim/model/event.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

struct PendingDuplicate {
  uint64_t derived;
  void* new_comm;  // null: free
  uint64_t handle;  // what MPI has put there at once; 0: it does so when the request completes
  CommInfo* parent;
  uint64_t site;
  CallId how;
};
PendingDuplicate duplicates[32];
SpinLock duplicates_lock;

/// Null: an MPI of the standard ABI wrote it in the call, as MPICH does, and the program's variable is gone by now.
uint64_t written_later(void* place) {
  return readable(reinterpret_cast<uint64_t>(place)) == Readable::kNo ? backend->comm_null() : request_handle(place, 0);
}

}  // namespace

uint64_t keep_duplicate(const Event& e) {
  SpinGuard guard(duplicates_lock);
  for (PendingDuplicate& pending : duplicates) {
    if (pending.new_comm == nullptr) {
      // MPICH writes the handle in the call itself, and the program may have moved it when the request completes. In a
      // Fortran call the place is a variable of the binding's, gone by then: what it holds now is what the program
      // gets.
      const bool by_binding = e.site != e.return_address;
      const uint64_t at_once = backend->handle_bytes == 4 || by_binding ? request_handle(e.new_comm, 0) : 0;
      pending = {e.derived_id, e.new_comm, at_once, e.comm, e.site, e.id};
      return static_cast<uint64_t>(&pending - duplicates) + 1;
    }
  }
  return 0;
}

void finish_duplicate(Thread& thread, uint64_t number, bool lost) {
  PendingDuplicate found;
  {
    SpinGuard guard(duplicates_lock);
    found = duplicates[number - 1];
    duplicates[number - 1].new_comm = nullptr;
  }
  const uint64_t handle = lost                ? backend->comm_null()
                          : found.handle != 0 ? found.handle
                                              : written_later(found.new_comm);
  if (handle == backend->comm_null()) return;
  object_made_at(MpiObject::kCommunicator, handle, found.how, found.site);
  comm_register_new(thread, handle, found.derived, found.parent, found.how, found.site);
}

}  // namespace resil
