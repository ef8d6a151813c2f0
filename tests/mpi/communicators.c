// SPDX-License-Identifier: Apache-2.0
//
// Every way to make and free a communicator in MPI 3.1, groups, names, info, comparison, and handles that are
// freed and used again: 200 communicators in turn, traffic on each.
//
// ranks: 2
// calls: MPI_Comm_dup=202 MPI_Comm_split=2 MPI_Comm_dup_with_info=1 MPI_Comm_idup=1 MPI_Comm_create=2
// calls: MPI_Comm_create_group=1 MPI_Comm_split_type=1 MPI_Cart_create=1 MPI_Cart_sub=1 MPI_Graph_create=1
// calls: MPI_Dist_graph_create=1 MPI_Dist_graph_create_adjacent=1 MPI_Comm_free=214 MPI_Comm_compare=3
// calls: MPI_Allreduce=214 MPI_Comm_set_name=1 MPI_Comm_get_name=2 MPI_Group_free=3 MPI_Comm_disconnect=1
#include <mpi.h>
#include <string.h>

#include "check.h"

static int me, size;

// The sum of the ranks on `comm`, which frees it too.
static int use_and_free(MPI_Comm* comm) {
  int rank, sum;
  OK(MPI_Comm_rank(*comm, &rank));
  OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, *comm));
  OK(MPI_Comm_free(comm));
  CHECK(*comm == MPI_COMM_NULL);
  return sum;
}

static void duplicates(void) {
  MPI_Comm comm, other;
  MPI_Info info;
  MPI_Request request;
  char name[MPI_MAX_OBJECT_NAME];
  int length, result, sum = 0;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  OK(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result));
  CHECK(result == MPI_CONGRUENT);
  OK(MPI_Comm_compare(comm, comm, &result));
  CHECK(result == MPI_IDENT);
  OK(MPI_Comm_set_name(comm, "physics"));
  OK(MPI_Comm_get_name(comm, name, &length));
  CHECK(strcmp(name, "physics") == 0 && length == 7);
  OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
  CHECK(strcmp(name, "MPI_COMM_WORLD") == 0);
  OK(MPI_Comm_dup(comm, &other));
  sum += use_and_free(&other);
  OK(MPI_Info_create(&info));
  OK(MPI_Info_set(info, "key", "value"));
  OK(MPI_Comm_dup_with_info(comm, info, &other));
  OK(MPI_Info_free(&info));
  sum += use_and_free(&other);
  OK(MPI_Comm_idup(comm, &other, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  sum += use_and_free(&other);
  sum += use_and_free(&comm);
  for (int k = 0; k < 200; k++) {
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    sum += use_and_free(&comm);
  }
  CHECK(sum == 204);
}

static void subsets(void) {
  MPI_Comm comm;
  MPI_Group world, first, both;
  int zero = 0, result;
  OK(MPI_Comm_split(MPI_COMM_WORLD, 5, -me, &comm));
  CHECK(use_and_free(&comm) == 1);
  OK(MPI_Comm_split(MPI_COMM_WORLD, me == 0 ? 1 : MPI_UNDEFINED, 0, &comm));
  if (me == 0) CHECK(use_and_free(&comm) == 0);
  if (me == 1) CHECK(comm == MPI_COMM_NULL);
  OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
  OK(MPI_Group_incl(world, 1, &zero, &first));
  OK(MPI_Group_union(first, world, &both));
  OK(MPI_Comm_create(MPI_COMM_WORLD, both, &comm));
  OK(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result));
  CHECK(result == MPI_CONGRUENT);
  CHECK(use_and_free(&comm) == 1);
  OK(MPI_Comm_create(MPI_COMM_WORLD, first, &comm));
  if (me == 0) {
    OK(MPI_Comm_disconnect(&comm));
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, first, 42, &comm));
    CHECK(use_and_free(&comm) == 0);
  }
  OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm));
  OK(MPI_Comm_size(comm, &result));
  CHECK(use_and_free(&comm) == (result == 2));  // MPICH 5.0 over UCX shares no memory between ranks
  OK(MPI_Group_free(&both));
  OK(MPI_Group_free(&first));
  OK(MPI_Group_free(&world));
}

static void topologies(void) {
  MPI_Comm grid, row, comm;
  int dims[2] = {0, 1}, periods[2] = {1, 0}, keep[2] = {1, 0}, source, destination, kind, degrees[3];
  OK(MPI_Dims_create(size, 2, dims));
  OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid));
  OK(MPI_Topo_test(grid, &kind));
  CHECK(kind == MPI_CART);
  OK(MPI_Cart_shift(grid, 0, 1, &source, &destination));
  CHECK(source == destination && source != me);
  OK(MPI_Cart_sub(grid, keep, &row));
  CHECK(use_and_free(&row) == 1);
  CHECK(use_and_free(&grid) == 1);
  int index[2] = {1, 2}, edges[2] = {1, 0};
  OK(MPI_Graph_create(MPI_COMM_WORLD, 2, index, edges, 0, &comm));
  CHECK(use_and_free(&comm) == 1);
  int other = 1 - me, one = 1;
  OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &other, MPI_UNWEIGHTED, 1, &other, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                    0, &comm));
  OK(MPI_Dist_graph_neighbors_count(comm, &degrees[0], &degrees[1], &degrees[2]));
  CHECK(degrees[0] == 1 && degrees[1] == 1 && !degrees[2]);
  CHECK(use_and_free(&comm) == 1);
  OK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &me, &one, &other, &one, MPI_INFO_NULL, 0, &comm));
  CHECK(use_and_free(&comm) == 1);
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size == 2);
  duplicates();
  subsets();
  topologies();
  OK(MPI_Finalize());
  if (me == 0) printf("communicators of %d ranks\n", size);
  return 0;
}
