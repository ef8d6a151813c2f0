// SPDX-License-Identifier: Apache-2.0
//
// Messages of 8 bytes between pairs of ranks, with more ranks than cores: oversubscribed ROUNDS. Means over the ranks:
// us a round trip, voluntary and involuntary context switches per 1,000 round trips, us of processor time a round trip.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static double processor(const struct rusage* u) {
  return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + 1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

int main(int argc, char** argv) {
  int me, size;
  char data[8] = {0};
  struct rusage before, after;
  MPI_Init(&argc, &argv);
  const int rounds = atoi(argv[1]);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Barrier(MPI_COMM_WORLD);
  getrusage(RUSAGE_SELF, &before);
  const double began = MPI_Wtime();
  for (int i = 0; i < 2 * rounds; i++)
    if ((me + i) % 2 == 0) MPI_Send(data, 8, MPI_BYTE, me ^ 1, 1, MPI_COMM_WORLD);
    else MPI_Recv(data, 8, MPI_BYTE, me ^ 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  const double seconds = MPI_Wtime() - began;
  getrusage(RUSAGE_SELF, &after);
  const double own[4] = {seconds * 1e6, (double)(after.ru_nvcsw - before.ru_nvcsw) * 1e3,
                         (double)(after.ru_nivcsw - before.ru_nivcsw) * 1e3,
                         (processor(&after) - processor(&before)) * 1e6};
  double all[4];
  MPI_Reduce(own, all, 4, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0)
    printf("%.2f us, %.1f voluntary, %.1f involuntary, %.2f us of processor time\n", all[0] / size / rounds,
           all[1] / size / rounds, all[2] / size / rounds, all[3] / size / rounds);
  MPI_Finalize();
  return 0;
}
