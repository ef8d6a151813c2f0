// SPDX-License-Identifier: Apache-2.0
//
// resil's own kernels on the CPU, from their one source: what the stand-in runs, and what the unit tests hold against
// the CPU's digest. No addresses are translated here.
#include "tests/fakegpu/digest_kernels.h"

#include <vector>

#include "pipeline/gpu/kernels/bodies.h"

namespace fakegpu {

using namespace resil::gpu;
using namespace resil::gpu::device;

template <bool with_runs>
static void digest(const DigestBatch& batch, unsigned blocks) {
  std::vector<Pair> scratch(kLeaf / sizeof(Pair));
  for (unsigned block = 0; block < blocks; ++block) {
    BlockSums sums = {};
    for (unsigned group = 0; group < kGroups; ++group)
      digest_group<with_runs>(batch, &sums, block * kGroups + group, blocks * kGroups,
                              reinterpret_cast<uint64_t>(scratch.data()));
    for (unsigned thread = 0; thread < kDigestJobs; ++thread) publish(batch, sums, thread);
  }
}

void run_digest(const DigestBatch& batch, unsigned blocks) { digest<false>(batch, blocks); }
void run_digest_runs(const DigestBatch& batch, unsigned blocks) { digest<true>(batch, blocks); }

void run_pack(const PackJob& job, unsigned blocks, bool to_runs) {
  for (unsigned group = 0; group < blocks * kGroups; ++group) {
    if (to_runs) pack_group<true>(job, group, uint64_t{blocks} * kGroups);
    else pack_group<false>(job, group, uint64_t{blocks} * kGroups);
  }
}

void run_fill(const FillJob& job) {
  for (uint64_t i = 0; i < job.words; ++i) at<uint64_t>(job.address)[i] = job.value;
}

}  // namespace fakegpu
