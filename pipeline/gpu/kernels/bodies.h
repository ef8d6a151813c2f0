// SPDX-License-Identifier: Apache-2.0
//
// What a group of 32 threads does in each kernel. kernels.cu gives them to the devices, tests/fakegpu/kernels.cpp to
// the CPU.
#pragma once

#include "pipeline/gpu/kernels/gather.h"
#include "pipeline/gpu/kernels/xxh3.h"

namespace resil::gpu::device {

/// Shared by the groups of a block.
struct BlockSums {
  DigestSum of[kDigestJobs];
};

/// The stream of the batch to which this leaf belongs.
RESIL_DEVICE uint32_t stream_of(const DigestBatch& batch, uint32_t leaf) {
  uint32_t low = 0, high = batch.jobs;  // first_leaf of low <= leaf < first_leaf of high
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (batch.stream[middle].first_leaf <= leaf) low = middle;
    else high = middle;
  }
  return low;
}

RESIL_DEVICE void add_to_block(BlockSums* sums, uint32_t job, uint64_t sum, uint64_t leaves) {
#ifdef RESIL_ON_DEVICE
  if (own_lane() != 0) return;
#endif
  add(&sums->of[job].sum, sum);
  add(&sums->of[job].leaves, leaves);
}

/// Leaves `leaf`, `leaf + step`, ... of the batch. `scratch`: kLeaf bytes of the group's own, 0 when all are
/// contiguous.
template <bool with_runs>
RESIL_DEVICE void digest_group(const DigestBatch& batch, BlockSums* sums, uint32_t leaf, uint32_t step,
                               uint64_t scratch) {
  if (leaf >= batch.leaves) return;
  Keys keys;
  make_keys(&keys);
  uint32_t job = stream_of(batch, leaf);
  uint32_t first = batch.stream[job].first_leaf;
  uint32_t end = job + 1 < batch.jobs ? batch.stream[job + 1].first_leaf : batch.leaves;
  uint64_t sum = 0, leaves = 0;
  RESIL_NO_UNROLL for (;;) {
    const KernelStream& stream = batch.stream[job];
    const uint64_t index = leaf - first, from = index * kLeaf, rest = stream.bytes - from;
    const unsigned bytes = rest < kLeaf ? static_cast<unsigned>(rest) : kLeaf;
    uint64_t address = stream.address + from;
    if (with_runs) {
      address = in_one_piece(stream, from, bytes);
      if (address == 0 && bytes != 0) {
        group_barrier();  // nobody reads the leaf before any more
        move_stream<false>(stream, from, bytes, scratch);
        group_barrier();
        address = scratch;
      }
    }
    sum += leaf_term<!with_runs>(keys, address, bytes, index);
    ++leaves;
    const bool more = batch.leaves - leaf > step;
    leaf += step;
    if (!more || leaf >= end) {
      add_to_block(sums, job, sum, leaves);
      if (!more) return;
      sum = leaves = 0;
      job = stream_of(batch, leaf);
      first = batch.stream[job].first_leaf;
      end = job + 1 < batch.jobs ? batch.stream[job + 1].first_leaf : batch.leaves;
    }
  }
}

/// One thread a stream, when all groups of the block are done: who adds a stream's last leaf writes its D.
RESIL_DEVICE void publish(const DigestBatch& batch, const BlockSums& sums, uint32_t job) {
  if (job >= batch.jobs || sums.of[job].leaves == 0) return;
  DigestSum* all = at<DigestSum>(batch.sums) + job;
  add(&all->sum, sums.of[job].sum);
  fence();
  const uint64_t leaves = add(&all->leaves, sums.of[job].leaves) + sums.of[job].leaves;
  if (leaves != kernel_leaves(batch.stream[job].bytes)) return;
  fence();
  exchange(&all->leaves, 0);
  at<uint64_t>(batch.results)[job] = exchange(&all->sum, 0);
}

/// Pieces of work `piece`, `piece + step`, ... of a pack or unpack.
template <bool to_runs>
RESIL_DEVICE void pack_group(const PackJob& job, uint64_t piece, uint64_t step) {
  for (uint64_t done = piece * kLeaf; done < job.bytes; done += step * kLeaf) {
    const uint64_t rest = job.bytes - done;
    move_stream<to_runs>(job.stream, job.first + done, rest < kLeaf ? static_cast<uint32_t>(rest) : kLeaf,
                         job.contiguous + done);
  }
}

}  // namespace resil::gpu::device
