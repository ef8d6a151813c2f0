// SPDX-License-Identifier: Apache-2.0
//
// Functions of the program that MPI calls, and that call MPI in turn: user reduction operators (MPI_Type_size,
// commutative and not), attribute copy and delete functions, error handlers, generalised requests, and a delete
// function on MPI_COMM_SELF that runs inside MPI_Finalize. A callback's calls are the program's calls; those that
// MPI makes inside itself are not.
//
// ranks: 2
// calls: MPI_Op_create=2 MPI_Op_free=2 MPI_Reduce=1 MPI_Allreduce=1 MPI_Iallreduce=1 MPI_Comm_create_keyval=2
// calls: MPI_Comm_set_attr=2 MPI_Comm_get_attr=2 MPI_Comm_dup=1 MPI_Comm_free=1 MPI_Comm_create_errhandler=1
// calls: MPI_Comm_set_errhandler=2 MPI_Errhandler_free=1 MPI_Error_class=1 MPI_Error_string=1
// calls: MPI_Grequest_start=2 MPI_Grequest_complete=2 MPI_Type_size=1 MPI_Status_set_elements=2
// calls: MPI_Status_set_cancelled=2 MPI_Comm_size=4 MPI_Finalized=1
#include <mpi.h>
#include <string.h>

#include "check.h"

static int me;
static int operator_calls, copies, deletes, errors, queries, frees, cancels, at_finalize;

// Addition that asks MPI for the size of the type, once: what a program written by careful people does. Called by
// MPI any number of times, therefore only the first one asks.
static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  if (operator_calls++ == 0) {
    int bytes;
    OK(MPI_Type_size(*type, &bytes));
    CHECK(bytes == (int)sizeof(long));
  }
  for (int i = 0; i < *count; i++) ((long*)inout)[i] += ((long*)in)[i];
}

// Not commutative: 10 * left + right; the count is the number of digits so far.
static void concatenate(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((long*)inout)[i] += 10 * ((long*)in)[i];
}

static void operators(void) {
  MPI_Op sum, join;
  MPI_Request request;
  long mine[3] = {me + 1, me + 2, me + 3}, result[3] = {0, 0, 0};
  OK(MPI_Op_create(add, 1, &sum));
  OK(MPI_Op_create(concatenate, 0, &join));
  OK(MPI_Allreduce(mine, result, 3, MPI_LONG, sum, MPI_COMM_WORLD));
  CHECK(result[0] == 3 && result[2] == 7);
  OK(MPI_Iallreduce(mine, result, 3, MPI_LONG, sum, MPI_COMM_WORLD, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(result[1] == 5);
  OK(MPI_Reduce(mine, result, 3, MPI_LONG, join, 0, MPI_COMM_WORLD));
  if (me == 0) CHECK(result[0] == 12 && result[2] == 34 && operator_calls > 0);
  OK(MPI_Op_free(&sum));
  OK(MPI_Op_free(&join));
}

static int copy_attribute(MPI_Comm comm, int key, void* extra, void* value, void* copy, int* flag) {
  int size;
  (void)key;
  OK(MPI_Comm_size(comm, &size));
  CHECK(size == 2 && extra == &copies);
  copies++;
  *(void**)copy = (char*)value + 1;
  *flag = 1;
  return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void* value, void* extra) {
  int size;
  (void)key, (void)value, (void)extra;
  OK(MPI_Comm_size(comm, &size));
  CHECK(size == 2);
  deletes++;
  return MPI_SUCCESS;
}

static int delete_at_finalize(MPI_Comm comm, int key, void* value, void* extra) {
  int size = 0, finalized = 1;
  (void)key, (void)value, (void)extra;
  OK(MPI_Comm_size(comm, &size));
  OK(MPI_Finalized(&finalized));
  CHECK(size == 1 && !finalized);
  at_finalize++;
  return MPI_SUCCESS;
}

static void attributes(void) {
  static char anchor[4];
  MPI_Comm copy;
  int key, self_key, flag;
  void* value;
  OK(MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &copies));
  MPI_Comm parent;
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &parent));
  OK(MPI_Comm_set_attr(parent, key, anchor));
  OK(MPI_Comm_dup(parent, &copy));
  OK(MPI_Comm_get_attr(copy, key, &value, &flag));
  CHECK(flag && value == anchor + 1 && copies == 1);
  OK(MPI_Comm_free(&copy));
  CHECK(deletes == 1);
  OK(MPI_Comm_delete_attr(parent, key));
  CHECK(deletes == 2);
  OK(MPI_Comm_get_attr(parent, key, &value, &flag));
  CHECK(!flag);
  OK(MPI_Comm_disconnect(&parent));
  OK(MPI_Comm_free_keyval(&key));
  OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_at_finalize, &self_key, NULL));
  OK(MPI_Comm_set_attr(MPI_COMM_SELF, self_key, anchor));
  OK(MPI_Comm_free_keyval(&self_key));
}

static void on_error(MPI_Comm* comm, int* code, ...) {
  char text[MPI_MAX_ERROR_STRING];
  int class, length;
  (void)comm;
  OK(MPI_Error_class(*code, &class));
  OK(MPI_Error_string(*code, text, &length));
  CHECK(class == MPI_ERR_RANK && length > 0);
  errors++;
}

/// MPICH 5.0 says MPI_SUCCESS when a handler of the program's has been called: docs/PLATFORMS.md.
static int handlers_hide_codes(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  OK(MPI_Get_library_version(text, &length));
  const char* version = strstr(text, "MPICH Version:");
  return version != NULL && atoi(version + 14) >= 5;
}

static void error_handlers(void) {
  MPI_Errhandler handler;
  int value = 0;
  OK(MPI_Comm_create_errhandler(on_error, &handler));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  int code = MPI_Send(&value, 1, MPI_INT, 17, 0, MPI_COMM_WORLD);
  CHECK((code != MPI_SUCCESS || handlers_hide_codes()) && errors == 1);
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Errhandler_free(&handler));
}

static int query(void* extra, MPI_Status* status) {
  (void)extra;
  OK(MPI_Status_set_elements(status, MPI_INT, 3));
  OK(MPI_Status_set_cancelled(status, 0));
  status->MPI_SOURCE = me;
  status->MPI_TAG = 77;
  queries++;
  return MPI_SUCCESS;
}

static int release(void* extra) {
  (void)extra;
  frees++;
  return MPI_SUCCESS;
}

static int cancel(void* extra, int complete) {
  (void)extra, (void)complete;
  cancels++;
  return MPI_SUCCESS;
}

static void generalised(void) {
  MPI_Request requests[2];
  MPI_Status statuses[2];
  int count;
  for (int k = 0; k < 2; k++) OK(MPI_Grequest_start(query, release, cancel, NULL, &requests[k]));
  OK(MPI_Cancel(&requests[0]));
  for (int k = 0; k < 2; k++) OK(MPI_Grequest_complete(requests[k]));
  OK(MPI_Waitall(2, requests, statuses));
  OK(MPI_Get_count(&statuses[1], MPI_INT, &count));
  CHECK(count == 3 && statuses[1].MPI_TAG == 77 && queries == 2 && frees == 2 && cancels == 1);
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  operators();
  attributes();
  error_handlers();
  generalised();
  OK(MPI_Finalize());
  CHECK(at_finalize == 1);
  if (me == 0) printf("callbacks: %d copies, %d deletes, %d errors, %d queries\n", copies, deletes, errors, queries);
  return 0;
}
