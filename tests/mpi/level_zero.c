// SPDX-License-Identifier: Apache-2.0
//
// ranks: 2
//
// A process of a runtime that cannot be asked whose memory an address is (Level Zero): its loader and a driver are
// there, and buffers are mapped, as its shared and device memory is. With a device everything must go to MPI as it
// came.
#include <dlfcn.h>
#include <mpi.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum { kCount = 50000, kRounds = 5 };

int main(int argc, char** argv) {
  if (dlopen("libze_loader.so.1", RTLD_NOW) == NULL || dlopen("libze_intel_gpu.so.1", RTLD_NOW) == NULL) return 77;
  int rank, result = 0;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  const size_t bytes = 2 * kCount * sizeof(int);
  int* out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(out != MAP_FAILED);
  int* in = out + kCount;
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kCount; i++) out[i] = i + 1000 * round + rank, in[i] = -1;
    MPI_Request requests[2];
    OK(MPI_Irecv(in, kCount, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(out, kCount, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kCount; i++) CHECK(in[i] == i + 1000 * round + 1 - rank);
    OK(MPI_Allreduce(out, in, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < kCount; i++) CHECK(in[i] == 2 * (i + 1000 * round) + 1);
    OK(MPI_Allreduce(&in[7], &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  }
  OK(MPI_Finalize());
  if (rank == 0) printf("level_zero %d\n", result);
  return 0;
}
