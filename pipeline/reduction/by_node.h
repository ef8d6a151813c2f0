// SPDX-License-Identifier: Apache-2.0
//
// Blocking reductions of ranks that share a node, through node-local memory: no function of the MPI library carries
// data. The bits are those of every other way. See docs/REDUCTIONS.md.
#pragma once

#include "pipeline/reduction/groups.h"
#include "pipeline/reduction/node.h"

namespace resil::reduction {

/// The group, if this call goes that way; null: it does not. The same on all ranks.
NodeGroup* served_by_node(const Call& call);
/// Returns MPI's code.
int intercept_by_node(const Call& call, NodeGroup& group, Thread& thread, Arena& arena);
/// What this rank folds of everybody's vector.
struct Wanted {
  int64_t ranks;  ///< the first so many
  int64_t first, count;  ///< elements
};
Wanted wanted(const Call& call);
/// Waits: until this rank may write its next cell; until that rank has shown its contribution to this step. True: of
/// another length than `what`.
void await_writable(NodeGroup& group, Rings& rings, Thread& thread, CommInfo& comm);
bool await_shown(NodeGroup& group, Rings& rings, Thread& thread, CommInfo& comm, int rank, uint64_t what);
/// Whether this rank folds by groups (groups.h); how.
bool folds_by_groups(const Call& call, const Rings& rings);
GroupFold group_fold(const Call& call);
/// Bytes of scratch, aligned to 64, that it takes.
constexpr size_t kGroupScratch = group_scratch(kNodeRanks, kNodeMostFolded);
/// Of a step in which this rank has shown its contribution. True: another rank's has another length.
bool fold_shown_groups(NodeGroup& group, Rings& rings, Thread& thread, CommInfo& comm, const GroupFold& fold,
                       char* output, char* scratch);
/// Between two looks at memory.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}
/// Steps of the flight recorder.
void by_node_prepare();

}  // namespace resil::reduction
