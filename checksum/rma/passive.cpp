// SPDX-License-Identifier: Apache-2.0
//
// Exclusive locks: the origin reads back what it has put, and gets again what it has got, before the call that
// completes these operations. Until then nobody else may touch that memory (under the lock no other origin can, and
// a store by its owner would conflict with an operation that is not complete), so what is read is what was written.
// Under shared locks and MPI_Win_lock_all others may: their operations are counted as uncovered.

#include <atomic>
#include <cinttypes>
#include <cstring>

#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"
#include "shim/abi/backend.h"
#include "shim/base/digest/digest.h"
#include "shim/call/site_text.h"
#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/report/log.h"

namespace resil::rma {

namespace {

constexpr int64_t kMaxRead = 1 << 20;  // of one operation
constexpr int64_t kScratch = 4 << 20;  // of one epoch

/// From the displacement to the last byte, if it can be read back as one piece.
bool span(const Window& w, const Operation& o, int64_t* high) {
  int64_t low = 0;
  *high = static_cast<int64_t>(o.bytes);
  if (o.target_type != nullptr) type_span(*o.target_type, o.target_count, &low, high);
  // What lies before the first byte is read too: in a dynamic window it may not be attached.
  return low >= 0 && (low == 0 || w.flavor != WindowFlavor::kDynamic) && *high <= kMaxRead;
}

/// Operations of the epoch that may have touched the same bytes. While the target's displacement unit is not known,
/// distances are taken as if it were 1: it is at least that.
void find_overlaps(Window& w, int target, uint32_t count, Interval* intervals, size_t room, bool* overlapped) {
  const int64_t known = target == w.rank ? w.unit : __atomic_load_n(&w.targets[target].unit, __ATOMIC_RELAXED);
  const int64_t unit = known > 0 ? known : 1;
  size_t found = 0;
  for (uint32_t i = 0; i < count && found < room; ++i) {
    const Operation& o = w.operations[i];
    if (o.done || o.epoch != Epoch::kExclusive || o.target != target) continue;
    int64_t low = 0, high = static_cast<int64_t>(o.bytes);
    if (o.target_type != nullptr) type_span(*o.target_type, o.target_count, &low, &high);
    const bool writes = o.what != What::kGet;
    int64_t at;
    if (o.anywhere || __builtin_mul_overflow(o.displacement, unit, &at) || __builtin_add_overflow(low, at, &low) ||
        __builtin_add_overflow(high, at, &high)) {
      low = INT64_MIN / 2;
      high = INT64_MAX / 2;
    }
    if (low < high) intervals[found++] = {low, high, i, writes};
  }
  mark_overlaps(intervals, found, overlapped);
}

uint64_t digest_of(const Operation& o, const char* data) {
  return o.target_type != nullptr ? type_digest(*o.target_type, data, o.target_count, o.bytes) : digest(data, o.bytes);
}

/// The program may look at the data only when the epoch is over, and is right then: no finding.
void came_late(const Operation& o, const char* site) {
  static std::atomic<bool> told;
  operation_uncovered(Reason::kEarly, 1, o.bytes);
  if (!told.exchange(true))
    add_note_format(messages::checksum::request_early, call_info(static_cast<CallId>(o.call)).name, site, o.bytes);
}

}  // namespace

void ask_unit(Thread& thread, Window& w, int target) {
  Target& asked = w.targets[target];
  if (asked.unit_asked || target == w.rank || w.flavor == WindowFlavor::kDynamic) return;
  asked.unit_asked = true;
  send(thread, w, target, ledger::Kind::kRma, {w.id, 0, w.rank, Message::kUnit, false, false, 0, 0, 0});
}

void verify_exclusive(Event& e, Window& w, int target) {
  const Target* targets = __atomic_load_n(&w.targets, __ATOMIC_ACQUIRE);
  if (targets == nullptr || target < 0 || target >= w.size || !targets[target].exclusive || w.operations_open == 0)
    return;
  uint32_t mine = 0;
  const uint32_t count = w.operation_count;  // other threads may go on with other targets
  for (uint32_t i = 0; i < count; ++i)
    mine += !w.operations[i].done && w.operations[i].epoch == Epoch::kExclusive && w.operations[i].target == target;
  if (mine == 0) return;
  Workspace reading(kScratch), marking(mine * sizeof(Interval) + count);
  char *scratch = reading.data(), *memory = marking.data();
  if (scratch == nullptr || memory == nullptr || w.overflow || !backend->windows->flush(w.handle, target))
    return give_up_operations(w, Epoch::kExclusive, target, Reason::kMemory);
  auto* overlapped = reinterpret_cast<bool*>(memory) + mine * sizeof(Interval);
  memset(overlapped, 0, count);
  find_overlaps(w, target, count, reinterpret_cast<Interval*>(memory), mine, overlapped);
  digest_gets(w, Epoch::kExclusive, target);
  int64_t used = 0;
  uint32_t first = 0;
  // Reads as much as the scratch memory holds at a time.
  auto compare = [&](uint32_t end) {
    if (used == 0 || !backend->windows->flush(w.handle, target)) return;
    int64_t at = 0;
    for (uint32_t i = first; i < end; ++i) {
      const Operation& o = w.operations[i];
      if (o.done || o.epoch != Epoch::kExclusive || o.target != target || o.what == What::kTouch || overlapped[i])
        continue;
      int64_t high;
      if (!span(w, o, &high) || o.bytes == 0) continue;
      const uint64_t found = digest_of(o, scratch + at);
      at += (high + 63) & ~int64_t{63};
      if (found == o.digest) {
        operation_checked(o.bytes);
        continue;
      }
      char text[96];
      site_text(o.site, text, sizeof(text));
      if (o.early) {  // and the buffer is the program's again: it must not be read once more
        came_late(o, text);
        continue;
      }
      publish_mismatch(*e.thread,
                       {&w, w.rank, target, o.call, o.site, o.bytes, o.digest, found, o.displacement, text,
                        "the origin's bytes and the target's memory, read once more under the exclusive lock", found,
                        nullptr, nullptr, -1});
    }
    used = 0;
    first = end;
  };
  for (uint32_t i = 0; i < count; ++i) {
    const Operation& o = w.operations[i];
    if (o.done || o.epoch != Epoch::kExclusive || o.target != target || o.what == What::kTouch) continue;
    int64_t high;
    if (overlapped[i] || !span(w, o, &high)) {
      operation_uncovered(overlapped[i] ? Reason::kOverlapped : Reason::kPassiveTarget, 1, o.bytes);
      overlapped[i] = true;
      continue;
    }
    if (o.bytes == 0) {
      operation_checked(0);
      continue;
    }
    if (used + high > kScratch) compare(i);
    if (!backend->windows->get(w.handle, target, o.displacement, scratch + used, static_cast<size_t>(high))) {
      operation_uncovered(Reason::kError, 1, o.bytes);
      overlapped[i] = true;
      continue;
    }
    used += (high + 63) & ~int64_t{63};
  }
  compare(count);
  close_operations(w, Epoch::kExclusive, target);
}

}  // namespace resil::rma
