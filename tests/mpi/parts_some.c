// SPDX-License-Identifier: Apache-2.0
//
// For replicas_some_test.py: what a copy that is fed by its leader must do as its leader did. Prints a digest of all
// that has come. FLIP: the job's rank in which something goes wrong, HOW (bit, way, exit, abort, loop, size).
//
// parts_some topologies|messages|large|steps|deadlock|split FILE|partitions
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

static int rank, size;
static unsigned long long digest = 1469598103934665603ull;

static void note(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ ((const unsigned char*)data)[i]) * 1099511628211ull;
}
static void note_int(int value) { note(&value, sizeof(value)); }

static int wrong(const char* how) {
  const char *flip = getenv("FLIP"), *kind = getenv("HOW");
  const char* own = getenv("PMIX_RANK") != NULL ? getenv("PMIX_RANK") : getenv("PMI_RANK");
  return flip != NULL && kind != NULL && own != NULL && atoi(flip) == atoi(own) && strcmp(kind, how) == 0;
}

/* Each question about a communicator, and neighbours' data. */
static void topologies(void) {
  int dims[2] = {size, 1}, periods[2] = {1, 0}, coords[2], from, to, kind, count, more, other[2] = {rank, 0};
  MPI_Comm cart, line, graph, adjacent, twin, half;
  MPI_Group group, of_half;
  OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart));
  OK(MPI_Topo_test(cart, &kind));
  CHECK(kind == MPI_CART);
  OK(MPI_Cartdim_get(cart, &count));
  OK(MPI_Cart_get(cart, 2, dims, periods, coords));
  CHECK(count == 2 && dims[0] == size && periods[0] && coords[0] == rank);
  OK(MPI_Cart_shift(cart, 0, 1, &from, &to));
  CHECK(from == (rank + size - 1) % size && to == (rank + 1) % size);
  OK(MPI_Cart_rank(cart, other, &kind));
  CHECK(kind == rank);
  OK(MPI_Cart_coords(cart, (rank + 1) % size, 2, coords));
  CHECK(coords[0] == (rank + 1) % size);
  int around[4] = {-1, -1, -1, -1};
  OK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, around, 1, MPI_INT, cart));
  CHECK(around[0] == from && around[1] == to && around[2] == -1);
  int keep[2] = {1, 0};
  OK(MPI_Cart_sub(cart, keep, &line));
  OK(MPI_Comm_size(line, &count));
  CHECK(count == size);
  MPI_Request request;
  int sent[2] = {10 * rank, 10 * rank + 1}, came[2] = {-1, -1};
  OK(MPI_Ineighbor_alltoall(sent, 1, MPI_INT, came, 1, MPI_INT, line, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  note(came, sizeof(came));
  int index[16], edges[16], seen[16];
  for (int i = 0; i < size; ++i) index[i] = i + 1, edges[i] = (i + 1) % size;
  OK(MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph));
  OK(MPI_Graphdims_get(graph, &count, &more));
  OK(MPI_Graph_get(graph, size, size, index, edges));
  CHECK(count == size && more == size && edges[rank] == (rank + 1) % size);
  OK(MPI_Graph_neighbors_count(graph, rank, &count));
  OK(MPI_Graph_neighbors(graph, rank, count, seen));
  CHECK(count == 1 && seen[0] == (rank + 1) % size);
  int weights[2] = {3, 4}, got[4], in[1] = {from}, out[1] = {to};
  OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, in, weights, 1, out, weights + 1, MPI_INFO_NULL, 0, &adjacent));
  OK(MPI_Dist_graph_neighbors_count(adjacent, &count, &more, &kind));
  CHECK(count == 1 && more == 1 && kind);
  OK(MPI_Dist_graph_neighbors(adjacent, 1, seen, got, 1, seen + 1, got + 1));
  CHECK(seen[0] == from && seen[1] == to && got[0] == 3 && got[1] == 4);
  OK(MPI_Dist_graph_neighbors(adjacent, 1, seen, MPI_UNWEIGHTED, 1, seen + 1, MPI_UNWEIGHTED));
  CHECK(seen[0] == from);
  came[0] = -1;
  OK(MPI_Neighbor_alltoall(sent, 1, MPI_INT, came, 1, MPI_INT, adjacent));
  CHECK(came[0] == 10 * from);
  /* Groups of the program's own, and what is made of them. */
  int evens[8], translated[8], all[8], members = 0;
  for (int i = 0; i < size; i += 2) evens[members++] = i;
  OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
  OK(MPI_Group_rank(group, &count));
  CHECK(count == rank);
  OK(MPI_Group_incl(group, members, evens, &of_half));
  for (int i = 0; i < members; ++i) all[i] = i;
  OK(MPI_Group_translate_ranks(of_half, members, all, group, translated));
  CHECK(members < 2 || translated[1] == 2);
  OK(MPI_Comm_create(MPI_COMM_WORLD, of_half, &half));
  CHECK((half == MPI_COMM_NULL) == (rank % 2 != 0));
  if (half != MPI_COMM_NULL) {
    int sum = 0;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half));
    note_int(sum);
    OK(MPI_Comm_compare(half, MPI_COMM_WORLD, &kind));
    CHECK(kind == (members == size ? MPI_CONGRUENT : MPI_UNEQUAL));
    OK(MPI_Comm_free(&half));
  }
  OK(MPI_Comm_dup(cart, &twin));
  OK(MPI_Comm_compare(twin, cart, &kind));
  CHECK(kind == MPI_CONGRUENT);
  OK(MPI_Topo_test(twin, &kind));
  CHECK(kind == MPI_CART);
  MPI_Comm made[5] = {cart, line, graph, adjacent, twin};
  for (int i = 0; i < 5; ++i) OK(MPI_Comm_free(&made[i]));
  OK(MPI_Group_free(&group));
  OK(MPI_Group_free(&of_half));
}

/* Messages of all kinds, taken in whatever order they come. */
static void messages(void) {
  enum { kRounds = 20 };
  MPI_Status status;
  for (int round = 0; round < kRounds; ++round) {
    double data[8], came[8];
    for (int i = 0; i < 8; ++i) data[i] = rank * 100 + round + i * 0.5;
    if (rank != 0) {
      OK(MPI_Send(data, 1 + rank % 8, MPI_DOUBLE, 0, 10 + rank, MPI_COMM_WORLD));
      OK(MPI_Recv(came, 8, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
      note(came, sizeof(double));
      note_int(status.MPI_TAG);
      continue;
    }
    for (int i = 1; i < size; ++i) {
      int count = 0, flag = 0;
      if (round % 4 == 0) {
        while (!flag) OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
        OK(MPI_Recv(came, 8, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
      } else if (round % 4 == 1) {
        MPI_Message message;
        OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
        OK(MPI_Mrecv(came, 8, MPI_DOUBLE, &message, &status));
      } else if (round % 4 == 2) {
        MPI_Request request;
        OK(MPI_Irecv(came, 8, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
        while (!flag) OK(MPI_Test(&request, &flag, &status));
        CHECK(request == MPI_REQUEST_NULL);
      } else {
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        int at = -1;
        OK(MPI_Recv_init(came, 8, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Start(&requests[1]));
        OK(MPI_Waitany(2, requests, &at, &status));
        CHECK(at == 1 && requests[1] != MPI_REQUEST_NULL);
        OK(MPI_Request_free(&requests[1]));
      }
      OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
      CHECK(count == 1 + status.MPI_SOURCE % 8 && status.MPI_TAG == 10 + status.MPI_SOURCE);
      note(came, sizeof(double) * (size_t)count);
      came[0] *= 2;
      OK(MPI_Send(came, 1, MPI_DOUBLE, status.MPI_SOURCE, 500 + i, MPI_COMM_WORLD));
    }
  }
}

/* More than fits into what is on its way to a copy. */
static void large(void) {
  const int count = 6 << 20;
  int* data = malloc(sizeof(int) * (size_t)count);
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < count; ++i) data[i] = i * (turn + 3);
    OK(MPI_Bcast(data, count, MPI_INT, turn % size, MPI_COMM_WORLD));
    MPI_Datatype every;
    OK(MPI_Type_vector(count / 4, 1, 2, MPI_INT, &every));
    OK(MPI_Type_commit(&every));
    OK(MPI_Sendrecv(data, count / 4, MPI_INT, (rank + 1) % size, 5, data + count / 2, 1, every,
                    (rank + size - 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Type_free(&every));
    note(data + count / 2, 4096);
  }
  free(data);
}

/* Steps of which one goes wrong. */
static void steps(void) {
  double value = rank + 1, sum = 0, came = 0;
  for (int step = 0; step < 40; ++step) {
    const int now = step == 20;
    if (now && wrong("bit")) ((unsigned char*)&value)[3] ^= 4;
    if (now && wrong("exit")) exit(7);
    if (now && wrong("abort")) MPI_Abort(MPI_COMM_WORLD, 8);
    for (const struct timespec pause = {1, 0}; now && wrong("loop");) nanosleep(&pause, NULL);
    if (now && wrong("way")) OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Sendrecv(&value, now && wrong("size") ? 0 : 1, MPI_DOUBLE, (rank + 1) % size, 1, &came, 1, MPI_DOUBLE,
                    (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    value = value * 0.5 + came * 0.25 + sum / size;
  }
  note(&value, sizeof(value));
}

/* Split collective file access: what a rank writes depends on what it has read. */
static void split(const char* name) {
  enum { kCount = 24 };
  double data[kCount], came[2 * kCount];
  MPI_File file;
  MPI_Status status;
  MPI_Datatype every;
  const MPI_Offset bytes = kCount * (MPI_Offset)sizeof(double);
  OK(MPI_Type_vector(kCount, 1, 2, MPI_DOUBLE, &every));
  OK(MPI_Type_commit(&every));
  OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  for (int i = 0; i < kCount; ++i) data[i] = rank + i * 0.5;
  for (int i = 0; i < 2 * kCount; ++i) came[i] = 0;
  for (int step = 0; step < 12; ++step) {
    int count = 0;
    if (step == 6 && wrong("bit")) ((unsigned char*)&data[7])[6] ^= 4;
    OK(MPI_File_write_at_all_begin(file, rank * bytes, data, kCount, MPI_DOUBLE));
    OK(MPI_File_write_at_all_end(file, data, &status));
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == kCount);
    OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(file));
    if (step % 2 == 0) {
      OK(MPI_File_read_at_all_begin(file, (rank + 1) % size * bytes, came, 1, every));
      OK(MPI_File_read_at_all_end(file, came, &status));
    } else {
      OK(MPI_File_seek(file, (rank + 1) % size * bytes, MPI_SEEK_SET));
      OK(MPI_File_read_all_begin(file, came, 1, every));
      OK(MPI_File_read_all_end(file, came, MPI_STATUS_IGNORE));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < kCount; ++i) data[i] = (data[i] + came[2 * i]) * 0.5 + step + i;
  }
  note(data, sizeof(data));
  OK(MPI_File_close(&file));
  OK(MPI_Type_free(&every));
}

/* Partitioned messages, of which partitions are read as soon as they have come. */
static int partitions(void) {
#if MPI_VERSION >= 4
  enum { kParts = 4, kEach = 6 };
  double out[kParts * kEach], in[kParts * kEach];
  MPI_Request requests[2];
  OK(MPI_Psend_init(out, kParts, kEach, MPI_DOUBLE, (rank + 1) % size, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
  OK(MPI_Precv_init(in, kParts, kEach, MPI_DOUBLE, (rank + size - 1) % size, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                    &requests[1]));
  for (int i = 0; i < kParts * kEach; ++i) out[i] = rank + i, in[i] = 0;
  for (int step = 0; step < 12; ++step) {
    double early = 0;
    if (step == 6 && wrong("bit")) ((unsigned char*)&out[7])[6] ^= 4;
    OK(MPI_Startall(2, requests));
    for (int i = 0; i < kParts; ++i) OK(MPI_Pready((i + step) % kParts, requests[0]));
    for (int i = 0, came = 0; step % 3 != 2 && i < kParts; ++i) {
      for (came = 0; !came;) OK(MPI_Parrived(requests[1], i, &came));
      early += in[i * kEach + step % kEach];
    }
    if (step % 2 == 0) OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    else OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE)), OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    for (int i = 0; i < kParts * kEach; ++i) out[i] = (out[i] + in[kParts * kEach - 1 - i]) * 0.5 + early + step;
  }
  note(out, sizeof(out));
  OK(MPI_Request_free(&requests[0]));
  OK(MPI_Request_free(&requests[1]));
  return 1;
#else
  return 0;
#endif
}

/* Two ranks that wait for each other. */
static void deadlock(void) {
  int value = 0;
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (rank < 2) OK(MPI_Recv(&value, 1, MPI_INT, 1 - rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  int has = 1;
  CHECK(argc >= 2 && size <= 8);
  if (strcmp(argv[1], "topologies") == 0) topologies();
  else if (strcmp(argv[1], "messages") == 0) messages();
  else if (strcmp(argv[1], "large") == 0) large();
  else if (strcmp(argv[1], "deadlock") == 0) deadlock();
  else if (strcmp(argv[1], "split") == 0 && argc > 2) split(argv[2]);
  else if (strcmp(argv[1], "partitions") == 0) has = partitions();
  else steps();
  unsigned long long all[8];
  /* Of rank 0's own order of messages nothing is said. */
  if (strcmp(argv[1], "messages") == 0) digest = 0;
  OK(MPI_Gather(&digest, 1, MPI_UNSIGNED_LONG_LONG, all, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD));
  for (int i = 0; rank == 0 && has && i < size; ++i) printf("rank %d: %016llx\n", i, all[i]);
  OK(MPI_Finalize());
  return has ? 0 : 77; /* this MPI has no partitioned messages */
}
