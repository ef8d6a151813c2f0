// SPDX-License-Identifier: Apache-2.0
//
// Two ranks: the time of one message in a window of 64, and half a ping-pong by size. Each both `plain`, where nobody
// looks at the data (the fastest an MPI can be, and no program is), and `touch`, where the sender writes all of it
// before and the receiver reads all of it afterwards: there a checksum finds the data in the cache.
// Argument: how much of the usual number of batches, in per cent (default 100).
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#include "timing.h"

enum { kWindow = 64, kLargest = 16 << 20 };

static int me, touch;
static uint64_t *out, *in, seen;

static void write_all(int bytes) {
  static uint64_t value;
  value++;
  for (int k = 0; k < bytes / 8; k++) out[k] = value + (uint64_t)k;
}

static void read_all(int bytes) {
  uint64_t sum = 0;
  for (int k = 0; k < bytes / 8; k++) sum += in[k];
  seen += sum;
}

static void put(int bytes, int other) {
  if (touch) write_all(bytes);
  MPI_Send(out, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
}

static void get(int bytes, int other) {
  MPI_Recv(in, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (touch) read_all(bytes);
}

static void ping_pong(int bytes) {
  if (me == 0) put(bytes, 1), get(bytes, 1);
  if (me == 1) get(bytes, 0), put(bytes, 0);
}

// All of a window lie in one buffer each, side by side, as the faces of a domain do.
static void window(int bytes) {
  MPI_Request requests[kWindow];
  if (me == 0 && touch) write_all(bytes * kWindow);
  for (int k = 0; k < kWindow; k++) {
    char* const where = (char*)(me == 0 ? out : in) + (size_t)k * (size_t)bytes;
    if (me == 0) MPI_Isend(where, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
    if (me == 1) MPI_Irecv(where, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
  }
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
  if (me == 1 && touch) read_all(bytes * kWindow);
  // The sender does not run ahead; without data, so that it costs the same in all sizes.
  if (me == 0) MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (me == 1) MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

static void report(const char* name, int bytes, double ns) {
  if (me == 0) printf("%s_%s_%d %.1f ns\n", name, touch ? "touch" : "plain", bytes, ns);
}

static int share(int number, int per_cent) { return number * per_cent / 100 > 1 ? number * per_cent / 100 : 1; }

int main(int argc, char** argv) {
  static const int sizes[] = {8, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20, kLargest};
  double best;
  const int per_cent = argc > 1 ? atoi(argv[1]) : 100;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  out = calloc(1, kLargest);
  in = calloc(1, kLargest);
  if (!out || !in) MPI_Abort(MPI_COMM_WORLD, 1);
  for (touch = 0; touch < 2; touch++) {
    for (int bytes = 8; bytes <= 1024; bytes *= 128) {
      MPI_Barrier(MPI_COMM_WORLD);
      BEST_OF(best, share(40, per_cent), 200, window(bytes));
      report("window64_message", bytes, best / kWindow);
    }
    for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
      const int bytes = sizes[k], count = bytes > 1 << 20 ? 2 : bytes == 1 << 20 ? 20 : bytes > 4096 ? 200 : 2000;
      MPI_Barrier(MPI_COMM_WORLD);
      BEST_OF(best, share(30, per_cent), count, ping_pong(bytes));
      report("pingpong", bytes, best / 2);
    }
  }
  if (seen == 1) puts("");  // the sums are wanted
  MPI_Finalize();
  return 0;
}
