// SPDX-License-Identifier: Apache-2.0
//
// See repeated.h.

#include "pipeline/reduction/repeated.h"

#include <cstring>

#include "pipeline/reduction/by_node.h"
#include "pipeline/reduction/kernel.h"
#include "shim/abi/backend.h"
#include "shim/model/event.h"
#include "shim/runtime/accelerators/host_memory.h"
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
  NodeGroup* group;
  Rings* rings;
  Kernel kernel;
  Algorithm algorithm;
  Wanted want;
  int32_t rank, size;
  size_t in_bytes, out_bytes, offset, units;
};

namespace {

constexpr unsigned kEntries = 16;
constexpr size_t kPointers = kNodeRanks * sizeof(char*), kRoom = kPointers + kFoldScratch;

Repeated& entry_for(PerThread& mine, CallId id, const CommInfo* comm, uint64_t op, int64_t count) {
  const uint64_t mixed = reinterpret_cast<uintptr_t>(comm) / sizeof(CommInfo) * 7 + static_cast<unsigned>(id) +
                         (op ^ op >> 6) + static_cast<uint64_t>(count) * 5;
  return mine.repeated[mixed % kEntries];
}

}  // namespace

Repeated* repeated_make() { return reinterpret_cast<Repeated*>(map_or_end(kEntries * sizeof(Repeated))); }
void repeated_drop(Repeated* table) { memory::unmap(table, kEntries * sizeof(Repeated)); }

void repeated_learn(const Event& e, const Call& c, NodeGroup& group, PerThread& mine, Algorithm algorithm) {
  const Operand& o = c.operand;
  const size_t bytes = static_cast<size_t>(c.count) * o.cell;
  if (o.user || !o.plain || c.info->size < 0 || c.operation == Collective::kReduceScatter || e.large) return;
  if (bytes > group.small.shape().most || (o.mode == Mode::kExact && c.size > 2)) return;
  const Wanted want = wanted(c);
  Rings& rings = bytes <= group.tiny.shape().most ? group.tiny : group.small;
  const Kernel kernel = find_kernel(o.op, o.basic);
  entry_for(mine, e.id, c.info, e.op, e.send.count) = {
      .id = e.id,
      .root = c.root,
      .handles = handle_generation.load(std::memory_order_relaxed),
      .generation = c.info->ring->generation,
      .comm = c.info,
      .op = e.op,
      .type = e.send.type,
      .count = e.send.count,
      .group = &group,
      .rings = &rings,
      .kernel = kernel,
      .algorithm = algorithm,
      .want = want,
      .rank = c.rank,
      .size = c.size,
      .in_bytes = bytes,
      .out_bytes = static_cast<size_t>(want.count) * o.cell,
      .offset = static_cast<size_t>(want.first) * o.cell,
      .units = static_cast<size_t>(want.count) * kernel.units,
  };
}

bool repeated_execute(Event& e, PerThread& mine) {
  const Repeated& r = entry_for(mine, e.id, e.comm, e.op, e.send.count);
  if (r.comm != e.comm || r.comm == nullptr || r.id != e.id || r.op != e.op || r.type != e.send.type ||
      r.count != e.send.count || r.handles != handle_generation.load(std::memory_order_relaxed) ||
      r.generation != e.comm->ring->generation)
    return false;
  if (mine.scratch.bytes - mine.scratch.top < kRoom) return false;
  const bool is_reduce = collective_of(e.id) == Collective::kReduce;
  if (is_reduce && r.root != e.peer) return false;
  const bool receives = r.want.ranks != 0;
  const void* input = e.given_send;
  if (backend->is_in_place(input)) {
    if (!receives && is_reduce) return false;  // the library's error
    input = e.given_receive;
  }
  char* output = static_cast<char*>(const_cast<void*>(e.given_receive));
  if (input == nullptr || !host_memory(input, r.in_bytes)) return false;
  if (receives && (output == nullptr || backend->is_in_place(output) || !host_memory(output, r.out_bytes)))
    return false;

  Rings& rings = *r.rings;
  const uint64_t what = r.in_bytes;
  await_writable(*r.group, rings, *e.thread, *e.comm);
  if (r.in_bytes == 8) memcpy(rings.own(), input, 8);
  else memcpy(rings.own(), input, r.in_bytes);
  rings.show(what);
  bool differs = false;
  if (r.want.ranks != 0) {
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
  return true;
}

}  // namespace resil::reduction
