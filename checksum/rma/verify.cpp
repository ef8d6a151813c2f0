// SPDX-License-Identifier: Apache-2.0
//
// The target's side: reads the memory that the origins' lists name, and decides when all lists are there.

#include <cstring>

#include "checksum/datatype/host_memory.h"
#include "checksum/digest/digest.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"

namespace resil::rma {

namespace {

constexpr uint64_t kMaxIntervals = 1 << 21, kItemIntervals = 4096;

/// First byte from the window's base, and whether the whole region lies in the window.
bool region(const Window& w, const Item& item, int64_t* at, int64_t* low, int64_t* high) {
  int64_t last;
  if (__builtin_mul_overflow(item.displacement, w.unit, at) || __builtin_mul_overflow(item.count - 1, item.extent, &last))
    return false;
  *low = item.low + (last < 0 ? last : 0);
  *high = item.high + (last > 0 ? last : 0);
  return w.flavor == WindowFlavor::kDynamic || (*at + *low >= 0 && *at + *high <= w.bytes);
}

bool read_item(const Window& w, Item& item) {
  int64_t at, low, high;
  if (item.what == What::kTouch || item.outcome != Outcome::kNotRead)
    return false;
  if (item.bytes == 0) {
    item.outcome = Outcome::kSame;
    return false;
  }
  if (!region(w, item, &at, &low, &high) || !host_memory(w.base + at + low, static_cast<size_t>(high - low))) {
    item.outcome = Outcome::kUnreadable;
    return false;
  }
  if (item.run_count == 0) {
    item.found = digest(w.base + at, item.bytes);
  } else {
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
    item.found = type_digest(type, w.base + at, item.count, item.bytes);
  }
  item.outcome = item.found == item.digest ? Outcome::kSame : Outcome::kDifferent;
  return item.outcome == Outcome::kDifferent;
}

uint64_t intervals_of(const Item& item) {
  uint64_t runs = 0;
  for (uint32_t r = 0; r < item.run_count; ++r)
    runs += static_cast<uint64_t>(item_runs(item)[r].count);
  if (runs == 0)
    return 1;
  runs *= static_cast<uint64_t>(item.count);
  return runs > kItemIntervals ? 1 : runs;
}

/// The item's pieces; as one from its lowest to its highest byte where there are too many.
size_t fill_intervals(const Window& w, const Item& item, uint32_t number, Interval* to) {
  const bool writes = item.what != What::kGet;
  int64_t at, low, high;
  if (item.bytes == 0)
    return 0;
  if (item.anywhere || __builtin_mul_overflow(item.displacement, w.unit, &at)) {
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

/// Marks the items that other operations of the epoch touched too. False: no memory.
bool find_overlaps(const Window& w, Packet* packets) {
  uint64_t intervals = 0, items = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) {
      intervals += intervals_of(item);
      items += 1;
    });
  if (items < 2)
    return true;
  if (intervals > kMaxIntervals)
    return false;
  Workspace workspace(intervals * sizeof(Interval) + items);
  auto* all = reinterpret_cast<Interval*>(workspace.data());
  if (all == nullptr)
    return false;
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
      if (packet->header.incomplete && give_up == Reason::kNone)
        give_up = Reason::kMemory;
    }
    w.last = last;
  }
  if (mine != nullptr && give_up == Reason::kNone && !find_overlaps(w, mine))
    give_up = Reason::kMemory;
  while (mine != nullptr) {
    Packet* packet = mine;
    each_item(*packet, [&](Item& item) {
      if (item.what == What::kTouch)
        return;  // its origin has counted it
      if (give_up != Reason::kNone)
        return operation_uncovered(give_up, 1, item.bytes);
      if (item.overlapped)
        return operation_uncovered(Reason::kOverlapped, 1, item.bytes);
      if (item.outcome == Outcome::kSame)
        return operation_checked(item.bytes);
      if (item.outcome != Outcome::kDifferent)
        return operation_uncovered(item.outcome == Outcome::kUnreadable ? Reason::kDeviceBuffer : Reason::kOneSided, 1, item.bytes);
      const uint64_t found = item.found;
      item.outcome = Outcome::kNotRead;
      read_item(w, item);  // is it still so, now that all have answered?
      publish_mismatch(thread, {&w, packet->header.origin, w.rank, item.call, item.site, item.bytes, item.digest, found,
                                item.displacement, item.site == w.confirm_site ? w.confirm_text : "",
                                "the origin's bytes and the target's memory at the end of the epoch", item.found});
    });
    mine = packet->next;
    packet_give_back(packet);
  }
}

}  // namespace resil::rma
