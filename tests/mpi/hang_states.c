// SPDX-License-Identifier: Apache-2.0
//
// Two ranks. In each scene one of them, the waiting one, goes into an MPI call that cannot end before the other, which
// stays in its own code until the file DIR/go.SCENE exists, has done its part:   hang_states DIR SCENE...
// "finalize" must be the last: the other rank comes to MPI_Finalize later. tests/mpi/hang_states_test.py looks on.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"

static int rank;
static const char* directory;
static int big[1 << 18], small[64], other[64];
static MPI_Comm mirror;  // both ranks, in the other order: the world's rank 1 is its rank 0

static void wait_for_go(const char* scene) {
  char path[1024];
  struct stat status;
  snprintf(path, sizeof(path), "%s/go.%s", directory, scene);
  while (stat(path, &status) != 0) {
    struct timespec time = {0, 2000000};
    nanosleep(&time, NULL);
  }
}

static void send(int tag) { OK(MPI_Send(small, 1, MPI_INT, 0, tag, MPI_COMM_WORLD)); }
static void receive(int tag) { OK(MPI_Recv(big, 1 << 18, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE)); }

// --- What the waiting rank (0) does, and what ends it (1). Tags are the scenes' own. ------------------------------

static void recv_second(int waits) {  // the second message with this envelope
  if (waits)
    for (int i = 0; i < 2; ++i) OK(MPI_Recv(small, 1, MPI_INT, 1, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  else send(11);
}
static void recv_second_before(void) { send(11); }

static void recv_any_source(int waits) {
  if (waits) OK(MPI_Recv(small, 1, MPI_INT, MPI_ANY_SOURCE, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  else send(12);
}
static void recv_any_tag(int waits) {
  if (waits) OK(MPI_Recv(small, 1, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  else send(13);
}
static void recv_after_wild(int waits) {  // wildcards, blocking and not, have taken two messages with this envelope
  if (waits) {
    MPI_Request request;
    OK(MPI_Recv(small, 1, MPI_INT, MPI_ANY_SOURCE, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(small, 1, MPI_INT, MPI_ANY_SOURCE, 14, MPI_COMM_WORLD, &request));
    OK(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
    OK(MPI_Recv(small, 1, MPI_INT, 1, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  } else {
    send(14);
  }
}
static void recv_after_wild_before(void) {
  send(14);
  send(14);
}
static void recv_mirror(int waits) {
  if (waits) OK(MPI_Recv(small, 1, MPI_INT, 0, 15, mirror, MPI_STATUS_IGNORE));
  else OK(MPI_Send(small, 1, MPI_INT, 1, 15, mirror));
}
static void probe(int waits) {
  if (waits) {
    OK(MPI_Probe(1, 16, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Recv(small, 1, MPI_INT, 1, 16, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  } else {
    send(16);
  }
}
static void mprobe(int waits) {
  if (waits) {
    MPI_Message message;
    for (int i = 0; i < 2; ++i) {
      OK(MPI_Mprobe(1, 17, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
      OK(MPI_Mrecv(small, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    }
  } else {
    send(17);
  }
}
static void mprobe_before(void) { send(17); }
static void ssend(int waits) {
  if (waits) OK(MPI_Ssend(small, 3, MPI_INT, 1, 18, MPI_COMM_WORLD));
  else receive(18);
}
static void send_large(int waits) {
  if (waits) OK(MPI_Send(big, 1 << 18, MPI_INT, 1, 19, MPI_COMM_WORLD));
  else receive(19);
}
static void sendrecv(int waits) {
  if (waits) {
    OK(MPI_Sendrecv(small, 2, MPI_INT, 1, 20, other, 2, MPI_INT, 1, 21, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  } else {
    receive(20);
    send(21);
  }
}
static void wait_one(int waits) {
  if (waits) {
    MPI_Request request;
    OK(MPI_Irecv(small, 1, MPI_INT, 1, 22, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    send(22);
  }
}
static void waitall(int waits) {
  if (waits) {
    MPI_Request requests[5];
    OK(MPI_Irecv(small, 1, MPI_INT, MPI_ANY_SOURCE, 23, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Issend(other, 1, MPI_INT, 1, 24, MPI_COMM_WORLD, &requests[1]));
    requests[2] = MPI_REQUEST_NULL;
    OK(MPI_Recv_init(small + 1, 1, MPI_INT, 1, 25, MPI_COMM_WORLD, &requests[3]));
    OK(MPI_Ssend_init(other + 1, 1, MPI_INT, 1, 26, MPI_COMM_WORLD, &requests[4]));
    OK(MPI_Startall(2, &requests[3]));
    OK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
    for (int i = 3; i < 5; ++i) OK(MPI_Request_free(&requests[i]));
  } else {
    send(23);
    receive(24);
    send(25);
    receive(26);
  }
}
static void wait_several(int waits, int some) {
  if (waits) {
    MPI_Request requests[3];
    int index, indices[3], count;
    OK(MPI_Irecv(small, 1, MPI_INT, 1, 27, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Recv_init(small + 1, 1, MPI_INT, 1, 28, MPI_COMM_WORLD, &requests[1]));  // never started
    OK(MPI_Irecv(small + 2, 1, MPI_INT, 1, 29, MPI_COMM_WORLD, &requests[2]));
    if (some) OK(MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE));
    else OK(MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Request_free(&requests[1]));
  } else {
    send(29);
    send(27);
  }
}
static void waitany(int waits) { wait_several(waits, 0); }
static void waitsome(int waits) { wait_several(waits, 1); }
static void test_loop(int waits) {  // two requests from one call site, and a probe
  if (waits) {
    MPI_Request requests[2];
    int done[2] = {0, 0}, found;
    for (int i = 0; i < 2; ++i) OK(MPI_Irecv(small + i, 1, MPI_INT, 1, 30 + i, MPI_COMM_WORLD, &requests[i]));
    while (!done[0] || !done[1]) {
      for (int i = 0; i < 2; ++i) OK(MPI_Test(&requests[i], &done[i], MPI_STATUS_IGNORE));
      OK(MPI_Iprobe(MPI_ANY_SOURCE, 32, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
    }
  } else {
    send(30);
    send(31);
  }
}
static void testall_loop(int waits) {
  if (waits) {
    MPI_Request requests[2];
    int done = 0;
    for (int i = 0; i < 2; ++i) OK(MPI_Irecv(small + i, 1, MPI_INT, 1, 33 + i, MPI_COMM_WORLD, &requests[i]));
    while (!done) {
      OK(MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE));
      MPI_Wtime();
    }
  } else {
    send(33);
    send(34);
  }
}

#define COLLECTIVE(name, call)  \
  static void name(int waits) { \
    (void)waits;                \
    OK(call);                   \
  }
// Several times from one place, so that the call that hangs goes the library's fast path.
#define NONBLOCKING(name, call)                                   \
  static void __attribute__((noinline)) name##_times(int times) { \
    for (; times > 0; --times) {                                  \
      MPI_Request request;                                        \
      OK(call);                                                   \
      OK(MPI_Wait(&request, MPI_STATUS_IGNORE));                  \
    }                                                             \
  }                                                               \
  static void name##_before(void) { name##_times(3); }            \
  static void name(int waits) { name##_times(waits ? 4 : 1); }
COLLECTIVE(barrier, MPI_Barrier(MPI_COMM_WORLD))
COLLECTIVE(bcast, MPI_Bcast(small, 4, MPI_INT, 1, MPI_COMM_WORLD))
COLLECTIVE(reduce, MPI_Reduce(small, other, 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD))
COLLECTIVE(allreduce, MPI_Allreduce(small, other, 4, MPI_INT, MPI_MAX, MPI_COMM_WORLD))
COLLECTIVE(gather, MPI_Gather(small, 4, MPI_INT, other, 4, MPI_INT, 0, MPI_COMM_WORLD))
COLLECTIVE(scatter, MPI_Scatter(small, 4, MPI_INT, other, 4, MPI_INT, 1, MPI_COMM_WORLD))
COLLECTIVE(allgather, MPI_Allgather(small, 4, MPI_INT, other, 4, MPI_INT, MPI_COMM_WORLD))
COLLECTIVE(alltoall, MPI_Alltoall(small, 4, MPI_INT, other, 4, MPI_INT, MPI_COMM_WORLD))
COLLECTIVE(scan, MPI_Scan(small, other, 4, MPI_INT, MPI_SUM, mirror))  // there the waiting one is rank 1
COLLECTIVE(reduce_scatter_block, MPI_Reduce_scatter_block(small, other, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD))
NONBLOCKING(ibarrier, MPI_Ibarrier(MPI_COMM_WORLD, &request))
NONBLOCKING(iallreduce, MPI_Iallreduce(small, other, 4, MPI_INT, MPI_SUM, mirror, &request))
NONBLOCKING(ibcast, MPI_Ibcast(small, 4, MPI_INT, 0, mirror, &request))
static void comm_dup(int waits) {
  (void)waits;
  MPI_Comm made;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &made));
  OK(MPI_Comm_free(&made));
}
static void comm_split(int waits) {
  (void)waits;
  MPI_Comm made;
  OK(MPI_Comm_split(mirror, 0, 0, &made));
  OK(MPI_Comm_free(&made));
}
static void win_create(int waits) {
  (void)waits;
  MPI_Win made;
  OK(MPI_Win_create(big, sizeof(big), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made));
  OK(MPI_Win_free(&made));
}
static void win_fence(int waits) {
  MPI_Win made;
  OK(MPI_Win_create(big, sizeof(big), 1, MPI_INFO_NULL, mirror, &made));
  OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, made));
  if (!waits) wait_for_go("win_fence_second");
  OK(MPI_Win_fence(0, made));
  OK(MPI_Win_free(&made));
}

static const struct {
  const char* name;
  void (*run)(int waits);
  void (*before)(void);  // by the other rank, before it stays in its own code
} kScenes[] = {{"recv_second", recv_second, recv_second_before},
               {"recv_any_source", recv_any_source, NULL},
               {"recv_any_tag", recv_any_tag, NULL},
               {"recv_after_wild", recv_after_wild, recv_after_wild_before},
               {"recv_mirror", recv_mirror, NULL},
               {"probe", probe, NULL},
               {"mprobe", mprobe, mprobe_before},
               {"ssend", ssend, NULL},
               {"send_large", send_large, NULL},
               {"sendrecv", sendrecv, NULL},
               {"wait", wait_one, NULL},
               {"waitall", waitall, NULL},
               {"waitany", waitany, NULL},
               {"waitsome", waitsome, NULL},
               {"test_loop", test_loop, NULL},
               {"testall_loop", testall_loop, NULL},
               {"barrier", barrier, NULL},
               {"bcast", bcast, NULL},
               {"reduce", reduce, NULL},
               {"allreduce", allreduce, NULL},
               {"gather", gather, NULL},
               {"scatter", scatter, NULL},
               {"allgather", allgather, NULL},
               {"alltoall", alltoall, NULL},
               {"scan", scan, NULL},
               {"reduce_scatter_block", reduce_scatter_block, NULL},
               {"ibarrier", ibarrier, ibarrier_before},
               {"iallreduce", iallreduce, iallreduce_before},
               {"ibcast", ibcast, ibcast_before},
               {"comm_dup", comm_dup, NULL},
               {"comm_split", comm_split, NULL},
               {"win_create", win_create, NULL},
               {"win_fence", win_fence, NULL}};

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &mirror));
  directory = argv[1];
  for (int i = 2; i < argc; ++i)
    for (size_t k = 0; k < sizeof(kScenes) / sizeof(kScenes[0]); ++k) {
      if (strcmp(argv[i], kScenes[k].name) != 0) continue;
      OK(MPI_Barrier(MPI_COMM_WORLD));
      if (rank == 1) {
        if (kScenes[k].before != NULL) kScenes[k].before();
        wait_for_go(kScenes[k].name);
      }
      kScenes[k].run(rank == 0);
    }
  OK(MPI_Comm_free(&mirror));
  if (strcmp(argv[argc - 1], "finalize") == 0 && rank == 1) wait_for_go("finalize");
  OK(MPI_Finalize());
  if (rank == 0) puts("hang_states: ok");
  return 0;
}
