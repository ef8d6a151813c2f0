// SPDX-License-Identifier: Apache-2.0
//
// A tool between the library and MPI, for growth.c: when MPI's part of a collective is over, the rank that is counted
// sleeps until the others have done theirs. So what it does then is work, and no wait. It asks MPI's own file for the
// functions: PMPI_ would be the library's again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>

#include "growth.h"

long growth_nap;  // the program's goes before; others have none

static int after(int result) {
  if (growth_nap != 0) growth_sleep();
  return result;
}

static void* function(const char* name) {
  static const char* const kLibraries[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.80"};
  for (unsigned i = 0; i < sizeof kLibraries / sizeof *kLibraries; i++) {
    void* library = dlopen(kLibraries[i], RTLD_LAZY | RTLD_NOLOAD);
    void* found = library != NULL ? dlsym(library, name) : NULL;
    if (found != NULL) return found;
  }
  abort();
}
#define REAL(name)                  \
  static __typeof__(&P##name) real; \
  if (real == NULL) real = (__typeof__(&P##name))function("P" #name)

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  REAL(MPI_Allreduce);
  return after(real(in, out, count, type, op, comm));
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  REAL(MPI_Bcast);
  return after(real(data, count, type, root, comm));
}
int MPI_Gather(const void* in, int count, MPI_Datatype type, void* out, int out_count, MPI_Datatype out_type, int root,
               MPI_Comm comm) {
  REAL(MPI_Gather);
  return after(real(in, count, type, out, out_count, out_type, root, comm));
}
int MPI_Alltoall(const void* in, int count, MPI_Datatype type, void* out, int out_count, MPI_Datatype out_type,
                 MPI_Comm comm) {
  REAL(MPI_Alltoall);
  return after(real(in, count, type, out, out_count, out_type, comm));
}
