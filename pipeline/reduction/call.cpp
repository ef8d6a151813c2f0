// SPDX-License-Identifier: Apache-2.0
//
// See call.h.

#include "pipeline/reduction/call.h"

#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/model/event.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

/// By index of communicator: generation of its entry << 2 | 1, and 2 more when all members are in this world.
uint32_t reach[4096];

bool all_in_world(uint64_t comm, bool remote, int count) {
  int ranks[256], world[256];
  for (int first = 0; first < count; first += 256) {
    const int now = count - first < 256 ? count - first : 256;
    for (int i = 0; i < now; ++i) ranks[i] = first + i;
    if (!backend->comm_world_ranks(comm, remote, now, ranks, world)) return false;
    for (int i = 0; i < now; ++i)
      if (world[i] < 0) return false;
  }
  return true;
}

/// Asks MPI once for each communicator.
bool reachable(const Call& call) {
  if (call.info->world_ranks_are_ranks) [[likely]]
    return true;
  const uint32_t index = call.info->index, generation = call.info->ring->generation << 2 | 1;
  const bool cached = call.info->size >= 0 && index < 4096;
  if (cached) {
    const uint32_t known = __atomic_load_n(&reach[index], __ATOMIC_RELAXED);
    if ((known & ~2u) == generation) [[likely]]
      return (known & 2) != 0;
  }
  const bool all =
      all_in_world(call.comm, false, call.size) && (!call.inter() || all_in_world(call.comm, true, call.remote));
  if (cached) __atomic_store_n(&reach[index], generation | (all ? 2 : 0), __ATOMIC_RELAXED);
  return all;
}

bool shape_of(Call* call) {
  if (call->info != nullptr && call->info->size >= 0) [[likely]] {
    call->size = call->info->size;
    call->rank = call->info->rank;
    call->remote = call->info->remote_size;
    return true;
  }
  return call->info != nullptr && backend->comm_shape(call->comm, &call->size, &call->rank, &call->remote);
}

/// Elements of the whole vector; -1: negative counts.
int64_t total_of(const Call& call, int64_t count) {
  if (call.operation == Collective::kReduceScatterBlock) return count < 0 ? -1 : count * call.size;
  if (call.operation != Collective::kReduceScatter) return count < 0 ? -1 : count;
  int64_t total = 0;
  for (int64_t i = 0; i < call.size; ++i) {
    const int64_t block = call.block_of(i);
    if (block < 0) return -1;
    total += block;
  }
  return total;
}

/// Would the library refuse these arguments before it communicates?
bool refused(const Call& c, const void* send, const void* receive) {
  if (c.operation == Collective::kReduce) {
    const bool any = c.inter()
                         ? (c.root >= 0 ? c.root < c.remote : c.root == ring::kRootSelf || c.root == ring::kProcNull)
                         : c.root >= 0 && c.root < c.size;
    if (!any || (c.in_place && !c.is_root())) return true;
  }
  if (c.inter() && (c.in_place || c.operation == Collective::kScan || c.operation == Collective::kExscan)) return true;
  const bool receives = c.operation == Collective::kReduce   ? c.is_root()
                        : c.operation == Collective::kExscan ? c.rank != 0  // there the buffer has no meaning
                                                             : true;
  const bool sends = !(c.operation == Collective::kReduce && c.inter() && c.root < 0);
  if (receives && backend->is_in_place(receive)) return true;
  // One buffer for both is not MPI, but some libraries do not look: refusing it here alone would hang the others.
  // Address 0 is MPI_BOTTOM: a place for derived types that hold addresses.
  const bool bottom = c.operand.user && !c.operand.plain;
  return !bottom && ((receives && receive == nullptr) || (sends && send == nullptr));
}

Verdict operand_of(Event& e, PerThread& mine, bool exact, Operand* operand) {
  const uint32_t generation = handle_generation.load(std::memory_order_relaxed);
  const uint64_t mixed = (e.op ^ e.op >> 8) * 3 + (e.send.type ^ e.send.type >> 8);
  auto& entry = mine.cache.entries[mixed % 16];
  if (!entry.used || entry.generation != generation || entry.operand.op_handle != e.op ||
      entry.operand.type_handle != e.send.type) [[unlikely]] {
    entry.verdict = describe(*e.thread, e.op, e.send.type, exact, &entry.operand);
    entry.generation = generation;
    entry.used = true;
  }
  *operand = entry.operand;
  return entry.verdict;
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kNativeSafe: return "native_safe";
    case Algorithm::kOrder: return "order";
    case Algorithm::kExact: return "exact";
    case Algorithm::kP2p: return "p2p";
    case Algorithm::kNativeRanks: return "ranks_without_resil";
    case Algorithm::kNativeWorld: return "other_world";
    case Algorithm::kNativeArguments: return "arguments";
    case Algorithm::kNativeSize: return "size";
    case Algorithm::kNativePersistent: return "persistent";
    case Algorithm::kCount: break;
  }
  return "";
}

int64_t Call::block_of(int64_t of) const {
  if (operation == Collective::kReduceScatterBlock) return block;
  return array_element(counts, large, of);
}

Algorithm decide(Event& e, PerThread& mine, bool exact, Call* c) {
  const Collective operation = collective_of(e.id);
  c->operation = operation;
  c->initiation = call_info(e.id).initiation;
  c->large = e.large;
  c->comm = e.comm_handle;
  c->info = e.comm;
  c->root = operation == Collective::kReduce ? e.peer : 0;
  c->counts = operation == Collective::kReduceScatter ? e.send.counts : nullptr;
  c->block = operation == Collective::kReduceScatterBlock ? e.send.count : 0;
  c->in_place = backend->is_in_place(e.given_send);
  c->input = c->in_place ? e.given_receive : e.given_send;
  c->output = const_cast<void*>(e.given_receive);
  if (!shape_of(c) || (operation == Collective::kReduceScatter && c->counts == nullptr))
    return Algorithm::kNativeArguments;
  c->count = total_of(*c, e.send.count);
  if (c->count < 0) return Algorithm::kNativeArguments;
  if (c->count == 0 || (c->size == 1 && !c->inter())) return Algorithm::kNativeSafe;
  switch (operand_of(e, mine, exact, &c->operand)) {
    case Verdict::kFold: break;
    case Verdict::kSafe: return Algorithm::kNativeSafe;
    default: return Algorithm::kNativeArguments;
  }
  if (!all_ranks_present() || !runtime_has_world()) return Algorithm::kNativeRanks;
  if (!reachable(*c)) return Algorithm::kNativeWorld;
  if (refused(*c, e.given_send, e.given_receive)) return Algorithm::kNativeArguments;
  // Counts of the collectives below are ints. (A Reduce between groups goes in one piece.)
  const auto cell = static_cast<int64_t>(c->operand.cell);
  if (cell > kLargestPiece / c->contributors() ||
      (c->operation == Collective::kReduce && c->inter() && c->count > kLargestPiece / cell / c->contributors()))
    return Algorithm::kNativeSize;
  return c->operand.mode == Mode::kExact ? Algorithm::kExact : Algorithm::kOrder;
}

}  // namespace resil::reduction
