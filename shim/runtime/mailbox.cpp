// SPDX-License-Identifier: Apache-2.0
//
// See mailbox.h.

#include "shim/runtime/mailbox.h"

#include "shim/call/parts.h"
#include "shim/call/runtime.h"

namespace resil::mailbox {

namespace {
bool survives;  // this job goes on after the death of a rank
}

void look_whether_job_survives() { survives = job_survives(); }

bool is_over(uint64_t* request, bool* failed) {
  if (!survives) return backend->test(request);
  const bool over = backend->failures->is_over(request, failed);
  // With parts of a job nobody else does it: receives from any rank go on.
  if (*failed && !over && part_place.parts != 0) acknowledge_dead(0, nullptr);
  return over;
}

int post_nobody(void* buffer, uint64_t type, uint64_t* request) {
  return backend->replay->post(private_comm(), buffer, 0, type, 0, tags::kNobody[0].value(), request);
}

bool receive_from_nobody(const Event& event, int* result) {
  return backend->replay->receive_nothing(event, private_comm(), tags::kNobody[0], result);
}

bool copy(const void* from, int64_t from_count, uint64_t from_type, void* to, int64_t to_count, uint64_t to_type) {
  static uint32_t copies;
  const PrivateTag tag = tags::kCopy[__atomic_fetch_add(&copies, 1, __ATOMIC_RELAXED)];
  return backend->collectives->copy(is_open() ? private_comm() : backend->comm_self(), from, from_count, from_type, to,
                                    to_count, to_type, is_open() ? runtime.rank : 0, tag);
}

}  // namespace resil::mailbox
