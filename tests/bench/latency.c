// SPDX-License-Identifier: Apache-2.0
//
// Two ranks: half a ping-pong by size, the time for one message in a window of 64, and small all-reduces.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { kWindow = 64, kLargest = 1 << 20 };

static int me;
static char *out, *in;

static void ping_pong(int bytes) {
  if (me == 0) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

static void window(int bytes) {
  MPI_Request requests[kWindow];
  for (int k = 0; k < kWindow; k++) {
    if (me == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
    if (me == 1) MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
  }
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
  ping_pong(0);  // the sender does not run ahead
}

static void report(const char* name, int bytes, double ns) {
  if (me == 0) printf("%s_%d %.1f ns\n", name, bytes, ns);
}

int main(int argc, char** argv) {
  static const int sizes[] = {0, 8, 256, 1024, 8192, 65536, kLargest};
  static double values[8192], sums[8192];
  double best;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  out = calloc(1, kLargest);
  in = calloc(1, kLargest);
  for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    const int bytes = sizes[k], count = bytes >= kLargest ? 40 : bytes >= 65536 ? 200 : 1000;
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, 40, count, ping_pong(bytes));
    report("pingpong", bytes, best / 2);
  }
  for (int bytes = 8; bytes <= 4096; bytes *= 512) {
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, 30, 100, window(bytes));
    report("window64_message", bytes, best / kWindow);
  }
  for (int bytes = 8; bytes <= 65536; bytes *= 8192) {
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, 40, bytes > 8 ? 100 : 500,
            MPI_Allreduce(values, sums, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    report("allreduce", bytes, best);
  }
  MPI_Finalize();
  return 0;
}
