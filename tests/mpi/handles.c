// SPDX-License-Identifier: Apache-2.0
//
// Arguments that are wrong, and an error handler that counts: handles KIND [FILE] prints how often it was called and
// with which classes, so that the output with and without a library in between can be compared. The error handler is
// that of MPI_COMM_WORLD, MPI_COMM_SELF and a duplicate, "returns" instead of "counts" lets MPI return the errors.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../which_mpi.h"
#include "check.h"

static int me, calls, codes[64];
static char text[16384];
static size_t used;
static MPI_Comm own, told_of;  // told_of: the last error's

static void handler(MPI_Comm* comm, int* code, ...) {
  int class;
  told_of = *comm;
  MPI_Error_class(*code, &class);
  if (calls < 64) codes[calls] = class;
  calls++;
}

static void tell(const char* what, int code) {
  int class = 0;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %s: returned %d, handler %d", me, what, class, calls);
  for (int i = 0; i < calls && i < 64; i++) used += (size_t)snprintf(text + used, sizeof(text) - used, " %d", codes[i]);
  used += (size_t)snprintf(text + used, sizeof(text) - used, "\n");
  CHECK(used < sizeof(text));
  calls = 0;
}

/* One of two receives is too short, the other's message is not there. Open MPI returns at once and leaves that one
   pending; MPICH waits for it. */
static void beside_pending(void) {
  int data[4] = {1, 2, 3, 4}, little = 0, late = 0, token = 0;
  MPI_Request send, two[2];
  MPI_Status statuses[2];
  if (me == 1) {
    OK(MPI_Recv(&token, 1, MPI_INT, 0, 7, own, MPI_STATUS_IGNORE));
    OK(MPI_Send(data, 1, MPI_INT, 0, 6, own));
    return;
  }
  OK(MPI_Isend(data, 4, MPI_INT, me, 5, own, &send));
  OK(MPI_Irecv(&little, 1, MPI_INT, me, 5, own, &two[0]));
  OK(MPI_Irecv(&late, 1, MPI_INT, 1, 6, own, &two[1]));
  if (on_mpich()) OK(MPI_Send(&token, 1, MPI_INT, 1, 7, own));
  tell("truncated beside a pending one", MPI_Waitall(2, two, statuses));
  tell("the pending one", statuses[1].MPI_ERROR);
  if (on_openmpi()) {
    OK(MPI_Send(&token, 1, MPI_INT, 1, 7, own));
    OK(MPI_Wait(&two[1], MPI_STATUS_IGNORE));
  }
  CHECK(late == 1);
  OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
}

int main(int argc, char** argv) {
  MPI_Errhandler counts;
  MPI_Datatype type, freed, dup;
  MPI_Comm gone;
  MPI_Request request, none;
  MPI_Group group;
  int data[16] = {0}, out[16] = {0};
  CHECK(argc == 2 || argc == 3);
  OK(MPI_Init(NULL, NULL));
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &own));
  OK(MPI_Comm_create_errhandler(handler, &counts));
  if (!strcmp(argv[1], "returns")) counts = MPI_ERRORS_RETURN;
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, counts));
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, counts));
  OK(MPI_Comm_set_errhandler(own, counts));

  OK(MPI_Type_vector(2, 1, 2, MPI_INT, &type));
  OK(MPI_Type_commit(&type));
  OK(MPI_Sendrecv(data, 1, type, me, 1, out, 1, type, me, 1, own, MPI_STATUS_IGNORE));
  tell("a good type", MPI_SUCCESS);
  OK(MPI_Type_dup(type, &dup));
  freed = type;
  OK(MPI_Type_free(&type));
  OK(MPI_Sendrecv(data, 1, dup, me, 1, out, 1, dup, me, 1, own, MPI_STATUS_IGNORE));
  tell("its duplicate", MPI_SUCCESS);
  // The library may let it pass, or tell; nobody else may ask.
  if (me == 0) tell("freed type, MPI_PROC_NULL", MPI_Send(data, 1, freed, MPI_PROC_NULL, 1, own));
  if (me == 0) tell("freed type, no elements", MPI_Send(data, 0, freed, MPI_PROC_NULL, 1, own));
#ifdef OPEN_MPI  // lets it pass, and so the others need not know; MPICH leaves the root's message behind
  tell("freed type on one rank", MPI_Bcast(data, 1, me == 1 ? freed : dup, 0, own));
#endif
  OK(MPI_Type_vector(2, 1, 2, MPI_INT, &type));  // may have the handle again
  OK(MPI_Type_commit(&type));
  OK(MPI_Sendrecv(data, 1, type, me, 1, out, 1, type, me, 1, own, MPI_STATUS_IGNORE));
  tell("a new type", MPI_SUCCESS);
  tell("null type", MPI_Send(data, 1, MPI_DATATYPE_NULL, me, 1, own));
  tell("null type, no elements", MPI_Send(data, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 1, own));
  tell("null type, broadcast", MPI_Bcast(data, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_SELF));
  OK(MPI_Type_free(&dup));

  tell("negative count", MPI_Send(data, -1, MPI_INT, me, 1, own));
  tell("no such rank", MPI_Send(data, 1, MPI_INT, 1000, 1, own));
  tell("no such tag", MPI_Send(data, 1, MPI_INT, me, -17, own));
  tell("no such root", MPI_Bcast(data, 1, MPI_INT, 1000, MPI_COMM_SELF));
  tell("no such source", MPI_Recv(data, 1, MPI_INT, 1000, 1, own, MPI_STATUS_IGNORE));
  tell("null communicator", MPI_Send(data, 1, MPI_INT, 0, 1, MPI_COMM_NULL));
  tell("null communicator, barrier", MPI_Barrier(MPI_COMM_NULL));
  tell("null operator", MPI_Allreduce(data, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF));
  tell("operator that does not fit", MPI_Allreduce(data, out, 1, MPI_DOUBLE, MPI_BXOR, MPI_COMM_SELF));
  tell("null request", (none = MPI_REQUEST_NULL, MPI_Wait(&none, MPI_STATUS_IGNORE)));
  tell("null request, free", (none = MPI_REQUEST_NULL, MPI_Request_free(&none)));
  tell("null request, start", (none = MPI_REQUEST_NULL, MPI_Start(&none)));
  tell("null group", MPI_Comm_create_group(MPI_COMM_SELF, MPI_GROUP_NULL, 1, &gone));
  OK(MPI_Comm_group(MPI_COMM_SELF, &group));
  OK(MPI_Comm_create_group(MPI_COMM_SELF, group, 1, &gone));
  OK(MPI_Comm_free(&gone));
  OK(MPI_Group_free(&group));
  OK(MPI_Isend(data, 1, MPI_INT, me, 2, own, &request));
  OK(MPI_Request_free(&request));
  OK(MPI_Recv(data, 1, MPI_INT, me, 2, own, MPI_STATUS_IGNORE));
  tell("freed request", MPI_SUCCESS);
  OK(MPI_Isend(data, 4, MPI_INT, me, 3, own, &request));
  told_of = MPI_COMM_NULL;
  tell("truncated", MPI_Recv(out, 1, MPI_INT, me, 3, own, MPI_STATUS_IGNORE));
  tell(told_of == own             ? "it was its communicator's"
       : told_of == MPI_COMM_NULL ? "nobody was told"
                                  : "it was another one's",
       MPI_SUCCESS);
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Isend(data, 4, MPI_INT, me, 3, own, &request));
  MPI_Request two[2] = {request, MPI_REQUEST_NULL};
  OK(MPI_Irecv(out, 1, MPI_INT, me, 3, own, &two[1]));
  MPI_Status statuses[2];
  tell("truncated, all", MPI_Waitall(2, two, statuses));
  beside_pending();
  if (on_mpich() && sizeof(MPI_Comm) == sizeof(int)) {  // where handles are addresses, MPI would read freed memory
    OK(MPI_Comm_dup(MPI_COMM_SELF, &gone));
    MPI_Comm stale = gone;
    OK(MPI_Comm_free(&gone));
    tell("freed communicator", MPI_Send(data, 1, MPI_INT, MPI_PROC_NULL, 1, stale));
    tell("freed communicator, barrier", MPI_Barrier(stale));
    tell("no communicator at all", MPI_Send(data, 1, MPI_INT, MPI_PROC_NULL, 1, (MPI_Comm)(uintptr_t)12345678));
    tell("no type at all", MPI_Send(data, 1, (MPI_Datatype)(uintptr_t)12345678, MPI_PROC_NULL, 1, own));
  }
  if (me == 1) OK(MPI_Send(text, sizeof(text), MPI_CHAR, 0, 9, own));
  if (me == 0) {  // prterun 5.0.7 loses a part of what ranks print in some runs, or all of it
    FILE* file = argc > 2 ? fopen(argv[2], "w") : stdout;
    CHECK(file != NULL);
    fputs(text, file);
    OK(MPI_Recv(text, sizeof(text), MPI_CHAR, 1, 9, own, MPI_STATUS_IGNORE));
    fputs(text, file);
    CHECK(fflush(file) == 0);
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Comm_free(&own));
  OK(MPI_Finalize());
  return 0;
}
