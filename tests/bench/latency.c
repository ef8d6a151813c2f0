// SPDX-License-Identifier: Apache-2.0
//
// Two ranks: half a ping-pong by size, the time for one message in a window of 64, all-reduces, small broadcasts.
// Arguments: how much of the usual number of batches, in per cent (default 100), and the most bytes of a message.
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

// From each rank in turn, so that none runs ahead.
static void broadcast(int bytes) {
  static int root;
  MPI_Bcast(out, bytes, MPI_BYTE, root = !root, MPI_COMM_WORLD);
}

static void report(const char* name, int bytes, double ns) {
  if (me == 0) printf("%s_%d %.1f ns\n", name, bytes, ns);
}

int main(int argc, char** argv) {
  static const int sizes[] = {0, 8, 256, 1024, 4096, 8192, 65536, kLargest};
  static double values[8192], sums[8192];
  const int per_cent = argc > 1 ? atoi(argv[1]) : 100, most = argc > 2 ? atoi(argv[2]) : kLargest;
  const int many = 40 * per_cent / 100 > 1 ? 40 * per_cent / 100 : 1;
  double best;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  out = calloc(1, kLargest);
  in = calloc(1, kLargest);
  for (unsigned k = 0; k < sizeof sizes / sizeof *sizes && sizes[k] <= most; k++) {
    const int bytes = sizes[k], count = bytes >= kLargest ? 40 : bytes >= 65536 ? 200 : 1000;
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, many, count, ping_pong(bytes));
    report("pingpong", bytes, best / 2);
  }
  for (int bytes = 8; bytes <= 4096 && bytes <= most; bytes *= 512) {
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, many, 100, window(bytes));
    report("window64_message", bytes, best / kWindow);
  }
  for (int bytes = 8; bytes <= 65536 && bytes <= most; bytes *= 8192) {
    MPI_Barrier(MPI_COMM_WORLD);
    BEST_OF(best, many, bytes > 8 ? 100 : 500,
            MPI_Allreduce(values, sums, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    report("allreduce", bytes, best);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  BEST_OF(best, many, 500, broadcast(8));
  report("bcast", 8, best);
  MPI_Finalize();
  return 0;
}
