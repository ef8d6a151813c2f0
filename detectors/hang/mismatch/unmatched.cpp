// SPDX-License-Identifier: Apache-2.0
//
// Collecting and merging. Both work on one list in an arena: what is known, sorted, equal keys added up, zeros dropped,
// and folded until it fits.

#include "detectors/hang/mismatch/unmatched.h"

#include <cstring>

#include "detectors/hang/mismatch/unmatched_frame.h"
#include "detectors/hang/slots/envelopes.h"
#include "shim/base/hash.h"
#include "shim/base/sort.h"
#include "shim/model/datatype/signature.h"
#include "shim/runtime/memory.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostBalances = 4u << 20;  // address space until used
constexpr uint32_t kMostCommNames = 256;
constexpr uint32_t kIrregular =
    kCancelled | kFailedCall | kLostEnvelope | kOtherWorld | kPartitionedUse | kUnknownSource;

struct Arena {
  UnmatchedHeader header;
  uint32_t balances, names;
  bool overflow;  ///< more than the arena holds: nothing is judged
  Balance balance[kMostBalances];
  CommName name[kMostCommNames];
};

Arena* arena() {
  static Arena* made = nullptr;
  if (made == nullptr) made = memory::map_array<Arena>();
  if (made != nullptr) {
    made->header = {kUnmatchedMagic, 0, 0, 0, 0, 0, ~uint64_t{0}, 0, 0, 0, 0};
    made->balances = made->names = 0;
    made->overflow = false;
  }
  return made;
}

uint64_t pair_hash(const Balance& balance) {
  if (balance.comm == 0) return 0;  // marks are never folded
  return hash_combine(
      balance.comm, uint64_t{static_cast<uint32_t>(balance.source)} << 32 | static_cast<uint32_t>(balance.destination));
}

bool before(const Balance& a, const Balance& b) {
  if (a.comm != b.comm) return a.comm < b.comm;
  if (a.source != b.source) return a.source < b.source;
  return a.destination != b.destination ? a.destination < b.destination : a.tag < b.tag;
}

bool matters(const Balance& balance) { return balance.difference != 0 || types_differ(balance); }

uint16_t merged(uint16_t a, uint16_t b) { return a == 0 || a == b ? b : b == 0 ? a : kNoComparison; }

void add(Arena& to, const Balance& balance) {
  if (!matters(balance)) return;
  if (to.balances == kMostBalances) to.overflow = true;
  else to.balance[to.balances++] = balance;
}

const CommName* find_name(const Arena& in, uint64_t comm) {
  for (uint32_t i = 0; i < in.names; ++i)
    if (in.name[i].comm == comm) return &in.name[i];
  return nullptr;
}

void add(Arena& to, const CommName& name) {
  if (to.names < kMostCommNames && find_name(to, name.comm) == nullptr) to.name[to.names++] = name;
}

/// Adds up equal keys; what is settled goes.
void settle(Arena& in) {
  heap_sort(in.balance, in.balances, before);
  uint32_t left = 0;
  for (uint32_t i = 0; i < in.balances;) {
    Balance sum = in.balance[i++];
    for (; i < in.balances && !before(sum, in.balance[i]); ++i) {
      sum.difference = sum_of(sum.difference, in.balance[i].difference);
      sum.sent_type = merged(sum.sent_type, in.balance[i].sent_type);
      sum.received_type = merged(sum.received_type, in.balance[i].received_type);
    }
    if (matters(sum)) in.balance[left++] = sum;
  }
  in.balances = left;
}

/// Into a fixed sum goes, on all nodes alike, every pair whose hash is above the limit.
void fold(Arena& in, uint64_t limit) {
  if (limit < in.header.limit) in.header.limit = limit;
  uint32_t left = 0;
  for (uint32_t i = 0; i < in.balances; ++i) {
    const Balance& balance = in.balance[i];
    if (pair_hash(balance) <= in.header.limit) {
      in.balance[left++] = balance;
    } else if (balance.tag != kMixedTag) {
      // Tags are added up: some may be counted under kOtherTags on one side.
      in.header.folded_sum += pair_hash(balance) * static_cast<uint64_t>(balance.difference);
      ++in.header.folded;
    }
  }
  in.balances = left;
}

/// Names of what is left only. Sorted.
uint32_t write_names(const Arena& from, char* out, uint32_t room_bytes) {
  uint32_t written = 0;
  for (uint32_t i = 0; i < from.balances && (written + 1) * sizeof(CommName) <= room_bytes; ++i) {
    const bool next = i == 0 || from.balance[i].comm != from.balance[i - 1].comm;
    const CommName* name = next ? find_name(from, from.balance[i].comm) : nullptr;
    if (name != nullptr) memcpy(out + written++ * sizeof(CommName), name, sizeof(CommName));
  }
  return written;
}

uint32_t write(Arena& from, void* room, uint32_t room_bytes) {
  if (room_bytes < sizeof(UnmatchedHeader) || from.overflow) return 0;
  settle(from);
  fold(from, from.header.limit);
  while (sizeof(UnmatchedHeader) + uint64_t{from.balances} * sizeof(Balance) > room_bytes / 4 * 3 &&
         from.header.limit != 0)
    fold(from, from.header.limit / 2);
  from.header.balances = from.balances;
  from.header.bytes = static_cast<uint32_t>(sizeof(UnmatchedHeader) + from.balances * sizeof(Balance));
  if (from.header.bytes > room_bytes) return 0;
  auto* out = static_cast<char*>(room);
  from.header.names = write_names(from, out + from.header.bytes, room_bytes - from.header.bytes);
  from.header.bytes += static_cast<uint32_t>(from.header.names * sizeof(CommName));
  memcpy(out, &from.header, sizeof(UnmatchedHeader));
  memcpy(out + sizeof(UnmatchedHeader), from.balance, from.balances * sizeof(Balance));
  return from.header.bytes;
}

void read(Arena& into, const void* frame, const UnmatchedHeader& from) {
  into.header.ranks += from.ranks;
  into.header.rank_sum += from.rank_sum;
  into.header.folded += from.folded;
  into.header.folded_sum += from.folded_sum;
  into.header.world = from.world;
  if (into.header.world_comm == 0) into.header.world_comm = from.world_comm;
  if (from.limit < into.header.limit) into.header.limit = from.limit;
  for (uint32_t i = 0; i < from.balances; ++i) add(into, balance_at(frame, i));
  for (uint32_t i = 0; i < from.names; ++i) add(into, name_at(frame, from, i));
}

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

/// Has the rank made its last call?
bool is_final(const Watched& rank) {
  if (rank.header == nullptr || rank.section == nullptr) return false;
  const auto phase = static_cast<ring::Phase>(__atomic_load_n(&rank.header->phase, __ATOMIC_ACQUIRE));
  const uint32_t irregular = __atomic_load_n(&rank.section->irregular, __ATOMIC_ACQUIRE);
  // A callback of an attribute of MPI_COMM_SELF runs inside MPI_Finalize and may still send.
  return phase == ring::Phase::kFinished || (phase == ring::Phase::kFinalizing && (irregular & kSelfAttribute) == 0);
}

uint16_t type_of(const Envelope& envelope, uint32_t type) {
  return type == kNoType ? 0 : type == kAnyType || envelope.tag == kOtherTags ? kNoComparison : signature_fold(type);
}

void add_rank(Arena& to, const Watched& rank) {
  const Section& section = *rank.section;
  const uint32_t irregular = __atomic_load_n(&section.irregular, __ATOMIC_ACQUIRE);
  bool marked = (irregular & kIrregular) != 0;
  each_envelope(section, [&](const Envelope& envelope) {
    // A wildcard that was not told what it got may have taken any message.
    marked = marked || (load(envelope.comm) > kNobody && is_wild_envelope(envelope.peer, envelope.tag) &&
                        envelope.posted != envelope.told);
    return !marked;
  });
  if (marked) {
    add(to, Balance{0, rank.rank, rank.rank, kMarkTag, 0, 0, 1});
  } else {
    if (irregular & kForgotten) add(to, Balance{0, rank.rank, rank.rank, kForgotTag, 0, 0, 1});
    each_envelope(section, [&](const Envelope& envelope) {
      const uint64_t comm = load(envelope.comm);
      if (comm <= kNobody || envelope.peer < 0 || envelope.tag <= kFirstToken ||
          is_wild_envelope(envelope.peer, envelope.tag))
        return true;
      if (envelope.tag == kOtherTags) {
        add(to, Balance{comm, rank.rank, envelope.peer, kMixedTag, 0, 0, 1});
        add(to, Balance{comm, envelope.peer, rank.rank, kMixedTag, 0, 0, 1});
      }
      add(to, Balance{comm, rank.rank, envelope.peer, envelope.tag, type_of(envelope, envelope.types.sent), 0,
                      static_cast<int64_t>(envelope.sent)});
      add(to, Balance{comm, envelope.peer, rank.rank, envelope.tag, 0, type_of(envelope, envelope.types.posted),
                      static_cast<int64_t>(0 - (envelope.posted + envelope.taken))});
      return true;
    });
  }
}

/// What this node knows of the communicators that are left after its own ranks' messages have cancelled out.
void add_names(Arena& to, const Watched* watched, uint32_t count) {
  settle(to);
  for (uint32_t i = 0; i < to.balances && to.names < kMostCommNames; ++i) {
    CommName name = {to.balance[i].comm, ""};
    if (name.comm == 0 || find_name(to, name.comm) != nullptr) continue;
    for (uint32_t k = 0; k < count; ++k)
      if (watched[k].header != nullptr && comm_name(watched[k], name.comm, name.text, sizeof(name.text))) {
        add(to, name);
        break;
      }
  }
}

}  // namespace

bool unmatched_check(const void* frame, uint32_t bytes, UnmatchedHeader* header) {
  if (bytes < sizeof(UnmatchedHeader)) return false;
  memcpy(header, frame, sizeof(UnmatchedHeader));
  return header->magic == kUnmatchedMagic && header->bytes == bytes &&
         bytes == sizeof(UnmatchedHeader) + uint64_t{header->balances} * sizeof(Balance) +
                      uint64_t{header->names} * sizeof(CommName);
}

uint32_t unmatched_collect(const Watched* watched, uint32_t count, void* room, uint32_t room_bytes) {
  Arena* made = arena();
  if (made == nullptr) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (watched[i].header != nullptr && watched[i].header->world_size > 0) {
      made->header.world = static_cast<uint32_t>(watched[i].header->world_size);
      made->header.world_comm =
          hash_combine(hash_text("MPI_COMM_WORLD"), static_cast<uint64_t>(watched[i].header->world));
    }
    if (!is_final(watched[i])) continue;
    ++made->header.ranks;
    made->header.rank_sum += mix64(static_cast<uint64_t>(watched[i].rank) + 1);
    add_rank(*made, watched[i]);
  }
  add_names(*made, watched, count);
  return made->header.world != 0 ? write(*made, room, room_bytes) : 0;
}

bool unmatched_merge(void* into, uint32_t* bytes, uint32_t room, const void* from, uint32_t from_bytes) {
  Arena* made = arena();
  UnmatchedHeader ours, theirs;
  if (made == nullptr || !unmatched_check(from, from_bytes, &theirs)) return false;
  if (unmatched_check(into, *bytes, &ours)) {
    if (ours.world != theirs.world) return false;
    read(*made, into, ours);
  }
  read(*made, from, theirs);
  *bytes = write(*made, into, room);
  return *bytes != 0;
}

}  // namespace resil::hang
