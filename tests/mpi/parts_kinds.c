// SPDX-License-Identifier: Apache-2.0
//
// Data by partitioned messages, persistent collectives and one-sided calls, for replicas_test.py.
//
// parts_kinds partitioned|collective|get    FLIP=RANK: the job's rank that has a bit flipped in what it gives in
// step 3. Exit status 77: this MPI lacks it.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 16 };
static int rank, size, right, left;
static double out[kCount], in[kCount];

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : otherwise;
}

/* Everything that follows depends on it. */
static void mix(void) {
  for (int i = 0; i < kCount; ++i) out[i] = out[i] * 0.5 + in[kCount - 1 - i];
}

static int here;
static void damage(int step) {
  if (here && step == 3) ((unsigned char*)&out[5])[3] ^= 4;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  here = number("PMIX_RANK", number("PMI_RANK", 0)) == number("FLIP", -1);
  right = (rank + 1) % size;
  left = (rank + size - 1) % size;
  for (int i = 0; i < kCount; ++i) out[i] = rank + i;
  int lacks = 0;
  if (strcmp(what, "get") == 0) {
    MPI_Win window;
    double shown[kCount];
    MPI_Win_create(shown, sizeof(shown), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int step = 0; step < 6; ++step) {
      damage(step);
      MPI_Win_fence(0, window);
      MPI_Put(out, kCount, MPI_DOUBLE, right, 0, kCount, MPI_DOUBLE, window);
      MPI_Win_fence(0, window);
      MPI_Get(in, kCount, MPI_DOUBLE, right, 0, kCount, MPI_DOUBLE, window);
      MPI_Win_fence(0, window);
      mix();
    }
    MPI_Win_free(&window);
  } else {
#if MPI_VERSION >= 4
    MPI_Request requests[2];
    const int partitioned = strcmp(what, "partitioned") == 0;
    if (partitioned) {
      MPI_Psend_init(out, 4, kCount / 4, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
      MPI_Precv_init(in, 4, kCount / 4, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    } else {
      MPI_Allreduce_init(out, in, kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    }
    for (int step = 0; step < 6; ++step) {
      damage(step);
      MPI_Startall(partitioned ? 2 : 1, requests);
      for (int i = 0; partitioned && i < 4; ++i) MPI_Pready(i, requests[0]);
      MPI_Waitall(partitioned ? 2 : 1, requests, MPI_STATUSES_IGNORE);
      mix();
    }
    MPI_Request_free(&requests[0]);
    if (partitioned) MPI_Request_free(&requests[1]);
#else
    lacks = 1;
#endif
  }
  if (rank == 0 && !lacks) printf("%.17g\n", out[0]);
  MPI_Finalize();
  return lacks ? 77 : 0;
}
