// SPDX-License-Identifier: Apache-2.0
//
// Programs whose ranks do not call the same collectives. `mismatch KIND [rounds before]`: one rank errs once, after
// that many rounds of right calls. Then all end, or hang, as the library pleases; with $MISMATCH_UNTIL they go on with
// right calls until that file exists. KIND `none`: nobody errs. Of some kinds MPI ends the job: `truncate`, a root that
// sends more than all others have asked for; `message`, a message longer than its receive; `abort`, `operator_abort`
// and `stopped_abort`: rank 1 calls MPI_Abort, without a mismatch, after one, and while rank 0 is stopped.

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
static double in[256], out[64 * 64];

static void round_of_calls(MPI_Comm comm) {
  MPI_Allreduce(in, out, 3, MPI_DOUBLE, MPI_SUM, comm);
  MPI_Bcast(in, 4, MPI_DOUBLE, 0, comm);
  MPI_Barrier(comm);
}

static int is_stopped(int pid) {
  char path[64], name[64], state = 0;
  snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  FILE* file = fopen(path, "r");
  if (file != NULL && fscanf(file, "%*d %63s %c", name, &state) != 2) state = 0;
  if (file != NULL) fclose(file);
  return state == 'T';
}

enum { kMost = 16 };

static void reduce_by_request(MPI_Op op, MPI_Comm comm) {
  MPI_Request request;
  MPI_Iallreduce(in, out, 1, MPI_DOUBLE, op, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// `mine` elements of this rank's, `odd_ones` expected of rank 1, one of every other.
static void gather_all(int mine, int odd_ones, MPI_Datatype type, MPI_Comm comm) {
  int counts[kMost], starts[kMost];
  for (int i = 0; i < size; ++i) counts[i] = i == 1 ? odd_ones : 1, starts[i] = 2 * i;
  MPI_Allgatherv(in, mine, type, out, counts, starts, type, comm);
}

/// Right: where nothing moves, any type goes, and pairs of ranks may use types of their own.
static void types_of_their_own(MPI_Comm comm) {
  const int odd = rank == 1;
  int none[kMost] = {0}, some[kMost] = {0}, starts[kMost] = {0};
  MPI_Datatype type = odd ? MPI_FLOAT : MPI_INT;
  MPI_Gatherv(in, 0, type, out, none, starts, type, 0, comm);
  for (int i = 0; i < size; ++i) some[i] = i != 1, starts[i] = i;
  MPI_Gatherv(in, odd ? 0 : 1, type, out, some, starts, type, 0, comm);
  MPI_Scatterv(in, some, starts, type, out, odd ? 0 : 1, type, 0, comm);
  MPI_Allgatherv(in, 0, type, out, none, starts, type, comm);
  MPI_Alltoallv(in, none, starts, type, out, none, starts, type, comm);
  for (int i = 0; i < size; ++i) some[i] = i == rank;
  MPI_Alltoallv(in, some, starts, type, out, some, starts, type, comm);  // each to itself
  MPI_Reduce_scatter(in, out, none, type, MPI_SUM, comm);
}

/// Messages of rank 0 to rank 1, whatever types MPI and common use permit.
static void messages_of_any_type(MPI_Comm comm) {
  MPI_Request request;
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  for (int i = 0; i < 3; ++i) {
    if (rank == 0) {
      MPI_Send(in, 0, MPI_FLOAT, 1, 1, comm);  // no data: any type
      MPI_Send(in, 4, MPI_INT, 1, 1, comm);
      MPI_Send(in, 4, MPI_FLOAT, 1, 2, comm);  // of one tag, several types
      MPI_Send(in, 4, MPI_INT, 1, 2, comm);
      MPI_Send(in, 4, MPI_FLOAT, 1, 3, comm);
      MPI_Send(in, 8, MPI_BYTE, 1, 4, comm);
      MPI_Send(in, 2, pair, 1, 5, comm);
      MPI_Send(in, 1, MPI_FLOAT, 1, 6, comm);  // one by a wildcard, one by name
      MPI_Send(in, 1, MPI_INT, 1, 6, comm);
      MPI_Send_init(in, 1, MPI_FLOAT, 1, 7, comm, &request);
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
      MPI_Send(in, 1, MPI_INT, 1, 7, comm);
      MPI_Sendrecv_replace(in, 1, MPI_LONG, 1, 8, 1, 8, comm, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
      MPI_Recv(out, 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 8, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE);  // longer than what comes
      MPI_Recv(out, 4, MPI_FLOAT, 0, 2, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 4, MPI_INT, 0, 2, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 16, MPI_BYTE, 0, 3, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 1, MPI_DOUBLE, 0, 4, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 4, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 1, MPI_FLOAT, MPI_ANY_SOURCE, 6, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 1, MPI_INT, 0, 6, comm, MPI_STATUS_IGNORE);
      MPI_Recv(out, 1, MPI_FLOAT, 0, 7, comm, MPI_STATUS_IGNORE);
      MPI_Recv_init(out, 1, MPI_INT, 0, 7, comm, &request);
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
      MPI_Sendrecv(in, 1, MPI_LONG_LONG, 0, 8, out, 1, MPI_INT64_T, 0, 8, comm, MPI_STATUS_IGNORE);
    }
  }
  MPI_Type_free(&pair);
}

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "none";
  const int started = strcmp(kind, "started") == 0;
  const int before = argc > 2 ? atoi(argv[2]) : started ? 0 : 5;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm other, third = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Comm_set_name(other, "the other one");
  for (int i = 0; i < before; ++i) round_of_calls(i % 2 == 0 ? MPI_COMM_WORLD : other);
  const int odd = rank == 1;
  if (strcmp(kind, "operation") == 0) {
    // Open MPI's and MPICH's small MPI_Allreduce and MPI_Allgather exchange messages alike: often nobody hangs.
    if (odd) MPI_Allgather(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, other);
    else MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, other);
  } else if (strcmp(kind, "root") == 0) {
    MPI_Bcast(in, 1, MPI_DOUBLE, odd ? 1 : 0, other);  // sends, and nobody receives
  } else if (strcmp(kind, "truncate") == 0) {
    MPI_Bcast(in, rank == 0 ? 256 : 16, MPI_DOUBLE, 0, other);
  } else if (strcmp(kind, "message") == 0) {
    if (rank == 0) MPI_Send(in, 256, MPI_DOUBLE, 1, 5, other);
    if (odd) MPI_Recv(in, 16, MPI_DOUBLE, 0, 5, other, MPI_STATUS_IGNORE);
  } else if (strcmp(kind, "operator") == 0 || strcmp(kind, "operator_abort") == 0) {
    MPI_Reduce(in, out, 1, MPI_DOUBLE, odd ? MPI_MAX : MPI_SUM, 0, other);
  } else if (strcmp(kind, "behind") == 0) {
    // Waits for all, who send no more than buffers hold, and go on.
    if (odd) MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, other);
    for (int i = 0; i < 100; ++i) MPI_Bcast(in, 1, MPI_DOUBLE, 0, other);
  } else if (strcmp(kind, "passed") == 0) {
    // Nobody waits, and all have gone on by more calls than their histories know one by one.
    for (int i = 0; i < 100; ++i) {
      if (odd && i == 0) MPI_Gather(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, 0, other);
      else MPI_Bcast(in, 1, MPI_DOUBLE, 0, other);
    }
  } else if (strcmp(kind, "size") == 0) {
    // The last rank sends nothing on, and what comes fits into its room: no library notices.
    MPI_Bcast(in, rank == size - 1 ? 16 : 8, MPI_DOUBLE, 0, other);
  } else if (strcmp(kind, "nonblocking") == 0) {
    if (odd) {
      MPI_Request request;
      MPI_Ibarrier(other, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      MPI_Barrier(other);
    }
  } else if (started) {
    // The wrong call repeats a right one from its call site.
    for (int i = 0; i < 6; ++i) reduce_by_request(i < 3 ? MPI_SUM : MPI_MAX, other);
    reduce_by_request(odd ? MPI_MAX : MPI_SUM, other);
  } else if (strcmp(kind, "vector_types") == 0) {
    gather_all(1, 1, odd ? MPI_FLOAT : MPI_INT, other);
  } else if (strcmp(kind, "vector_amounts") == 0) {
    gather_all(1, odd ? 1 : 2, MPI_INT, other);
  } else if (strcmp(kind, "types_of_their_own") == 0) {
    types_of_their_own(other);
    messages_of_any_type(other);
  } else if (strcmp(kind, "message_types") == 0) {
    for (int i = 0; i < 3; ++i) {
      if (rank == 0) MPI_Send(in, 4, MPI_INT, 1, 7, other);
      if (odd) MPI_Recv(out, 4, MPI_FLOAT, 0, 7, other, MPI_STATUS_IGNORE);
    }
  } else if (strcmp(kind, "skipped") == 0) {
    if (!odd) MPI_Bcast(in, 1, MPI_DOUBLE, 0, other);  // the root does not wait
  } else if (strcmp(kind, "order") == 0) {
    // Two communicators made in another order.
    if (odd) {
      MPI_Comm_split(other, 0, rank, &third);
      MPI_Comm_dup(other, &third);
    } else {
      MPI_Comm_dup(other, &third);
      MPI_Comm_split(other, 0, rank, &third);
    }
  }
  if (strstr(kind, "abort") != NULL) {
    int pid = getpid();
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);  // all have made the call before
    if (strcmp(kind, "stopped_abort") == 0) {
      if (rank == 0) raise(SIGSTOP);
      while (odd && !is_stopped(pid)) usleep(1000);
    }
    if (odd) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  const char* until = getenv("MISMATCH_UNTIL");
  int stop = until == NULL;
  for (int i = 0; !stop && i < 200000000; ++i) {
    round_of_calls(MPI_COMM_WORLD);
    round_of_calls(other);
    if (rank == 0) stop = access(until, F_OK) == 0;
    MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
    usleep(2000);  // not so fast that the records of the fault are overwritten before anybody looks
  }
  if (strcmp(kind, "unreceived") == 0 && odd)
    for (int i = 0; i < 3; ++i)
      MPI_Send(in, 1, MPI_DOUBLE, 0, 77, other);  // small: MPI keeps it, and nobody asks for it
  if (strcmp(kind, "uneven") == 0 && rank == 0) MPI_Bcast(in, 1, MPI_DOUBLE, 0, other);  // the root does not wait
  MPI_Finalize();
  return 0;
}
