// SPDX-License-Identifier: Apache-2.0
//
// Many pending receives at once: 200,000, or as many as the first argument says. Rank 0 sends when all are posted.
// They are waited for as they were posted, or with a third argument in another order. Prints what a request costs, for
// comparison between runs.
#include <mpi.h>
#include <stdint.h>

#include "check.h"

enum { kAtOnce = 1000, kTags = 4 };

static uint64_t value_of(int i) { return (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u; }

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) / kAtOnce * kAtOnce : 200000, rounds = argc > 2 ? atoi(argv[2]) : 1;
  const int scattered = argc > 3;
  int rank;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CHECK(count > 0);
  for (int round = 0; round < rounds && rank < 2; round++) {
    if (rank == 0) {
      OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, kTags, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      for (int i = 0; i < count; i++) {
        uint64_t value = value_of(i);
        OK(MPI_Send(&value, 1, MPI_UINT64_T, 1, i % kTags, MPI_COMM_WORLD));
      }
      continue;
    }
    uint64_t* values = calloc((size_t)count, sizeof *values);
    MPI_Request *requests = malloc((size_t)count * sizeof *requests), *some = malloc(kAtOnce * sizeof *some);
    CHECK(values != NULL && requests != NULL && some != NULL);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++)
      OK(MPI_Irecv(&values[i], 1, MPI_UINT64_T, 0, i % kTags, MPI_COMM_WORLD, &requests[i]));
    double posted = MPI_Wtime();
    OK(MPI_Send(NULL, 0, MPI_BYTE, 0, kTags, MPI_COMM_WORLD));
    const int waits = count / kAtOnce;
    for (int wait = 0; wait < waits; wait++) {
      for (int k = 0; k < kAtOnce; k++)  // scattered: one of every so many, later ones first
        some[k] = requests[scattered ? waits - 1 - wait + k * waits : wait * kAtOnce + k];
      OK(MPI_Waitall(kAtOnce, some, MPI_STATUSES_IGNORE));
    }
    double end = MPI_Wtime();
    for (int i = 0; i < count; i++) CHECK(values[i] == value_of(i));
    printf("pending: %d post %.0f complete %.0f ns a request\n", count, (posted - start) / count * 1e9,
           (end - posted) / count * 1e9);
    free(values);
    free(requests);
    free(some);
  }
  OK(MPI_Finalize());
  return 0;
}
