// SPDX-License-Identifier: Apache-2.0
//
// Messages with bytes that nobody reads and that differ from part to part, as memory does that was never initialised:
// for replicas_test.py.
//
// parts_unset STEPS      UNSET=all|last: they differ in all parts, in the last one alone; else they are the same
// FLIP=RANK: a bit flips in that rank of the job, half way, in a number that counts; FLIP_UNREAD=RANK: in such a byte

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kUsed = 32, kAll = 64 };

static int job_rank(void) {
  const char* text = getenv("PMIX_RANK");
  if (text == NULL) text = getenv("PMI_RANK");
  return text != NULL ? atoi(text) : 0;
}

static int is(const char* name) { return getenv(name) != NULL && atoi(getenv(name)) == job_rank(); }

/* To the right, and from the left. */
static void pass(double* data, double* came, int count, int rank, int size) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  if (rank % 2 == 0) MPI_Send(data, count, MPI_DOUBLE, right, 1, MPI_COMM_WORLD);
  MPI_Recv(came, count, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank % 2 != 0) MPI_Send(data, count, MPI_DOUBLE, right, 1, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  double data[kAll], came[kAll], sums[2], all[2] = {0, 0};
  int rank, size;
  const int steps = argc > 1 ? atoi(argv[1]) : 10;
  const char* unset = getenv("UNSET");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int part = job_rank() / size, parts = getenv("RESIL_REPLICAS") != NULL ? atoi(getenv("RESIL_REPLICAS")) : 1;
  const int differs = unset != NULL && (strcmp(unset, "all") == 0 || part == parts - 1);
  for (int i = 0; i < kAll; ++i) data[i] = rank + i;
  for (int step = 0; step < steps; ++step) {
    for (int i = kUsed; i < kAll; ++i) data[i] = differs ? part * 0.5 + step + 2 : 1;
    if (is("FLIP_UNREAD") && step == steps / 2) ((unsigned char*)&data[kUsed])[3] ^= 4;
    pass(data, came, kAll, rank, size);
    for (int i = 0; i < kUsed; ++i) data[i] = (data[i] + came[kUsed - 1 - i]) * 0.5;
    if (is("FLIP") && step == steps / 2) ((unsigned char*)&data[5])[6] ^= 4;
    pass(data, came, kUsed, rank, size);
    sums[0] = sums[1] = 0;
    for (int i = 0; i < kUsed; ++i) {
      data[i] = data[i] * 0.25 + came[i] * 0.75;
      sums[i % 2] += data[i];
    }
    MPI_Allreduce(sums, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    data[0] += step + all[0] * 1e-3 - all[1] * 1e-3;
  }
  if (rank == 0) printf("%.17g %.17g\n", all[0], all[1]);
  MPI_Finalize();
  return 0;
}
