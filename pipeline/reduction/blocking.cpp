// SPDX-License-Identifier: Apache-2.0
//
// See blocking.h. A vector of n elements on P ranks. Small: everyone gathers all contributions and folds them. Large,
// a segment at a time: each rank gets one block of everybody's segment, folds it, and passes the result on; 2n(P-1)/P
// elements travel, as in the best algorithms of the libraries. On intercommunicators everything is gathered: blocks
// would have to be exchanged inside a group, for which there is no communicator.

#include "pipeline/reduction/blocking.h"

#include <climits>
#include <cstring>

#include "shim/abi/backend.h"
#include "shim/ring/ring_format.h"

namespace resil::reduction {

namespace {

const CollectiveFunctions& mpi() { return *backend->collectives; }

int64_t at_least_one(int64_t elements) { return elements < 1 ? 1 : elements; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// Cells of this rank's contribution from `first` on: in place, or copied to `room`.
const char* contribution(const Call& c, bool in_place, int64_t first, int64_t count, char* room) {
  if (in_place) return static_cast<const char*>(c.input) + static_cast<size_t>(first) * c.operand.cell;
  load(c.operand, c.input, first, count, room);
  return room;
}

char** pointers(char* cells, size_t stride, int64_t ranks, Arena& arena) {
  char** list = arena.array<char*>(ranks);
  for (int64_t r = 0; r < ranks; ++r) list[r] = cells + static_cast<size_t>(r) * stride;
  return list;
}

/// Folds to the program's buffer, elements from `first` on.
int fold_out(const Call& c, char** cells, int64_t ranks, int64_t first, int64_t count, bool out_direct, Arena& arena) {
  const Operand& o = c.operand;
  if (out_direct)
    return fold_cells(o, cells, ranks, static_cast<char*>(c.output) + static_cast<size_t>(first) * o.cell, count,
                      arena);
  const int error = fold_cells(o, cells, ranks, cells[ranks - 1], count, arena);
  if (error == 0) store(o, c.output, first, count, cells[ranks - 1]);
  return error;
}

/// How many of all contributions this rank folds when it has them all.
int64_t folded_here(const Call& c) {
  switch (c.operation) {
    case Collective::kScan: return c.rank + 1;
    case Collective::kExscan: return c.rank;
    default: return c.contributors();
  }
}

/// Allreduce, Scan, Exscan: everyone gathers everything.
int by_gathering(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const int64_t ranks = c.contributors(), mine = folded_here(c);
  const int64_t step = at_least_one(smaller(c.count, kSegment / static_cast<int64_t>(o.cell) / ranks));
  const bool in_direct = direct(o, c.input, c.count), out_direct = direct(o, c.output, c.count);
  char* room = in_direct ? nullptr : arena.allocate(static_cast<size_t>(step) * o.cell);
  char* cells = arena.allocate(static_cast<size_t>(step * ranks) * o.cell);
  for (int64_t first = 0; first < c.count; first += step) {
    const int64_t now = smaller(step, c.count - first);
    const size_t bytes = static_cast<size_t>(now) * o.cell;
    int error = mpi().allgather(c.comm, contribution(c, in_direct, first, now, room), static_cast<int>(bytes), cells);
    const size_t mark = arena.mark();
    if (error == 0 && mine != 0)
      error = fold_out(c, pointers(cells, bytes, ranks, arena), mine, first, now, out_direct, arena);
    arena.rewind(mark);
    if (error != 0) return error;
  }
  return 0;
}

/// Reduce: the root gathers everything, at once.
int by_root(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const bool root = c.is_root();
  if (c.inter() && c.root < 0 && !root) return mpi().gather(c.comm, nullptr, 0, nullptr, c.root);
  const int64_t ranks = c.contributors();
  const size_t bytes = static_cast<size_t>(c.count) * o.cell;
  char* cells = root ? arena.allocate(bytes * static_cast<size_t>(ranks)) : nullptr;
  const char* own = nullptr;
  if (!(root && c.inter())) {
    const bool in_direct = direct(o, c.input, c.count);
    own = contribution(c, in_direct, 0, c.count, in_direct ? nullptr : arena.allocate(bytes));
  }
  int error = mpi().gather(c.comm, own, static_cast<int>(bytes), cells, c.root);
  if (error == 0 && root)
    error = fold_out(c, pointers(cells, bytes, ranks, arena), ranks, 0, c.count, direct(o, c.output, c.count), arena);
  return error;
}

/// A segment's blocks by rank, in bytes.
struct Blocks {
  int *counts, *places;  ///< of the segment
  int *equal, *rows;  ///< this rank's block, once from everybody
  int64_t mine;  ///< elements
};

Blocks make_blocks(const Call& c, Arena& arena) {
  return {arena.array<int>(c.size), arena.array<int>(c.size), arena.array<int>(c.size), arena.array<int>(c.size), 0};
}

void divide(const Call& c, int64_t count, Blocks& b) {
  const int64_t base = count / c.size, extra = count % c.size;
  const auto cell = static_cast<int64_t>(c.operand.cell);
  b.mine = base + (c.rank < extra);
  int64_t place = 0;
  for (int r = 0; r < c.size; ++r) {
    const int64_t elements = base + (r < extra);
    b.counts[r] = static_cast<int>(elements * cell);
    b.places[r] = static_cast<int>(place * cell);
    place += elements;
    b.equal[r] = static_cast<int>(b.mine * cell);
    b.rows[r] = static_cast<int>(r * b.mine * cell);
  }
}

/// Allreduce and Reduce of large vectors.
int by_blocks(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const auto cell = static_cast<int64_t>(o.cell);
  const int64_t step = at_least_one(smaller(c.count, kSegment / cell));
  const bool everywhere = c.operation == Collective::kAllreduce, receives = everywhere || c.is_root();
  const bool in_direct = direct(o, c.input, c.count);
  const bool out_direct = receives && direct(o, c.output, c.count);
  Blocks b = make_blocks(c, arena);
  const size_t segment = static_cast<size_t>(step * cell);
  char* room = in_direct && out_direct ? nullptr : arena.allocate(segment);
  char* rows = arena.allocate(segment + static_cast<size_t>(c.size * cell));
  for (int64_t first = 0; first < c.count; first += step) {
    const int64_t now = smaller(step, c.count - first);
    divide(c, now, b);
    int error = mpi().alltoallv(c.comm, contribution(c, in_direct, first, now, room), b.counts, b.places, rows, b.equal,
                                b.rows);
    if (error != 0) return error;
    char* out = out_direct ? static_cast<char*>(c.output) + first * cell : room;
    char* own = everywhere || c.is_root() ? out + b.places[c.rank] : rows;
    const size_t mark = arena.mark();
    error =
        fold_cells(o, pointers(rows, static_cast<size_t>(b.mine * cell), c.size, arena), c.size, own, b.mine, arena);
    arena.rewind(mark);
    if (error == 0)
      error = everywhere ? mpi().allgatherv(c.comm, nullptr, 0, out, b.counts, b.places)
                         : mpi().gatherv(c.comm, c.is_root() ? nullptr : own, b.counts[c.rank], out, b.counts, b.places,
                                         c.root);
    if (error != 0) return error;
    if (receives && !out_direct) store(o, c.output, first, now, out);
  }
  return 0;
}

/// Scan and Exscan of large vectors: the owner of a block works out everybody's prefix of it.
int by_prefix_blocks(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const auto cell = static_cast<int64_t>(o.cell);
  const int64_t step = at_least_one(smaller(c.count, kSegment / cell));
  const int shift = c.operation == Collective::kExscan;
  const bool receives = c.rank >= shift;
  const bool in_direct = direct(o, c.input, c.count), out_direct = receives && direct(o, c.output, c.count);
  Blocks b = make_blocks(c, arena);
  int* rows_of = arena.array<int>(c.size);
  const size_t segment = static_cast<size_t>(step * cell);
  char* room = in_direct && out_direct ? nullptr : arena.allocate(segment);
  char* rows = arena.allocate(segment + static_cast<size_t>(c.size * cell));
  for (int64_t first = 0; first < c.count; first += step) {
    const int64_t now = smaller(step, c.count - first);
    divide(c, now, b);
    int error = mpi().alltoallv(c.comm, contribution(c, in_direct, first, now, room), b.counts, b.places, rows, b.equal,
                                b.rows);
    const size_t mark = arena.mark();
    if (error == 0)
      error = prefix_cells(o, pointers(rows, static_cast<size_t>(b.mine * cell), c.size, arena), c.size, b.mine, arena);
    arena.rewind(mark);
    if (error != 0) return error;
    for (int r = 0; r < c.size; ++r) {
      rows_of[r] = r >= shift ? b.rows[r - shift] : 0;
      if (r < shift) b.equal[r] = 0;
      if (!receives) b.counts[r] = 0;
    }
    char* out = out_direct ? static_cast<char*>(c.output) + first * cell : room;
    error = mpi().alltoallv(c.comm, rows, b.equal, rows_of, out, b.counts, b.places);
    if (error != 0) return error;
    if (receives && !out_direct) store(o, c.output, first, now, out);
  }
  return 0;
}

/// Reduce_scatter: as many elements of each rank's block at a time as fit. In place the result of a round overwrites
/// only what no later round reads: its elements lie before all that are still to be sent.
int by_scattering(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const auto cell = static_cast<int64_t>(o.cell);
  const int64_t step = at_least_one(kSegment / cell / c.size), own = c.block_of(c.rank);
  const bool in_direct = direct(o, c.input, c.count) && c.count * cell <= INT_MAX;
  const bool out_direct = direct(o, c.output, own);
  int64_t longest = 0;
  for (int r = 0; r < c.size; ++r) longest = c.block_of(r) > longest ? c.block_of(r) : longest;
  Blocks b = make_blocks(c, arena);
  const size_t round = static_cast<size_t>(smaller(step, longest) * c.size * cell);
  char* room = in_direct ? nullptr : arena.allocate(round);
  char* rows = arena.allocate(round);
  for (int64_t first = 0; first < longest; first += step) {
    const int64_t mine = own > first ? smaller(step, own - first) : 0;
    int64_t place = 0, packed = 0;
    for (int r = 0; r < c.size; ++r) {
      const int64_t block = c.block_of(r), now = block > first ? smaller(step, block - first) : 0;
      b.counts[r] = static_cast<int>(now * cell);
      b.places[r] = static_cast<int>((in_direct ? place + (now != 0 ? first : 0) : packed) * cell);
      if (!in_direct && now != 0) load(o, c.input, place + first, now, room + packed * cell);
      place += block;
      packed += now;
      b.equal[r] = static_cast<int>(mine * cell);
      b.rows[r] = static_cast<int>(r * mine * cell);
    }
    const size_t mark = arena.mark();
    int error = mpi().alltoallv(c.comm, in_direct ? c.input : room, b.counts, b.places, rows, b.equal, b.rows);
    if (error == 0 && mine != 0)
      error = fold_out(c, pointers(rows, static_cast<size_t>(mine * cell), c.size, arena), c.size, first, mine,
                       out_direct, arena);
    arena.rewind(mark);
    if (error != 0) return error;
  }
  return 0;
}

/// Reduce_scatter between groups: a group does not know how the other one divides the vector, so all of it is gathered
/// and each rank folds its own block.
int by_gathering_block(const Call& c, Arena& arena) {
  const Operand& o = c.operand;
  const int64_t ranks = c.remote;
  const int64_t step = at_least_one(smaller(c.count, kSegment / static_cast<int64_t>(o.cell) / ranks));
  const bool in_direct = direct(o, c.input, c.count);
  int64_t start = 0;
  for (int r = 0; r < c.rank; ++r) start += c.block_of(r);
  const int64_t end = start + c.block_of(c.rank);
  const bool out_direct = direct(o, c.output, end - start);
  char* room = in_direct ? nullptr : arena.allocate(static_cast<size_t>(step) * o.cell);
  char* cells = arena.allocate(static_cast<size_t>(step * ranks) * o.cell);
  for (int64_t first = 0; first < c.count; first += step) {
    const int64_t now = smaller(step, c.count - first);
    const size_t bytes = static_cast<size_t>(now) * o.cell;
    int error = mpi().allgather(c.comm, contribution(c, in_direct, first, now, room), static_cast<int>(bytes), cells);
    const int64_t from = start > first ? start : first, to = smaller(end, first + now);
    const size_t mark = arena.mark();
    if (error == 0 && from < to)
      error = fold_out(c, pointers(cells + static_cast<size_t>(from - first) * o.cell, bytes, ranks, arena), ranks,
                       from - start, to - from, out_direct, arena);
    arena.rewind(mark);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace

int intercept_blocking(const Call& c, Arena& arena) {
  const auto bytes = static_cast<int64_t>(c.operand.cell) * c.count * c.contributors();
  const bool gather = c.inter() || bytes <= kGathered;
  switch (c.operation) {
    case Collective::kAllreduce: return gather ? by_gathering(c, arena) : by_blocks(c, arena);
    case Collective::kReduce: return gather ? by_root(c, arena) : by_blocks(c, arena);
    case Collective::kScan:
    case Collective::kExscan: return gather ? by_gathering(c, arena) : by_prefix_blocks(c, arena);
    default: break;  // the two of MPI_Reduce_scatter
  }
  return c.inter() ? by_gathering_block(c, arena) : by_scattering(c, arena);
}

}  // namespace resil::reduction
