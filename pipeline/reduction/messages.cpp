// SPDX-License-Identifier: Apache-2.0
//
// See messages.h. Ranks of a group form a binomial tree: a rank gives what it has to the rank without its lowest bit.
// Contributions are combined on the way up (order), or travel together to where they are folded at once (exact sums and
// prefixes). Long vectors go in parts. Groups of an intercommunicator each have a tree; rank 0 speaks for its group.

#include "pipeline/reduction/messages.h"

#include <cstring>

#include "pipeline/reduction/blocking.h"
#include "pipeline/reduction/wire.h"
#include "shim/abi/backend.h"
#include "shim/ring/ring_format.h"
#include "shim/runtime/mailbox.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

struct Part {
  const Call& call;
  Thread& thread;
  Arena& arena;
  Key key;
  Sending sending;
  int64_t first, count;  ///< elements
  size_t bytes;  ///< of one contribution
  int error;
  bool broken;  ///< a message did not come as it should: the program's counts differ, or MPI failed

  int32_t local(int rank) const {
    if (!call.inter()) return comm_world_rank(*call.info, rank);
    int world = -1;
    backend->comm_world_ranks(call.comm, false, 1, &rank, &world);
    return world;
  }
  int32_t remote(int rank) const { return comm_world_rank(*call.info, rank); }

  void send(Hop hop, int32_t to, char* payload, size_t size) {
    key.hop = hop;
    if (!wire_send(thread, key, to, payload, size, sending)) broken = true;
  }
  char* receive(Hop hop, int32_t from, size_t size) {
    key.hop = hop;
    char* payload = wire_receive(thread, key, from, size, arena);
    if (payload == nullptr) broken = true;
    return payload;
  }
  char* room(size_t size) { return arena.allocate(kHeadroom + size) + kHeadroom; }
};

int lowest_bit(int rank, int size) {
  int bit = 1;
  while (bit < size && (rank & bit) == 0) bit *= 2;
  return bit;
}

/// Contributions that pass through this rank.
int64_t below(const Call& c) {
  const int bit = lowest_bit(c.rank, c.size);
  return bit < c.size - c.rank ? bit : c.size - c.rank;
}

/// Combined on the way: at rank 0 the result. Null on the others, or when something failed.
char* fold_up(Part& p) {
  const Call& c = p.call;
  char* mine = p.room(p.bytes);
  load(c.operand, c.input, p.first, p.count, mine);
  for (int bit = 1; bit < c.size; bit *= 2) {
    if (c.rank & bit) {
      p.send(Hop::kUp, p.local(c.rank - bit), mine, p.bytes);
      return nullptr;
    }
    if (c.rank + bit >= c.size) continue;
    char* higher = p.receive(Hop::kUp, p.local(c.rank + bit), p.bytes);
    if (higher == nullptr) return nullptr;
    char* both[] = {mine, higher};
    p.error = fold_cells(c.operand, both, 2, higher, p.count, p.arena);
    mine = higher;
  }
  return mine;
}

/// All contributions in order, at rank 0.
char* collect(Part& p) {
  const Call& c = p.call;
  char* mine = p.room(static_cast<size_t>(below(c)) * p.bytes);
  load(c.operand, c.input, p.first, p.count, mine);
  for (int bit = 1; bit < c.size; bit *= 2) {
    if (c.rank & bit) {
      p.send(Hop::kUp, p.local(c.rank - bit), mine, static_cast<size_t>(below(c)) * p.bytes);
      return nullptr;
    }
    const int from = c.rank + bit;
    if (from >= c.size) continue;
    const int64_t theirs = bit < c.size - from ? bit : c.size - from;
    const char* higher = p.receive(Hop::kUp, p.local(from), static_cast<size_t>(theirs) * p.bytes);
    if (higher == nullptr) return nullptr;
    memcpy(mine + static_cast<size_t>(bit) * p.bytes, higher, static_cast<size_t>(theirs) * p.bytes);
  }
  return mine;
}

/// From rank 0 to everyone in the group.
char* spread(Part& p, char* payload, size_t size) {
  const Call& c = p.call;
  const int own = lowest_bit(c.rank, c.size);
  if (c.rank != 0) payload = p.receive(Hop::kDown, p.local(c.rank - own), size);
  if (payload == nullptr) return nullptr;
  for (int bit = own / 2; bit > 0; bit /= 2)
    if (c.rank + bit < c.size) p.send(Hop::kDown, p.local(c.rank + bit), payload, size);
  return payload;
}

char** pointers(Part& p, char* cells, int64_t ranks) {
  char** list = p.arena.array<char*>(ranks);
  for (int64_t r = 0; r < ranks; ++r) list[r] = cells + static_cast<size_t>(r) * p.bytes;
  return list;
}

/// The group's result at its rank 0, else null.
char* group_result(Part& p) {
  const Call& c = p.call;
  if (c.operand.mode == Mode::kOrder) return fold_up(p);
  char* all = collect(p);
  if (all != nullptr) p.error = fold_cells(c.operand, pointers(p, all, c.size), c.size, all, p.count, p.arena);
  return all;
}

void prefixes(Part& p) {
  const Call& c = p.call;
  const size_t size = static_cast<size_t>(c.size) * p.bytes;
  char* all = spread(p, collect(p), size);
  const int64_t ranks = c.operation == Collective::kScan ? c.rank + 1 : c.rank;
  if (all == nullptr || ranks == 0) return;
  wire_wait(p.thread, p.sending);  // the fold overwrites it
  p.error = fold_cells(c.operand, pointers(p, all, ranks), ranks, all, p.count, p.arena);
  store(c.operand, c.output, p.first, p.count, all);
}

/// This rank's elements of the vector's part, into its buffer.
void keep(Part& p, const char* result) {
  const Call& c = p.call;
  if (result == nullptr) return;
  if (!is_reduce_scatter(c.operation)) return store(c.operand, c.output, p.first, p.count, result);
  int64_t start = 0;
  for (int r = 0; r < c.rank; ++r) start += c.block_of(r);
  const int64_t end = start + c.block_of(c.rank), last = p.first + p.count;
  const int64_t from = start > p.first ? start : p.first, to = end < last ? end : last;
  if (from < to)
    store(c.operand, c.output, from - start, to - from, result + static_cast<size_t>(from - p.first) * c.operand.cell);
}

void reduce_to_root(Part& p) {
  const Call& c = p.call;
  if (c.inter()) {
    if (c.root >= 0) {
      if (char* result = group_result(p); result != nullptr) p.send(Hop::kAcross, p.remote(c.root), result, p.bytes);
    } else if (c.is_root()) {
      keep(p, p.receive(Hop::kAcross, p.remote(0), p.bytes));
    }
    return;
  }
  char* result = group_result(p);
  if (c.root == 0) return keep(p, result);
  if (c.rank == 0 && result != nullptr) p.send(Hop::kAcross, p.local(c.root), result, p.bytes);
  else if (c.rank == c.root) keep(p, p.receive(Hop::kAcross, p.local(0), p.bytes));
}

void reduce_everywhere(Part& p) {
  const Call& c = p.call;
  char* result = group_result(p);
  if (c.inter() && c.rank == 0 && result != nullptr) {
    p.send(Hop::kAcross, p.remote(0), result, p.bytes);
    result = p.receive(Hop::kAcross, p.remote(0), p.bytes);
  }
  keep(p, spread(p, result, p.bytes));
}

/// In place a Reduce_scatter's results overwrite what later parts contribute, so the vector must go in one part.
int64_t part_of(const Call& c) {
  const bool scatters = is_reduce_scatter(c.operation);
  if (scatters && c.in_place) return c.count;
  const bool together =
      c.operand.mode == Mode::kExact || c.operation == Collective::kScan || c.operation == Collective::kExscan;
  const int64_t ranks = c.remote > c.size ? c.remote : c.size;
  const int64_t elements = kSegment / static_cast<int64_t>(c.operand.cell) / (together ? ranks : 4);
  return elements < 1 ? 1 : elements < c.count ? elements : c.count;
}

}  // namespace

void messages_prepare() { wire_prepare(); }

bool messages_serve(const Call& c) {
  // In a job that goes on after the death of a rank, MPI's own collectives tell it, and the program can revoke them.
  if (!mailbox::is_open() || job_survives() || (c.info->ring->flags & 1) != 0 || c.info->size < 0) return false;
  const int64_t ranks = c.remote > c.size ? c.remote : c.size;
  const int64_t cells = kLargestPiece / static_cast<int64_t>(c.operand.cell);
  return part_of(c) <= cells / ranks;
}

bool messages_better(const Call& c) {
  if (c.inter() || c.size < kTreeRanks || c.operand.mode != Mode::kOrder ||
      (c.operation != Collective::kAllreduce && c.operation != Collective::kReduce))
    return false;
  const auto cell = static_cast<int64_t>(c.operand.cell);
  if (c.count > kTreeBytes / cell) return false;
  return c.size > kFlatRanks || c.count > kGathered / cell / c.size;
}

int intercept_by_messages(const Call& c, uint64_t sequence, Thread& thread, Arena& arena) {
  const int64_t step = part_of(c);
  Part p = {c, thread, arena, {c.info->ring->id, sequence, 0, Hop::kUp}, {{}, 0}, 0, 0, 0, 0, false};
  for (; p.first < c.count && p.error == 0 && !p.broken; p.first += step, ++p.key.part) {
    const size_t mark = arena.mark();
    p.count = c.count - p.first < step ? c.count - p.first : step;
    p.bytes = static_cast<size_t>(p.count) * c.operand.cell;
    if (c.operation == Collective::kScan || c.operation == Collective::kExscan) prefixes(p);
    else if (c.operation == Collective::kReduce) reduce_to_root(p);
    else reduce_everywhere(p);
    wire_wait(thread, p.sending);
    arena.rewind(mark);
  }
  return p.broken ? backend->collectives->truncated(c.comm) : p.error;
}

}  // namespace resil::reduction
