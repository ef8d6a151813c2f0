// SPDX-License-Identifier: Apache-2.0
//
// See agreement.h.

#include "checksum/double_run/agreement.h"

#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"

namespace resil::double_run {

namespace {

constexpr PrivateTag kTag = tags::kDoubleRun[0];

void wait(Thread& thread, uint64_t* request) {
  wait_until(
      thread, [request] { return backend->test(request); }, kForOthers);
}

void send(Thread& thread, const Verdict& verdict, int to) {
  uint64_t request;
  if (mailbox::send(&verdict, sizeof(verdict), to, kTag, &request)) wait(thread, &request);
}

Verdict receive(Thread& thread, int from) {
  Verdict verdict = {0, 0, 1, -1};  // what a refused receive leaves
  uint64_t request;
  if (mailbox::receive(&verdict, sizeof(verdict), from, kTag, &request)) wait(thread, &request);
  return verdict;
}

Verdict sum(const Verdict& a, const Verdict& b) {
  const int32_t first = a.first < 0 ? b.first : b.first < 0 || a.first < b.first ? a.first : b.first;
  return {a.different + b.different, a.unsettled + b.unsettled, a.unchecked + b.unchecked, first};
}

}  // namespace

bool agreement_possible() { return runtime.size == 1 || mailbox::is_open(); }

Verdict agree(Thread& thread, Verdict own) {
  const int rank = runtime.rank, size = runtime.size;
  int mask = 1;
  for (; mask < size && (rank & mask) == 0; mask <<= 1)
    if (rank + mask < size) own = sum(own, receive(thread, rank + mask));
  if (rank != 0) {
    send(thread, own, rank - mask);
    own = receive(thread, rank - mask);
  }
  for (mask >>= 1; mask > 0; mask >>= 1)
    if (rank + mask < size) send(thread, own, rank + mask);
  return own;
}

}  // namespace resil::double_run
