// SPDX-License-Identifier: Apache-2.0
//
// Does a one-sided operation reach the memory that the window's base pointer names? Sizes that are no multiple of 16,
// so that the second rank's memory does not begin at one in MPICH's shared segment, and a base of the program's own
// that is none. MPICH 4.0.2 on UCX 1.13 puts the data 8 bytes before it (docs/NWCHEM-MPICH.md); all
// one-sided operations agree about that, only loads and stores do not.
//
// Not an error of this program, which therefore says what it saw and succeeds.
//
// ranks: 2
// calls: MPI_Win_allocate=3 MPI_Win_create=1 MPI_Put=4 MPI_Get=4 MPI_Win_free=4
#include <mpi.h>

#include <string.h>

#include "check.h"

static char memory[256] __attribute__((aligned(64)));

static int look(const char* what, char* base, int bytes, MPI_Win win) {
  int me, wrong = 0;
  char back[9] = {0};
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  memset(base, '.', (size_t)bytes);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Win_lock_all(0, win));
  OK(MPI_Win_sync(win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Put("ABCDEFGH", me == 0 ? 8 : 0, MPI_BYTE, 1, 0, me == 0 ? 8 : 0, MPI_BYTE, win));
  OK(MPI_Win_flush_all(win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Get(back, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win));
  OK(MPI_Win_flush_all(win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Win_sync(win));
  if (me == 1 && memcmp(base, "ABCDEFGH", 8) != 0) {
    wrong = 1;
    fprintf(stderr,
            "%s of %d bytes: rank 0 put ABCDEFGH at displacement 0; MPI_Get gives %s; rank 1 finds %.8s there\n", what,
            bytes, back, base);
  }
  OK(MPI_Win_unlock_all(win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  return wrong;
}

int main(int argc, char** argv) {
  static const int sizes[] = {64, 24, 792};
  int me, wrong = 0, all = 0;
  char* base;
  MPI_Win win;
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  for (int i = 0; i < 3; i++) {
    OK(MPI_Win_allocate(sizes[i], 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    wrong += look("MPI_Win_allocate", base, sizes[i], win);
    OK(MPI_Win_free(&win));
  }
  OK(MPI_Win_create(memory + 24, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  wrong += look("MPI_Win_create", memory + 24, 64, win);
  OK(MPI_Win_free(&win));
  OK(MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
  OK(MPI_Finalize());
  if (me == 0) printf("window_base: %d of 4 windows are elsewhere\n", all);
  return 0;
}
