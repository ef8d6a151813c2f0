// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move data, sum integers or reduce floating numbers, blocking and nonblocking, with MPI_IN_PLACE, on
// a graph, over eight datatypes, 1 B to 256 KiB a block. Each has a content of its own and fresh receive buffers.
// Counts the results that are wrong.
//
// collectives ROUNDS [SEED [LARGEST]]
#include "traffic.h"

enum { kMostRanks = 16, kMostBlock = 1 << 18 };

static int me, ranks;
static char *out, *in;
static uint64_t seed;
static MPI_Comm ring;  ///< each rank gives to the next one

typedef struct {
  const Type* type;
  int count;  ///< elements of a block
  int root;
  uint64_t round;
} Call;

/// What rank `from` has for rank `to` in this call (to: 0 when all get the same).
static uint64_t number(const Call* c, int from, int to) {
  return (seed << 52) ^ (1ULL << 51) ^ (c->round << 12) ^ ((uint64_t)from << 6) ^ (uint64_t)to;
}
static size_t block_bytes(const Call* c) { return (size_t)c->count * (size_t)c->type->extent; }
static char* block(char* buffer, const Call* c, int i) { return buffer + (size_t)i * block_bytes(c); }
static void fill_block(const Call* c, int i, int to) { fill(number(c, me, to), c->type, c->count, block(out, c, i)); }
static void clear_blocks(const Call* c, int blocks) { clear(number(c, me, 63), c->type, c->count * blocks, in); }
static void look_block(const Call* c, int i, int from, int to) {
  look(number(c, from, to), c->type, c->count, block(in, c, i));
}

static void bcast(const Call* c, int nonblocking) {
  MPI_Request request;
  clear_blocks(c, 1);
  if (me == c->root) fill(number(c, me, 0), c->type, c->count, in);
  if (nonblocking) {
    MUST(MPI_Ibcast(in, c->count, c->type->type, c->root, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    MUST(MPI_Bcast(in, c->count, c->type->type, c->root, MPI_COMM_WORLD));
  }
  look_block(c, 0, c->root, 0);
}

static void gather(const Call* c, int with_counts) {
  int counts[kMostRanks], displacements[kMostRanks];
  fill_block(c, 0, 0);
  if (me == c->root) clear_blocks(c, ranks);
  for (int i = 0; i < ranks; i++) {
    counts[i] = c->count;
    displacements[i] = (ranks - 1 - i) * c->count;
  }
  if (with_counts)
    MUST(MPI_Gatherv(out, c->count, c->type->type, in, counts, displacements, c->type->type, c->root, MPI_COMM_WORLD));
  else MUST(MPI_Gather(out, c->count, c->type->type, in, c->count, c->type->type, c->root, MPI_COMM_WORLD));
  for (int i = 0; me == c->root && i < ranks; i++) look_block(c, with_counts ? ranks - 1 - i : i, i, 0);
}

static void scatter_to_all(const Call* c, int with_counts) {
  int counts[kMostRanks], displacements[kMostRanks];
  for (int i = 0; i < ranks; i++) {
    counts[i] = c->count;
    displacements[i] = (ranks - 1 - i) * c->count;
    if (me == c->root) fill_block(c, with_counts ? ranks - 1 - i : i, i);
  }
  clear_blocks(c, 1);
  if (with_counts)
    MUST(MPI_Scatterv(out, counts, displacements, c->type->type, in, c->count, c->type->type, c->root, MPI_COMM_WORLD));
  else MUST(MPI_Scatter(out, c->count, c->type->type, in, c->count, c->type->type, c->root, MPI_COMM_WORLD));
  look_block(c, 0, c->root, me);
}

static void allgather(const Call* c, int way) {
  int counts[kMostRanks], displacements[kMostRanks];
  MPI_Request request;
  for (int i = 0; i < ranks; i++) {
    counts[i] = c->count;
    displacements[i] = (ranks - 1 - i) * c->count;
  }
  fill_block(c, 0, 0);
  clear_blocks(c, ranks);
  if (way == 0) {
    MUST(MPI_Allgather(out, c->count, c->type->type, in, c->count, c->type->type, MPI_COMM_WORLD));
  } else if (way == 1) {
    MUST(MPI_Allgatherv(out, c->count, c->type->type, in, counts, displacements, c->type->type, MPI_COMM_WORLD));
  } else {
    MUST(MPI_Iallgather(out, c->count, c->type->type, in, c->count, c->type->type, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  for (int i = 0; i < ranks; i++) look_block(c, way == 1 ? ranks - 1 - i : i, i, 0);
}

static void alltoall(const Call* c, int way) {
  int counts[kMostRanks], displacements[kMostRanks], bytes[kMostRanks];
  MPI_Datatype same_types[kMostRanks];
  MPI_Request request;
  for (int i = 0; i < ranks; i++) {
    counts[i] = c->count;
    displacements[i] = i * c->count;
    bytes[i] = (int)((size_t)i * block_bytes(c));
    same_types[i] = c->type->type;
    fill_block(c, i, i);
  }
  clear_blocks(c, ranks);
  if (way == 0) {
    MUST(MPI_Alltoall(out, c->count, c->type->type, in, c->count, c->type->type, MPI_COMM_WORLD));
  } else if (way == 1) {
    MUST(MPI_Alltoallv(out, counts, displacements, c->type->type, in, counts, displacements, c->type->type,
                       MPI_COMM_WORLD));
  } else if (way == 2) {
    MUST(MPI_Alltoallw(out, counts, bytes, same_types, in, counts, bytes, same_types, MPI_COMM_WORLD));
  } else {
    MUST(MPI_Ialltoall(out, c->count, c->type->type, in, c->count, c->type->type, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  for (int i = 0; i < ranks; i++) look_block(c, i, i, me);
}

static void look_at_sum(const Call* c, int count) {
  uint64_t *mine = (uint64_t*)out, *result = (uint64_t*)in, *expected = (uint64_t*)scratch, *other = expected + count;
  memcpy(expected, mine, (size_t)count * 8);
  for (int i = 0; i < ranks; i++) {
    if (i == me) continue;
    content(number(c, i, 0), (char*)other, (size_t)count * 8);
    for (int k = 0; k < count; k++) expected[k] += other[k];
  }
  if (memcmp(expected, result, (size_t)count * 8) == 0) right++;
  else wrong++;
}

/// Integer sums: everybody's contribution is known to everybody.
static void sum(const Call* c, int way) {
  const int count = (int)(block_bytes(c) / 8) + 1;
  uint64_t *mine = (uint64_t*)out, *result = (uint64_t*)in;
  content(number(c, me, 0), out, (size_t)count * 8);
  content(number(c, me, 63), in, (size_t)count * 8);
  if (way == 0) MUST(MPI_Allreduce(mine, result, count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
  else MUST(MPI_Reduce(mine, result, count, MPI_UINT64_T, MPI_SUM, c->root, MPI_COMM_WORLD));
  if (way == 0 || me == c->root) look_at_sum(c, count);
}

/// Integer sums that go on while the program does; the result is looked at as in sum().
static void sum_later(const Call* c, int way) {
  const int count = (int)(block_bytes(c) / 8) + 1;
  uint64_t *mine = (uint64_t*)out, *result = (uint64_t*)in;
  MPI_Request request;
  content(number(c, me, 0), out, (size_t)count * 8);
  content(number(c, me, 63), in, (size_t)count * 8);
  if (way == 0) MUST(MPI_Iallreduce(mine, result, count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, &request));
  else MUST(MPI_Ireduce(mine, result, count, MPI_UINT64_T, MPI_SUM, c->root, MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (way == 0 || me == c->root) look_at_sum(c, count);
}

/// The greatest of floating numbers, and sums of small whole ones: right to the last bit in any order.
static void floats(const Call* c, int way) {
  const int count = (int)(block_bytes(c) / 8) + 1;
  double *mine = (double*)out, *result = (double*)in;
  content(number(c, me, 63), in, (size_t)count * 8);
  for (int k = 0; k < count; k++) mine[k] = (double)(mixed(number(c, me, 0) + (uint64_t)k) % 1000003);
  MUST(MPI_Allreduce(mine, result, count, MPI_DOUBLE, way == 0 ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD));
  int good = 1;
  for (int k = 0; k < count; k++) {
    double expected = 0;
    for (int i = 0; i < ranks; i++) {
      const double x = (double)(mixed(number(c, i, 0) + (uint64_t)k) % 1000003);
      expected = way != 0 ? expected + x : x > expected ? x : expected;
    }
    good = good && memcmp(&expected, &result[k], 8) == 0;
  }
  if (good) right++;
  else wrong++;
}

/// MPI_IN_PLACE: what is given lies where the result goes.
static void in_place(const Call* c, int way) {
  clear_blocks(c, ranks);
  if (way == 0) {
    fill(number(c, me, 0), c->type, c->count, block(in, c, me));
    MUST(MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, in, c->count, c->type->type, MPI_COMM_WORLD));
    for (int i = 0; i < ranks; i++) look_block(c, i, i, 0);
  } else if (way == 1) {
    for (int i = 0; i < ranks; i++) fill(number(c, me, i), c->type, c->count, block(in, c, i));
    MUST(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_BYTE, in, c->count, c->type->type, MPI_COMM_WORLD));
    for (int i = 0; i < ranks; i++) look_block(c, i, i, me);
  } else if (way == 2) {
    fill(number(c, me, 0), c->type, c->count, me == c->root ? block(in, c, me) : out);
    MUST(MPI_Gather(me == c->root ? MPI_IN_PLACE : out, c->count, c->type->type, in, c->count, c->type->type, c->root,
                    MPI_COMM_WORLD));
    for (int i = 0; me == c->root && i < ranks; i++) look_block(c, i, i, 0);
  } else {
    for (int i = 0; me == c->root && i < ranks; i++) fill_block(c, i, i);
    MUST(MPI_Scatter(out, c->count, c->type->type, me == c->root ? MPI_IN_PLACE : in, c->count, c->type->type, c->root,
                     MPI_COMM_WORLD));
    if (me != c->root) look_block(c, 0, c->root, me);
  }
}

static void rooted_later(const Call* c, int way) {
  MPI_Request request;
  clear_blocks(c, ranks);
  if (way == 0) {
    fill_block(c, 0, 0);
    MUST(MPI_Igather(out, c->count, c->type->type, in, c->count, c->type->type, c->root, MPI_COMM_WORLD, &request));
  } else {
    for (int i = 0; me == c->root && i < ranks; i++) fill_block(c, i, i);
    MUST(MPI_Iscatter(out, c->count, c->type->type, in, c->count, c->type->type, c->root, MPI_COMM_WORLD, &request));
  }
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  for (int i = 0; way == 0 && me == c->root && i < ranks; i++) look_block(c, i, i, 0);
  if (way != 0) look_block(c, 0, c->root, me);
}

/// On a ring: each gives to the next one.
static void neighbours(const Call* c, int way) {
  const int before = (me + ranks - 1) % ranks;
  MPI_Request request;
  clear_blocks(c, 1);
  fill_block(c, 0, 0);
  if (way == 0) {
    MUST(MPI_Neighbor_allgather(out, c->count, c->type->type, in, c->count, c->type->type, ring));
  } else if (way == 1) {
    MUST(MPI_Neighbor_alltoall(out, c->count, c->type->type, in, c->count, c->type->type, ring));
  } else {
    MUST(MPI_Ineighbor_alltoall(out, c->count, c->type->type, in, c->count, c->type->type, ring, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  look_block(c, 0, before, 0);
}

int main(int argc, char** argv) {
  MUST(MPI_Init(&argc, &argv));
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
  seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  const size_t largest = argc > 3 ? strtoul(argv[3], NULL, 10) : kMostBlock;
  if (ranks > kMostRanks) MPI_Abort(MPI_COMM_WORLD, 4);
  scratch = malloc(kRoom);
  out = malloc((size_t)ranks * kRoom);
  in = malloc((size_t)ranks * kRoom);
  make_types();
  MUST(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, (int[]){(me + ranks - 1) % ranks}, (int[]){1}, 1,
                                      (int[]){(me + 1) % ranks}, (int[]){1}, MPI_INFO_NULL, 0, &ring));
  for (uint64_t round = 0; round < rounds; round++) {
    const uint64_t draw = mixed(seed * 7919 + round + 999);
    Call c = {&types[draw % kTypes], 0, (int)(draw / 8 % (uint64_t)ranks), round};
#ifdef MPICH_VERSION
    if (c.type == &types[5]) c.type = &types[4];  // 4.0.2 scatters a struct of mixed members wrongly by itself
#endif
    c.count = elements(c.type, some_size(draw / 128, largest < kMostBlock ? largest : kMostBlock));
    switch (mixed(seed * 7919 + round) % 21) {
      case 0: bcast(&c, 0); break;
      case 1: bcast(&c, 1); break;
      case 2: gather(&c, 0); break;
      case 3: gather(&c, 1); break;
      case 4: scatter_to_all(&c, 0); break;
      case 5: scatter_to_all(&c, 1); break;
      case 6:
      case 7: allgather(&c, (int)(draw / 64 % 3)); break;
      case 8:
      case 9: alltoall(&c, (int)(draw / 64 % 4)); break;
      case 10: sum(&c, 0); break;
      case 11: sum(&c, 1); break;
      case 12: sum_later(&c, (int)(draw / 64 % 2)); break;
      case 13: floats(&c, (int)(draw / 64 % 2)); break;
      case 14:
      case 15: in_place(&c, (int)(draw / 64 % 4)); break;
      case 16:
      case 17: rooted_later(&c, (int)(draw / 64 % 2)); break;
      case 18:
      case 19: neighbours(&c, (int)(draw / 64 % 3)); break;
      default: MUST(MPI_Barrier(MPI_COMM_WORLD));
    }
  }
  report_counts("collectives", me);
  free_types();
  MUST(MPI_Comm_free(&ring));
  MUST(MPI_Finalize());
  return 0;
}
