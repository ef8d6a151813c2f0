// SPDX-License-Identifier: Apache-2.0
//
// See by_node.h. Small vectors: each rank shows its own and folds all that it needs. Larger ones a segment at a time:
// each rank folds one block of everybody's segment and shows the result, from which everybody copies.

#include "pipeline/reduction/by_node.h"

#include <cstring>
#include <initializer_list>

#include "pipeline/reduction/blocking.h"
#include "shim/abi/backend.h"
#include "shim/call/flight.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

enum class Awaited : uint8_t { kContribution, kResult, kReader };
uint32_t names[3];

/// Looks until `over()`, which another rank brings about by a store. It may need the MPI library's progress here, or
/// this rank's processor.
template <class Over>
[[gnu::noinline]] void wait_on(Thread& thread, CommInfo& comm, int rank, Awaited what, const Over& over) {
  constexpr int kLooks = 16;
  constexpr Pace kPace = {kIdleRounds, 16, kIdleRounds}, kCrowdedPace = {0, 16, 0};
  const bool crowded = node_is_crowded();
  for (Wait wait(thread, crowded ? kCrowdedPace : kPace);; wait.pause()) {
    if (wait.rounds() == kIdleRounds)
      flight::hop(thread, names[static_cast<unsigned>(what)], comm_world_rank(comm, rank), 0);
    if (wait.rounds() != 0) mailbox::let_mpi_progress();
    for (int i = 0; i < (crowded ? 1 : kLooks); ++i) {
      if (over()) return;
      relax();
    }
  }
}

/// The first microsecond or so costs neither a call nor a pause.
template <class Over>
void await(Thread& thread, CommInfo& comm, int rank, Awaited what, const Over& over) {
  constexpr int kLooks = 200, kCrowdedLooks = 20;
  const int looks = node_is_crowded() ? kCrowdedLooks : kLooks;
  for (int i = 0; i < looks; ++i)
    if (over()) [[likely]]
      return;
  wait_on(thread, comm, rank, what, over);
}

struct Carrier {
  const Call& call;
  NodeGroup& group;
  Thread& thread;
  Arena& arena;
  bool differs;  ///< another rank's vector has another length

  bool exscan() const { return call.operation == Collective::kExscan; }
  size_t bytes_of(int64_t elements) const { return static_cast<size_t>(elements) * call.operand.cell; }
  void writable(Rings& rings) const { await_writable(group, rings, thread, *call.info); }
  void shown(Rings& rings, int rank, uint64_t what) {
    if (rank != call.rank) differs |= await_shown(group, rings, thread, *call.info, rank, what);
  }
};

/// result = the fold of others' memory, which stays as it is: an operator of the user's gets copies.
int fold_shown(Carrier& c, const char* const* cells, int64_t ranks, char* result, int64_t count) {
  const Operand& o = c.call.operand;
  if (count == 0) return 0;
  const size_t mark = c.arena.mark();
  int error = 0;
  if (!o.user) {
    fold(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(ranks), result,
         static_cast<size_t>(count), c.arena.allocate(kFoldScratch));
  } else {
    char** copies = c.arena.array<char*>(ranks);
    for (int64_t r = 0; r < ranks; ++r) {
      copies[r] = c.arena.allocate(c.bytes_of(count));
      memcpy(copies[r], cells[r], c.bytes_of(count));
    }
    error = fold_cells(o, copies, ranks, result, count, c.arena);
  }
  c.arena.rewind(mark);
  return error;
}

int by_showing_all(Carrier& c, Rings& rings) {
  const Call& call = c.call;
  const Operand& o = call.operand;
  const uint64_t what = c.bytes_of(call.count);
  c.writable(rings);
  load(o, call.input, 0, call.count, rings.own());
  rings.show(what);
  const Wanted want = wanted(call);
  int error = 0;
  if (folds_by_groups(call, rings)) {
    const bool out_direct = want.ranks != 0 && direct(o, call.output, call.count);
    char* result = out_direct ? static_cast<char*>(call.output) : c.arena.allocate(what);
    c.differs |= fold_shown_groups(c.group, rings, c.thread, *call.info, group_fold(call), result,
                                   c.arena.allocate(kGroupScratch));
    if (want.ranks != 0 && !c.differs && !out_direct) store(o, call.output, 0, call.count, result);
  } else if (want.ranks != 0) {
    const char** cells = c.arena.array<const char*>(want.ranks);
    for (int64_t r = 0; r < want.ranks; ++r) {
      c.shown(rings, static_cast<int>(r), what);
      cells[r] = rings.data(static_cast<int>(r)) + c.bytes_of(want.first);
    }
    if (!c.differs && want.count != 0) {
      const bool out_direct = direct(o, call.output, want.count);
      char* result = out_direct ? static_cast<char*>(call.output) : c.arena.allocate(c.bytes_of(want.count));
      error = fold_shown(c, cells, want.ranks, result, want.count);
      if (error == 0 && !out_direct) store(o, call.output, 0, want.count, result);
    }
  }
  rings.finish(want.ranks == call.size);
  return error;
}

/// A segment's elements by the rank that folds them.
struct Division {
  int64_t base, extra;
  int64_t count(int64_t rank) const { return base + (rank < extra); }
  int64_t place(int64_t rank) const { return base * rank + (rank < extra ? rank : extra); }
};

/// A rank's own block of everybody's segment, folded into its result's cell, and to `out` where that is not null.
int fold_block(Carrier& c, const Division& parts, const char* own, char* out) {
  const Call& call = c.call;
  const int64_t mine = parts.count(call.rank);
  const char** cells = c.arena.array<const char*>(call.size);
  for (int r = 0; r < call.size; ++r) cells[r] = c.group.segments.data(r) + c.bytes_of(parts.place(call.rank));
  cells[call.rank] = own;
  char* shown = c.group.results.own();
  if (out == nullptr) return fold_shown(c, cells, call.size, shown, mine);
  const int error = fold_shown(c, cells, call.size, out, mine);
  if (error == 0) memcpy(shown, out, c.bytes_of(mine));
  return error;
}

/// Everybody's prefixes of a rank's own block, one behind the other.
int prefix_block(Carrier& c, const Division& parts) {
  const Call& call = c.call;
  const Operand& o = call.operand;
  const int64_t mine = parts.count(call.rank);
  if (mine == 0) return 0;
  const size_t mark = c.arena.mark(), row = c.bytes_of(mine);
  char** results = c.arena.array<char*>(call.size);
  const char** cells = c.arena.array<const char*>(call.size);
  char* copies = o.user ? c.arena.allocate(row * static_cast<size_t>(call.size)) : c.group.results.own();
  for (int r = 0; r < call.size; ++r) {
    cells[r] = c.group.segments.data(r) + c.bytes_of(parts.place(call.rank));
    results[r] = copies + static_cast<size_t>(r) * row;
    if (o.user) memcpy(results[r], cells[r], row);
  }
  int error = 0;
  if (o.user) {
    error = prefix_cells(o, results, call.size, mine, c.arena);
    memcpy(c.group.results.own(), copies, row * static_cast<size_t>(call.size));
  } else {
    fold_prefixes(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(call.size),
                  reinterpret_cast<void* const*>(results), static_cast<size_t>(mine), c.arena.allocate(kFoldScratch));
  }
  c.arena.rewind(mark);
  return error;
}

/// Allreduce, Reduce, Scan, Exscan of large vectors.
int by_segments(Carrier& c) {
  const Call& call = c.call;
  const Operand& o = call.operand;
  Rings &segments = c.group.segments, &results = c.group.results;
  const bool prefixes = call.operation == Collective::kScan || call.operation == Collective::kExscan;
  const int shift = c.exscan() ? 1 : 0;
  const bool receives = call.operation == Collective::kReduce ? call.is_root() : call.rank >= shift;
  const bool in_direct = direct(o, call.input, call.count);
  const bool out_direct = receives && direct(o, call.output, call.count);
  const auto cell = static_cast<int64_t>(o.cell);
  const int64_t step = static_cast<int64_t>(kNodeSegment) / cell / call.size * call.size;
  int error = 0;
  for (int64_t first = 0; first < call.count; first += step) {
    const int64_t now = call.count - first < step ? call.count - first : step;
    const Division parts = {now / call.size, now % call.size};
    const int64_t place = parts.place(call.rank), mine = parts.count(call.rank);
    const uint64_t what = c.bytes_of(now);
    c.writable(segments);
    char* room = segments.own();
    const char* own = room + place * cell;
    if (in_direct && !prefixes) {  // its own block nobody else reads
      load(o, call.input, first, place, room);
      load(o, call.input, first + place + mine, now - place - mine, room + (place + mine) * cell);
      own = static_cast<const char*>(call.input) + (first + place) * cell;
    } else {
      load(o, call.input, first, now, room);
    }
    segments.show(what);
    for (int r = 0; r < call.size; ++r) c.shown(segments, r, what);
    c.writable(results);
    char* direct_out = out_direct && !prefixes ? static_cast<char*>(call.output) + (first + place) * cell : nullptr;
    if (!c.differs && error == 0) error = prefixes ? prefix_block(c, parts) : fold_block(c, parts, own, direct_out);
    segments.finish(true);
    results.show(what);
    for (int r = 0; r < call.size && receives; ++r) {
      c.shown(results, r, what);
      if (c.differs || error != 0 || (r == call.rank && direct_out != nullptr)) continue;
      const char* from = results.data(r);
      if (prefixes) from += static_cast<int64_t>(call.rank - shift) * parts.count(r) * cell;
      if (parts.count(r) != 0) store(o, call.output, first + parts.place(r), parts.count(r), from);
    }
    results.finish(receives);
  }
  return error;
}

/// Reduce_scatter of large vectors: as many elements of each block at a time as fit. In place a round's result lies
/// before all that is still to be shown.
int by_scattering(Carrier& c) {
  const Call& call = c.call;
  const Operand& o = call.operand;
  Rings& segments = c.group.segments;
  const auto cell = static_cast<int64_t>(o.cell);
  const int64_t step = static_cast<int64_t>(kNodeSegment) / cell / call.size, own = call.block_of(call.rank);
  const bool out_direct = direct(o, call.output, own);
  // Its own block nobody else reads; in place the result would lie across it.
  const bool skips = !call.in_place && direct(o, call.input, call.count);
  int64_t longest = 0;
  for (int r = 0; r < call.size; ++r) longest = call.block_of(r) > longest ? call.block_of(r) : longest;
  const char** cells = c.arena.array<const char*>(call.size);
  char* staged = out_direct ? nullptr : c.arena.allocate(c.bytes_of(step));
  int error = 0;
  for (int64_t first = 0; first < longest; first += step) {
    c.writable(segments);
    char* room = segments.own();
    int64_t start = 0, packed = 0, mine = 0, place = 0, origin = 0;
    for (int r = 0; r < call.size; ++r) {
      const int64_t block = call.block_of(r), left = block > first ? block - first : 0;
      const int64_t now = left < step ? left : step;
      if (now != 0 && !(skips && r == call.rank)) load(o, call.input, start + first, now, room + packed * cell);
      if (r == call.rank) {
        mine = now;
        place = packed;
        origin = start + first;
      }
      start += block;
      packed += now;
    }
    const uint64_t what = c.bytes_of(packed);
    segments.show(what);
    for (int r = 0; r < call.size; ++r) {
      c.shown(segments, r, what);
      cells[r] = segments.data(r) + place * cell;
    }
    if (skips) cells[call.rank] = static_cast<const char*>(call.input) + origin * cell;
    if (!c.differs && error == 0 && mine != 0) {
      char* result = out_direct ? static_cast<char*>(call.output) + first * cell : staged;
      error = fold_shown(c, cells, call.size, result, mine);
      if (error == 0 && !out_direct) store(o, call.output, first, mine, result);
    }
    segments.finish(true);
  }
  return error;
}

}  // namespace

void await_writable(NodeGroup&, Rings& rings, Thread& thread, CommInfo& comm) {
  int behind = 0;
  if (rings.writable(&behind)) [[likely]]
    return;
  await(thread, comm, behind, Awaited::kReader, [&] { return rings.writable(&behind); });
}

namespace {

/// That rank has shown its contribution to a step of these ranks in another ring: all go through the same steps, so
/// this one's step was there before, and it has left it out. Its vector has another length.
bool has_gone_on(NodeGroup& group, const Rings& rings, int rank) {
  for (Rings* other : {&group.tiny, &group.small, &group.segments, &group.results})
    if (other != &rings && other->shown(rank)) return !rings.shown(rank);
  return false;
}

}  // namespace

bool await_shown(NodeGroup& group, Rings& rings, Thread& thread, CommInfo& comm, int rank, uint64_t what) {
  const Awaited awaited = &rings == &group.results ? Awaited::kResult : Awaited::kContribution;
  unsigned looks = 0;
  bool gone_on = false;
  await(thread, comm, rank, awaited,
        [&] { return rings.shown(rank) || (++looks % 1024 == 0 && (gone_on = has_gone_on(group, rings, rank))); });
  return gone_on || rings.what(rank) != what;
}

namespace {

/// How fold_by_groups() waits here.
struct NodeWaits {
  NodeGroup& group;
  Rings& rings;
  Thread& thread;
  CommInfo& comm;
  const GroupFold& f;

  bool contribution(int rank) const {
    if (rings.shown(rank)) [[likely]]
      return rings.what(rank) != f.what;
    return await_shown(group, rings, thread, comm, rank, f.what);
  }
  /// As long as it takes to fold a group that is complete.
  bool fold(int rank) const {
    constexpr int kLooks = 200;
    const int looks = f.promised ? kLooks : 1;
    for (int i = 0; i < looks; ++i)
      if (rings.fold_shown(rank)) [[likely]]
        return true;
    return false;
  }
};

}  // namespace

bool folds_by_groups(const Call& c, const Rings& rings) {
  // Where ranks share processors the turns that they take decide, and groups need more of them.
  if (node_is_crowded()) return false;
  return c.size >= kGroupedRanks && rings.shape().folds != 0 && !c.operand.user && c.operand.mode == Mode::kOrder &&
         !is_reduce_scatter(c.operation) && c.count != 0;
}

GroupFold group_fold(const Call& c) {
  const Kernel kernel = find_kernel(c.operand.op, c.operand.basic);
  const bool to_root = c.operation == Collective::kReduce, to_all = c.operation == Collective::kAllreduce;
  const bool shows = to_all    ? shows_to_all(c.rank, c.size)
                     : to_root ? shows_to_root(c.rank, c.size, c.root)
                               : shows_to_higher(c.rank, c.size);
  return {kernel,
          c.rank,
          c.size,
          static_cast<int32_t>(wanted(c).ranks),
          shows,
          !to_root,
          static_cast<size_t>(c.count) * kernel.units,
          static_cast<size_t>(c.count) * c.operand.cell};
}

bool fold_shown_groups(NodeGroup& group, Rings& rings, Thread& thread, CommInfo& comm, const GroupFold& fold,
                       char* output, char* scratch) {
  count_more(per_thread(thread).counts.by_groups, 1);
  return fold_by_groups<kNodeRanks>(rings, fold, output, scratch, NodeWaits{group, rings, thread, comm, fold});
}

Wanted wanted(const Call& c) {
  switch (c.operation) {
    case Collective::kAllreduce: return {c.size, 0, c.count};
    case Collective::kReduce: return {c.is_root() ? c.size : 0, 0, c.count};
    case Collective::kScan: return {c.rank + 1, 0, c.count};
    case Collective::kExscan: return {c.rank, 0, c.count};
    default: break;
  }
  int64_t start = 0;
  for (int64_t r = 0; r < c.rank; ++r) start += c.block_of(r);
  return {c.size, start, c.block_of(c.rank)};
}

void by_node_prepare() {
  const char* texts[] = {"reduction: wait for a contribution", "reduction: wait for a result",
                         "reduction: wait for a reader"};
  for (unsigned i = 0; i < 3; ++i) names[i] = flight::intern(texts[i]);
}

NodeGroup* served_by_node(const Call& c) {
  // An element, and one for each rank, must fit into a segment.
  if (c.operand.cell > kNodeSegment / kNodeRanks) return nullptr;
  NodeGroup* group = node_group(c);
  if (group == nullptr) return nullptr;
  const size_t bytes = static_cast<size_t>(c.count) * c.operand.cell;
  return bytes <= group->small.shape().most || node_group_large(c, *group) ? group : nullptr;
}

int intercept_by_node(const Call& c, NodeGroup& group, Thread& thread, Arena& arena) {
  Carrier carrier = {c, group, thread, arena, false};
  const size_t bytes = static_cast<size_t>(c.count) * c.operand.cell;
  int error;
  if (bytes <= group.tiny.shape().most) error = by_showing_all(carrier, group.tiny);
  else if (bytes <= group.small.shape().most) error = by_showing_all(carrier, group.small);
  else if (bytes * static_cast<size_t>(c.size) <= kGathered && bytes <= kNodeSegment)
    error = by_showing_all(carrier, group.segments);
  else error = is_reduce_scatter(c.operation) ? by_scattering(carrier) : by_segments(carrier);
  return carrier.differs ? backend->collectives->truncated(c.comm) : error;
}

}  // namespace resil::reduction
