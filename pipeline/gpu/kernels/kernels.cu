// SPDX-License-Identifier: Apache-2.0
//
// The kernels, for CUDA and for HIP (clang -x hip).
#include "pipeline/gpu/kernels/bodies.h"

#define RESIL_KERNEL extern "C" __global__ __attribute__((visibility("default")))

namespace {

using namespace resil::gpu;
using namespace resil::gpu::device;

#ifdef __HIP__
/// The only argument of the kernel, where the launch has put it: a copy of it, which clang makes otherwise, would go to
/// every thread's own memory.
template <class T>
RESIL_DEVICE const T& argument(const T&) {
  return *(const T*)(const T __attribute__((address_space(4)))*)__builtin_amdgcn_kernarg_segment_ptr();
}
#else
template <class T>
RESIL_DEVICE const T& argument(const T& given) {
  return given;
}
#endif

template <bool with_runs>
RESIL_DEVICE void digest(const DigestBatch& batch, uint64_t scratch, BlockSums* sums) {
  const unsigned thread = thread_index(), group = thread / kGroup;
  if (thread < kDigestJobs) sums->of[thread] = {0, 0};
  block_barrier();
  digest_group<with_runs>(batch, sums, block_index() * kGroups + group, block_count() * kGroups,
                          scratch + group * kLeaf);
  block_barrier();
  if (thread < kDigestJobs) publish(batch, *sums, thread);
}

template <bool to_runs>
RESIL_DEVICE void pack(const PackJob& job) {
  const uint64_t group = thread_index() / kGroup, blocks = block_count();
  pack_group<to_runs>(job, block_index() * uint64_t{kGroups} + group, blocks * kGroups);
}

}  // namespace

#if defined(__NVCC__)
#define RESIL_BOUNDS __launch_bounds__(256)
#elif defined(__HIP__)
#define RESIL_BOUNDS __attribute__((amdgpu_flat_work_group_size(256, 256)))
#else
#define RESIL_BOUNDS __attribute__((launch_bounds(256)))
#endif

RESIL_KERNEL void RESIL_BOUNDS resil_digest(const __grid_constant__ DigestBatch batch) {
  __shared__ BlockSums sums;
  digest<false>(argument(batch), 0, &sums);
}

RESIL_KERNEL void RESIL_BOUNDS resil_digest_runs(const __grid_constant__ DigestBatch batch) {
  __shared__ BlockSums sums;
  extern __shared__ __attribute__((aligned(16))) unsigned char scratch[];
  digest<true>(argument(batch), reinterpret_cast<uint64_t>(scratch), &sums);
}

RESIL_KERNEL void RESIL_BOUNDS resil_pack(const __grid_constant__ PackJob job) { pack<false>(argument(job)); }
RESIL_KERNEL void RESIL_BOUNDS resil_unpack(const __grid_constant__ PackJob job) { pack<true>(argument(job)); }

RESIL_KERNEL void RESIL_BOUNDS resil_fill(const __grid_constant__ FillJob job) {
  const uint64_t threads = uint64_t{block_count()} * kKernelThreads;
  for (uint64_t i = block_index() * uint64_t{kKernelThreads} + thread_index(); i < job.words; i += threads)
    at<uint64_t>(job.address)[i] = job.value;
}
