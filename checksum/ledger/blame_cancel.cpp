// SPDX-License-Identifier: Apache-2.0
//
// Cancelled sends. A send that was announced and then withdrawn (MPI_Cancel, MPI 4.0 section 3.8.4) leaves the matching
// queue one packet ahead of what is received. Mostly the receiver notices at once: what it received next is not what
// was withdrawn, and it asks. But if the next packets have the same content, each is taken for the one before it, and
// the first one that differs is asked about. Then saying that *this* packet was withdrawn is the same as saying it of
// the one that was: their contents are equal.
//
// Few, and rare: a list, searched only by programs that cancel sends.

#include <atomic>

#include "checksum/ledger/blame_internal.h"

namespace resil::blame {

namespace {

constexpr uint32_t kCancelled = 1024;

enum class Fate : uint8_t { kFree, kPending, kWithdrawn, kUnknown };

struct Cancelled {
  Record record;
  uint64_t serial;
  int32_t peer;
  Fate fate;
};

SpinLock lock;
Cancelled list[kCancelled];
std::atomic<uint32_t> top;  // places used so far

Cancelled* find(uint64_t serial) {
  for (uint32_t i = 0; i < top.load(std::memory_order_relaxed); ++i)
    if (list[i].fate != Fate::kFree && list[i].serial == serial) return &list[i];
  return nullptr;
}

bool same_match_queue(const Record& a, const Record& b) {
  return a.comm == b.comm && a.tag == b.tag && a.space == b.space;
}

}  // namespace

void cancel_reset() {
  top.store(0);
  for (Cancelled& one : list) one.fate = Fate::kFree;
}

bool cancel_begin(uint64_t handle) {
  Entry entry;
  if (!history_entry(handle, &entry)) return false;
  Guard guard(lock);
  Cancelled* one = find(handle);
  for (uint32_t i = 0; one == nullptr && i < kCancelled; ++i)
    if (list[i].fate == Fate::kFree) {
      one = &list[i];
      if (i >= top.load(std::memory_order_relaxed)) top.store(i + 1, std::memory_order_relaxed);
    }
  if (one == nullptr) return false;
  *one = {entry.record, handle, entry.peer, Fate::kPending};
  return true;
}

int32_t cancel_end(uint64_t handle, CancelEnd end, Record* record) {
  int32_t peer;
  {
    Guard guard(lock);
    Cancelled* one = find(handle);
    if (one == nullptr || one->fate != Fate::kPending) return -1;
    one->fate = end == CancelEnd::kSent        ? Fate::kFree
                : end == CancelEnd::kWithdrawn ? Fate::kWithdrawn
                                               : Fate::kUnknown;
    *record = one->record;
    peer = one->peer;
  }
  if (end != CancelEnd::kWithdrawn) return -1;
  history_void(handle, true);
  return peer;
}

SenderState cancel_state(int32_t peer, const Entry& asked, const Record& received) {
  if (top.load(std::memory_order_relaxed) == 0) [[likely]]
    return SenderState::kKnown;
  uint64_t withdrawn = 0;
  {
    Guard guard(lock);
    Cancelled* taken = nullptr;
    for (uint32_t i = 0; i < top.load(std::memory_order_relaxed); ++i) {
      Cancelled& one = list[i];
      if (one.fate == Fate::kFree || one.peer != peer || one.serial > asked.serial ||
          !same_match_queue(one.record, asked.record) || one.record.digest != asked.record.digest ||
          one.record.bytes != asked.record.bytes)
        continue;
      if (one.fate == Fate::kPending) return SenderState::kPending;
      // Nobody will ever tell: withdrawn if what arrived is the matching queue's next packet.
      if (one.fate == Fate::kWithdrawn || history_next_is(asked, received)) taken = &one;
    }
    if (taken == nullptr) return SenderState::kKnown;
    withdrawn = taken->serial;
    taken->fate = Fate::kFree;
  }
  // Asked again, it is still this packet that was withdrawn.
  history_void(withdrawn, false);
  history_void(asked.serial, true);
  return SenderState::kVoid;
}

}  // namespace resil::blame
