// SPDX-License-Identifier: Apache-2.0
//
// A program of the CUDA runtime that waits in three ways and looks whether its data is there, for scripts/bench gpu:
// built with `nvcc -cudart static` and `-cudart shared`. Usage: cudart_waits TURNS. Prints "turns N wrong M seconds S".
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern "C" {  // the one-process MPI's header is C's
#include <mpi.h>
}

#define OK(call)                                                      \
  do {                                                                \
    cudaError_t error_ = (call);                                      \
    if (error_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); \
      exit(3);                                                        \
    }                                                                 \
  } while (0)

__global__ void fill(unsigned* memory, unsigned count, unsigned value) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    memory[i] = value + i;
}

int main(int argc, char** argv) {
  const unsigned count = 1 << 16, turns = argc > 1 ? atoi(argv[1]) : 1000;
  unsigned *memory, *host, wrong = 0, value = 0;
  cudaStream_t stream;
  cudaEvent_t event;
  MPI_Init(&argc, &argv);
  OK(cudaMalloc(&memory, count * 4));
  OK(cudaMallocHost(&host, count * 4));
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int way = 0; way < 3; ++way)
    for (unsigned turn = 0; turn < turns; ++turn) {
      fill<<<64, 256, 0, stream>>>(memory, count, ++value);
      OK(cudaGetLastError());
      OK(cudaMemcpyAsync(host, memory, count * 4, cudaMemcpyDeviceToHost, stream));
      OK(cudaEventRecord(event, stream));
      OK(way == 0 ? cudaStreamSynchronize(stream) : way == 1 ? cudaEventSynchronize(event) : cudaDeviceSynchronize());
      const volatile unsigned* data = host;
      wrong += data[0] != value || data[count - 1] != value + count - 1;
    }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("turns %u wrong %u seconds %.6f\n", 3 * turns, wrong,
         (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
  fflush(stdout);
  MPI_Finalize();
  return wrong != 0;
}
