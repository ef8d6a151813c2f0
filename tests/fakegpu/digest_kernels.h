// SPDX-License-Identifier: Apache-2.0
//
// resil's own kernels on the CPU; addresses are the host's.
#pragma once

#include "pipeline/gpu/kernels/kernels.h"

namespace fakegpu {

void run_digest(const resil::gpu::DigestBatch& batch, unsigned blocks);
void run_digest_runs(const resil::gpu::DigestBatch& batch, unsigned blocks);
void run_pack(const resil::gpu::PackJob& job, unsigned blocks, bool to_runs);
void run_fill(const resil::gpu::FillJob& job);

}  // namespace fakegpu
