// SPDX-License-Identifier: Apache-2.0
//
// Errors that are returned: bad arguments, truncation in blocking and nonblocking receives, MPI_ERR_IN_STATUS with
// one bad status, user error classes. The same codes must come back with and without resil, and the program goes on.
//
// ranks: 2
// calls: MPI_Send=8 MPI_Recv=3 MPI_Irecv=2 MPI_Waitall=1 MPI_Comm_set_errhandler=1 MPI_Error_class=9
// calls: MPI_Comm_dup=1 MPI_Comm_free=1 MPI_Bcast=1
// calls: MPI_Add_error_class=1 MPI_Add_error_code=1 MPI_Add_error_string=1 MPI_Error_string=1 MPI_Barrier=1
#include <mpi.h>
#include <string.h>

#include "check.h"

static int class_of(int code) {
  int class;
  OK(MPI_Error_class(code, &class));
  return class;
}

int main(int argc, char** argv) {
  int me, big[8] = {1, 2, 3, 4, 5, 6, 7, 8}, small[8] = {0}, length;
  char text[MPI_MAX_ERROR_STRING];
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK(class_of(MPI_Send(big, 1, MPI_INT, 1000, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Send(big, -1, MPI_INT, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Send(big, 1, MPI_INT, 0, -5, MPI_COMM_WORLD)) == MPI_ERR_TAG);
  CHECK(class_of(MPI_Send(big, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
  // Ranks beyond the end: a library translates them by reading beyond its tables, if it is asked to.
  MPI_Comm other;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
  CHECK(class_of(MPI_Send(big, 1, MPI_INT, 1000000, 0, other)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Recv(small, 1, MPI_INT, 1000000, 0, other, MPI_STATUS_IGNORE)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Bcast(small, 1, MPI_INT, 1000000, other)) == MPI_ERR_ROOT);
  OK(MPI_Comm_free(&other));
  if (me == 0) {
    for (int k = 0; k < 3; k++) OK(MPI_Send(big, 8, MPI_INT, 1, k, MPI_COMM_WORLD));
    OK(MPI_Recv(small, 8, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    // A truncated one among two.
    MPI_Request requests[2];
    MPI_Status statuses[2];
    OK(MPI_Irecv(small, 1, MPI_INT, 1, 10, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(small + 4, 2, MPI_INT, 1, 11, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Recv(small, 8, MPI_INT, 1, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    int code = MPI_Waitall(2, requests, statuses);
    CHECK(class_of(code) == MPI_ERR_IN_STATUS);
    if (statuses[0].MPI_ERROR == MPI_ERR_PENDING) OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(class_of(statuses[1].MPI_ERROR) == MPI_ERR_TRUNCATE);
  } else {
    MPI_Request request;
    MPI_Status status;
    CHECK(class_of(MPI_Recv(small, 2, MPI_INT, 0, 0, MPI_COMM_WORLD, &status)) == MPI_ERR_TRUNCATE);
    OK(MPI_Irecv(small, 2, MPI_INT, 0, 1, MPI_COMM_WORLD, &request));
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
    OK(MPI_Recv(small, 8, MPI_INT, 0, 2, MPI_COMM_WORLD, &status));  // the library is still usable
    CHECK(small[7] == 8);
    OK(MPI_Send(small, 8, MPI_INT, 0, 9, MPI_COMM_WORLD));
    OK(MPI_Send(big, 1, MPI_INT, 0, 10, MPI_COMM_WORLD));
    OK(MPI_Send(big, 8, MPI_INT, 0, 11, MPI_COMM_WORLD));
    OK(MPI_Send(big, 8, MPI_INT, 0, 12, MPI_COMM_WORLD));
  }
  int class, code;
  OK(MPI_Add_error_class(&class));
  OK(MPI_Add_error_code(class, &code));
  OK(MPI_Add_error_string(code, "the pump stands still"));
  OK(MPI_Error_string(code, text, &length));
  CHECK(strcmp(text, "the pump stands still") == 0);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Finalize());
  if (me == 0) printf("errors returned\n");
  return 0;
}
