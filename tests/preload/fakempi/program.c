// SPDX-License-Identifier: Apache-2.0
//
// A program of the standard ABI: statuses of 32 bytes in arrays, handles that are small integers, errors returned,
// attributes, and a few names that the library behind it does not have.
#include <mpi.h>
#include <string.h>

#include "../../mpi/check.h"

// Not in the stand-in. With resil these are there and must behave; without it they are null.
extern int MPI_Send_c(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm) __attribute__((weak));
extern int MPI_Ssend_c(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm) __attribute__((weak));

static int deletes;

static int on_delete(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  deletes++;
  return MPI_SUCCESS;
}

static int on_copy(MPI_Comm comm, int key, void* extra, void* value, void* copy, int* flag) {
  int size;
  (void)key, (void)extra;
  OK(MPI_Comm_size(comm, &size));
  *(void**)copy = value;
  *flag = 1;
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  MPI_Request requests[9];
  MPI_Status statuses[9], status;
  MPI_Comm copy;
  int values[9], in[9], key, flag, count;
  CHECK(sizeof(MPI_Status) == 32);
  OK(MPI_Init(&argc, &argv));
  for (int k = 0; k < 8; k++)
    OK(MPI_Irecv(&in[k], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[k]));
  OK(MPI_Irecv(&in[8], 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &requests[8]));
  for (int k = 0; k < 8; k++) {
    values[k] = 7 * k;
    OK(MPI_Send(&values[k], 1, MPI_INT, 0, k, MPI_COMM_WORLD));
  }
  memset(statuses, 0x77, sizeof statuses);
  OK(MPI_Waitall(9, requests, statuses));
  for (int k = 0; k < 8; k++) {
    OK(MPI_Get_count(&statuses[k], MPI_INT, &count));
    CHECK(in[k] == 7 * k && statuses[k].MPI_SOURCE == 0 && statuses[k].MPI_TAG == k && count == 1);
    CHECK(requests[k] == MPI_REQUEST_NULL);
  }
  CHECK(statuses[8].MPI_SOURCE == MPI_PROC_NULL && statuses[8].MPI_TAG == MPI_ANY_TAG);
  CHECK(MPI_Send(values, 1, MPI_INT, 99, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
  OK(MPI_Send(values, 9, MPI_INT, 0, 1, MPI_COMM_WORLD));
  CHECK(MPI_Recv(in, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status) == MPI_ERR_TRUNCATE);
  OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
  CHECK(!flag);

  OK(MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL));
  OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, values));
  for (int k = 0; k < 100; k++) {
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    OK(MPI_Allreduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM, copy));
    OK(MPI_Comm_free(&copy));
    CHECK(copy == MPI_COMM_NULL);
  }
  CHECK(deletes == 100);
  OK(MPI_Barrier(MPI_COMM_SELF));

  // A name that the library lacks: the int version when the count fits, else an error; nothing without resil.
  if (argc == 1 && MPI_Send_c) {
    OK(MPI_Send_c(values, 2, MPI_INT, 0, 5, MPI_COMM_WORLD));
    OK(MPI_Recv(in, 2, MPI_INT, 0, 5, MPI_COMM_WORLD, &status));
    CHECK(in[1] == 7);
    CHECK(MPI_Send_c(values, (MPI_Count)1 << 40, MPI_INT, 0, 5, MPI_COMM_WORLD) == MPI_ERR_COUNT);
    CHECK(MPI_Ssend_c(values, 2, MPI_INT, 0, 5, MPI_COMM_WORLD) == MPI_ERR_UNSUPPORTED_OPERATION);
  }
  // A function newer than any that the library knows makes a request that an old one completes.
  for (int k = 0; argc > 1 && k < 8; k++) {
    OK(MPI_Future_isend(&values[k], 1, MPI_INT, 0, 100 + k, MPI_COMM_WORLD, &requests[k]));
    OK(MPI_Recv(&in[k], 1, MPI_INT, 0, 100 + k, MPI_COMM_WORLD, &status));
    CHECK(in[k] == 7 * k && status.MPI_TAG == 100 + k);
  }
  if (argc > 1) OK(MPI_Waitall(8, requests, statuses));
  OK(MPI_Finalize());
  CHECK(deletes == 101);
  puts("standard ABI");
  return 0;
}
