// SPDX-License-Identifier: Apache-2.0
//
// The target's side: reads the memory that the origins' lists name, and decides when all lists are there.

#include <cstdio>
#include <cstring>

#include "checksum/ledger/blame_evidence.h"
#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"
#include "shim/base/digest/digest.h"
#include "shim/base/spinlock.h"
#include "shim/model/calls.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"

namespace resil::rma {

namespace {

constexpr uint64_t kMaxIntervals = 1 << 21, kItemIntervals = 4096;

/// First byte from the window's base, and whether the whole region lies in the window.
bool region(const Window& w, const Item& item, int64_t* at, int64_t* low, int64_t* high) {
  int64_t last;
  if (__builtin_mul_overflow(item.displacement, w.unit, at) ||
      __builtin_mul_overflow(item.count - 1, item.extent, &last))
    return false;
  *low = item.low + (last < 0 ? last : 0);
  *high = item.high + (last > 0 ? last : 0);
  return w.flavor == WindowFlavor::kDynamic || (*at + *low >= 0 && *at + *high <= w.bytes);
}

uint64_t region_digest(const Item& item, const char* data) {
  if (item.run_count == 0) return digest(data, item.bytes);
  TypeMap type = {};
  type.size = item.bytes / static_cast<uint64_t>(item.count);
  type.extent = item.extent;
  type.low = item.low;
  type.high = item.high;
  type.permanent = true;
  type.padded = item.padded.kind != BasicKind::kUnknown;
  type.basic = item.padded;
  type.run_count = item.run_count;
  type.runs = item_runs(item);
  return type_digest(type, data, item.count, item.bytes);
}

bool read_item(const Window& w, Item& item) {
  int64_t at, low, high;
  if (item.what == What::kTouch || item.outcome != Outcome::kNotRead) return false;
  if (item.bytes == 0) {
    item.outcome = Outcome::kSame;
    return false;
  }
  if (!region(w, item, &at, &low, &high) || !host_memory(w.base + at + low, static_cast<size_t>(high - low))) {
    item.outcome = Outcome::kUnreadable;
    return false;
  }
  item.found = region_digest(item, w.base + at);
  if (const char* kept = snapshot_of(w);
      item.what == What::kPut && item.found != item.digest && !item.has_before && kept != nullptr) {
    item.before = region_digest(item, kept + at);
    item.has_before = true;
  }
  item.outcome = item.found == item.digest ? Outcome::kSame : Outcome::kDifferent;
  return item.outcome == Outcome::kDifferent;
}

}  // namespace

uint64_t intervals_of(const Item& item) {
  uint64_t runs = 0;
  for (uint32_t r = 0; r < item.run_count; ++r) runs += static_cast<uint64_t>(item_runs(item)[r].count);
  if (runs == 0) return 1;
  runs *= static_cast<uint64_t>(item.count);
  return runs > kItemIntervals ? 1 : runs;
}

size_t fill_intervals(const Window& w, const Item& item, uint32_t number, Interval* to) {
  const bool writes = item.what != What::kGet;
  int64_t at, low = 0, high = 0, last;
  if (item.bytes == 0) return 0;
  if (item.anywhere || __builtin_mul_overflow(item.displacement, w.unit, &at) ||
      __builtin_mul_overflow(item.count - 1, item.extent, &last)) {
    to[0] = {INT64_MIN / 2, INT64_MAX / 2, number, writes};
    return 1;
  }
  if (intervals_of(item) == 1) {
    region(w, item, &at, &low, &high);
    to[0] = {at + low, at + high, number, writes};
    return 1;
  }
  size_t made = 0;
  for (int64_t i = 0; i < item.count; ++i)
    for (uint32_t r = 0; r < item.run_count; ++r) {
      const Run& run = item_runs(item)[r];
      for (int64_t k = 0; k < run.count; ++k) {
        const int64_t start = at + i * item.extent + run.offset + k * run.stride;
        to[made++] = {start, start + run.bytes, number, writes};
      }
    }
  return made;
}

namespace {

/// Marks the items that other operations of the epoch touched too. False: no memory.
bool find_overlaps(const Window& w, Packet* packets) {
  uint64_t intervals = 0, items = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) {
      intervals += intervals_of(item);
      items += 1;
    });
  if (items < 2) return true;
  if (intervals > kMaxIntervals) return false;
  Workspace workspace(intervals * sizeof(Interval) + items);
  auto* all = reinterpret_cast<Interval*>(workspace.data());
  if (all == nullptr) return false;
  auto* overlapped = reinterpret_cast<bool*>(all + intervals);
  memset(overlapped, 0, items);
  size_t made = 0;
  uint32_t number = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) { made += fill_intervals(w, item, number++, all + made); });
  mark_overlaps(all, made, overlapped);
  number = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) { item.overlapped = overlapped[number++]; });
  return true;
}

// --- RESIL_BLAME=full
// -------------------------------------------------------------------------------------------------

/// What operations on this rank's windows were to write or read, the last of them.
struct Seen {
  uint64_t window, right, bytes;
  uint64_t epoch;  ///< how many lists had been judged before
  int64_t displacement;
  int32_t origin;
  uint16_t call;
  bool puts;
};
constexpr uint32_t kSeen = 4096;
constexpr uint64_t kTellingBytes = 2;  // fewer are equal to others by chance
Seen* seen;
uint64_t seen_count;
SpinLock seen_lock;

/// What the data of an operation should be.
uint64_t right_of(const Item& item) { return item.what == What::kPut ? item.digest : item.found; }

void remember(const Window& w, const Packet& packet, const Item& item) {
  Guard guard(seen_lock);
  if (seen == nullptr) seen = memory::map_array<Seen>(kSeen);
  if (seen != nullptr && item.bytes != 0)
    seen[seen_count++ % kSeen] = {
        w.id,      right_of(item),         item.bytes, packet.header.epoch, item.displacement, packet.header.origin,
        item.call, item.what == What::kPut};
}

/// Another operation of that direction, on that window, whose data is what this one brought.
Resemblance resembles(const Window& w, const Packet& packet, const Item& item, uint64_t arrived) {
  Guard guard(seen_lock);
  for (uint64_t i = seen_count, last = seen_count > kSeen ? seen_count - kSeen : 0; seen != nullptr && i-- > last;) {
    const Seen& one = seen[i % kSeen];
    if (one.window == w.id && one.right == arrived && one.bytes == item.bytes &&
        one.puts == (item.what == What::kPut) &&
        !(one.epoch == packet.header.epoch && one.origin == packet.header.origin &&
          one.displacement == item.displacement))
      return {true, one.call, one.origin, one.displacement};
  }
  return {};
}

/// The same six verdicts as for messages, in the same order. `found`: at the first look, item.found: now.
void explain(const Window& w, const Packet& packet, const Item& item, uint64_t found, char* text, size_t room,
             Mismatch* m) {
  using blame::Verdict;
  const bool puts = item.what == What::kPut;
  // What arrived: in the target's memory, or in the origin's buffer, whose second look its list brings.
  const uint64_t right = puts ? item.digest : item.found, arrived = puts ? found : item.digest;
  const uint64_t later = puts ? item.found : item.ended ? item.at_end : item.digest;
  auto say = [&](Verdict verdict, const char* how) {
    m->verdict = blame::verdict_text(verdict);
    m->reached_by = text;
    snprintf(text, room, "%s", how);
  };
  if (puts && item.ended && item.at_end != item.digest) {
    m->culprit = packet.header.origin;
    return say(Verdict::kModified, messages::checksum::origin_modified);
  }
  if (later != arrived)
    return say(Verdict::kEarly,
               later == right ? messages::checksum::target_late : messages::checksum::target_still_written);
  if (!puts && found != item.found) return say(Verdict::kUndetermined, messages::checksum::target_changed);
  if (!item.has_before) return say(Verdict::kUndetermined, messages::checksum::target_before_unknown);
  if (!item.ended) return say(Verdict::kUndetermined, messages::checksum::origin_not_reread);
  if (item.before == arrived)
    return say(Verdict::kNothing, puts ? messages::checksum::put_not_delivered : messages::checksum::get_not_delivered);
  const Resemblance other = resembles(w, packet, item, arrived);
  if (other.found && item.bytes < kTellingBytes) return say(Verdict::kUndetermined, messages::checksum::by_chance);
  if (!other.found) return say(Verdict::kTransit, messages::checksum::one_sided_transit);
  say(Verdict::kOtherSlot, "");
  snprintf(text, room, messages::checksum::other_operation, call_info(static_cast<CallId>(other.call)).name,
           world_rank(w, other.origin), static_cast<long long>(other.displacement));
}

}  // namespace

bool read_packet(Window& w, Packet& packet) {
  bool different = false;
  each_item(packet, [&](Item& item) { different |= read_item(w, item); });
  packet.read = true;
  return different;
}

void judge(Thread& thread, Window& w, Message list, Reason give_up, bool (*chosen)(const Window&, const Packet&)) {
  Packet *mine = nullptr, **end = &mine;
  {
    Guard guard(w.lock);
    Packet **at = &w.first, *last = nullptr;
    while (*at != nullptr) {
      Packet* packet = *at;
      if (packet->header.message != list || !chosen(w, *packet)) {
        last = packet;
        at = &packet->next;
        continue;
      }
      *at = packet->next;
      packet->next = nullptr;
      *end = packet;
      end = &packet->next;
      if (packet->header.incomplete && give_up == Reason::kNone) give_up = Reason::kMemory;
    }
    w.last = last;
  }
  if (mine != nullptr && give_up == Reason::kNone && !find_overlaps(w, mine)) give_up = Reason::kMemory;
  if (ledger::full_blame() && give_up == Reason::kNone) find_races(w, mine, list);
  for (Packet* packet = mine; ledger::full_blame() && give_up == Reason::kNone && packet != nullptr;
       packet = packet->next)
    each_item(*packet, [&](const Item& item) {
      if (item.what != What::kTouch) remember(w, *packet, item);
    });
  while (mine != nullptr) {
    Packet* packet = mine;
    each_item(*packet, [&](Item& item) {
      if (item.what == What::kTouch) return;  // its origin has counted it
      if (give_up != Reason::kNone) return operation_uncovered(give_up, 1, item.bytes);
      if (item.overlapped) return operation_uncovered(Reason::kOverlapped, 1, item.bytes);
      if (item.outcome == Outcome::kSame) return operation_checked(item.bytes);
      if (item.outcome != Outcome::kDifferent)
        return operation_uncovered(item.outcome == Outcome::kUnreadable ? Reason::kDeviceBuffer : Reason::kOneSided, 1,
                                   item.bytes);
      const uint64_t found = item.found;
      item.outcome = Outcome::kNotRead;
      read_item(w, item);  // is it still so, now that all have answered?
      Mismatch mismatch = {&w,
                           packet->header.origin,
                           w.rank,
                           item.call,
                           item.site,
                           item.bytes,
                           item.digest,
                           found,
                           item.displacement,
                           item.site == w.confirm_site ? w.confirm_text : "",
                           "the origin's bytes and the target's memory at the end of the epoch",
                           item.found,
                           nullptr,
                           nullptr,
                           -1};
      char text[200];
      if (ledger::full_blame()) explain(w, *packet, item, found, text, sizeof(text), &mismatch);
      publish_mismatch(thread, mismatch);
    });
    mine = packet->next;
    packet_release(packet);
  }
}

}  // namespace resil::rma
