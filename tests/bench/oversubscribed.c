// SPDX-License-Identifier: Apache-2.0
//
// Messages of 8 bytes between pairs of ranks, with more ranks than cores: oversubscribed ROUNDS. Or reductions of all
// ranks: oversubscribed ROUNDS allreduce|reduce|scan|allreduce_14|allreduce_128 (doubles). Means over the ranks: us a
// round, voluntary and involuntary context switches per 1,000 rounds, us of processor time a round.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static double processor(const struct rusage* u) {
  return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + 1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static double in[128], out[128];

static void reduction(const char* what) {
  const int count = strchr(what, '_') != NULL ? atoi(strchr(what, '_') + 1) : 1;
  if (what[0] == 'a') MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  else if (what[0] == 'r') MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  else MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  int me, size;
  char data[8] = {0};
  struct rusage before, after;
  MPI_Init(&argc, &argv);
  const int rounds = atoi(argv[1]);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 20 && argc > 2; i++) reduction(argv[2]);
  MPI_Barrier(MPI_COMM_WORLD);
  getrusage(RUSAGE_SELF, &before);
  const double began = MPI_Wtime();
  for (int i = 0; i < rounds && argc > 2; i++) reduction(argv[2]);
  for (int i = 0; i < 2 * rounds && argc < 3; i++)
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
