// SPDX-License-Identifier: Apache-2.0
//
// Buffers of staging_p2p.c: filled with a pattern, and compared with it, on the host or on a device; statuses; which
// parts are wanted.
#pragma once

#include <mpi.h>
#include <string.h>

#include "device.h"

/// The parts of the program that its arguments name; none: all.
static char** parts;

CHECK_UNUSED static int wanted(const char* part) {
  for (char** p = parts; *p != NULL; p++)
    if (strcmp(*p, part) == 0) return 1;
  return *parts == NULL;
}

static int rank, other;
static MPI_Comm comm;

enum { kMost = 1 << 20 };
static unsigned char expected[kMost + 64], found[kMost + 64];

static unsigned char byte_of(unsigned seed, size_t i) { return (unsigned char)(seed * 37 + i * 7 + (i >> 8) * 3 + 1); }

/// A buffer with the seed's data; seed 0: 0xee everywhere.
static void fill(int on_device, char* memory, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++) expected[i] = seed == 0 ? 0xee : byte_of(seed, i);
  memory_write(on_device, memory, expected, bytes);
}

/// The first `bytes` are the seed's, the rest up to `all` untouched.
static void check(int on_device, const char* memory, size_t bytes, size_t all, unsigned seed) {
  memory_read(on_device, found, memory, all);
  for (size_t i = 0; i < all; i++) {
    const unsigned char wanted = i < bytes ? byte_of(seed, i) : 0xee;
    if (found[i] != wanted) fprintf(stderr, "rank %d: byte %zu of %zu is %d, not %d\n", rank, i, all, found[i], wanted);
    CHECK(found[i] == wanted);
  }
}

static char* filled(int on_device, size_t bytes, unsigned seed) {
  char* memory = memory_new(on_device, bytes);
  fill(on_device, memory, bytes, seed);
  return memory;
}

static int class_of(int code) {
  int result = -1;
  MPI_Error_class(code, &result);
  return result;
}

static void check_status_at(int line, const MPI_Status* status, int source, int tag, MPI_Datatype type, int count) {
  int got = -1;
  OK(MPI_Get_count(status, type, &got));
  if (status->MPI_SOURCE != source || status->MPI_TAG != tag || got != count)
    fprintf(stderr, "rank %d, line %d: source %d, tag %d, count %d; not %d, %d, %d\n", rank, line, status->MPI_SOURCE,
            status->MPI_TAG, got, source, tag, count);
  CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && got == count);
}
#define check_status(...) check_status_at(__LINE__, __VA_ARGS__)
