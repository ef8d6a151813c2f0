// SPDX-License-Identifier: Apache-2.0
//
// What the program's array of requests held before a call that completes them.

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/call/registry.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/tables/request_serial.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

size_t saved_bytes(const Event& e) { return static_cast<size_t>(e.request_count) * backend->handle_bytes; }

}  // namespace

void request_remember(Event& e) {
  if (request_table_has_threads()) e.entered = request_serial_now();
  e.saved_requests = e.saved_few;
  e.scratch = e.status_room = nullptr;
  if (e.request_count <= 1) {
    if (e.request_count == 1) e.saved_few[0] = request_handle(e.requests, 0);
    return;
  }
  // Many: borrowed in one piece with statuses, for the modules that look at what completes. Few: see give_statuses().
  if (saved_bytes(e) > sizeof(e.saved_few)) {
    size_t handles = (saved_bytes(e) + 15) & ~size_t{15}, statuses = 0;
    if (hooks().statuses_wanted && e.index == nullptr && backend->messages->status_ignored(e.given_statuses))
      statuses = static_cast<size_t>(e.request_count) * backend->status_bytes;
    e.saved_requests = e.scratch = scratch_acquire(*e.thread, handles + statuses, e.frame);
    if (statuses != 0 && e.scratch != nullptr) e.status_room = static_cast<char*>(e.scratch) + handles;
  }
  if (e.saved_requests != nullptr) memcpy(e.saved_requests, e.requests, saved_bytes(e));
}

}  // namespace resil
