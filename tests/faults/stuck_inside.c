// SPDX-License-Identifier: Apache-2.0
//
// Below libresil.so, an MPI library that fails: MPI_Allreduce of rank STUCK_RANK, or of all with -1, does not return
// from the call after FOLDER/injected is due, though every rank has arrived. STUCK_LOSE: MPI_Send with tag 9 sends
// nothing. For scripts/campaign classes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Not PMPI_Allreduce: libresil.so comes before.
static void* next(const char* name) { return dlsym(RTLD_NEXT, name); }

int MPI_Allreduce(const void* give, void* get, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  static int calls;
  const char *rank = getenv("STUCK_RANK"), *folder = getenv("STUCK_FOLDER");
  int me;
  int (*allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) = next("PMPI_Allreduce");
  int (*rank_of)(MPI_Comm, int*) = next("PMPI_Comm_rank");
  const int status = allreduce(give, get, count, type, op, comm);
  if (rank == NULL || ++calls != 50) return status;
  rank_of(MPI_COMM_WORLD, &me);
  char path[4096];
  snprintf(path, sizeof(path), "%s/injected", folder);
  if (atoi(rank) == -1) {
    if (me == 0) close(open(path, O_CREAT | O_WRONLY, 0666));
    for (volatile int i = 0;; i = i + 1) {}
  }
  if (atoi(rank) != me) return status;
  close(open(path, O_CREAT | O_WRONLY, 0666));
  for (;;) pause();
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  if (getenv("STUCK_LOSE") != NULL && tag == 9) return MPI_SUCCESS;
  int (*send)(const void*, int, MPI_Datatype, int, int, MPI_Comm) = next("PMPI_Send");
  return send(data, count, type, to, tag, comm);
}
