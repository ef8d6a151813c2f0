// SPDX-License-Identifier: Apache-2.0
//
// Derived datatypes: each constructor, resized, subarray and darray, used in messages and collectives; pack and
// unpack; Get_elements of a partial arrival; types freed while in use; duplicates; contents.
//
// ranks: 2
// calls: MPI_Type_contiguous=1 MPI_Type_vector=2 MPI_Type_create_hvector=1 MPI_Type_indexed=1
// calls: MPI_Type_create_hindexed=1 MPI_Type_create_indexed_block=1 MPI_Type_create_struct=1
// calls: MPI_Type_create_resized=1 MPI_Type_create_subarray=1 MPI_Type_create_darray=1 MPI_Type_dup=1
// calls: MPI_Type_commit=10 MPI_Type_free=13 MPI_Pack=1 MPI_Unpack=1 MPI_Pack_size=1 MPI_Sendrecv=10 MPI_Allgather=1
// calls: MPI_Get_elements=1 MPI_Type_get_envelope=1 MPI_Type_get_contents=1 MPI_Get_address=2
#include <mpi.h>
#include <stddef.h>
#include <string.h>

#include "check.h"

enum { kSide = 16 };

static int me;
static int out[kSide * kSide], in[kSide * kSide];
static unsigned long total;

// Exchanges one element of the type and frees the type.
static void exchange(MPI_Datatype type) {
  int bytes;
  MPI_Aint lower, extent;
  OK(MPI_Type_commit(&type));
  OK(MPI_Type_size(type, &bytes));
  OK(MPI_Type_get_extent(type, &lower, &extent));
  memset(in, 0xff, sizeof in);
  OK(MPI_Sendrecv(out, 1, type, 1 - me, 0, in, 1, type, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  OK(MPI_Type_free(&type));
  CHECK(type == MPI_DATATYPE_NULL);
  int landed = 0;
  for (int i = 0; i < kSide * kSide; i++)
    if (in[i] != -1) {
      landed++;
      CHECK(in[i] == out[i]);
    }
  CHECK(landed * (int)sizeof(int) == bytes);
  total = total * 31 + (unsigned long)bytes * 7 + (unsigned long)extent;
}

static void constructors(void) {
  MPI_Datatype type, inner;
  int lengths[3] = {1, 2, 3}, at[3] = {0, 5, 10}, sizes[2] = {kSide, kSide}, subsizes[2] = {4, 5}, starts[2] = {2, 3};
  MPI_Aint at_bytes[3] = {0, 40, 80};
  OK(MPI_Type_contiguous(17, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_vector(kSide, 1, kSide, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_create_hvector(3, 2, 64, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_indexed(3, lengths, at, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_create_hindexed(3, lengths, at_bytes, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_create_indexed_block(3, 2, at, MPI_INT, &type));
  exchange(type);
  OK(MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type));
  exchange(type);
  int distributions[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
  int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {2, 1};
  OK(MPI_Type_create_darray(2, 0, 2, sizes, distributions, arguments, grid, MPI_ORDER_C, MPI_INT, &type));
  exchange(type);
  // A nested type whose inner type is freed before it is used.
  OK(MPI_Type_vector(2, 1, 3, MPI_INT, &inner));
  OK(MPI_Type_create_resized(inner, 0, 40, &type));
  OK(MPI_Type_free(&inner));
  int count[4], ints[1];
  MPI_Aint addresses[2];
  MPI_Datatype types[1];
  OK(MPI_Type_get_envelope(type, &count[0], &count[1], &count[2], &count[3]));
  CHECK(count[0] == 0 && count[1] == 2 && count[2] == 1 && count[3] == MPI_COMBINER_RESIZED);
  OK(MPI_Type_get_contents(type, 0, 2, 1, ints, addresses, types));
  CHECK(addresses[1] == 40);
  OK(MPI_Type_free(&types[0]));
  exchange(type);
}

struct particle {
  char kind;
  double position[3];
  int id;
};

// A structure with padding, arrays of it, a partial arrival, pack and unpack.
static void structures(void) {
  struct particle mine[4], theirs[4], all[8], base = {0};
  MPI_Datatype fields[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, type, copy;
  int lengths[3] = {1, 3, 1}, elements, position = 0, size;
  MPI_Aint at[3], start, third;
  MPI_Status status;
  OK(MPI_Get_address(&base, &start));
  OK(MPI_Get_address(&base.id, &third));
  at[0] = offsetof(struct particle, kind);
  at[1] = offsetof(struct particle, position);
  at[2] = third - start;
  CHECK(at[2] == offsetof(struct particle, id));
  OK(MPI_Type_create_struct(3, lengths, at, fields, &type));
  OK(MPI_Type_commit(&type));
  memset(mine, me ? 0x55 : 0xaa, sizeof mine);  // padding differs between the ranks
  for (int k = 0; k < 4; k++) {
    mine[k].kind = (char)('a' + k);
    mine[k].id = 10 * me + k;
    for (int d = 0; d < 3; d++) mine[k].position[d] = k + 0.25 * d;
  }
  OK(MPI_Sendrecv(mine, 3, type, 1 - me, 1, theirs, 4, type, 1 - me, 1, MPI_COMM_WORLD, &status));
  OK(MPI_Get_elements(&status, type, &elements));
  CHECK(elements == 15);
  for (int k = 0; k < 3; k++) CHECK(theirs[k].id == 10 * (1 - me) + k && theirs[k].position[2] == k + 0.5);
  OK(MPI_Type_dup(type, &copy));
  OK(MPI_Type_free(&type));
  OK(MPI_Allgather(mine, 4, copy, all, 4, copy, MPI_COMM_WORLD));
  CHECK(all[7].id == 13 && all[4].kind == 'a');
  OK(MPI_Pack_size(4, copy, MPI_COMM_WORLD, &size));
  char* packed = malloc((size_t)size);
  OK(MPI_Pack(mine, 4, copy, packed, size, &position, MPI_COMM_WORLD));
  position = 0;
  OK(MPI_Unpack(packed, size, &position, theirs, 4, copy, MPI_COMM_WORLD));
  CHECK(theirs[3].id == 10 * me + 3);
  free(packed);
  OK(MPI_Type_free(&copy));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  for (int i = 0; i < kSide * kSide; i++) out[i] = 3 * i + 1;
  constructors();
  structures();
  OK(MPI_Finalize());
  if (me == 0) printf("datatypes %016lx\n", total);
  return 0;
}
