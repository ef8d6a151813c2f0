// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other about one-sided operations: messages of at most ledger::kMessageBytes.
#pragma once

#include "checksum/rma/window.h"

namespace resil::rma {

enum class Message : uint8_t {
  kFenceList,  ///< operations of an epoch that a fence closes; answered by kDigested after the last one
  kAccessList,  ///< of one that MPI_Win_complete closes; not answered
  kDigested,  ///< the target has read the memory that the list names
  kBarrier,  ///< one round of the barrier that keeps everybody in the fence
  kAsk,  ///< are you still in that fence? `last`: and what is the call site in `value`?
  kAnswer,  ///< yes; with the call site asked about
  kAbandon,  ///< this rank does not check the window any more
  kMisplaced,  ///< operations on this rank's memory land `value` bytes off
  kUnit,  ///< what is your displacement unit? `last`: it is `value`
};

struct Header {
  uint64_t window;
  uint32_t epoch;
  int32_t origin;  ///< the sender's rank in the group
  Message message;
  bool last;  ///< lists: no more of that epoch
  bool incomplete;  ///< not all operations could be noted
  uint8_t unused;
  uint32_t count;  ///< lists: operations; kBarrier: round; kAsk, kAnswer: number of the question
  int64_t value;  ///< kMisplaced: shift; kAsk: call site
};
static_assert(sizeof(Header) == 32);

enum class Outcome : uint8_t { kNotRead, kSame, kDifferent, kUnreadable };

/// One operation; `run_count` runs follow. None: one piece of `bytes`.
struct Item {
  uint64_t digest, bytes, site;
  int64_t displacement, count, extent;
  int64_t low, high;  ///< of one element, from the displacement
  uint64_t found;  ///< filled by the target
  uint32_t run_count;
  uint16_t call;
  What what;
  bool anywhere;
  Outcome outcome;  ///< filled by the target
  bool overlapped;  ///< filled by the target
  bool has_before;  ///< full blame: `before` holds
  bool ended;  ///< full blame: `at_end` holds
  BasicType padded;  ///< long doubles: what all of it consists of (type_digest leaves out their padding); else kUnknown
  uint64_t before;  ///< what was there before; kPut: in the target's memory, filled there; kGet: in the origin's buffer
  uint64_t at_end;  ///< the origin's data when the epoch was over
};
static_assert(sizeof(Item) == 112);

constexpr uint32_t kMaxItemRuns =
    static_cast<uint32_t>((ledger::kMessageBytes - sizeof(Header) - sizeof(Item)) / sizeof(Run));

struct Packet {
  Packet* next;
  bool read;  ///< its items' outcomes are filled
  bool answered;  ///< the origin's last list message has been acknowledged, or needs no answer
  uint32_t question;  ///< 0, or the question that must be answered before
  union {
    Header header;
    char payload[ledger::kMessageBytes];
  };
};

inline Item* first_item(Packet& packet) { return reinterpret_cast<Item*>(packet.payload + sizeof(Header)); }
inline const Run* item_runs(const Item& item) { return reinterpret_cast<const Run*>(&item + 1); }
inline Item* next_item(Item& item) {
  return reinterpret_cast<Item*>(reinterpret_cast<char*>(&item + 1) + item.run_count * sizeof(Run));
}
template <class Do>
void each_item(Packet& packet, Do&& act) {
  Item* item = first_item(packet);
  for (uint32_t i = 0; i < packet.header.count; ++i, item = next_item(*item)) act(*item);
}

/// The packet after `packet` in the window's list (null: the first one), while others may append.
inline Packet* packet_after(Window& window, Packet* packet) {
  Guard guard(window.lock);
  return packet != nullptr ? packet->next : window.first;
}

// --- lists.cpp ---------------------------------------------------------------------------------------------------
Packet* packet_allocate();
void packet_release(Packet* packet);
void deliver(Window& window, const void* payload, size_t bytes);  ///< to the window's own list
/// Sends this rank's operations of an epoch to a target (to this rank itself: delivers them). False: no room.
bool send_list(Thread& thread, Window& window, Epoch epoch, int target, uint32_t number, const uint32_t* order,
               uint32_t count);
bool send(Thread& thread, Window& window, int target, ledger::Kind kind, const Header& header,
          const char* text = nullptr);
/// Indices of the operations of an epoch, sorted by target, at most `room`; how many.
uint32_t sorted_operations(const Window& window, Epoch epoch, uint32_t* order, uint32_t room);

// --- verify.cpp --------------------------------------------------------------------------------------------------
/// Reads the memory that a packet names and compares. Returns whether something differs.
bool read_packet(Window& window, Packet& packet);
/// All lists of the epoch are there and read: decides what overlaps, counts, makes findings, frees the packets. Those
/// with the given kind of message and `chosen` only. `give_up` but kNone: counts them as uncovered instead.
void judge(Thread& thread, Window& window, Message list, Reason give_up, bool (*chosen)(const Window&, const Packet&));

struct Interval;
uint64_t intervals_of(const Item& item);
/// The item's pieces; as one from its lowest to its highest byte where there are too many. intervals_of(item) at most.
size_t fill_intervals(const Window& w, const Item& item, uint32_t number, Interval* to);

// --- races.cpp ---------------------------------------------------------------------------------------------------
/// Full blame: tells conflicting accesses of the epoch whose effect is seen. Gets of what the target stored itself are
/// marked as overlapped.
void find_races(const Window& w, Packet* packets, Message list);

// --- overlap.cpp -------------------------------------------------------------------------------------------------
struct Interval {
  int64_t start, end;
  uint32_t item;  ///< which operation
  bool writes;
};
/// Marks items that share a byte with another one, unless both only read. Sorts the intervals.
void mark_overlaps(Interval* intervals, size_t count, bool* overlapped);

// --- finding.cpp -------------------------------------------------------------------------------------------------
struct Mismatch {
  const Window* window;
  int origin, target;  ///< ranks in the group
  uint16_t call;
  uint64_t site, bytes, digest, found;
  int64_t displacement;
  const char* site_text;  ///< "": only the address is known
  const char* how;  ///< what was compared
  uint64_t again;  ///< what a second reading found
  const char *verdict, *reached_by;  ///< one of blame's; null: undetermined
  int culprit;  ///< rank in the group; -1: none
};
/// Full blame: the content of another operation on the window, lately: see judge().
struct Resemblance {
  bool found;
  uint16_t call;
  int origin;
  int64_t displacement;
};
void publish_mismatch(Thread& thread, const Mismatch& mismatch);

}  // namespace resil::rma
