// SPDX-License-Identifier: Apache-2.0
//
// One-sided communication: windows of every kind, fence, post/start/complete/wait, lock and lock_all, put, get,
// accumulate, get_accumulate, fetch_and_op, compare_and_swap, the request-based calls, and flush.
//
// Open MPI 4.1's osc/rdma crashes in MPI_Compare_and_swap between two ranks of a node, without any tool; its osc/ucx
// now and then returns from a fence before the data is there.
//
// ranks: 2
// launch(openmpi): --mca osc pt2pt,sm
// calls: MPI_Win_create=1 MPI_Win_allocate=1 MPI_Win_create_dynamic=1 MPI_Win_attach=1 MPI_Win_detach=1
// calls: MPI_Win_free=4 MPI_Win_fence=5 MPI_Put=3 MPI_Get=2 MPI_Accumulate=2 MPI_Win_post=1 MPI_Win_start=1
// calls: MPI_Win_complete=1 MPI_Win_wait=1 MPI_Win_lock=2 MPI_Win_unlock=2 MPI_Win_lock_all=2 MPI_Win_unlock_all=2
// calls: MPI_Get_accumulate=1 MPI_Fetch_and_op=100 MPI_Compare_and_swap=1 MPI_Rput=1 MPI_Rget=1 MPI_Raccumulate=1
// calls: MPI_Rget_accumulate=1 MPI_Win_flush=3 MPI_Win_flush_local=1 MPI_Win_flush_all=1 MPI_Win_sync=3
// calls: MPI_Win_allocate_shared=1 MPI_Win_shared_query=1 MPI_Wait=4
#include <mpi.h>

#include "check.h"

enum { kCount = 1000 };

static int me, peer;

static void active_target(void) {
  static double memory[kCount], local[kCount];
  MPI_Win win;
  MPI_Group world, other;
  for (int i = 0; i < kCount; i++) {
    memory[i] = -1;
    local[i] = me * 1000 + i;
  }
  OK(MPI_Win_create(memory, sizeof memory, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Put(local, kCount, MPI_DOUBLE, peer, 0, kCount, MPI_DOUBLE, win));
  OK(MPI_Win_fence(0, win));
  CHECK(memory[5] == peer * 1000 + 5);
  OK(MPI_Win_fence(0, win));  // the peer must not accumulate while that is read
  OK(MPI_Accumulate(local, kCount, MPI_DOUBLE, peer, 0, kCount, MPI_DOUBLE, MPI_SUM, win));
  OK(MPI_Win_fence(0, win));
  CHECK(memory[5] == 2 * (peer * 1000 + 5));
  OK(MPI_Get(local, kCount, MPI_DOUBLE, peer, 0, kCount, MPI_DOUBLE, win));
  OK(MPI_Win_fence(0, win));
  CHECK(local[5] == 2 * (me * 1000 + 5));
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  OK(MPI_Group_incl(world, 1, &peer, &other));
  OK(MPI_Win_post(other, 0, win));
  OK(MPI_Win_start(other, 0, win));
  OK(MPI_Put(local, 1, MPI_DOUBLE, peer, 7, 1, MPI_DOUBLE, win));
  OK(MPI_Win_complete(win));
  OK(MPI_Win_wait(win));
  CHECK(memory[7] == 2 * (peer * 1000));
  OK(MPI_Group_free(&other));
  OK(MPI_Group_free(&world));
  OK(MPI_Win_free(&win));
  CHECK(win == MPI_WIN_NULL);
}

static long passive_target(void) {
  long *memory, one = 1, old, expected = 0, desired = 55, values[4] = {1, 2, 3, 4}, back[4];
  MPI_Win win;
  MPI_Request request;
  OK(MPI_Win_allocate(16 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
  for (int i = 0; i < 16; i++) memory[i] = 0;
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Win_lock_all(0, win));
  for (int k = 0; k < 100; k++) OK(MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win));
  OK(MPI_Win_flush_local(0, win));
  OK(MPI_Accumulate(values, 4, MPI_LONG, peer, 4, 4, MPI_LONG, MPI_SUM, win));
  OK(MPI_Win_flush(peer, win));
  OK(MPI_Get_accumulate(values, 4, MPI_LONG, back, 4, MPI_LONG, peer, 4, 4, MPI_LONG, MPI_SUM, win));
  OK(MPI_Win_flush(peer, win));
  CHECK(back[3] == 4);
  OK(MPI_Compare_and_swap(&desired, &expected, &old, MPI_LONG, peer, 8, win));
  OK(MPI_Win_flush(peer, win));
  CHECK(old == 0);
  OK(MPI_Rput(values, 4, MPI_LONG, peer, 10, 4, MPI_LONG, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Win_flush_all(win));
  OK(MPI_Rget(back, 4, MPI_LONG, peer, 10, 4, MPI_LONG, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(back[2] == 3);
  OK(MPI_Raccumulate(values, 1, MPI_LONG, peer, 14, 1, MPI_LONG, MPI_SUM, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Rget_accumulate(values, 1, MPI_LONG, back, 1, MPI_LONG, peer, 14, 1, MPI_LONG, MPI_SUM, win, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Win_sync(win));
  OK(MPI_Win_unlock_all(win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  CHECK(memory[5] == 4 && memory[8] == 55 && memory[14] == 2);
  OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
  OK(MPI_Get(&old, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win));
  OK(MPI_Win_unlock(0, win));
  OK(MPI_Win_free(&win));
  return old;
}

static void other_kinds(void) {
  static int local[4];
  MPI_Win dynamic, shared;
  MPI_Comm node;
  MPI_Aint size, address, remote;
  int unit, together, *mine, *theirs;
  OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
  OK(MPI_Win_attach(dynamic, local, sizeof local));
  OK(MPI_Get_address(local, &address));
  OK(MPI_Sendrecv(&address, 1, MPI_AINT, peer, 0, &remote, 1, MPI_AINT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  int value = 40 + me;
  OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, dynamic) == MPI_SUCCESS ? MPI_SUCCESS : 1);
  OK(MPI_Put(&value, 1, MPI_INT, peer, remote, 1, MPI_INT, dynamic));
  OK(MPI_Win_unlock(peer, dynamic));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  CHECK(local[0] == 40 + peer);
  OK(MPI_Win_detach(dynamic, local));
  OK(MPI_Win_free(&dynamic));
  OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  OK(MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &mine, &shared));
  OK(MPI_Comm_size(node, &together));  // MPICH 5.0 over UCX shares no memory between ranks: then each has its own
  OK(MPI_Win_shared_query(shared, together == 2 ? peer : 0, &size, &unit, &theirs));
  OK(MPI_Win_lock_all(0, shared) == MPI_SUCCESS ? MPI_SUCCESS : 1);
  *mine = 90 + me;
  OK(MPI_Win_sync(shared) == MPI_SUCCESS ? MPI_SUCCESS : 1);
  OK(MPI_Barrier(node));
  OK(MPI_Win_sync(shared) == MPI_SUCCESS ? MPI_SUCCESS : 1);
  CHECK(*theirs == 90 + (together == 2 ? peer : me) && size == sizeof(int) && unit == sizeof(int));
  OK(MPI_Barrier(node));
  OK(MPI_Win_unlock_all(shared) == MPI_SUCCESS ? MPI_SUCCESS : 1);
  OK(MPI_Win_free(&shared));
  OK(MPI_Comm_free(&node));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  peer = 1 - me;
  active_target();
  long tickets = passive_target();
  other_kinds();
  OK(MPI_Finalize());
  if (me == 0) printf("rma: %ld tickets\n", tickets);
  return 0;
}
