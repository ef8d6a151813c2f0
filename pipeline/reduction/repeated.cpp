// SPDX-License-Identifier: Apache-2.0
//
// See repeated.h.

#include "pipeline/reduction/repeated.h"

#include <atomic>
#include <cstring>

#include "pipeline/reduction/by_node.h"
#include "pipeline/reduction/kernel.h"
#include "pipeline/reduction/pending.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/accelerators/runtimes.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

struct Repeated {
  // What the next call must have as well.
  CallId id;
  int32_t root;
  uint32_t handles, generation;  ///< of all handles; of the communicator's entry
  CommInfo* comm;  ///< null: nothing is known
  uint64_t op, type;
  int64_t count;
  // What follows from it.
  uint64_t kind;  ///< nonblocking: SpareKind::number; else 0
  Pending* spares;  ///< likewise
  NodeGroup* group;  ///< blocking; null: the library's own affair
  Rings* rings;
  Kernel kernel;
  Algorithm algorithm;
  Wanted want;
  int32_t rank, size;
  bool grouped;
  GroupFold groups;
  size_t in_bytes, out_bytes, offset, units;
};

namespace {

constexpr unsigned kEntries = 16;
constexpr size_t kPointers = kNodeRanks * sizeof(char*), kRoom = kPointers + kGroupScratch;

unsigned place_of(CallId id, const CommInfo* comm, uint64_t op, int64_t count) {
  const uint64_t mixed = reinterpret_cast<uintptr_t>(comm) / sizeof(CommInfo) * 7 + static_cast<unsigned>(id) +
                         (op ^ op >> 6) + static_cast<uint64_t>(count) * 5;
  return mixed % kEntries;
}

bool is_of(const Repeated& r, const Event& e) {
  return r.comm == e.comm && r.comm != nullptr && r.id == e.id && r.op == e.op && r.type == e.send.type &&
         r.count == e.send.count && r.handles == handle_generation.load(std::memory_order_relaxed) &&
         r.generation == e.comm->ring->generation;
}

void empty(Repeated& r) {
  while (Pending* spare = take_spare(r.spares)) discard(spare);
  r = {};
}

/// The call's entry, with what is compared.
Repeated& remember(const Event& e, PerThread& mine, int32_t root, Algorithm algorithm, size_t bytes) {
  Repeated& r = mine.repeated[place_of(e.id, e.comm, e.op, e.send.count)];
  empty(r);
  r.id = e.id;
  r.root = root;
  r.handles = handle_generation.load(std::memory_order_relaxed);
  r.generation = e.comm->ring->generation;
  r.comm = e.comm;
  r.op = e.op;
  r.type = e.send.type;
  r.count = e.send.count;
  r.algorithm = algorithm;
  r.in_bytes = bytes;
  return r;
}

/// This rank's contribution and where its result goes; false: an error, or memory that the host may not touch.
bool find_buffers(const Repeated& r, const Event& e, const void** input, char** output) {
  const bool is_reduce = collective_of(e.id) == Collective::kReduce;
  if (is_reduce && r.root != e.peer) return false;
  const bool receives = r.want.ranks != 0, all_host = gpu::runtimes_absent();
  const auto* in_place = reinterpret_cast<const void*>(backend->in_place);
  *input = e.given_send;
  if (*input == in_place) {
    if (!receives && is_reduce) return false;  // the library's error
    *input = e.given_receive;
  }
  *output = static_cast<char*>(const_cast<void*>(e.given_receive));
  if (*input == nullptr || !(all_host || host_memory(*input, r.in_bytes))) return false;
  return !receives || (*output != nullptr && *output != in_place && (all_host || host_memory(*output, r.out_bytes)));
}

}  // namespace

Repeated* repeated_make() { return reinterpret_cast<Repeated*>(map_or_end(kEntries * sizeof(Repeated))); }
void repeated_drop(Repeated* table) {
  for (unsigned i = 0; i < kEntries; ++i) empty(table[i]);
  memory::unmap(table, kEntries * sizeof(Repeated));
}

void repeated_learn(const Event& e, const Call& c, NodeGroup& group, PerThread& mine, Algorithm algorithm) {
  const Operand& o = c.operand;
  const size_t bytes = static_cast<size_t>(c.count) * o.cell;
  if (o.user || !o.plain || c.info->size < 0 || c.operation == Collective::kReduceScatter || e.large) return;
  if (bytes > group.small.shape().most || (o.mode == Mode::kExact && c.size > 2)) return;
  Repeated& r = remember(e, mine, c.root, algorithm, bytes);
  r.group = &group;
  r.rings = bytes <= group.tiny.shape().most ? &group.tiny : &group.small;
  r.kernel = find_kernel(o.op, o.basic);
  r.want = wanted(c);
  r.rank = c.rank;
  r.size = c.size;
  r.out_bytes = static_cast<size_t>(r.want.count) * o.cell;
  r.offset = static_cast<size_t>(r.want.first) * o.cell;
  r.units = static_cast<size_t>(r.want.count) * r.kernel.units;
  r.grouped = folds_by_groups(c, *r.rings);
  if (r.grouped) r.groups = group_fold(c);
}

void repeated_learn_safe(const Event& e, PerThread& mine) {
  if (e.comm == nullptr || e.large || collective_of(e.id) == Collective::kReduceScatter) return;
  remember(e, mine, 0, Algorithm::kNativeSafe, e.bytes);
}

SpareKind repeated_learn_started(const Event& e, const Call& c, PerThread& mine, Algorithm algorithm) {
  static std::atomic<uint64_t> kinds;
  const unsigned place = place_of(e.id, e.comm, e.op, e.send.count);
  Repeated& known = mine.repeated[place];
  if (is_of(known, e) && known.root == c.root && known.kind != 0) return {known.kind, place};
  Repeated& r = remember(e, mine, c.root, algorithm, static_cast<size_t>(c.count) * c.operand.cell);
  r.kind = kinds.fetch_add(1, std::memory_order_relaxed) + 1;
  r.want = wanted(c);
  r.out_bytes = static_cast<size_t>(r.want.count) * c.operand.cell;
  return {r.kind, place};
}

Pending** repeated_spares(PerThread& mine, const SpareKind& kind) {
  Repeated& r = mine.repeated[kind.entry];
  return kind.number != 0 && r.kind == kind.number ? &r.spares : nullptr;
}

fast::Instead repeated_execute(Event& e, PerThread& mine) {
  if (e.comm == nullptr) return fast::Instead::kUnknown;
  Repeated& r = mine.repeated[place_of(e.id, e.comm, e.op, e.send.count)];
  if (!is_of(r, e)) return fast::Instead::kUnknown;
  const void* input;
  char* output;
  if (r.kind != 0) {
    if (r.spares == nullptr || !find_buffers(r, e, &input, &output)) return fast::Instead::kUnknown;
    start_again(e, take_spare(r.spares), input, output);
    count_more(mine.counts.calls[static_cast<unsigned>(r.algorithm)], 1);
    count_more(mine.counts.bytes[static_cast<unsigned>(r.algorithm)], r.in_bytes);
    return fast::Instead::kDone;
  }
  if (r.group == nullptr) {
    count_more(mine.counts.calls[static_cast<unsigned>(r.algorithm)], 1);
    count_more(mine.counts.bytes[static_cast<unsigned>(r.algorithm)], r.in_bytes);
    return fast::Instead::kLibrarys;
  }
  if (mine.scratch.bytes - mine.scratch.top < kRoom || !find_buffers(r, e, &input, &output))
    return fast::Instead::kUnknown;

  Rings& rings = *r.rings;
  const uint64_t what = r.in_bytes;
  await_writable(*r.group, rings, *e.thread, *e.comm);
  if (r.in_bytes == 8) memcpy(rings.own(), input, 8);
  else memcpy(rings.own(), input, r.in_bytes);
  rings.show(what);
  bool differs = false;
  if (r.grouped) [[unlikely]] {
    differs =
        fold_shown_groups(*r.group, rings, *e.thread, *e.comm, r.groups, output, mine.scratch.base + mine.scratch.top);
  } else if (r.want.ranks != 0) {
    auto** cells = reinterpret_cast<const char**>(mine.scratch.base + mine.scratch.top);
    for (int k = 0; k < r.want.ranks; ++k) {
      if (k != r.rank) {
        if (!rings.shown(k)) await_shown(*r.group, rings, *e.thread, *e.comm, k, what);
        differs |= rings.what(k) != what;
        rings.prefetch(k);
      }
      cells[k] = rings.data(k) + r.offset;
    }
    if (!differs)
      fold_prepared(r.kernel, cells, static_cast<size_t>(r.want.ranks), output, r.units,
                    mine.scratch.base + mine.scratch.top + kPointers);
  }
  rings.finish(r.want.ranks == r.size);
  e.result = differs ? backend->collectives->truncated(e.comm_handle) : 0;
  count_more(mine.counts.calls[static_cast<unsigned>(r.algorithm)], 1);
  count_more(mine.counts.bytes[static_cast<unsigned>(r.algorithm)], r.in_bytes);
  count_more(mine.counts.by_node, 1);
  return fast::Instead::kDone;
}

}  // namespace resil::reduction
