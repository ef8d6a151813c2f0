// SPDX-License-Identifier: Apache-2.0
//
// A program that is wrong: rank 0 sends a buffer that its own fill, on a stream of its own, may still be writing.
// Twice. Rank 1 prints the first and the last word of each message.

#include <mpi.h>

#include "device.h"

enum { kWords = 1 << 14 };

int main(int argc, char** argv) {
  static unsigned words[kWords];
  int rank;
  device_open();
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *stream = NULL;
  CHECK(((int (*)(void**, unsigned))device_symbol(library, "cuStreamCreate"))(&stream, 1) == 0);
  char* buffer = memory_new(1, sizeof(words));
  memory_write(1, buffer, words, sizeof(words));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  for (unsigned value = 1; value <= 2; value++) {
    if (rank == 0) {
      int (*fill)(uint64_t, unsigned, size_t, void*) = NULL;
      *(void**)&fill = device_symbol(library, "cuMemsetD32Async");
      CHECK(fill((uint64_t)(uintptr_t)buffer, value, kWords, stream) == 0);
      OK(MPI_Send(buffer, kWords, MPI_UNSIGNED, 1, 1, MPI_COMM_WORLD));
    } else {
      OK(MPI_Recv(buffer, kWords, MPI_UNSIGNED, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      memory_read(1, words, buffer, sizeof(words));
      printf("%u %u\n", words[0], words[kWords - 1]);
    }
  }
  OK(MPI_Finalize());
  return 0;
}
