// SPDX-License-Identifier: Apache-2.0
//
// The images, as embed.py wrote them: text that any compiler of the host takes, with the dependencies that go with it.
#include "pipeline/gpu/kernels/image.h"

#include <cstdint>

namespace resil::gpu {

namespace {

// cuda_words, cuda_bytes, cuda_portable, cuda_compiler; the same for hip. Pages: the loader of code objects may map
// them.
#include "pipeline/gpu/kernels/kernels_cuda.inc"
#include "pipeline/gpu/kernels/kernels_hip.inc"

}  // namespace

KernelImage kernel_image(Api api) {
  if (api == Api::kCuda) return {cuda_words, cuda_bytes, cuda_portable};
  if (api == Api::kHip) return {hip_words, hip_bytes, hip_portable};
  return {nullptr, 0};
}

const char* kernel_compiler(Api api) {
  return api == Api::kCuda ? cuda_compiler : api == Api::kHip ? hip_compiler : "";
}

}  // namespace resil::gpu
