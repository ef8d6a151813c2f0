// SPDX-License-Identifier: Apache-2.0
//
// What the programs of the fault tests share: datatypes with holes, contents that never repeat, and a look at what has
// arrived. Nothing here stops the program: wrong data is what these programs are run for. They count it and say how
// much it was.
#ifndef TESTS_FAULTS_TRAFFIC_H
#define TESTS_FAULTS_TRAFFIC_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call) ((call) == MPI_SUCCESS ? (void)0 : stop(#call, __LINE__))

static void stop(const char* call, int line) {
  fprintf(stderr, "line %d: %s failed\n", line, call);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// One datatype: which bytes of an element are data.
typedef struct {
  MPI_Datatype type;
  int runs, offset[4], length[4];
  int size, extent;
} Type;

enum { kTypes = 8 };
static Type types[kTypes];

static void describe(int at, MPI_Datatype type, int extent, int runs, const int* offset, const int* length) {
  Type* t = &types[at];
  t->type = type;
  t->extent = extent;
  t->runs = runs;
  t->size = 0;
  for (int i = 0; i < runs; i++) {
    t->offset[i] = offset[i];
    t->length[i] = length[i];
    t->size += length[i];
  }
}

static inline void make_types(void) {
  MPI_Datatype made;
  describe(0, MPI_BYTE, 1, 1, (int[]){0}, (int[]){1});
  describe(1, MPI_INT, 4, 1, (int[]){0}, (int[]){4});
  describe(2, MPI_DOUBLE, 8, 1, (int[]){0}, (int[]){8});
  MUST(MPI_Type_contiguous(6, MPI_FLOAT, &made));
  MUST(MPI_Type_commit(&made));
  describe(3, made, 24, 1, (int[]){0}, (int[]){24});
  MUST(MPI_Type_vector(3, 5, 8, MPI_INT, &made));
  MUST(MPI_Type_commit(&made));
  describe(4, made, 84, 3, (int[]){0, 32, 64}, (int[]){20, 20, 20});
  MPI_Datatype plain, members[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
  MUST(MPI_Type_create_struct(3, (int[]){1, 1, 1}, (MPI_Aint[]){0, 8, 16}, members, &made));
  MUST(MPI_Type_commit(&made));
  describe(5, made, 24, 3, (int[]){0, 8, 16}, (int[]){1, 8, 4});
  MUST(MPI_Type_indexed(3, (int[]){1, 3, 2}, (int[]){0, 2, 7}, MPI_INT, &made));
  MUST(MPI_Type_commit(&made));
  describe(6, made, 36, 3, (int[]){0, 8, 28}, (int[]){4, 12, 8});
  MUST(MPI_Type_contiguous(10, MPI_BYTE, &plain));
  MUST(MPI_Type_create_resized(plain, 0, 16, &made));
  MUST(MPI_Type_commit(&made));
  MUST(MPI_Type_free(&plain));
  describe(7, made, 16, 1, (int[]){0}, (int[]){10});
}

static inline void free_types(void) {
  for (int i = 3; i < kTypes; i++) MUST(MPI_Type_free(&types[i].type));
}

/// The packed content number `number`: no two are alike, and none is like what clear() leaves.
static inline void content(uint64_t number, char* packed, size_t bytes) {
  uint64_t state = mixed(number * 0x9e3779b97f4a7c15ULL + 1);
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t word = state ^ (state >> 29);
    memcpy(packed + i, &word, 8);
  }
  const uint64_t rest = mixed(state + 77);
  memcpy(packed + i, &rest, bytes - i);
}

static inline void scatter(const Type* t, int count, const char* packed, char* buffer) {
  if (t->runs == 1 && t->size == t->extent) {
    memcpy(buffer, packed, (size_t)count * (size_t)t->size);
    return;
  }
  for (int e = 0; e < count; e++)
    for (int r = 0; r < t->runs; r++) {
      memcpy(buffer + (size_t)e * (size_t)t->extent + t->offset[r], packed, (size_t)t->length[r]);
      packed += t->length[r];
    }
}

static inline int same(const Type* t, int count, const char* packed, const char* buffer) {
  if (t->runs == 1 && t->size == t->extent) return memcmp(buffer, packed, (size_t)count * (size_t)t->size) == 0;
  for (int e = 0; e < count; e++)
    for (int r = 0; r < t->runs; r++) {
      if (memcmp(buffer + (size_t)e * (size_t)t->extent + t->offset[r], packed, (size_t)t->length[r]) != 0) return 0;
      packed += t->length[r];
    }
  return 1;
}

enum { kLargest = 1 << 20, kRoom = 3 * kLargest };
static char* scratch;  ///< kRoom bytes

/// Puts content `number` into a send buffer.
static inline void fill(uint64_t number, const Type* t, int count, char* buffer) {
  content(number, scratch, (size_t)count * (size_t)t->size);
  scatter(t, count, scratch, buffer);
}

/// Fresh bytes before a receive: a buffer that still held the last packet could not tell "nothing came" from "the last
/// one came again".
static inline void clear(uint64_t number, const Type* t, int count, char* buffer) {
  content(~number, buffer, (size_t)count * (size_t)t->extent);
}

static unsigned long long wrong, right;

static inline void look(uint64_t number, const Type* t, int count, const char* buffer) {
  content(number, scratch, (size_t)count * (size_t)t->size);
  if (same(t, count, scratch, buffer)) right++;
  else wrong++;
}

/// Elements of a type for a message of about that many bytes, at least one.
static inline int elements(const Type* t, size_t bytes) {
  const size_t count = bytes / (size_t)t->size;
  return count > 0 ? (int)count : 1;
}

/// 1 B to 1 MiB; most messages are small.
static inline size_t some_size(uint64_t draw, size_t most) {
  const unsigned power = (unsigned)(draw % 100 < 60   ? draw / 100 % 11
                                    : draw % 100 < 92 ? 10 + draw / 100 % 6
                                                      : 16 + draw / 100 % 5);
  const size_t bytes = ((size_t)1 << power) + (size_t)(mixed(draw) % ((uint64_t)1 << power));
  return bytes < most ? bytes : most;
}

static inline void report_counts(const char* name, int me) {
  unsigned long long mine[2] = {wrong, right}, all[2] = {0, 0};
  MPI_Reduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) printf("%s: %llu packets, %llu wrong\n", name, all[0] + all[1], all[0]);
}

#endif
