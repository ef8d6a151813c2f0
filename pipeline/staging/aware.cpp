// SPDX-License-Identifier: Apache-2.0
//
// See aware.h. Functions: MPIX_Query_cuda_support and MPIX_Query_rocm_support of Open MPI, MPIX_Query_cuda_support and
// MPIX_Query_hip_support of MPICH; all may be called once MPI is initialised. MPICH 3.4 ends the program in its
// MPIX_Query_cuda_support (an assertion that holds for errors only); it is asked by MPIX_GPU_query_support. Cray MPICH
// and MVAPICH take device buffers when a variable says so, whatever they were built with.

#include "pipeline/staging/aware.h"

#include <cstdlib>
#include <cstring>

#include "pipeline/staging/staging.h"
#include "shim/call/resolver.h"

namespace resil::staging {

void ask_library() {
  constexpr const char* kQueries[] = {"MPIX_Query_cuda_support", "MPIX_Query_rocm_support", "MPIX_Query_hip_support"};
  constexpr const char* kVariables[] = {
      "MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "MV2_USE_ROCM", "MVP_USE_CUDA", "MVP_USE_ROCM", "MVP_ENABLE_GPU"};
  constexpr int kCuda = 0;  // MPIX_GPU_SUPPORT_CUDA
  bool takes = false;
  auto* ask = reinterpret_cast<int (*)(int type, int* supported)>(mpi_function("MPIX_GPU_query_support"));
  if (int supported = 0; ask != nullptr && mpi_function("MPIX_Query_hip_support") == nullptr)  // MPICH 3.4
    takes = ask(kCuda, &supported) == 0 && supported == 1;
  else
    for (const char* name : kQueries)
      if (auto* query = reinterpret_cast<int (*)()>(mpi_function(name)); query != nullptr)
        takes = takes || query() == 1;
  for (const char* name : kVariables)
    if (const char* value = getenv(name); value != nullptr) takes = takes || strcmp(value, "1") == 0;
  mode.mpi_takes_device = takes;
}

}  // namespace resil::staging
