// SPDX-License-Identifier: Apache-2.0
//
// A cosmic ray: flips one bit of one rank's memory while the program runs. A library to be preloaded behind the others,
// below their sight: it counts the messages that the rank sends, and some time after the nth a thread of its own picks
// a word that looks like a floating-point number of the program and flips a bit of it.
//
//   MEMORY_FLIP      "RANK:MESSAGE:SEED[:LOWEST_BIT:HIGHEST_BIT]"     bits 0 to 63, 63 is the sign
//   MEMORY_FLIP_CALLS  set: collectives count as messages, too
//   MEMORY_FLIP_LOG  file for one line of JSON: what was flipped, or that nothing was found
//
// A word is a candidate when it lies in the heap, in the program's own static data or in anonymous memory, is aligned,
// and is a double between 1e-9 and 1e9 with a fraction that is not round. Memory is read and written through the
// kernel, so that a region that vanishes meanwhile is no crash.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kRegions = 512, kTries = 400000 };
enum { kDelayMicroseconds = 3000 };

static int wanted_rank = -1, lowest_bit, highest_bit = 63, counts_collectives;
static uint64_t wanted_message, sent, seed;
static struct {
  uint64_t low, high;
  char name[64];
} regions[kRegions];
static int region_count;

static uint64_t next_random(void) {  // splitmix64
  uint64_t x = seed += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static int move(uint64_t address, uint64_t* word, int to_memory) {
  struct iovec here = {word, 8}, there = {(void*)address, 8};
  return (to_memory ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                    : process_vm_readv(getpid(), &here, 1, &there, 1, 0)) == 8;
}

static void find_regions(void) {
  char line[512], program[256] = "", permissions[8], path[256];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  int in_program = 0;
  while (maps && fgets(line, sizeof line, maps) && region_count < kRegions) {
    uint64_t low, high, offset;
    path[0] = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s", &low, &high, permissions, &offset, path) <
        4)
      continue;
    const int anonymous = path[0] == 0, bss = anonymous && in_program;
    in_program = strcmp(path, program) == 0;
    if (permissions[0] != 'r' || permissions[1] != 'w' || permissions[3] != 'p') continue;
    if (!in_program && !anonymous && strcmp(path, "[heap]") != 0) continue;
    regions[region_count].low = low;
    regions[region_count].high = high;
    snprintf(regions[region_count++].name, sizeof regions[0].name, "%s",
             in_program  ? "program"
             : bss       ? "program (bss)"
             : anonymous ? "anonymous"
                         : "heap");
  }
  if (maps) fclose(maps);
}

static int is_candidate(uint64_t word) {
  double value;
  memcpy(&value, &word, 8);
  const double size = fabs(value);
  return size > 1e-9 && size < 1e9 && (word & 0xffffff) != 0 && ((word >> 24) & 0xffffff) != 0;
}

static void* strike(void* unused) {
  (void)unused;
  char line[512];
  usleep((useconds_t)(next_random() % kDelayMicroseconds));  // the particle comes when it comes
  find_regions();
  uint64_t all = 0, word = 0;
  for (int i = 0; i < region_count; i++) all += regions[i].high - regions[i].low;
  snprintf(line, sizeof line, "{\"flipped\": false}\n");
  for (int attempt = 0; attempt < kTries && all != 0; attempt++) {
    uint64_t at = next_random() % all & ~7ull;
    int i = 0;
    while (at >= regions[i].high - regions[i].low) at -= regions[i].high - regions[i].low, i++;
    at += regions[i].low;
    if (!move(at, &word, 0) || !is_candidate(word)) continue;
    const int bit = lowest_bit + (int)(next_random() % (uint64_t)(highest_bit - lowest_bit + 1));
    uint64_t flipped = word ^ 1ull << bit;
    if (!move(at, &flipped, 1)) continue;
    double before, after;
    memcpy(&before, &word, 8);
    memcpy(&after, &flipped, 8);
    snprintf(line, sizeof line,
             "{\"flipped\": true, \"rank\": %d, \"message\": %" PRIu64 ", \"address\": %" PRIu64
             ", \"region\": \"%s\", \"bit\": %d, \"before\": \"%a\", \"after\": \"%a\"}\n",
             wanted_rank, wanted_message, at, regions[i].name, bit, before, after);
    break;
  }
  const char* path = getenv("MEMORY_FLIP_LOG");
  const int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
  if (file >= 0) {
    if (write(file, line, strlen(line)) < 0) perror("memory_flip");
    close(file);
  }
  return NULL;
}

__attribute__((constructor)) static void configure(void) {
  const char* text = getenv("MEMORY_FLIP");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
  int wanted = -1;
  if (!text || !rank ||
      sscanf(text, "%d:%" SCNu64 ":%" SCNu64 ":%d:%d", &wanted, &wanted_message, &seed, &lowest_bit, &highest_bit) < 3)
    return;
  if (wanted == atoi(rank)) wanted_rank = wanted;
  counts_collectives = getenv("MEMORY_FLIP_CALLS") != NULL;
}

static void count_message(void) {
  if (wanted_rank < 0 || __atomic_add_fetch(&sent, 1, __ATOMIC_RELAXED) != wanted_message) return;
  // By its address: a thread of the program's, as verify would count this one, is a source that no recording holds.
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&create = dlsym(RTLD_DEFAULT, "pthread_create");
  pthread_t thread;
  if (create != NULL && create(&thread, NULL, strike, NULL) == 0) pthread_detach(thread);
}

// Both layers: Fortran bindings call PMPI_ names.
#define COUNTED(name, if_counted, parameters, arguments) \
  int name parameters {                                  \
    static int(*next) parameters;                        \
    if (!next) *(void**)&next = dlsym(RTLD_NEXT, #name); \
    if (if_counted) count_message();                     \
    return next arguments;                               \
  }
#define BOTH(name, parameters, arguments)       \
  COUNTED(MPI_##name, 1, parameters, arguments) \
  COUNTED(PMPI_##name, 1, parameters, arguments)
#define COLLECTIVE(name, parameters, arguments)                  \
  COUNTED(MPI_##name, counts_collectives, parameters, arguments) \
  COUNTED(PMPI_##name, counts_collectives, parameters, arguments)

BOTH(Send, (const void* b, int n, MPI_Datatype t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
BOTH(Isend, (const void* b, int n, MPI_Datatype t, int d, int g, MPI_Comm c, MPI_Request* r), (b, n, t, d, g, c, r))
BOTH(Sendrecv,
     (const void* b, int n, MPI_Datatype t, int d, int g, void* rb, int rn, MPI_Datatype rt, int s, int rg, MPI_Comm c,
      MPI_Status* st),
     (b, n, t, d, g, rb, rn, rt, s, rg, c, st))
COLLECTIVE(Allreduce, (const void* b, void* r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (b, r, n, t, o, c))
COLLECTIVE(Bcast, (void* b, int n, MPI_Datatype t, int d, MPI_Comm c), (b, n, t, d, c))
COLLECTIVE(Allgatherv,
           (const void* b, int n, MPI_Datatype t, void* r, const int* rn, const int* at, MPI_Datatype rt, MPI_Comm c),
           (b, n, t, r, rn, at, rt, c))
COLLECTIVE(Alltoall, (const void* b, int n, MPI_Datatype t, void* r, int rn, MPI_Datatype rt, MPI_Comm c),
           (b, n, t, r, rn, rt, c))
