/* SPDX-License-Identifier: Apache-2.0
 *
 * resil doctor: two ranks that send each other known messages, and with the argument `hang` then wait for ever. Each
 * says which file's handler takes the signal of dumps after MPI_Init.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMessages = 20, kWords = 128 };

static const char* owner_of(int number) {
  struct sigaction now;
  Dl_info info;
  if (sigaction(number, NULL, &now) != 0) return "unknown";
  if (now.sa_handler == SIG_DFL) return "default";
  if (now.sa_handler == SIG_IGN) return "ignored";
  return dladdr(now.sa_flags & SA_SIGINFO ? (void*)now.sa_sigaction : (void*)now.sa_handler, &info) && info.dli_fname
             ? info.dli_fname
             : "unknown";
}

int main(int argc, char** argv) {
  int rank, size, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char host[MPI_MAX_PROCESSOR_NAME], line[8192];
  int length;
  MPI_Get_processor_name(host, &length);
  length = snprintf(line, sizeof line, "RESIL-DOCTOR %d %d %s %s\n", rank, size, host, owner_of(SIGHUP));
  fwrite(line, 1, (size_t)length, stdout);
  fflush(stdout);
  if (size != 2) {
    MPI_Finalize();
    return 3;
  }
  for (int i = 0; i < kMessages; ++i) {
    long words[kWords];
    for (int j = 0; j < kWords; ++j) words[j] = 1000L * i + j;
    if (rank == 0) MPI_Send(words, kWords, MPI_LONG, 1, i, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(words, kWords, MPI_LONG, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int j = 0; j < kWords; ++j) wrong += words[j] != 1000L * i + j;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (argc > 1 && strcmp(argv[1], "hang") == 0) { /* rank 0 waits for what nobody sends, rank 1 for rank 0 */
    if (rank == 0) MPI_Recv(&wrong, 1, MPI_INT, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
