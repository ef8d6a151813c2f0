// SPDX-License-Identifier: Apache-2.0
//
// A heat equation on a ring of ranks, each of whose steps is run twice from the same state (resil_run_twice). A fault
// is made on purpose: FLIP="rank:run:word:bit" flips one bit of one rank's array in the nth run of the step. Prints the
// final sum, bit for bit, and what resil_run_twice returned.
//
// Usage: double_run POLICY STEPS          (POLICY as in resil.h, a number)
#include <mpi.h>
#include <resil.h>
#include <stdlib.h>

#include "check.h"

enum { kCells = 3000 };

static double u[kCells + 2], old[kCells + 2], total;
static int rank, size, runs, flip_rank = -1, flip_run, flip_word, flip_bit, local;

static void step(void* unused) {
  (void)unused;
  ++runs;
  int left = (rank + size - 1) % size, right = (rank + 1) % size;
  if (!local) {
    OK(MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[kCells + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(&u[kCells], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
  }
  memcpy(old, u, sizeof u);
  for (int i = 1; i <= kCells; i++) u[i] = old[i] + 0.2 * (old[i - 1] - 2 * old[i] + old[i + 1]);
  if (rank == flip_rank && runs == flip_run) {
    uint64_t bits;
    memcpy(&bits, &u[flip_word], 8);
    bits ^= 1ull << flip_bit;
    memcpy(&u[flip_word], &bits, 8);
  }
  double sum = 0;
  for (int i = 1; i <= kCells; i++) sum += u[i];
  if (local) total = sum;
  else OK(MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  int policy = atoi(argv[1]), steps = atoi(argv[2]), found = 0;
  local = (policy & RESIL_LOCAL) != 0;
  if (getenv("FLIP")) CHECK(sscanf(getenv("FLIP"), "%d:%d:%d:%d", &flip_rank, &flip_run, &flip_word, &flip_bit) == 4);
  for (int i = 0; i < kCells + 2; i++) u[i] = 1.0 / (1 + rank * kCells + i);
  CHECK(resil_protect("u", u, sizeof u) == 0);
  CHECK(resil_protect("total", &total, sizeof total) == 0);
  CHECK(resil_protect("gone", old, sizeof old) == 0);
  CHECK(resil_unprotect("gone") == 0);
  CHECK(resil_mismatches() == 0);
  for (int i = 0; i < steps; i++) found += resil_run_twice("heat", step, NULL, policy);
  uint64_t bits, strong = resil_fingerprint("u", u, sizeof u), weak = resil_fingerprint_crc32("u crc", u, sizeof u);
  CHECK((strong == 0) == (weak == 0));
  memcpy(&bits, &total, 8);
  printf("rank %d: total %016llx\n", rank, (unsigned long long)bits);
  fprintf(stderr, "rank %d: runs %d found %d mismatches %lld\n", rank, runs, found, (long long)resil_mismatches());
  OK(MPI_Finalize());
  return 0;
}
