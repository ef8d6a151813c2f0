// SPDX-License-Identifier: Apache-2.0
//
// What the host gives resil's kernels. Included by both sides; every kernel takes one argument, one of these structures
// by value: in the constant bank, where every thread reads it at no cost, so that no table has to be copied to the
// device. Addresses are the device's, as numbers.
//
//   resil_digest       D (shim/base/digest/digest.h) of up to kDigestJobs streams in contiguous memory, in one launch
//   resil_digest_runs  the same, some of the streams being gathered from runs; kGatherShared bytes of shared memory
//   resil_pack         gathers a stream into contiguous memory (of the device or pinned)
//   resil_unpack       the reverse: only data is written, never the gaps of a layout
//   resil_fill         sets 64-bit words
//
// Threads in a block: kKernelThreads. Blocks: any number from 1 on does; kernel_blocks() of the leaves is a good one.
#pragma once

#include <stdint.h>

namespace resil::gpu {

constexpr unsigned kKernelThreads = 256;
/// 32 threads work on one leaf, on any device (half a wavefront where that has 64).
constexpr unsigned kGroup = 32;
constexpr unsigned kGroups = kKernelThreads / kGroup;
/// Bytes of one leaf of the digest, and of one piece of work of pack and unpack.
constexpr unsigned kLeaf = 4096;
constexpr unsigned kGatherShared = kGroups * kLeaf;
/// More blocks than any device runs at a time: the threads go on to the next leaves.
constexpr unsigned kMostBlocks = 1024;
constexpr unsigned kDigestJobs = 64;

/// Leaves of a stream: an empty one has one.
constexpr uint64_t kernel_leaves(uint64_t bytes) { return bytes == 0 ? 1 : (bytes + kLeaf - 1) / kLeaf; }
constexpr unsigned kernel_blocks(uint64_t leaves) {
  const uint64_t blocks = (leaves + kGroups - 1) / kGroups;
  return blocks == 0 ? 1 : blocks < kMostBlocks ? static_cast<unsigned>(blocks) : kMostBlocks;
}

/// Pieces of `bytes`, each `stride` behind the one before, `offset` from the element's address. As many as fit between
/// `start`, its first byte's place in the element's stream, and that of the next run.
struct KernelRun {
  uint64_t start;
  int64_t offset;
  uint64_t bytes;
  int64_t stride;
};

/// Where the data of a stream is. With element == 0 it is contiguous at `address`. Else elements of `element` bytes of
/// data lie `extent` apart, each made of `run_count` runs; the table at `runs` has one entry more, whose start is
/// `element`. With run_count == 1 there is no table: pieces of `runs` bytes, `stride` apart, from `address` on.
struct KernelStream {
  uint64_t address;
  uint64_t bytes;  ///< of the stream: it may end inside an element
  uint64_t element;
  int64_t extent;
  uint64_t runs;
  int64_t stride;
  uint32_t run_count;
  uint32_t first_leaf;  ///< leaves of the streams before it in the batch
};

/// Where blocks add up what belongs to one stream. All zero before a launch, and again after it.
struct DigestSum {
  uint64_t sum;
  uint64_t leaves;
};

struct DigestBatch {
  uint64_t results;  ///< D of each stream, 64-bit words; written once
  uint64_t sums;  ///< DigestSum of each; device memory
  uint32_t jobs;  ///< 1 .. kDigestJobs
  uint32_t leaves;  ///< of all streams
  KernelStream stream[kDigestJobs];
};
static_assert(sizeof(DigestBatch) <= 4096, "drivers take no more as arguments of a kernel");

struct PackJob {
  KernelStream stream;  ///< first_leaf is not used
  uint64_t first;  ///< bytes [first, first + bytes) of the stream
  uint64_t bytes;
  uint64_t contiguous;  ///< where byte `first` goes, or comes from
};

struct FillJob {
  uint64_t address, words, value;
};

}  // namespace resil::gpu
