// SPDX-License-Identifier: Apache-2.0
//
// Kinds of calls in loops, each between two dumps of callgrind: instructions ROUNDS TURNS [FACTS]. With one rank
// messages go to the rank itself, on MPI_COMM_SELF, and every count can be repeated; with two they go between the
// ranks. Prints the names of the kinds in the order of the dumps. Touches nothing but callgrind, and FACTS: where
// libresil.so's code and the stack are, for who reads a trace of memory accesses (touched_lines.c). See scripts/bench
// instructions, budget.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

enum { kWarm = 300, kMostTurns = 16 };

static MPI_Comm comm;
static MPI_Datatype vector;
static MPI_Win window;
static MPI_Request started[2];
static int peer, first, out[16], in[16], base[16];

// A store to the one begins a round, a store to the other ends a kind.
volatile int round_begins, kind_ends;

static void send_recv(void) {  // two ranks only: MPICH's MPI_Send to the own rank waits for the receive
  if (first) MPI_Send(out, 4, MPI_INT, peer, 1, comm);
  MPI_Recv(in, 4, MPI_INT, peer, 1, comm, MPI_STATUS_IGNORE);
  if (!first) MPI_Send(out, 4, MPI_INT, peer, 1, comm);
}
static void recv_any(void) {
  MPI_Request request;
  MPI_Status status;
  MPI_Isend(out, 4, MPI_INT, peer, 1, comm, &request);
  MPI_Recv(in, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void isend_wait(void) {
  MPI_Request request;
  MPI_Isend(out, 4, MPI_INT, peer, 1, comm, &request);
  MPI_Recv(in, 4, MPI_INT, peer, 1, comm, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void irecv_wait(void) {
  MPI_Request request;
  MPI_Irecv(in, 4, MPI_INT, peer, 1, comm, &request);
  MPI_Send(out, 4, MPI_INT, peer, 1, comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void irecv_test(void) {
  MPI_Request request;
  int done = 0;
  MPI_Irecv(in, 4, MPI_INT, peer, 1, comm, &request);
  MPI_Send(out, 4, MPI_INT, peer, 1, comm);
  while (!done) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}
static void waitall(void) {
  MPI_Request requests[2];
  MPI_Irecv(in, 4, MPI_INT, peer, 1, comm, &requests[0]);
  MPI_Isend(out, 4, MPI_INT, peer, 1, comm, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}
static void waitany(void) {
  MPI_Request requests[2];
  int index;
  MPI_Irecv(in, 4, MPI_INT, peer, 1, comm, &requests[0]);
  MPI_Isend(out, 4, MPI_INT, peer, 1, comm, &requests[1]);
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
  MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
}
static void waitall_many(void) {
  MPI_Request requests[32];
  for (int i = 0; i < 16; i++) MPI_Irecv(in + i, 1, MPI_INT, peer, 1, comm, &requests[i]);
  for (int i = 0; i < 16; i++) MPI_Isend(out + i, 1, MPI_INT, peer, 1, comm, &requests[16 + i]);
  MPI_Waitall(32, requests, MPI_STATUSES_IGNORE);
}
static void round_of_four(void) {
  int one = 1, all;
  waitall();
  MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
}
static void derived(void) {
  MPI_Request requests[2];
  MPI_Irecv(in, 1, vector, peer, 1, comm, &requests[0]);
  MPI_Isend(out, 1, vector, peer, 1, comm, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}
static void sendrecv(void) { MPI_Sendrecv(out, 4, MPI_INT, peer, 1, in, 4, MPI_INT, peer, 1, comm, MPI_STATUS_IGNORE); }
static void persistent(void) {
  MPI_Startall(2, started);
  MPI_Waitall(2, started, MPI_STATUSES_IGNORE);
}
static void allreduce(void) {
  int one = 1, all;
  MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
}
static void allreduce_double(void) {
  double one[8] = {1}, all[8];
  MPI_Allreduce(one, all, 8, MPI_DOUBLE, MPI_SUM, comm);
}
static void bcast(void) { MPI_Bcast(in, 4, MPI_INT, 0, comm); }
static void alltoall(void) { MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, comm); }
static void iallreduce(void) {
  MPI_Request request;
  int one = 1, all;
  MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void barrier(void) { MPI_Barrier(comm); }
static void iprobe(void) {
  int flag;
  MPI_Iprobe(peer, 99, comm, &flag, MPI_STATUS_IGNORE);
}
static void local(void) {
  int rank;
  MPI_Comm_rank(comm, &rank);
}
static void type_free(void) {
  MPI_Datatype type;
  MPI_Type_contiguous(3, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&type);
}
static void type_used(void) {
  MPI_Datatype type;
  MPI_Type_vector(2, 1, 2, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_Sendrecv(out, 1, type, peer, 1, in, 1, type, peer, 1, comm, MPI_STATUS_IGNORE);
  MPI_Type_free(&type);
}
static void put(void) {
  MPI_Put(out, 4, MPI_INT, peer, 0, 4, MPI_INT, window);
  MPI_Win_flush(peer, window);
}
static void comm_dup(void) {
  MPI_Comm copy;
  MPI_Comm_dup(comm, &copy);
  MPI_Comm_free(&copy);
}

static const struct {
  const char* name;
  void (*call)(void);
} kinds[] = {{"round", round_of_four},
             {"send_recv", send_recv},
             {"recv_any", recv_any},
             {"isend_wait", isend_wait},
             {"irecv_wait", irecv_wait},
             {"irecv_test", irecv_test},
             {"waitall", waitall},
             {"waitany", waitany},
             {"waitall_many", waitall_many},
             {"derived", derived},
             {"sendrecv", sendrecv},
             {"persistent", persistent},
             {"allreduce", allreduce},
             {"allreduce_double", allreduce_double},
             {"bcast", bcast},
             {"alltoall", alltoall},
             {"iallreduce", iallreduce},
             {"barrier", barrier},
             {"iprobe", iprobe},
             {"local", local},
             {"type_free", type_free},
             {"type_used", type_used},
             {"put", put},
             {"comm_dup", comm_dup}};

static void write_facts(const char* path) {
  FILE *maps = fopen("/proc/self/maps", "r"), *facts = fopen(path, "w");
  char line[4096];
  unsigned long from, to;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx", &from, &to) == 2) {
      if (strstr(line, " r-xp ") && strstr(line, "/libresil")) fprintf(facts, "code %lx %lx\n", from, to);
      if (from <= (unsigned long)&line && (unsigned long)&line < to) fprintf(facts, "stack %lx %lx\n", from, to);
    }
  fclose(maps);
  fclose(facts);
}

int main(int argc, char** argv) {
  int me, size;
  const int rounds = atoi(argv[1]), turns = argc > 2 ? atoi(argv[2]) : 1;
  if (turns > kMostTurns) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  comm = size == 1 ? MPI_COMM_SELF : MPI_COMM_WORLD;
  peer = size == 1 ? 0 : me ^ 1;
  first = me == 0;
  MPI_Type_vector(4, 1, 2, MPI_INT, &vector);
  MPI_Type_commit(&vector);
  MPI_Recv_init(in, 4, MPI_INT, peer, 1, comm, &started[0]);
  MPI_Send_init(out, 4, MPI_INT, peer, 1, comm, &started[1]);
  MPI_Win_create(base, sizeof base, 1, MPI_INFO_NULL, comm, &window);
  MPI_Win_lock_all(0, window);
  if (argc > 3) write_facts(argv[3]);
  for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (size == 1 && kinds[k].call == send_recv) continue;
    for (int i = 0; i < kWarm; i++) kinds[k].call();
    if (me == 0) printf("%s\n", kinds[k].name);
    fflush(stdout);
    if (argc > 3) {
      for (int i = 0; i < rounds; i++) {
        round_begins = i;
        kinds[k].call();
      }
      kind_ends = 1;
      continue;
    }
    MPI_Datatype kept[kMostTurns];
    for (int turn = 0; turn < turns; turn++) {
      // A type that a round makes lies elsewhere in each turn: what freeing it costs depends on its handle.
      MPI_Type_contiguous(2, MPI_CHAR, &kept[turn]);
      for (int i = 0; i < kWarm; i++) kinds[k].call();
      MPI_Barrier(comm);
      CALLGRIND_ZERO_STATS;
      for (int i = 0; i < rounds; i++) kinds[k].call();
      CALLGRIND_DUMP_STATS_AT(kinds[k].name);
    }
    for (int turn = 0; turn < turns; turn++) MPI_Type_free(&kept[turn]);
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  for (int i = 0; i < 2; i++) MPI_Request_free(&started[i]);
  MPI_Type_free(&vector);
  MPI_Finalize();
  return 0;
}
