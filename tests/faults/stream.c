// SPDX-License-Identifier: Apache-2.0
//
// Very many small messages, for the count of false alarms: two directions at a time, a window of nonblocking messages
// of 8 to 64 bytes whose content is a running number; now and then a longer one.
//
// stream MESSAGES [WINDOW]      (messages in all, both directions together, of each pair of ranks; window at most 4096)
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMost = 4096, kWords = 8 };

int main(int argc, char** argv) {
  static uint64_t out[kMost][kWords], in[kMost][kWords];
  static MPI_Request requests[2 * kMost];
  int me, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int window = argc > 2 ? atoi(argv[2]) : 64;
  if (window < 1 || window > kMost) window = 64;
  const uint64_t rounds = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000) / (2 * (uint64_t)window);
  const int peer = me ^ 1;
  uint64_t wrong = 0;
  if (peer < ranks) {
    for (uint64_t round = 0; round < rounds; round++) {
      const int words = 1 + (int)(round % kWords);
      for (int k = 0; k < window; k++) MPI_Irecv(in[k], words, MPI_UINT64_T, peer, k % 4, MPI_COMM_WORLD, &requests[k]);
      for (int k = 0; k < window; k++) {
        for (int w = 0; w < words; w++) out[k][w] = round * (uint64_t)window + (uint64_t)k + (uint64_t)w * 1000003;
        MPI_Isend(out[k], words, MPI_UINT64_T, peer, k % 4, MPI_COMM_WORLD, &requests[window + k]);
      }
      MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
      for (int k = 0; k < window; k++)
        for (int w = 0; w < words; w++)
          wrong += in[k][w] != round * (uint64_t)window + (uint64_t)k + (uint64_t)w * 1000003;
    }
  }
  printf("stream: %llu packets, %llu wrong\n", (unsigned long long)(rounds * (uint64_t)window),
         (unsigned long long)wrong);
  MPI_Finalize();
  return 0;
}
