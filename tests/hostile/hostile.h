// SPDX-License-Identifier: Apache-2.0
//
// What the hostile programs share. `PROGRAM CASE…` runs named cases one after the other in one job of two ranks;
// `PROGRAM` alone lists them. A rank writes what it sees, line by line, to the file rank-N in HOSTILE_OUT, so that
// nothing that a launcher does to standard output mixes two ranks, and all that was seen before a death is there.
#ifndef TESTS_HOSTILE_HOSTILE_H
#define TESTS_HOSTILE_HOSTILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../which_mpi.h"

#define UNUSED __attribute__((unused))

struct Case {
  const char* name;
  void (*run)(void);
};
#define CASE(name) {#name, name}

static int me = -1, other = -1;  // ranks in MPI_COMM_WORLD
static const char* case_name = "";
static int out_fd = -1;
static const char* out_name = "rank";  // of the file: a spawned rank has another one than the rank that spawned it

/// One line of the rank's file.
UNUSED __attribute__((format(printf, 1, 2))) static void say(const char* format, ...) {
  char line[1024];
  int length = snprintf(line, sizeof(line), "%s: ", case_name);
  va_list list;
  va_start(list, format);
  length += vsnprintf(line + length, sizeof(line) - length - 1, format, list);
  va_end(list);
  if (length > (int)sizeof(line) - 2) length = sizeof(line) - 2;
  line[length++] = '\n';
  if (out_fd < 0) {
    const char* folder = getenv("HOSTILE_OUT");
    const char* rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[512];
    if (!rank) rank = getenv("PMI_RANK");
    snprintf(path, sizeof(path), "%s/%s-%s", folder ? folder : ".", out_name, rank ? rank : "x");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    out_fd = fcntl(fd, F_DUPFD_CLOEXEC, 400);  // out of the way of what the cases do with descriptors
    close(fd);
  }
  if (write(out_fd, line, length) != length) _exit(77);
}

/// The class of a return code.
UNUSED static int class_of(int code) {
  int class = -1;
  if (code == MPI_SUCCESS) return 0;
  MPI_Error_class(code, &class);
  return class;
}

/// Says what a call returned, unless it succeeded.
UNUSED static int said(const char* call, int code) {
  if (code != MPI_SUCCESS) say("%.70s: class %d", call, class_of(code));
  return code;
}
#define TRY(call) said(#call, call)

/// A sum that depends on positions.
UNUSED static unsigned sum_of(const void* data, size_t bytes) {
  const unsigned char* p = data;
  unsigned sum = 2166136261u;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ p[i]) * 16777619u;
  return sum;
}

/// Fills with what depends on seed and position.
UNUSED static void fill(void* data, size_t bytes, unsigned seed) {
  unsigned char* p = data;
  for (size_t i = 0; i < bytes; i++) p[i] = (unsigned char)((i + 1) * 2654435761u >> 13 ^ seed * 97);
}

/// A status as the program sees it; `ask`: the type for MPI_Get_count.
UNUSED static void say_status(const char* what, MPI_Status* status, MPI_Datatype ask) {
  int count = -5, elements = -5, cancelled = -5;
  MPI_Get_count(status, ask, &count);
  MPI_Get_elements(status, ask, &elements);
  MPI_Test_cancelled(status, &cancelled);
  say("%s: source %d tag %d error %d count %d elements %d cancelled %d", what, status->MPI_SOURCE, status->MPI_TAG,
      status->MPI_ERROR, count, elements, cancelled);
}

/// A status full of what no MPI writes.
UNUSED static MPI_Status poisoned(void) {
  MPI_Status status;
  memset(&status, 0x5a, sizeof(status));
  status.MPI_SOURCE = status.MPI_TAG = status.MPI_ERROR = 4242;
  return status;
}

/// Both ranks are here. By messages, since cases give MPI_COMM_WORLD's collectives a hard time.
UNUSED static void meet(void) {
  char byte = 0, theirs;
  MPI_Sendrecv(&byte, 1, MPI_CHAR, other, 9999, &theirs, 1, MPI_CHAR, other, 9999, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/// After MPI_Init.
UNUSED static void learn_rank(void) {
  int size;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  other = size == 2 ? 1 - me : me;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static const struct Case* find_case(const struct Case* cases, const char* name) {
  for (; cases->name; cases++) {
    if (strcmp(cases->name, name) == 0) return cases;
  }
  fprintf(stderr, "no case %s\n", name);
  exit(78);
}

UNUSED static void list_cases(const struct Case* cases) {
  for (; cases->name; cases++) puts(cases->name);
}

/// main() of a program whose cases run between MPI_Init_thread and MPI_Finalize.
UNUSED static int run_cases(int argc, char** argv, const struct Case* cases, int level) {
  int provided;
  if (argc < 2) return list_cases(cases), 0;
  MPI_Init_thread(&argc, &argv, level, &provided);
  learn_rank();
  for (int k = 1; k < argc; k++) {
    const struct Case* one = find_case(cases, argv[k]);
    case_name = one->name;
    say("begins");
    one->run();
    say("ends");
    meet();
    if (me == 0) printf("%s\n", one->name), fflush(stdout);
  }
  case_name = "end";
  MPI_Finalize();
  say("finalized");
  return 0;
}

#endif
