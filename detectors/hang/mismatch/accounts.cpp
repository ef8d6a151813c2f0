// SPDX-License-Identifier: Apache-2.0
//
// Collecting and merging. Both work on one list in an arena: what is known, sorted, equal keys added up, zeros dropped,
// and folded until it fits.

#include "detectors/hang/mismatch/accounts.h"

#include <cstring>

#include "detectors/hang/mismatch/accounts_frame.h"
#include "detectors/hang/mismatch/read.h"
#include "detectors/hang/slots/calls.h"
#include "detectors/hang/slots/envelopes.h"
#include "shim/base/hash.h"
#include "shim/runtime/memory.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostAccounts = 4u << 20, kMostCounts = 1u << 18;  // address space until used
constexpr uint32_t kMostCommNames = 256;
constexpr uint32_t kIrregular =
    kCancelled | kFailedCall | kLostEnvelope | kOtherWorld | kPartitionedUse | kUnknownSource;

struct Arena {
  AccountsHeader header;
  uint32_t accounts, counts, names;
  bool overflow;  ///< more than the arena holds: nothing is judged
  Account account[kMostAccounts];
  Count count[kMostCounts];
  CommName name[kMostCommNames];
};

Arena* arena() {
  static Arena* made = nullptr;
  if (made == nullptr) made = memory::map_array<Arena>();
  if (made != nullptr) {
    made->header = {kAccountsMagic, 0, 0, 0, 0, 0, ~uint64_t{0}, 0, 0, 0, 0, 0, 0};
    made->accounts = made->counts = made->names = 0;
    made->overflow = false;
  }
  return made;
}

uint64_t pair_hash(const Account& account) {
  if (account.comm == 0) return 0;  // marks are never folded
  return hash_combine(
      account.comm, uint64_t{static_cast<uint32_t>(account.source)} << 32 | static_cast<uint32_t>(account.destination));
}

int compare(const Account& a, const Account& b) {
  if (a.comm != b.comm) return a.comm < b.comm ? -1 : 1;
  if (a.source != b.source) return a.source < b.source ? -1 : 1;
  if (a.destination != b.destination) return a.destination < b.destination ? -1 : 1;
  return a.tag < b.tag ? -1 : a.tag > b.tag ? 1 : 0;
}

int compare(const Count& a, const Count& b) { return a.comm < b.comm ? -1 : a.comm > b.comm ? 1 : 0; }

/// Heap sort: no memory, no bad case.
template <class T>
void sort(T* items, uint32_t count) {
  auto sink = [&](uint32_t at, uint32_t end) {
    for (uint32_t child; (child = 2 * at + 1) < end; at = child) {
      if (child + 1 < end && compare(items[child], items[child + 1]) < 0) ++child;
      if (compare(items[at], items[child]) >= 0) return;
      const T swapped = items[at];
      items[at] = items[child];
      items[child] = swapped;
    }
  };
  for (uint32_t i = count / 2; i-- > 0;) sink(i, count);
  for (uint32_t end = count; end > 1; --end) {
    const T top = items[0];
    items[0] = items[end - 1];
    items[end - 1] = top;
    sink(0, end - 1);
  }
}

void add(Arena& to, const Account& account) {
  if (account.difference == 0) return;
  if (to.accounts == kMostAccounts) to.overflow = true;
  else to.account[to.accounts++] = account;
}

void add(Arena& to, const Count& count) {
  if (to.counts == kMostCounts) ++to.header.counts_lost;
  else to.count[to.counts++] = count;
}

const CommName* find_name(const Arena& in, uint64_t comm) {
  for (uint32_t i = 0; i < in.names; ++i)
    if (in.name[i].comm == comm) return &in.name[i];
  return nullptr;
}

void add(Arena& to, const CommName& name) {
  if (to.names < kMostCommNames && find_name(to, name.comm) == nullptr) to.name[to.names++] = name;
}

Count both(Count a, const Count& b) {
  a.present += b.present;
  a.marked += b.marked;
  if (b.members > a.members) a.members = b.members;
  if (b.least <= a.least) {
    a.at_least = b.at_least + (b.least == a.least ? a.at_least : 0);
    a.least = b.least;
    a.least_rank = b.least_rank;
  }
  if (b.most >= a.most) {
    a.at_most = b.at_most + (b.most == a.most ? a.at_most : 0);
    a.most = b.most;
    a.most_rank = b.most_rank;
  }
  return a;
}

/// Adds up equal keys; what is settled goes.
void settle(Arena& in) {
  sort(in.account, in.accounts);
  uint32_t left = 0;
  for (uint32_t i = 0; i < in.accounts;) {
    Account sum = in.account[i++];
    for (; i < in.accounts && compare(in.account[i], sum) == 0; ++i)
      sum.difference = sum_of(sum.difference, in.account[i].difference);
    if (sum.difference != 0) in.account[left++] = sum;
  }
  in.accounts = left;
  sort(in.count, in.counts);
  left = 0;
  for (uint32_t i = 0; i < in.counts;) {
    Count sum = in.count[i++];
    for (; i < in.counts && in.count[i].comm == sum.comm; ++i) sum = both(sum, in.count[i]);
    if (sum.present < sum.members || (sum.least != sum.most && sum.marked == 0)) in.count[left++] = sum;
  }
  in.counts = left;
}

/// Into a fixed sum goes, on all nodes alike, every pair whose hash is above the limit.
void fold(Arena& in, uint64_t limit) {
  if (limit < in.header.limit) in.header.limit = limit;
  uint32_t left = 0;
  for (uint32_t i = 0; i < in.accounts; ++i) {
    const Account& account = in.account[i];
    if (pair_hash(account) <= in.header.limit) {
      in.account[left++] = account;
    } else if (account.tag != kMixedTag) {
      // Tags are added up: some may be counted under kOtherTags on one side.
      in.header.folded_sum += pair_hash(account) * static_cast<uint64_t>(account.difference);
      ++in.header.folded;
    }
  }
  in.accounts = left;
}

/// Names of what is left only; those of messages first. Sorted accounts and counts.
uint32_t write_names(const Arena& from, char* out, uint32_t room_bytes) {
  uint32_t written = 0;
  uint64_t last = 0;
  auto one = [&](uint64_t comm) {
    const CommName* name = comm != last ? find_name(from, comm) : nullptr;
    last = comm;
    if (name == nullptr || (written + 1) * sizeof(CommName) > room_bytes) return;
    for (uint32_t i = 0; i < written; ++i)
      if (memcmp(out + i * sizeof(CommName), &comm, sizeof(comm)) == 0) return;
    memcpy(out + written++ * sizeof(CommName), name, sizeof(CommName));
  };
  for (uint32_t i = 0; i < from.accounts; ++i) one(from.account[i].comm);
  for (uint32_t i = 0; i < from.counts; ++i) one(from.count[i].comm);
  return written;
}

uint32_t write(Arena& from, void* room, uint32_t room_bytes) {
  if (room_bytes < sizeof(AccountsHeader) || from.overflow) return 0;
  settle(from);
  fold(from, from.header.limit);
  while (sizeof(AccountsHeader) + uint64_t{from.accounts} * sizeof(Account) > room_bytes / 4 * 3 &&
         from.header.limit != 0)
    fold(from, from.header.limit / 2);
  while (sizeof(AccountsHeader) + uint64_t{from.accounts} * sizeof(Account) + uint64_t{from.counts} * sizeof(Count) >
         room_bytes) {
    if (from.counts == 0) return 0;
    --from.counts;
    ++from.header.counts_lost;
  }
  from.header.accounts = from.accounts;
  from.header.counts = from.counts;
  from.header.bytes =
      static_cast<uint32_t>(sizeof(AccountsHeader) + from.accounts * sizeof(Account) + from.counts * sizeof(Count));
  auto* out = static_cast<char*>(room);
  from.header.names = write_names(from, out + from.header.bytes, room_bytes - from.header.bytes);
  from.header.bytes += static_cast<uint32_t>(from.header.names * sizeof(CommName));
  memcpy(out, &from.header, sizeof(AccountsHeader));
  memcpy(out + sizeof(AccountsHeader), from.account, from.accounts * sizeof(Account));
  memcpy(out + sizeof(AccountsHeader) + from.accounts * sizeof(Account), from.count, from.counts * sizeof(Count));
  return from.header.bytes;
}

void read(Arena& into, const void* frame, const AccountsHeader& from) {
  into.header.ranks += from.ranks;
  into.header.rank_sum += from.rank_sum;
  into.header.folded += from.folded;
  into.header.folded_sum += from.folded_sum;
  into.header.counts_lost += from.counts_lost;
  into.header.world = from.world;
  if (into.header.world_comm == 0) into.header.world_comm = from.world_comm;
  if (from.limit < into.header.limit) into.header.limit = from.limit;
  for (uint32_t i = 0; i < from.accounts; ++i) add(into, account_at(frame, i));
  for (uint32_t i = 0; i < from.counts; ++i) add(into, count_at(frame, from, i));
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

void add_rank(Arena& to, const Watched& rank) {
  const Section& section = *rank.section;
  const uint32_t irregular = __atomic_load_n(&section.irregular, __ATOMIC_ACQUIRE);
  bool marked = (irregular & kIrregular) != 0;
  for (uint32_t i = 0; i < kEnvelopes && !marked; ++i) {
    const Envelope& envelope = section.envelopes[i];
    // A wildcard that was not told what it got may have taken any message.
    marked = load(envelope.comm) > kNobody && is_wild_envelope(envelope.peer, envelope.tag) &&
             envelope.posted != envelope.told;
  }
  if (marked) {
    add(to, Account{0, rank.rank, rank.rank, kMarkTag, 0, 1});
  } else {
    if (irregular & kForgotten) add(to, Account{0, rank.rank, rank.rank, kForgotTag, 0, 1});
    for (uint32_t i = 0; i < kEnvelopes; ++i) {
      const Envelope& envelope = section.envelopes[i];
      const uint64_t comm = load(envelope.comm);
      if (comm <= kNobody || envelope.peer < 0 || envelope.tag <= kFirstToken ||
          is_wild_envelope(envelope.peer, envelope.tag))
        continue;
      if (envelope.tag == kOtherTags) {
        add(to, Account{comm, rank.rank, envelope.peer, kMixedTag, 0, 1});
        add(to, Account{comm, envelope.peer, rank.rank, kMixedTag, 0, 1});
      }
      add(to, Account{comm, rank.rank, envelope.peer, envelope.tag, 0, static_cast<int64_t>(envelope.sent)});
      add(to, Account{comm, envelope.peer, rank.rank, envelope.tag, 0,
                      static_cast<int64_t>(0 - (envelope.posted + envelope.taken))});
    }
  }
  for (const Track& track : section.tracks) {
    TrackRead read;
    if (read_track(track, &read) != ReadResult::kRead) continue;
    const auto members = static_cast<uint32_t>(read.shape & kTrackMembers);
    if (members <= 1) continue;
    uint64_t made = read.sequence;
    const PathPoint& last = read.points[read.count - 1];
    if (last.n == made && (last.signature & 0x3ff) == static_cast<uint64_t>(CallId::kMPI_Finalize)) --made;
    const uint32_t unsure = (read.shape & kTrackMarks) != 0 ? 1 : 0;
    add(to, Count{read.comm, made, made, rank.rank, rank.rank, members, 1, 1, 1, unsure, 0});
  }
}

}  // namespace

namespace {

/// What this node knows of the communicators that are left after its own ranks' messages have cancelled out.
void add_names(Arena& to, const Watched* watched, uint32_t count) {
  settle(to);
  auto one = [&](uint64_t comm) {
    CommName name = {comm, ""};
    if (comm == 0 || to.names == kMostCommNames || find_name(to, comm) != nullptr) return;
    for (uint32_t i = 0; i < count; ++i)
      if (watched[i].header != nullptr && comm_name(watched[i], comm, name.text, sizeof(name.text))) {
        add(to, name);
        return;
      }
  };
  for (uint32_t i = 0; i < to.accounts; ++i)
    if (i == 0 || to.account[i].comm != to.account[i - 1].comm) one(to.account[i].comm);
  for (uint32_t i = 0; i < to.counts; ++i) one(to.count[i].comm);
}

}  // namespace

bool accounts_check(const void* frame, uint32_t bytes, AccountsHeader* header) {
  if (bytes < sizeof(AccountsHeader)) return false;
  memcpy(header, frame, sizeof(AccountsHeader));
  return header->magic == kAccountsMagic && header->bytes == bytes &&
         bytes == sizeof(AccountsHeader) + uint64_t{header->accounts} * sizeof(Account) +
                      uint64_t{header->counts} * sizeof(Count) + uint64_t{header->names} * sizeof(CommName);
}

uint32_t accounts_collect(const Watched* watched, uint32_t count, void* room, uint32_t room_bytes) {
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

bool accounts_merge(void* into, uint32_t* bytes, uint32_t room, const void* from, uint32_t from_bytes) {
  Arena* made = arena();
  AccountsHeader ours, theirs;
  if (made == nullptr || !accounts_check(from, from_bytes, &theirs)) return false;
  if (accounts_check(into, *bytes, &ours)) {
    if (ours.world != theirs.world) return false;
    read(*made, into, ours);
  }
  read(*made, from, theirs);
  *bytes = write(*made, into, room);
  return *bytes != 0;
}

}  // namespace resil::hang
