// SPDX-License-Identifier: Apache-2.0
//
// Notes what comes behind hang_inject.c: a line for each message ("MPI_Send 5", the tag), each Barrier and Allreduce,
// written to the file CALL_WITNESS.RANK before the call goes on. Both layers, as there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread int depth;

static void note(const char* name, int tag) {
  static int file = -2;
  char text[1024];
  if (file == -2) {
    const char* rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    const char* path = getenv("CALL_WITNESS");
    snprintf(text, sizeof text, "%s.%s", path ? path : "", rank ? rank : "");
    file = path ? open(text, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  }
  const int length =
      tag < 0 ? snprintf(text, sizeof text, "%s\n", name) : snprintf(text, sizeof text, "%s %d\n", name, tag);
  if (file >= 0 && write(file, text, (size_t)length) != length) perror("call_witness");
}

#define ONE(symbol, name, tag, parameters, arguments) \
  int symbol parameters {                             \
    static void* next;                                \
    if (!next) next = dlsym(RTLD_NEXT, #symbol);      \
    if (depth == 0) note(name, tag);                  \
    int(*call) parameters;                            \
    memcpy(&call, &next, sizeof next);                \
    depth++;                                          \
    const int out = call arguments;                   \
    depth--;                                          \
    return out;                                       \
  }
#define BOTH(name, tag, parameters, arguments) \
  ONE(MPI_##name, "MPI_" #name, tag, parameters, arguments) ONE(PMPI_##name, "MPI_" #name, tag, parameters, arguments)

BOTH(Send, g, (const void* b, int n, MPI_Datatype t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
BOTH(Isend, g, (const void* b, int n, MPI_Datatype t, int d, int g, MPI_Comm c, MPI_Request* r), (b, n, t, d, g, c, r))
BOTH(Barrier, -1, (MPI_Comm c), (c))
BOTH(Allreduce, -1, (const void* s, void* b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
