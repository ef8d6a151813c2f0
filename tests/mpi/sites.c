// SPDX-License-Identifier: Apache-2.0
//
// Calls MPI through shared libraries in Fortran, which it loads and unloads, and itself. What it prints says where they
// lay.
//
// sites LIBRARY WHAT [LIBRARY WHAT]...   LIBRARY: a path; "+PATH": and unload it afterwards; "main"
//                                        WHAT: 1 MPI_Allreduce, 2 a message, 3 a deadlock of two ranks
// The value of step DIFFERS_AT (from 0; environment) is another one on rank 1.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <string.h>

#include "check.h"

static void own_step(int* what, double* value) {
  double total = 0, many[64] = {*value};
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (*what == 1) {
    MPI_Allreduce(value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    *value = total;
  } else if (*what == 3) {
    MPI_Recv(many, 64, MPI_DOUBLE, 1 - rank, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == 0) {
    MPI_Send(many, 64, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
  } else {
    MPI_Recv(many, 64, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* differs = getenv("DIFFERS_AT");
  for (int i = 1; i + 1 < argc; i += 2) {
    double value = i;
    int what = atoi(argv[i + 1]);
    if (differs && rank == 1 && (i - 1) / 2 == atoi(differs)) value += 0.5;
    if (strcmp(argv[i], "main") == 0) {
      own_step(&what, &value);
      continue;
    }
    void* library = dlopen(argv[i] + (argv[i][0] == '+'), RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    void (*step)(int*, double*) = (void (*)(int*, double*))dlsym(library, "step_");
    CHECK(step);
    struct link_map* map;
    CHECK(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    if (rank == 0) printf("%s at %lx\n", argv[i], (unsigned long)map->l_addr);
    step(&what, &value);
    if (argv[i][0] == '+') CHECK(dlclose(library) == 0);
  }
  MPI_Finalize();
  return 0;
}
