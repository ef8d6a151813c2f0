// SPDX-License-Identifier: Apache-2.0
//
// See by_deposits.h. A rank that completes its request takes blocks until none is left, then waits for those that
// others have taken: these are folding, so it waits for a processor at most, never for another call of theirs. A
// block's result lies where a contribution to it lay.

#include "pipeline/reduction/by_deposits.h"

#include <sched.h>

#include <cstring>

#include "shim/abi/backend.h"

namespace resil::reduction {

namespace {

constexpr size_t kBlock = 16 << 10;

struct Folding {
  const Call& call;
  Deposit* const* deposits;
  char** cells;  ///< by rank: where the block under way begins
  Arena& arena;
  int64_t block;  ///< elements

  const Operand& operand() const { return call.operand; }
  int64_t blocks() const { return (call.count + block - 1) / block; }
  int64_t count_of(int64_t at) const { return call.count - at * block < block ? call.count - at * block : block; }
  size_t place_of(int64_t at) const { return static_cast<size_t>(at * block) * operand().cell; }
  bool prefixes() const { return call.operation == Collective::kScan || call.operation == Collective::kExscan; }
};

/// result = the fold of `cells`, for `count` elements.
int fold_into(const Operand& o, char** cells, int64_t ranks, char* result, int64_t count, Arena& arena) {
  const size_t mark = arena.mark();
  int error = 0;
  if (o.user) {
    error = fold_cells(o, cells, ranks, result, count, arena);
  } else {
    fold(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(ranks), result,
         static_cast<size_t>(count), arena.allocate(kFoldScratch));
  }
  arena.rewind(mark);
  return error;
}

int prefixes_into(const Operand& o, char** cells, int64_t ranks, int64_t count, Arena& arena) {
  const size_t mark = arena.mark();
  int error = 0;
  if (o.user) {
    error = prefix_cells(o, cells, ranks, count, arena);
  } else {
    fold_prefixes(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(ranks),
                  reinterpret_cast<void* const*>(cells), static_cast<size_t>(count), arena.allocate(kFoldScratch));
  }
  arena.rewind(mark);
  return error;
}

void await_folded(const Deposit& first, uint32_t blocks) {
  constexpr int kLooks = 1000;
  for (int looks = 0; __atomic_load_n(&first.folded, __ATOMIC_ACQUIRE) != blocks; ++looks) {
    if (looks > kLooks || node_is_crowded()) sched_yield();
    else relax();
  }
}

/// Allreduce, Reduce, Scan, Exscan.
int by_claims(Folding& f, bool receives) {
  const Call& c = f.call;
  const Operand& o = c.operand;
  const auto blocks = static_cast<uint32_t>(f.blocks());
  const bool prefixes = f.prefixes(), out_direct = receives && direct(o, c.output, c.count);
  // Where this rank's result comes to lie.
  const int from = !prefixes ? c.size - 1 : c.operation == Collective::kScan ? c.rank : c.rank - 1;
  Deposit& first = *f.deposits[0];
  auto* done = f.arena.array<unsigned char>(blocks);
  memset(done, 0, blocks);
  int error = 0;
  for (uint32_t at; (at = __atomic_fetch_add(&first.claimed, 1, __ATOMIC_RELAXED)) < blocks;) {
    const size_t place = f.place_of(at);
    const int64_t count = f.count_of(at);
    for (int r = 0; r < c.size; ++r) f.cells[r] = f.deposits[r]->cells() + place;
    char* result = f.cells[from < 0 ? 0 : from];
    const int code = prefixes ? prefixes_into(o, f.cells, c.size, count, f.arena)
                              : fold_into(o, f.cells, c.size, result, count, f.arena);
    if (code != 0) error = code;
    __atomic_fetch_add(&first.folded, 1, __ATOMIC_RELEASE);
    if (!receives) continue;
    done[at] = 1;
    if (out_direct) memcpy(static_cast<char*>(c.output) + place, result, static_cast<size_t>(count) * o.cell);
    else store(o, c.output, static_cast<int64_t>(at) * f.block, count, result);
  }
  if (!receives) return error;
  await_folded(first, blocks);
  const char* results = f.deposits[from]->cells();
  for (uint32_t at = 0; at < blocks; ++at) {
    if (done[at] != 0) continue;
    const size_t place = f.place_of(at);
    const int64_t count = f.count_of(at);
    if (out_direct) memcpy(static_cast<char*>(c.output) + place, results + place, static_cast<size_t>(count) * o.cell);
    else store(o, c.output, static_cast<int64_t>(at) * f.block, count, results + place);
  }
  return error;
}

/// Reduce_scatter: each rank its own block, which nobody else wants.
int by_own_block(Folding& f, int64_t start, int64_t elements) {
  const Call& c = f.call;
  const Operand& o = c.operand;
  const bool out_direct = direct(o, c.output, elements);
  int error = 0;
  for (int64_t done = 0; done < elements && error == 0; done += f.block) {
    const int64_t count = elements - done < f.block ? elements - done : f.block;
    for (int r = 0; r < c.size; ++r) f.cells[r] = f.deposits[r]->cells() + static_cast<size_t>(start + done) * o.cell;
    char* result = out_direct ? static_cast<char*>(c.output) + static_cast<size_t>(done) * o.cell : f.cells[c.size - 1];
    error = fold_into(o, f.cells, c.size, result, count, f.arena);
    if (error == 0 && !out_direct) store(o, c.output, done, count, result);
  }
  return error;
}

}  // namespace

void deposit(const Call& c, DepositPlace* mine) {
  const uint64_t bytes = static_cast<uint64_t>(c.count) * c.operand.cell;
  load(c.operand, c.input, 0, c.count, deposit_take(bytes, static_cast<uint32_t>(c.size), mine)->cells());
  __atomic_thread_fence(__ATOMIC_RELEASE);  // against the one after the library's collective
}

int finish_deposits(const Call& c, const Deposited& d, Arena& arena) {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  const uint64_t bytes = static_cast<uint64_t>(c.count) * c.operand.cell;
  bool differs = false;
  auto** deposits = arena.array<Deposit*>(c.size);
  for (int r = 0; r < c.size; ++r) {
    if (d.places[r].bytes == 0) return 0;  // the library's collective has failed, which the program is told
    differs |= d.places[r].bytes != bytes;
    deposits[r] = deposit_open(d.ranks[r], d.places[r]);
  }
  const size_t cell = c.operand.cell;
  Folding folding = {c, deposits, arena.array<char*>(c.size), arena,
                     static_cast<int64_t>(cell < kBlock ? kBlock / cell : 1)};
  int error = 0;
  if (!differs) {
    error = is_reduce_scatter(c.operation) ? by_own_block(folding, d.want.first, d.want.count)
                                           : by_claims(folding, d.want.ranks != 0);
  }
  for (int r = 0; r < c.size; ++r) deposit_close(deposits[r]);
  return differs ? backend->collectives->truncated(c.comm) : error;
}

}  // namespace resil::reduction
