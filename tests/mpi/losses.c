// SPDX-License-Identifier: Apache-2.0
//
// Does an MPI lose or change messages by itself? Point-to-point messages of all sizes beside collectives, whose
// contents say what they are. By hand, without the library: mpicc losses.c; losses SEED ROUNDS. It prints "good", or
// says what came in place of what and ends with status 1; a lost message is a run that does not end. Results:
// docs/PLATFORMS.md.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 1 << 20, kEach = 6 };

static int rank, size, round_number;
static unsigned long long state;

static unsigned chance(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

static void wrong(const char* what, long place, long got, long wanted) {
  fprintf(stderr, "rank %d, round %d: %s, place %ld: %ld, not %ld\n", rank, round_number, what, place, got, wanted);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int from, int to, int number, size_t i) {
  return (unsigned char)(from * 31 + to * 17 + number * 7 + round_number * 3 + i + (i >> 9));
}

static int size_of(unsigned kind) {
  static const int sizes[] = {0, 1, 8, 100, 1000, 4000, 8000, 8192, 16000, 65536, 70000, 300000, 1000000};
  return sizes[kind % (sizeof(sizes) / sizeof(*sizes))];
}

/// Every rank knows the plan of all: kEach messages between each pair.
static void messages(void) {
  static char *out[64 * kEach], *in[64 * kEach];
  MPI_Request requests[2 * 64 * kEach];
  int bytes[64][64][kEach], count = 0;
  const int any = (int)chance(3), barrier = (int)chance(2);
  for (int a = 0; a < size; a++)
    for (int b = 0; b < size; b++)
      for (int k = 0; k < kEach; k++) bytes[a][b][k] = size_of(chance(100) < 90 ? chance(9) : chance(13));
  const int late = (int)chance(2);
  for (int pass = 0; pass < 2; pass++) {
    if ((pass == 0) == (late == 0 || rank % 2 == 0))
      for (int a = 0; a < size; a++)
        for (int k = 0; k < kEach; k++) {
          if (a == rank) continue;
          char** room = &in[a * kEach + k];
          *room = malloc(kMost + 16);
          MPI_Irecv(*room, kMost, MPI_BYTE, a, any == 0 ? MPI_ANY_TAG : k, MPI_COMM_WORLD, &requests[count++]);
        }
    else
      for (int k = 0; k < kEach; k++)
        for (int b = 0; b < size; b++) {
          if (b == rank) continue;
          char** data = &out[b * kEach + k];
          *data = malloc(kMost + 16);
          for (int i = 0; i < bytes[rank][b][k]; i++) (*data)[i] = (char)byte_of(rank, b, k, i);
          MPI_Isend(*data, bytes[rank][b][k], MPI_BYTE, b, k, MPI_COMM_WORLD, &requests[count++]);
        }
  }
  if (barrier) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int a = 0; a < size; a++)
    for (int k = 0; k < kEach; k++) {
      if (a == rank) continue;
      const unsigned char* got = (unsigned char*)in[a * kEach + k];
      for (int i = 0; i < bytes[a][rank][k]; i++)
        if (got[i] != byte_of(a, rank, k, i)) wrong("message", i, got[i], byte_of(a, rank, k, i));
      free(in[a * kEach + k]);
      free(out[a * kEach + k]);
    }
}

static void collectives(void) {
  static long here[1 << 16], there[1 << 18];
  static const int counts[] = {1, 3, 100, 1000, 8192};
  for (int i = 0; i < 12; i++) {
    const int count = counts[chance(5)], root = (int)chance(size), many = count > 1000 ? 1000 : count;
    switch (chance(7)) {
      case 0:
        for (int k = 0; k < count; k++) here[k] = rank + k;
        MPI_Allreduce(here, there, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
          if (there[k] != (long)size * (size - 1) / 2 + (long)size * k) wrong("allreduce", k, there[k], 0);
        break;
      case 1:
        for (int k = 0; k < count; k++) here[k] = rank == root ? k * 3 + i : -1;
        MPI_Bcast(here, count, MPI_LONG, root, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
          if (here[k] != k * 3 + i) wrong("bcast", k, here[k], k * 3 + i);
        break;
      case 2:
        for (int k = 0; k < size * many; k++) here[k] = rank * 1000 + k / many;
        MPI_Alltoall(here, many, MPI_LONG, there, many, MPI_LONG, MPI_COMM_WORLD);
        for (int k = 0; k < size * many; k++)
          if (there[k] != k / many * 1000 + rank) wrong("alltoall", k, there[k], k / many * 1000 + rank);
        break;
      case 3:
        for (int k = 0; k < count; k++) here[k] = rank + 1;
        MPI_Reduce(here, there, count, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
        for (int k = 0; rank == root && k < count; k++)
          if (there[k] != size) wrong("reduce", k, there[k], size);
        break;
      case 4:
        for (int k = 0; k < many; k++) here[k] = rank;
        MPI_Gather(here, many, MPI_LONG, there, many, MPI_LONG, root, MPI_COMM_WORLD);
        for (int k = 0; rank == root && k < size * many; k++)
          if (there[k] != k / many) wrong("gather", k, there[k], k / many);
        break;
      case 5:
        for (int k = 0; k < many; k++) here[k] = rank;
        MPI_Allgather(here, many, MPI_LONG, there, many, MPI_LONG, MPI_COMM_WORLD);
        for (int k = 0; k < size * many; k++)
          if (there[k] != k / many) wrong("allgather", k, there[k], k / many);
        break;
      default: {
        MPI_Request requests[3];
        long sum = 0, one = rank, all = root == rank ? 5 : 0;
        MPI_Iallreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Ibcast(&all, 1, MPI_LONG, root, MPI_COMM_WORLD, &requests[1]);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        if (sum != (long)size * (size - 1) / 2) wrong("iallreduce", 0, sum, 0);
        if (all != 5) wrong("ibcast", 0, all, 5);
      }
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  const int rounds = argc > 2 ? atoi(argv[2]) : 100;
  for (round_number = 0; round_number < rounds; round_number++) {
    if (chance(2)) messages();
    collectives();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("good\n");
  MPI_Finalize();
  return 0;
}
