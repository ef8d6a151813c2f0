// SPDX-License-Identifier: Apache-2.0
//
// Resident memory of rank processes in two hard cases, as "name value KiB" lines of the kernel's own figures:
//   memory pending N      rank 1 posts N receives before rank 0 sends
//   memory silent N FILE  rank 1 calls no MPI while rank 0 sends it N small messages; FILE tells it when to go on
// VmRSS is measured before, at the worst moment and at the end; so is what maps files of resil (the rest of resil's
// memory is anonymous, and shows in the difference to a native run).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int me;

static void say(const char* moment) {
  char line[512];
  long resident = 0, own = 0, value;
  int inside = 0;
  FILE* file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "VmRSS: %ld", &value) == 1) resident = value;
  if (file) fclose(file);
  file = fopen("/proc/self/smaps", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "Rss: %ld", &value) == 1) {
      if (inside) own += value;
    } else if (strchr(line, '-') && strchr(line, ' ') && strchr(line, '-') < strchr(line, ' ')) {
      inside = strstr(line, "libresil.so") || strstr(line, "/resil-");
    }
  }
  if (file) fclose(file);
  printf("%s_rank%d %ld KiB\n%s_mapped_rank%d %ld KiB\n", moment, me, resident, moment, me, own);
  fflush(stdout);
}

static void pending(int count, int* data, MPI_Request* requests) {
  char go = 0;
  if (me == 1) {
    for (int k = 0; k < count; k++) MPI_Irecv(&data[k], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[k]);
    say("all_posted");
    MPI_Send(&go, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  } else {
    MPI_Recv(&go, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int k = 0; k < count; k++) MPI_Send(&data[k], 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    say("all_sent");
  }
}

static void silent(int count, int* data, MPI_Request* requests, const char* flag) {
  if (me == 0) {
    int done = 0, one;
    for (int k = 0; k < count; k++) MPI_Isend(&data[k], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[k]);
    say("all_sent");
    FILE* file = fopen(flag, "w");
    if (file) fclose(file);
    for (int k = 0; k < count; k++) {
      MPI_Test(&requests[k], &one, MPI_STATUS_IGNORE);
      if (!one) break;
      done++;
    }
    printf("sends_complete_before_any_receive %d messages\n", done);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  } else {
    while (access(flag, F_OK) != 0) usleep(1000);  // no MPI: that is the case
    for (int k = 0; k < count; k++) MPI_Recv(&data[k], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("all_received");
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  int* data = malloc(sizeof *data * ((size_t)count + 1));
  MPI_Request* requests = malloc(sizeof *requests * ((size_t)count + 1));
  if (count < 1 || !data || !requests) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int k = 0; k < count; k++) {
    data[k] = me == 0 ? k : -1;
    requests[k] = MPI_REQUEST_NULL;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  say("before");
  if (strcmp(argv[1], "pending") == 0) pending(count, data, requests);
  if (strcmp(argv[1], "silent") == 0 && argc > 3) silent(count, data, requests, argv[3]);
  for (int k = 0; k < count; k++)
    if (data[k] != k) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  say("after");
  MPI_Finalize();
  return 0;
}
