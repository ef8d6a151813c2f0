/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives from MPI_ANY_SOURCE with one candidate or with several, as KIND says. Rank 0 receives, ranks 0 and 1 send:
 * to oneself is to another sender than rank 1.
 *
 *   candidates KIND
 *
 * With several: gather, gather-irecv, any-tag, probe. With one each: one-sender, ordered, barrier, tags, comms, reply,
 * request-status, later-post. Not known: synchronous, window, cancel, threads. */
#include <mpi.h>
#include <pthread.h>
#include <string.h>

static int rank;
static MPI_Comm comm;

static void send_to(int to, int tag, MPI_Comm on) { MPI_Send(&rank, 1, MPI_INT, to, tag, on); }
static int take(int source, int tag, MPI_Comm on) {
  int value;
  MPI_Status status;
  MPI_Recv(&value, 1, MPI_INT, source, tag, on, &status);
  return status.MPI_SOURCE;
}
static MPI_Request post(int* value, int source, int tag) {
  MPI_Request request;
  MPI_Irecv(value, 1, MPI_INT, source, tag, comm, &request);
  return request;
}
static MPI_Request to_self(int* value, int tag) {
  MPI_Request request;
  MPI_Isend(value, 1, MPI_INT, 0, tag, comm, &request);
  return request;
}
static void* once(void* nothing) {
  int flag;
  MPI_Iprobe(MPI_ANY_SOURCE, 99, comm, &flag, MPI_STATUS_IGNORE);
  return nothing;
}

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "gather";
  int value[4] = {0}, provided, flag;
  MPI_Request request[2], own;
  MPI_Comm other;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  comm = MPI_COMM_WORLD;
  MPI_Comm_dup(comm, &other);
#define IS(name) (strcmp(kind, name) == 0)
  if (IS("gather") || IS("synchronous") || IS("window") || IS("cancel") || IS("threads")) {
    MPI_Win window = MPI_WIN_NULL;
    if (IS("window")) MPI_Win_create(value, sizeof(value), 1, MPI_INFO_NULL, comm, &window);
    if (IS("threads") && rank == 0) {
      pthread_t thread;
      pthread_create(&thread, NULL, once, NULL);
      pthread_join(thread, NULL);
    }
    if (rank == 1) {
      if (IS("cancel")) {
        request[0] = post(value, 0, 88);
        MPI_Cancel(&request[0]);
        MPI_Wait(&request[0], MPI_STATUS_IGNORE);
      }
      if (IS("synchronous")) MPI_Ssend(&rank, 1, MPI_INT, 0, 5, comm);
      else send_to(0, 5, comm);
      send_to(0, 5, comm);
    } else {
      own = to_self(&rank, 5);
      for (int i = 0; i < 3; ++i) take(MPI_ANY_SOURCE, 5, comm);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
    if (window != MPI_WIN_NULL) MPI_Win_free(&window);
  } else if (IS("gather-irecv") || IS("any-tag")) {
    if (rank == 1) {
      send_to(0, 5, comm);
    } else {
      own = to_self(&rank, 5);
      for (int i = 0; i < 2; ++i) request[i] = post(&value[i], MPI_ANY_SOURCE, IS("any-tag") ? MPI_ANY_TAG : 5);
      MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
  } else if (IS("probe")) {
    if (rank == 1) {
      send_to(0, 5, comm);
    } else {
      own = to_self(&rank, 5);
      for (int i = 0; i < 2; ++i) {
        do MPI_Iprobe(MPI_ANY_SOURCE, 5, comm, &flag, MPI_STATUS_IGNORE);
        while (!flag);
        take(MPI_ANY_SOURCE, 5, comm);
      }
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
  } else if (IS("one-sender")) {
    if (rank == 1)
      for (int i = 0; i < 4; ++i) send_to(0, 5, comm);
    else
      for (int i = 0; i < 4; ++i) take(MPI_ANY_SOURCE, 5, comm);
  } else if (IS("ordered")) { /* the second is sent after the first has been received */
    if (rank == 1) {
      send_to(0, 5, comm);
    } else {
      take(MPI_ANY_SOURCE, 5, comm);
      own = to_self(&rank, 5);
      take(MPI_ANY_SOURCE, 5, comm);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
  } else if (IS("barrier")) { /* likewise: rank 1 waits in the barrier until its turn */
    if (rank == 0) {
      own = to_self(&rank, 5);
      take(MPI_ANY_SOURCE, 5, comm);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(comm);
    if (rank == 1) send_to(0, 5, comm);
    else take(MPI_ANY_SOURCE, 5, comm);
  } else if (IS("tags") || IS("comms")) {
    const int second = IS("tags") ? 6 : 5;
    MPI_Comm on = IS("tags") ? comm : other;
    if (rank == 1) {
      send_to(0, 5, comm);
    } else {
      MPI_Isend(&rank, 1, MPI_INT, 0, second, on, &own);
      take(MPI_ANY_SOURCE, 5, comm);
      take(MPI_ANY_SOURCE, second, on);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
  } else if (IS("reply")) { /* a worker's turn comes by a message of rank 0's */
    if (rank == 1) {
      take(0, 1, comm);
      send_to(0, 5, comm);
    } else {
      own = to_self(&rank, 5);
      take(MPI_ANY_SOURCE, 5, comm);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
      send_to(1, 1, comm);
      take(MPI_ANY_SOURCE, 5, comm);
    }
  } else if (IS("request-status")) { /* known to be complete, told, and only then waited for */
    if (rank == 1) {
      take(0, 1, comm);
      send_to(0, 5, comm);
    } else {
      request[0] = post(value, MPI_ANY_SOURCE, 5);
      own = to_self(&rank, 5);
      do MPI_Request_get_status(request[0], &flag, MPI_STATUS_IGNORE);
      while (!flag);
      send_to(1, 1, comm);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
      MPI_Wait(&request[0], MPI_STATUS_IGNORE);
      take(MPI_ANY_SOURCE, 5, comm);
    }
  } else if (IS("later-post")) { /* complete in the other order: the first message can match the first receive only */
    if (rank == 1) {
      send_to(0, 5, comm);
    } else {
      own = to_self(&rank, 6);
      request[0] = post(&value[0], MPI_ANY_SOURCE, 5);
      request[1] = post(&value[1], MPI_ANY_SOURCE, MPI_ANY_TAG);
      MPI_Wait(&request[1], MPI_STATUS_IGNORE);
      MPI_Wait(&request[0], MPI_STATUS_IGNORE);
      MPI_Wait(&own, MPI_STATUS_IGNORE);
    }
  }
  MPI_Comm_free(&other);
  MPI_Finalize();
  return 0;
}
