// SPDX-License-Identifier: Apache-2.0
//
// What a job leaves behind (files_test.py): messages, then an end. Arguments: `killed` (rank 1 dies while the others
// wait for it), `late` (rank 1 dies within MPI_Finalize, before MPI itself begins with it).
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int die(MPI_Comm comm, int key, void* value, void* state) {
  (void)comm, (void)key, (void)value, (void)state;
  return raise(SIGKILL);
}

int main(int argc, char** argv) {
  int rank, size, key, out[100], in[100];
  const char* how = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 100; ++k) out[k] = 1000 * rank + i + k;
    MPI_Sendrecv(out, 100, MPI_INT, (rank + 1) % size, 7, in, 100, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  if (rank == 1 && strcmp(how, "killed") == 0) raise(SIGKILL);
  if (rank == 1 && strcmp(how, "late") == 0) {
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, die, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks\n", size);
  return MPI_Finalize();
}
