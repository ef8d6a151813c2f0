// SPDX-License-Identifier: Apache-2.0
//
// One-sided communication in every kind of epoch, for the checks of checksum/rma: derived datatypes at either end,
// thousands of operations in one epoch, overlapping ones, dynamic and shared windows. Each rank says how many of its
// operations a checker can check, and tests/mpi/rma_checks_test.py holds the report against that.
//
// Memory begins at multiples of 64, and sizes are multiples of 64: see window_base.c.
//
// ranks: 2
// launch(openmpi): --mca osc pt2pt,sm
// calls: MPI_Win_create=1 MPI_Win_allocate=1 MPI_Win_allocate_shared=1 MPI_Win_create_dynamic=1 MPI_Win_attach=1
// calls: MPI_Win_detach=1 MPI_Win_free=4 MPI_Put=4013 MPI_Get=6 MPI_Rput=1 MPI_Rget=1 MPI_Accumulate=3
// calls: MPI_Get_accumulate=2 MPI_Fetch_and_op=1 MPI_Win_fence=12 MPI_Win_lock=3 MPI_Win_unlock=3
// calls: MPI_Win_lock_all=1 MPI_Win_unlock_all=1 MPI_Win_post=1 MPI_Win_start=1 MPI_Win_complete=1 MPI_Win_wait=1
// calls: MPI_Win_flush=1 MPI_Win_flush_all=1
#include <mpi.h>

#include <string.h>

#include "check.h"

enum { kCount = 4096, kMany = 4000, kBlock = 512 };

static int me, peer, checkable;
static double memory[kCount] __attribute__((aligned(64))), local[kCount] __attribute__((aligned(64)));

static void fill(int from) {
  for (int i = 0; i < kCount; i++) {
    memory[i] = -1 - i;
    local[i] = from * 100000 + i;
  }
}

static void fences(void) {
  double back[64], columns[16][4];
  long double wide[2] = {me, 2};
  MPI_Win win;
  MPI_Datatype column;
  fill(me);
  OK(MPI_Type_vector(16, 1, 4, MPI_DOUBLE, &column));
  OK(MPI_Type_commit(&column));
  OK(MPI_Win_create(memory, sizeof memory, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
  // One after the other, a column at the target, a column at both ends, and memory that nobody writes.
  OK(MPI_Put(local, 1000, MPI_DOUBLE, peer, 0, 1000, MPI_DOUBLE, win));
  OK(MPI_Put(local + 1000, 16, MPI_DOUBLE, peer, 1001, 1, column, win));
  OK(MPI_Put(local + 2000, 1, column, peer, 1002, 1, column, win));
  OK(MPI_Get(back, 64, MPI_DOUBLE, peer, 3000, 64, MPI_DOUBLE, win));
  OK(MPI_Get(columns, 1, column, peer, 3100, 16, MPI_DOUBLE, win));
  OK(MPI_Accumulate(local, 8, MPI_DOUBLE, peer, 3200, 8, MPI_DOUBLE, MPI_REPLACE, win));
  OK(MPI_Put(wide, 2, MPI_LONG_DOUBLE, peer, 3500, 2, MPI_LONG_DOUBLE, win));  // has padding
  checkable += 7;
  // These cannot be: a sum, and two that write the same bytes.
  OK(MPI_Accumulate(local, 8, MPI_DOUBLE, peer, 3300, 8, MPI_DOUBLE, MPI_SUM, win));
  OK(MPI_Put(local, 8, MPI_DOUBLE, peer, 3400, 8, MPI_DOUBLE, win));
  OK(MPI_Put(local + 4, 8, MPI_DOUBLE, peer, 3404, 8, MPI_DOUBLE, win));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Type_free(&column));
  CHECK(memory[999] == peer * 100000 + 999 && memory[1000] == -1001);
  CHECK(memory[1001] == peer * 100000 + 1000 && memory[1005] == peer * 100000 + 1001);
  CHECK(memory[1002 + 60] == peer * 100000 + 2060 && memory[1003] == -1004);
  CHECK(back[63] == -1 - 3063 && columns[15][0] == -1 - 3115);
  CHECK(memory[3200] == peer * 100000 && memory[3300] == -3301 + peer * 100000);
  CHECK(*(long double*)&memory[3500] == peer);
  OK(MPI_Win_fence(0, win));
  for (int i = 0; i < kMany; i++) OK(MPI_Put(local + i, 1, MPI_DOUBLE, peer, kMany - 1 - i, 1, MPI_DOUBLE, win));
  checkable += kMany;
  OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
  CHECK(memory[0] == peer * 100000 + kMany - 1 && memory[kMany - 1] == peer * 100000);
  OK(MPI_Win_free(&win));
}

static void exposures(void) {
  double *mine, back[8] = {0};
  MPI_Win win;
  MPI_Group world, other;
  OK(MPI_Win_allocate(kBlock * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  OK(MPI_Group_incl(world, 1, &peer, &other));
  for (int i = 0; i < kBlock; i++) mine[i] = me * kBlock + i;
  OK(MPI_Win_post(other, 0, win));
  OK(MPI_Win_start(other, 0, win));
  OK(MPI_Group_free(&other));
  OK(MPI_Group_free(&world));
  OK(MPI_Put(local, 8, MPI_DOUBLE, peer, 8, 8, MPI_DOUBLE, win));
  OK(MPI_Get(back, 8, MPI_DOUBLE, peer, 24, 8, MPI_DOUBLE, win));
  checkable += 2;
  OK(MPI_Win_complete(win));
  OK(MPI_Win_wait(win));
  CHECK(mine[8] == peer * 100000 && back[7] == peer * kBlock + 31);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  // Exclusive locks: read back by the origin. The two ranks use different words, far apart:
  // the origin does not know how large the target's displacement unit is, only that it is at least 1.
  MPI_Request request;
  double got[8] = {0};
  OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, win));
  OK(MPI_Put(local + 8, 8, MPI_DOUBLE, peer, 0, 8, MPI_DOUBLE, win));
  OK(MPI_Get(back, 8, MPI_DOUBLE, peer, 128, 8, MPI_DOUBLE, win));
  checkable += 2;
  OK(MPI_Win_unlock(peer, win));
  CHECK(back[0] == peer * kBlock + 128);
  OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, win));
  OK(MPI_Rput(local + 16, 8, MPI_DOUBLE, peer, 448, 8, MPI_DOUBLE, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Rget(got, 8, MPI_DOUBLE, peer, 32, 8, MPI_DOUBLE, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(got[1] == peer * kBlock + 33);
  memset(got, 0, sizeof got);  // the program's own again
  checkable += 2;
  OK(MPI_Win_flush(peer, win));
  OK(MPI_Win_unlock(peer, win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  CHECK(mine[0] == peer * 100000 + 8 && mine[448] == peer * 100000 + 16);
  // A shared lock, and all: others may write there meanwhile, nothing can be checked.
  double one = 1, old = 0;
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win));
  OK(MPI_Put(local, 1, MPI_DOUBLE, peer, 60, 1, MPI_DOUBLE, win));
  OK(MPI_Win_unlock(peer, win));
  OK(MPI_Win_lock_all(0, win));
  OK(MPI_Get(back, 1, MPI_DOUBLE, peer, 56, 1, MPI_DOUBLE, win));
  OK(MPI_Accumulate(&one, 1, MPI_DOUBLE, peer, 61, 1, MPI_DOUBLE, MPI_SUM, win));
  OK(MPI_Fetch_and_op(&one, &old, MPI_DOUBLE, peer, 62, MPI_SUM, win));
  OK(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, back + 1, 1, MPI_DOUBLE, peer, 57, 1, MPI_DOUBLE, MPI_NO_OP, win));
  OK(MPI_Win_flush_all(win));
  OK(MPI_Win_unlock_all(win));
  CHECK(back[0] == peer * kBlock + 56 && back[1] == peer * kBlock + 57 && old == peer * kBlock + 62);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  CHECK(mine[60] == peer * 100000 && mine[61] == me * kBlock + 62 && mine[62] == me * kBlock + 63);
  OK(MPI_Win_free(&win));
}

static void other_windows(void) {
  MPI_Win win;
  MPI_Aint address, there;
  double *shared, back[4];
  MPI_Comm node;
  int together, self;
  fill(me);
  OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  OK(MPI_Win_attach(win, memory, sizeof memory));
  OK(MPI_Get_address(memory, &address));
  OK(MPI_Sendrecv(&address, 1, MPI_AINT, peer, 0, &there, 1, MPI_AINT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Put(local, 16, MPI_DOUBLE, peer, there + 64, 16, MPI_DOUBLE, win));
  checkable += 1;
  OK(MPI_Win_fence(0, win));
  CHECK(memory[8] == peer * 100000 && memory[24] == -25);
  OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
  OK(MPI_Win_detach(win, memory));
  OK(MPI_Win_free(&win));

  // MPICH 5.0 over UCX shares no memory between ranks: there each has a window with itself.
  OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  OK(MPI_Comm_size(node, &together));
  OK(MPI_Comm_rank(node, &self));
  const int with = together == 2 ? peer : self, from = together == 2 ? peer : me;
  OK(MPI_Win_allocate_shared(64 * sizeof(double), sizeof(double), MPI_INFO_NULL, node, &shared, &win));
  OK(MPI_Comm_free(&node));
  for (int i = 0; i < 64; i++) shared[i] = me * 64 + i;
  OK(MPI_Win_fence(0, win));
  OK(MPI_Put(local, 4, MPI_DOUBLE, with, 4, 4, MPI_DOUBLE, win));
  OK(MPI_Get(back, 4, MPI_DOUBLE, with, 16, 4, MPI_DOUBLE, win));
  OK(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, back + 2, 1, MPI_DOUBLE, self, 20, 1, MPI_DOUBLE, MPI_NO_OP, win));
  checkable += 1;  // the other two came into the same memory
  OK(MPI_Win_fence(0, win));
  CHECK(shared[4] == from * 100000 && back[0] == from * 64 + 16);
  OK(MPI_Win_fence(0, win));
  // To itself.
  OK(MPI_Put(local, 2, MPI_DOUBLE, self, 30, 2, MPI_DOUBLE, win));
  OK(MPI_Put(local + 1, 2, MPI_DOUBLE, with, 40, 2, MPI_DOUBLE, win));
  checkable += 2;
  OK(MPI_Win_fence(0, win));
  CHECK(shared[31] == me * 100000 + 1 && shared[41] == from * 100000 + 2);
  OK(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, win));
  OK(MPI_Win_free(&win));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  fences();
  exposures();
  other_windows();
  OK(MPI_Finalize());
  if (me == 0) printf("rma_checks: %d operations can be checked\n", checkable);
  return 0;
}
