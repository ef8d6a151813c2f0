// SPDX-License-Identifier: Apache-2.0
//
// Conflicting accesses to a window in one epoch, and their corrected twins. Two ranks or more; the target is rank 0.
// Usage: races CASE wrong|right
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kNumbers = 1000 };
static int *memory, mine[kNumbers], rank, ranks, wrong;
static MPI_Win window;

static int is(const char* name, const char* wanted) { return strcmp(name, wanted) == 0; }
static void fence(void) { MPI_Win_fence(0, window); }
/// Ends the epoch between the two accesses of a corrected twin.
static void apart(void) {
  if (!wrong) fence();
}
static void put(int place, int count) { MPI_Put(mine, count, MPI_INT, 0, place, count, MPI_INT, window); }
static void get(int place, int count) { MPI_Get(mine, count, MPI_INT, 0, place, count, MPI_INT, window); }
static void sum(int place, int count, MPI_Op op) {
  MPI_Accumulate(mine, count, MPI_INT, 0, place, count, MPI_INT, op, window);
}
static void fill(int value) {
  for (int i = 0; i < kNumbers; ++i) mine[i] = value + i;
}

/// Post, start, complete, wait: rank 1 accesses rank 0, which stores meanwhile.
static void exposed(int gets, int stores) {
  MPI_Group all, one;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  int other = 1 - rank;
  MPI_Group_incl(all, 1, &other, &one);
  if (rank == 0) {
    if (stores && !wrong) memory[5] = 4711;
    MPI_Win_post(one, 0, window);
    if (stores && wrong) memory[5] = 4711;
    MPI_Win_wait(window);
  } else {
    MPI_Win_start(one, 0, window);
    if (gets) get(0, 10);
    else put(0, 10);
    MPI_Win_complete(window);
  }
  MPI_Group_free(&one);
  MPI_Group_free(&all);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  CHECK(argc == 3);
  const char* name = argv[1];
  wrong = is(argv[2], "wrong");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Win_allocate(kNumbers * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  for (int i = 0; i < kNumbers; ++i) memory[i] = i;
  fill(1000 * (rank + 1));
  fence();
  if (is(name, "put-put")) {
    if (rank == 0) put(0, 10);
    apart();
    if (rank == 1) put(0, 10);
  } else if (is(name, "put-put-partly")) {
    if (rank == 0) put(0, 10);
    apart();
    if (rank == 1) put(5, 10);
  } else if (is(name, "put-put-one-origin")) {
    if (rank == 1) put(0, 10);
    apart();
    fill(7);
    if (rank == 1) put(0, 10);
  } else if (is(name, "put-put-large")) {
    if (rank == 0) put(0, kNumbers);
    apart();
    if (rank == 1) put(0, kNumbers);
  } else if (is(name, "put-put-same")) {  // wrong by the standard, without an effect: not told
    mine[0] = 1;
    put(0, 1);
  } else if (is(name, "put-get")) {
    if (rank == 0) put(0, 10);
    apart();
    if (rank == 1) get(0, 10);
  } else if (is(name, "get-put-one-origin")) {
    int into[10];
    if (rank == 1) MPI_Get(into, 10, MPI_INT, 0, 0, 10, MPI_INT, window);
    apart();
    if (rank == 1) put(0, 10);
    fence();
  } else if (is(name, "put-get-partly")) {
    if (rank == 0) put(5, 10);
    apart();
    if (rank == 1) get(0, 10);
  } else if (is(name, "put-accumulate")) {
    if (rank == 0) put(0, 10);
    apart();
    if (rank == 1) sum(0, 10, MPI_SUM);
  } else if (is(name, "accumulate-get")) {
    if (rank == 0) sum(0, 10, MPI_SUM);
    apart();
    if (rank == 1) get(0, 10);
  } else if (is(name, "strided-put-put")) {
    MPI_Datatype strided;
    MPI_Type_vector(10, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    if (rank == 0) MPI_Put(mine, 10, MPI_INT, 0, 0, 1, strided, window);
    if (rank == 1) MPI_Put(mine, 10, MPI_INT, 0, wrong ? 0 : 1, 1, strided, window);
    MPI_Type_free(&strided);
  } else if (is(name, "store-get")) {
    if (rank == 1) get(0, 10);
    apart();
    if (rank == 0) memory[5] = 4711;
  } else if (is(name, "store-then-get")) {
    if (rank == 0) memory[5] = 4711;
    apart();
    if (rank == 1) get(0, 10);
  } else if (is(name, "store-put-lost")) {
    if (rank == 0) memory[5] = 4711;
    MPI_Barrier(MPI_COMM_WORLD);
    apart();
    if (rank == 1) put(0, 10);
  } else if (is(name, "put-store")) {
    if (rank == 1) put(0, 10);
    apart();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) memory[5] = 4711;
  } else if (is(name, "load-put")) {
    volatile int sink = 0;
    if (rank == 0) sink = memory[5];
    apart();
    if (rank == 1) put(0, 10);
    (void)sink;
  } else if (is(name, "exposed-store-get")) {
    exposed(1, 1);
  } else if (is(name, "exposed-store-put")) {
    exposed(0, 1);
  } else if (is(name, "exclusive-store")) {  // a store while another rank holds the lock
    MPI_Barrier(MPI_COMM_WORLD);
    fence();
    if (rank == 1) {
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
      put(0, 10);
      MPI_Send(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD);
      MPI_Recv(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Win_unlock(0, window);
    } else if (rank == 0) {
      MPI_Recv(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (wrong) memory[500] = 4711;
      MPI_Send(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (is(name, "shared-lock-put-put")) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    put(wrong ? 0 : 10 * rank, 10);
    MPI_Win_unlock(0, window);
  } else if (is(name, "correct-accumulates")) {
    sum(0, 10, MPI_SUM);
    int result[10];
    MPI_Get_accumulate(mine, 10, MPI_INT, result, 10, MPI_INT, 0, 0, 10, MPI_INT, MPI_SUM, window);
    fence();
  } else if (is(name, "correct-replaces")) {
    sum(0, 10, MPI_REPLACE);
  } else if (is(name, "correct-counter")) {
    int one = 1, was;
    fence();
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < 100; ++i)
      MPI_Fetch_and_op(&one, &was, MPI_INT, 0, 0, MPI_SUM, window), MPI_Win_flush(0, window);
    MPI_Win_unlock_all(window);
  } else if (is(name, "correct-two-windows")) {
    MPI_Win second;
    MPI_Win_create(memory, kNumbers * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &second);
    MPI_Win_fence(0, second);
    if (rank == 1) put(0, 10), MPI_Put(mine, 10, MPI_INT, 0, 10, 10, MPI_INT, second);
    MPI_Win_fence(0, second);
    fence();
    if (rank == 1) get(0, 20);
    fence();
    MPI_Win_free(&second);
  } else if (is(name, "correct-shared")) {
    MPI_Win shared;
    int* here;
    MPI_Win_allocate_shared(sizeof(int) * 10, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &here, &shared);
    MPI_Win_lock_all(0, shared);
    for (int i = 0; i < 10; ++i) here[i] = i;
    MPI_Win_sync(shared);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(shared);
    MPI_Win_unlock_all(shared);
    MPI_Win_fence(0, shared);
    here[3] = 5;
    MPI_Win_fence(0, shared);
    MPI_Win_free(&shared);
  } else if (is(name, "correct-steps")) {  // stores between epochs, with and without assertions
    for (int i = 0; i < 20; ++i) {
      if (rank == 0) memory[i % 10] = i;
      MPI_Win_fence(i % 2 ? MPI_MODE_NOPRECEDE : 0, window);
      if (rank == 1 && i % 3) get(0, 10);
      else if (rank == 1) put(10, 10);
      if (rank == 0) memory[100] = i;
      MPI_Win_fence(i % 2 ? MPI_MODE_NOSUCCEED : 0, window);
    }
  } else {
    CHECK(!"a case of that name");
  }
  fence();
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
