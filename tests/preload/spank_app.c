// SPDX-License-Identifier: Apache-2.0
//
// What a step of Slurm runs in the tests of --resil: each rank exchanges messages first; then the program ends by
// itself, hangs (argument `hang`), or waits to be ended (`wait NAME`: NAME-RANK is made before that).
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, size, out[100], in[100];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 100; ++k) out[k] = 1000 * rank + i + k;
    MPI_Sendrecv(out, 100, MPI_INT, (rank + 1) % size, 7, in, 100, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  if (argc > 1 && strcmp(argv[1], "hang") == 0 && rank == 0)
    MPI_Recv(in, 1, MPI_INT, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (argc > 2 && strcmp(argv[1], "wait") == 0) {
    char name[1000];
    snprintf(name, sizeof(name), "%s-%d", argv[2], rank);
    fclose(fopen(name, "w"));
    for (;;) usleep(100000);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks\n", size);
  return MPI_Finalize();
}
