// SPDX-License-Identifier: Apache-2.0
//
// What a node full of ranks pays: a line "node" for each rank with seconds and processor time of MPI_Init, those of
// MPI_Finalize, and private memory in KiB after messages with all ranks; from rank 0 "shm" and the bytes that files of
// libresil.so take of /dev/shm.
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "nap.h"

struct moment {
  double wall, processor;
};

static struct moment now(void) {
  struct timespec time;
  struct rusage usage;
  clock_gettime(CLOCK_MONOTONIC, &time);
  getrusage(RUSAGE_SELF, &usage);
  return (struct moment){(double)time.tv_sec + 1e-9 * (double)time.tv_nsec,
                         (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                             1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)};
}

static long private_memory(void) {
  char line[256];
  long value, sum = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Private_Clean: %ld", &value) == 1 || sscanf(line, "Private_Dirty: %ld", &value) == 1)
      sum += value;
  if (file != NULL) fclose(file);
  return sum;
}

/// Of this job's files: their names begin as that of the recorder that is mapped here, up to the world's number.
static long shared_files(void) {
  char line[512], begin[256] = "", path[600];
  long bytes = 0;
  FILE* file = fopen("/proc/self/maps", "r");
  while (file != NULL && begin[0] == 0 && fgets(line, sizeof line, file) != NULL)
    if (strstr(line, "/dev/shm/resil-") != NULL && strstr(line, ".ring") != NULL)
      sscanf(strstr(line, "/dev/shm/") + 9, "%255[^\n]", begin);
  if (file != NULL) fclose(file);
  char* end = begin;
  for (int dashes = 0; *end != 0 && dashes < 3; end++) dashes += *end == '-';  // resil-UID-LAUNCH-
  *end = 0;
  DIR* folder = opendir("/dev/shm");
  for (struct dirent* entry; begin[0] != 0 && folder != NULL && (entry = readdir(folder)) != NULL;) {
    struct stat state;
    if (strncmp(entry->d_name, begin, strlen(begin)) != 0) continue;
    snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
    if (stat(path, &state) == 0) bytes += (long)state.st_blocks * 512;
  }
  if (folder != NULL) closedir(folder);
  return bytes;
}

int main(int argc, char** argv) {
  int me, size, in[4] = {0}, out[4] = {0};
  double terms[4] = {1, 2, 3, 4}, sums[4];
  const struct moment begin = now();
  MPI_Init(&argc, &argv);
  const struct moment ready = now();
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int* blocks = calloc(2 * (size_t)size, sizeof *blocks);
  for (int round = 0; round < 20; round++) {
    MPI_Request requests[2];
    MPI_Irecv(in, 4, MPI_INT, (me + size - 1) % size, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, 4, MPI_INT, (me + 1) % size, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Allreduce(terms, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (argc > 1) MPI_Alltoall(blocks, 1, MPI_INT, blocks + size, 1, MPI_INT, MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const long memory = private_memory(), shared = me == 0 ? shared_files() : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const struct moment last = now();
  MPI_Finalize();
  const struct moment over = now();
  printf("node %.6f %.6f %.6f %.6f %ld\n", ready.wall - begin.wall, ready.processor - begin.processor,
         over.wall - last.wall, over.processor - last.processor, memory);
  if (me == 0) printf("shm %ld\n", shared);
  free(blocks);
  return 0;
}
