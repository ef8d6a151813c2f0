// SPDX-License-Identifier: Apache-2.0
//
// Odd datatypes: no bytes, negative bounds and extents, overlapping elements, deep nests, absolute addresses, darray,
// subarray, pairs with holes, huge extents, partial receives, packed data; in messages, collectives and reductions.
#include "hostile.h"

enum { kRoom = 1 << 20 };
static char from[kRoom], to[kRoom];

// Sends `count` of `type` based at `offset` to the other rank, in several ways, and says what lies there then.
static void exchange(const char* what, MPI_Datatype type, int count, int offset) {
  MPI_Status status = poisoned();
  MPI_Request request[2];
  MPI_Aint lb, extent, true_lb, true_extent;
  int size = -1;
  MPI_Type_size(type, &size);
  MPI_Type_get_extent(type, &lb, &extent);
  MPI_Type_get_true_extent(type, &true_lb, &true_extent);
  say("%s: size %d lb %ld extent %ld true %ld %ld", what, size, (long)lb, (long)extent, (long)true_lb, (long)true_extent);
  fill(from, kRoom, me + 5);
  memset(to, 0x33, kRoom);
  TRY(MPI_Sendrecv(from + offset, count, type, other, 1, to + offset, count, type, other, 1, MPI_COMM_WORLD, &status));
  say_status(what, &status, type);
  say("%s: %u", what, sum_of(to, kRoom));
  memset(to, 0x44, kRoom);
  TRY(MPI_Irecv(to + offset, count, type, other, 2, MPI_COMM_WORLD, &request[0]));
  TRY(MPI_Isend(from + offset, count, type, other, 2, MPI_COMM_WORLD, &request[1]));
  TRY(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
  say("%s, nonblocking: %u", what, sum_of(to, kRoom));
  // As bytes at the receiver, and from bytes.
  int bytes = size * count, got = -1;
  memset(to, 0x55, kRoom);
  if (bytes <= kRoom) {
    TRY(MPI_Sendrecv(from + offset, count, type, other, 3, to, bytes, MPI_PACKED, other, 3, MPI_COMM_WORLD, &status));
    MPI_Get_count(&status, MPI_PACKED, &got);
    say("%s, as packed: %d, %u", what, got, sum_of(to, kRoom));
  }
  memset(to, 0x66, kRoom);
  memcpy(to, from, kRoom);
  TRY(MPI_Bcast((me == 0 ? from : to) + offset, count, type, 0, MPI_COMM_WORLD));
  say("%s, broadcast: %u", what, sum_of(to, kRoom));
}

// The same for types whose elements lie on top of each other: these may be sent, not received.
static void send_only(const char* what, MPI_Datatype type, int count, int offset) {
  int size;
  MPI_Request request;
  MPI_Type_size(type, &size);
  fill(from, kRoom, me + 6);
  memset(to, 0x33, kRoom);
  TRY(MPI_Isend(from + offset, count, type, other, 1, MPI_COMM_WORLD, &request));
  TRY(MPI_Recv(to, size * count, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
  say("%s: size %d, %u", what, size, sum_of(to, kRoom));
}

static MPI_Datatype commit(MPI_Datatype type) {
  MPI_Type_commit(&type);
  return type;
}

static void nothing(void) {
  MPI_Datatype type[8];
  int none[1] = {0}, zeros[3] = {0, 0, 0}, places[3] = {5, -5, 100000};
  MPI_Aint far[3] = {0, 1L << 40, -(1L << 40)};
  MPI_Datatype ints[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR};
  TRY(MPI_Type_contiguous(0, MPI_INT, &type[0]));
  TRY(MPI_Type_vector(0, 5, 7, MPI_INT, &type[1]));
  TRY(MPI_Type_vector(5, 0, 7, MPI_INT, &type[2]));
  TRY(MPI_Type_indexed(0, none, none, MPI_INT, &type[3]));
  TRY(MPI_Type_indexed(3, zeros, places, MPI_INT, &type[4]));
  TRY(MPI_Type_create_struct(0, none, far, ints, &type[5]));
  TRY(MPI_Type_create_struct(3, zeros, far, ints, &type[6]));
  TRY(MPI_Type_create_resized(type[0], -8, 64, &type[7]));
  for (int k = 0; k < 8; k++) {
    char what[20];
    snprintf(what, sizeof(what), "empty %d", k);
    MPI_Type_commit(&type[k]);
    exchange(what, type[k], 7, 4096);
    exchange(what, type[k], 0, 4096);
    MPI_Type_free(&type[k]);
  }
}

static void negative(void) {
  MPI_Datatype base, type;
  int lengths[4] = {3, 1, 2, 4}, places[4] = {-100, 90, -20, 7};
  MPI_Aint bytes[3] = {-4000, 16, -800};
  MPI_Datatype kinds[3] = {MPI_DOUBLE, MPI_CHAR, MPI_SHORT};
  MPI_Type_vector(10, 2, -5, MPI_INT, &type);
  exchange("negative stride", commit(type), 3, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_create_hvector(6, 1, -1001, MPI_INT, &type);
  exchange("odd negative stride", commit(type), 2, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_indexed(4, lengths, places, MPI_INT, &type);
  exchange("unordered", commit(type), 4, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_create_struct(3, lengths, bytes, kinds, &type);
  exchange("struct below", commit(type), 2, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_create_resized(MPI_INT, -12, 20, &type);
  exchange("negative lower bound", commit(type), 30, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_create_resized(MPI_INT, 0, -16, &type);
  exchange("negative extent", commit(type), 30, kRoom / 2), MPI_Type_free(&type);
  MPI_Type_vector(3, 1, 2, MPI_SHORT, &base);
  MPI_Type_create_resized(base, 40, -64, &type);
  exchange("both", commit(type), 30, kRoom / 2), MPI_Type_free(&type), MPI_Type_free(&base);
  MPI_Type_create_hvector(20, 1, 0, MPI_INT, &type);
  send_only("no stride", commit(type), 3, 100), MPI_Type_free(&type);
}

static void overlapping(void) {
  MPI_Datatype type;
  MPI_Type_create_resized(MPI_LONG, 0, 2, &type);
  send_only("extent below size", commit(type), 500, 8), MPI_Type_free(&type);
  MPI_Type_create_resized(MPI_LONG, 0, 0, &type);
  send_only("no extent", commit(type), 500, 8), MPI_Type_free(&type);
  MPI_Type_vector(100, 8, 3, MPI_INT, &type);
  send_only("overlapping vector", commit(type), 2, 8), MPI_Type_free(&type);
  MPI_Type_create_hvector(1000, 100, 4, MPI_INT, &type);
  send_only("sliding window", commit(type), 1, 16), MPI_Type_free(&type);
}

static void deep(void) {
  MPI_Datatype type, next;
  MPI_Type_contiguous(1, MPI_INT, &type);
  for (int k = 0; k < 40; k++) {
    if (k % 4 == 0) MPI_Type_contiguous(1, type, &next);
    if (k % 4 == 1) MPI_Type_vector(1, 1, 9, type, &next);
    if (k % 4 == 2) MPI_Type_dup(type, &next);
    if (k % 4 == 3) MPI_Type_create_resized(type, 0, 4 + k, &next);
    MPI_Type_free(&type);
    type = next;
  }
  exchange("deep", commit(type), 20, 64);
  MPI_Type_free(&type);
  MPI_Type_contiguous(1, MPI_SHORT, &type);
  for (int k = 0; k < 9; k++) {
    MPI_Type_vector(2, 1, 3, type, &next);
    MPI_Type_free(&type);
    type = next;
  }
  exchange("branching", commit(type), 1, 64);
  MPI_Type_free(&type);
}

static void wide(void) {
  enum { kBlocks = 20000 };
  static int lengths[kBlocks], places[kBlocks];
  static MPI_Aint bytes[kBlocks];
  static MPI_Datatype kinds[kBlocks];
  MPI_Datatype type;
  for (int k = 0; k < kBlocks; k++) {
    lengths[k] = k % 3;
    places[k] = 3 * ((k * 7919) % kBlocks);
    bytes[k] = 16 * (MPI_Aint)((k * 7919) % kBlocks);
    kinds[k] = k % 2 ? MPI_DOUBLE : MPI_SHORT;
  }
  MPI_Type_indexed(kBlocks, lengths, places, MPI_INT, &type);
  exchange("wide indexed", commit(type), 2, 0), MPI_Type_free(&type);
  MPI_Type_create_struct(kBlocks, lengths, bytes, kinds, &type);
  memset(lengths, 0x7f, sizeof(lengths));  // the arrays are the program's again
  memset(bytes, 0x7f, sizeof(bytes));
  exchange("wide struct", commit(type), 1, 0), MPI_Type_free(&type);
  MPI_Type_create_indexed_block(kBlocks, 1, places, MPI_INT, &type);
  exchange("wide blocks", commit(type), 1, 0), MPI_Type_free(&type);
}

static void absolute(void) {
  struct { int a; double b[7]; char c; } one = {1 + me, {2, 3, 4, 5, 6, 7, 8}, 9}, two;
  static long beyond[100], received[100];
  MPI_Aint places[4], into[4];
  int lengths[4] = {1, 7, 1, 100};
  MPI_Datatype kinds[4] = {MPI_INT, MPI_DOUBLE, MPI_CHAR, MPI_LONG}, send, receive, array;
  memset(&two, 0, sizeof(two));
  for (int k = 0; k < 100; k++) beyond[k] = k * 3 + me;
  MPI_Get_address(&one.a, &places[0]), MPI_Get_address(one.b, &places[1]), MPI_Get_address(&one.c, &places[2]);
  MPI_Get_address(beyond, &places[3]);
  MPI_Get_address(&two.a, &into[0]), MPI_Get_address(two.b, &into[1]), MPI_Get_address(&two.c, &into[2]);
  MPI_Get_address(received, &into[3]);
  MPI_Type_create_struct(4, lengths, places, kinds, &send), MPI_Type_commit(&send);
  MPI_Type_create_struct(4, lengths, into, kinds, &receive), MPI_Type_commit(&receive);
  TRY(MPI_Sendrecv(MPI_BOTTOM, 1, send, other, 1, MPI_BOTTOM, 1, receive, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  say("%d %g %d %ld", two.a, two.b[6], two.c, received[99]);
  memset(received, 0, sizeof(received));
  MPI_Request request[2];
  MPI_Irecv(MPI_BOTTOM, 1, receive, other, 2, MPI_COMM_WORLD, &request[0]);
  MPI_Isend(MPI_BOTTOM, 1, send, other, 2, MPI_COMM_WORLD, &request[1]);
  MPI_Type_free(&send), MPI_Type_free(&receive);
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  say("%d %g %d %ld", two.a, two.b[6], two.c, received[99]);
  int hundred = 100;
  MPI_Type_create_hindexed(1, &hundred, &into[3], MPI_LONG, &array), MPI_Type_commit(&array);
  if (me == 0) memcpy(received, beyond, sizeof(received));
  TRY(MPI_Bcast(MPI_BOTTOM, 1, array, 0, MPI_COMM_WORLD));
  say("broadcast: %ld", received[99]);
  long all[200];
  TRY(MPI_Allgather(MPI_BOTTOM, 1, array, all, 100, MPI_LONG, MPI_COMM_WORLD));
  say("gathered: %ld %ld", all[0], all[199]);
  MPI_Type_free(&array);
  // An offset from MPI_BOTTOM's neighbourhood: a base and displacements that only together make an address.
  MPI_Aint shift = into[3] - 4096;
  MPI_Type_create_hindexed(1, &hundred, &shift, MPI_LONG, &array), MPI_Type_commit(&array);
  TRY(MPI_Sendrecv(beyond, 100, MPI_LONG, other, 3, (void*)(uintptr_t)4096, 1, array, other, 3, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE));
  say("shifted: %ld", received[98]);
  MPI_Type_free(&array);
}

static void distributed(void) {
  int sizes[3] = {20, 30, 10}, parts[3] = {5, 1, 3}, starts[3] = {10, 29, 2}, args[2] = {MPI_DISTRIBUTE_DFLT_DARG, 3};
  int kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, processes[2] = {2, 1}, one[3] = {1, 1, 1};
  int all[3] = {20, 30, 10}, zero[3] = {0, 0, 0};
  MPI_Datatype type;
  for (int order = 0; order < 2; order++) {
    int how = order ? MPI_ORDER_FORTRAN : MPI_ORDER_C;
    MPI_Type_create_subarray(3, sizes, parts, starts, how, MPI_DOUBLE, &type);
    exchange("subarray", commit(type), 2, 128), MPI_Type_free(&type);
    MPI_Type_create_subarray(3, sizes, all, zero, how, MPI_INT, &type);
    exchange("whole subarray", commit(type), 1, 128), MPI_Type_free(&type);
    MPI_Type_create_subarray(3, sizes, one, starts, how, MPI_CHAR, &type);
    exchange("one element", commit(type), 5, 128), MPI_Type_free(&type);
    for (int rank = 0; rank < 2; rank++) {
      MPI_Type_create_darray(2, rank, 2, sizes, kinds, args, processes, how, MPI_INT, &type);
      exchange("darray", commit(type), 2, 128), MPI_Type_free(&type);
    }
  }
}

static void far_apart(void) {
  MPI_Datatype type, base;
  MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)1 << 40, &type);
  exchange("huge extent", commit(type), 1, 64), MPI_Type_free(&type);
  MPI_Type_create_resized(MPI_INT, -((MPI_Aint)1 << 40), (MPI_Aint)1 << 41, &type);
  exchange("huge bounds", commit(type), 1, 64), MPI_Type_free(&type);
  MPI_Type_vector(1, 4, 1 << 30, MPI_INT, &base);
  MPI_Type_create_hvector(1, 1, (MPI_Aint)1 << 50, base, &type);
  exchange("huge stride", commit(type), 1, 64), MPI_Type_free(&type), MPI_Type_free(&base);
}

// Holes that hold garbage must not count.
static void holes(void) {
  MPI_Datatype pairs[] = {MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT};
  for (int k = 0; k < 6; k++) {
    MPI_Aint lb, extent;
    MPI_Type_get_extent(pairs[k], &lb, &extent);
    memset(from, 0x20 + me, kRoom);  // also between the members: not the same on both ranks
    if (k == 5) for (int i = 0; i < 40; i++) memcpy(from + i * extent, &(long double){i + me}, 10);
    memset(to, 0x70 + me, kRoom);
    TRY(MPI_Allreduce(from, to, 40, pairs[k], MPI_MAXLOC, MPI_COMM_WORLD));
    TRY(MPI_Sendrecv(from, 40, pairs[k], other, 1, to + 4096, 40, pairs[k], other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    say("pair %d: extent %ld, %d %d", k, (long)extent, to[0], to[4096]);
  }
  struct { char c; double d; } records[50], got[50];
  MPI_Aint places[2] = {0, 8};
  int lengths[2] = {1, 1};
  MPI_Datatype kinds[2] = {MPI_CHAR, MPI_DOUBLE}, type;
  MPI_Type_create_struct(2, lengths, places, kinds, &type), MPI_Type_commit(&type);
  memset(records, 0x11 * (me + 1), sizeof(records));
  for (int k = 0; k < 50; k++) records[k].c = k, records[k].d = k / 2.0;
  memset(got, me, sizeof(got));
  TRY(MPI_Bcast(records, 50, type, 0, MPI_COMM_WORLD));
  TRY(MPI_Sendrecv(records, 50, type, other, 2, got, 50, type, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  TRY(MPI_Alltoall(records, 25, type, got, 25, type, MPI_COMM_WORLD));
  say("%d %g %u", got[49].c, got[49].d, sum_of(got, sizeof(got)));
  MPI_Type_free(&type);
  long double mine = 1.25L + me, sum = 0;
  TRY(MPI_Allreduce(&mine, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  say("%Lg", sum);
}

static void partial(void) {
  MPI_Datatype type;
  MPI_Status status;
  int lengths[3] = {1, 2, 1}, count;
  MPI_Aint places[3] = {0, 8, 40};
  MPI_Datatype kinds[3] = {MPI_INT, MPI_DOUBLE, MPI_SHORT};
  MPI_Type_create_struct(3, lengths, places, kinds, &type), MPI_Type_commit(&type);
  char packed[400];
  for (int pieces = 0; pieces < 9; pieces++) {  // ends within an element of the receiver's type
    int at = 0;
    for (int k = 0; k < pieces; k++) {
      int part = k % 4, i = k;
      double d = k + 0.5;
      short s = k;
      if (part == 0) MPI_Pack(&i, 1, MPI_INT, packed, 400, &at, MPI_COMM_WORLD);
      if (part == 1 || part == 2) MPI_Pack(&d, 1, MPI_DOUBLE, packed, 400, &at, MPI_COMM_WORLD);
      if (part == 3) MPI_Pack(&s, 1, MPI_SHORT, packed, 400, &at, MPI_COMM_WORLD);
    }
    memset(to, 0x21, 400);
    TRY(MPI_Sendrecv(packed, at, MPI_PACKED, other, 1, to, 5, type, other, 1, MPI_COMM_WORLD, &status));
    MPI_Get_count(&status, type, &count);
    say("%d pieces: count %s %d, %u", pieces, count == MPI_UNDEFINED ? "undefined" : "", count == MPI_UNDEFINED ? 0 : count,
        sum_of(to, 400));
    MPI_Get_elements(&status, type, &count);
    say("elements %d", count);
  }
  MPI_Type_free(&type);
}

static void same_signature(void) {
  MPI_Datatype pair, column, triple;
  int mine[120], theirs[120];
  for (int k = 0; k < 120; k++) mine[k] = k * (me + 2);
  memset(theirs, 0, sizeof(theirs));
  MPI_Type_contiguous(2, MPI_INT, &pair), MPI_Type_commit(&pair);
  MPI_Type_vector(6, 1, 10, MPI_INT, &column), MPI_Type_commit(&column);
  MPI_Type_contiguous(3, MPI_INT, &triple), MPI_Type_commit(&triple);
  TRY(MPI_Sendrecv(mine, 3, pair, other, 1, theirs, 2, triple, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  TRY(MPI_Gather(mine, 1, column, theirs, 2, triple, 0, MPI_COMM_WORLD));
  if (me == 0) say("gather %u", sum_of(theirs, sizeof(theirs)));
  TRY(MPI_Bcast(mine, me ? 3 : 1, me ? pair : column, 0, MPI_COMM_WORLD));
  TRY(MPI_Alltoall(mine, 3, pair, theirs, 6, MPI_INT, MPI_COMM_WORLD));
  TRY(MPI_Scatter(mine, 1, column, theirs, 3, pair, 1, MPI_COMM_WORLD));
  TRY(MPI_Allgather(mine, 2, triple, theirs, 1, column, MPI_COMM_WORLD));
  say("%u %u", sum_of(mine, sizeof(mine)), sum_of(theirs, sizeof(theirs)));
  MPI_Type_free(&pair), MPI_Type_free(&column), MPI_Type_free(&triple);
}

static void named_types(void) {
  MPI_Datatype types[] = {MPI_CHAR, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_BYTE, MPI_WCHAR, MPI_SHORT, MPI_UNSIGNED,
    MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, MPI_FLOAT, MPI_DOUBLE, MPI_C_BOOL, MPI_INT8_T, MPI_UINT64_T,
    MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_AINT, MPI_COUNT, MPI_OFFSET,
    MPI_INTEGER, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_COMPLEX, MPI_LOGICAL, MPI_CHARACTER, MPI_2REAL,
    MPI_2DOUBLE_PRECISION, MPI_2INTEGER};
  for (unsigned k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
    char what[20];
    snprintf(what, sizeof(what), "type %u", k);
    exchange(what, types[k], 3, 1024);
  }
}

static void copy_fields(void* in, void* inout, int* count, MPI_Datatype* type) {
  MPI_Aint lb, extent;
  MPI_Type_get_extent(*type, &lb, &extent);
  for (int k = 0; k < *count; k++) *(int*)((char*)inout + k * extent) += *(int*)((char*)in + k * extent);
}

static void reduced(void) {
  MPI_Datatype spaced, below;
  MPI_Op op;
  int mine[64], result[64];
  MPI_Op_create(copy_fields, 1, &op);
  MPI_Type_create_resized(MPI_INT, 0, 12, &spaced), MPI_Type_commit(&spaced);
  MPI_Type_create_resized(MPI_INT, -4, 12, &below), MPI_Type_commit(&below);
  for (int k = 0; k < 64; k++) mine[k] = k + me, result[k] = -1;
  TRY(MPI_Allreduce(mine, result, 20, spaced, op, MPI_COMM_WORLD));
  say("%u", sum_of(result, sizeof(result)));
  TRY(MPI_Allreduce(MPI_IN_PLACE, mine + 1, 20, below, op, MPI_COMM_WORLD));
  say("%u", sum_of(mine, sizeof(mine)));
  TRY(MPI_Scan(mine, result, 20, spaced, op, MPI_COMM_WORLD));
  say("%u", sum_of(result, sizeof(result)));
  MPI_Op_free(&op), MPI_Type_free(&spaced), MPI_Type_free(&below);
}

static const struct Case kCases[] = {CASE(nothing), CASE(negative), CASE(overlapping), CASE(deep), CASE(wide), CASE(absolute),
  CASE(distributed), CASE(far_apart), CASE(holes), CASE(partial), CASE(same_signature), CASE(named_types), CASE(reduced),
  {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_SINGLE); }
