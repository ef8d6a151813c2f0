// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds for one of several cheap calls, on one rank: what a wrapper adds shows best where the call does least.
#include <mpi.h>

#include "timing.h"

enum { kBatches = 40, kCount = 20000 };

#define MEASURE(name, statement)                \
  do {                                          \
    double best;                                \
    BEST_OF(best, kBatches, kCount, statement); \
    printf("%s %.2f ns\n", name, best);         \
  } while (0)

static void exchange_with_self(int* in, int* out) {
  MPI_Request requests[2];
  MPI_Irecv(in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[0]);
  MPI_Isend(out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void use_persistent(MPI_Request* pair) {
  MPI_Startall(2, pair);
  MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  int value = 1, other = 0, flag;
  double sum = 1, total;
  MPI_Request null = MPI_REQUEST_NULL, pending, pair[2];
  MPI_Status status;
  MPI_Init(&argc, &argv);
  MEASURE("Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, &value));
  MEASURE("Type_size", MPI_Type_size(MPI_DOUBLE, &value));
  MEASURE("Test_null", MPI_Test(&null, &flag, MPI_STATUS_IGNORE));
  MEASURE("Iprobe_miss", MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &flag, &status));
  MPI_Irecv(&other, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &pending);
  MEASURE("Test_pending", MPI_Test(&pending, &flag, MPI_STATUS_IGNORE));
  MPI_Send(&value, 1, MPI_INT, 0, 9, MPI_COMM_SELF);
  MPI_Wait(&pending, MPI_STATUS_IGNORE);
  MEASURE("Irecv_Isend_Waitall_self", exchange_with_self(&other, &value));
  MEASURE("Sendrecv_self", MPI_Sendrecv(&value, 1, MPI_INT, 0, 2, &other, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &status));
  MPI_Recv_init(&other, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &pair[0]);
  MPI_Send_init(&value, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &pair[1]);
  MEASURE("Startall_Waitall_self", use_persistent(pair));
  MPI_Request_free(&pair[0]);
  MPI_Request_free(&pair[1]);
  MEASURE("Barrier_self", MPI_Barrier(MPI_COMM_SELF));
  MEASURE("Allreduce_self", MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF));
  MPI_Finalize();
  return 0;
}
