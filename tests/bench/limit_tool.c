// SPDX-License-Identifier: Apache-2.0
//
// The least that a tool on every call can cost: scripts/bench limit preloads it in place of libresil.so. LIMIT_TOOL
// says what a wrapped call does besides calling PMPI and counting:
//
//   empty         nothing
//   clock         reads the processor's clock before and after
//   record        that, and writes one record of a cache line into a ring
//   check         the sender puts a digest of the data, in one cache line, into shared memory; the receiver digests
//   what it got
//                 and compares it with that line when both are there: the least that a lazy check of each message can
//                 be
//   record_check  both: the least that watching and checking can be
//   record_wait   likewise, but the line goes before the message, and the receiver waits for it: the least of a strict
//   check
//
// For two ranks of one node and one thread, messages received in the order in which they were sent and as long as their
// receives: nothing of what a program may do besides is looked at. Prints how much it compared; a difference ends the
// job.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kClock = 1, kRecord = 2, kCheck = 4, kWait = 8 };
enum { kRing = 4096, kLines = 1024, kTable = 1024, kMostRequests = 256 };
enum { kBehind = 32 };  // a line that is read while the other core writes it costs more than all the rest

struct line {
  _Alignas(64) uint64_t words[8];
};
/// What one rank gets from the other one.
struct inbox {
  _Alignas(64) uint64_t taken;  // lines, now and then
  struct line lines[kLines];
};
struct pending {
  uint64_t request;
  const void* buffer;  // of a receive; else NULL
  uint64_t bytes;
};

static int what, me = -1, ranks;
static uint64_t calls, records, ticks_inside;
static struct line ring[kRing];
static struct inbox* boxes;
static uint64_t sent, sent_room = kLines, received, taken;
static struct line own[kLines];  // received, not compared yet: number, digest
static uint64_t compared, differ, unchecked;
static struct pending table[kTable];

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

static inline uint64_t enter(void) {
  ++calls;
  return what & kClock ? ticks() : 0;
}

static inline void leave(uint64_t begin, int call, int64_t amount, int peer, int tag) {
  if (!(what & kClock)) return;
  const uint64_t end = ticks();
  if (!(what & kRecord)) {
    ticks_inside += end - begin;
    return;
  }
  struct line* const line = &ring[records++ % kRing];
  line->words[0] = begin, line->words[1] = end, line->words[2] = (uint64_t)call, line->words[3] = (uint64_t)amount;
  line->words[4] = (uint64_t)peer, line->words[5] = (uint64_t)tag, line->words[6] = line->words[7] = 0;
}

/// Of all bytes: whatever looks at less is no check. As little as can be done with each: a real one takes longer.
static inline uint64_t digest(const void* data, uint64_t bytes) {
  const char* from = data;
  uint64_t lanes[8] = {0}, sum = bytes * 0x9e3779b97f4a7c15u, index = 0;
  if (bytes >= 64) {
    for (; index + 64 <= bytes; index += 64)
      for (int lane = 0; lane < 8; ++lane) {
        uint64_t word;
        memcpy(&word, from + index + 8 * lane, 8);
        lanes[lane] = (lanes[lane] << 1 | lanes[lane] >> 63) + word;
      }
    for (int lane = 0; lane < 8; ++lane) sum = (sum ^ lanes[lane]) * 0x9e3779b97f4a7c15u;
  }
  for (; index + 8 <= bytes; index += 8) {
    uint64_t word;
    memcpy(&word, from + index, 8);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  }
  for (; index < bytes; ++index) sum += (uint64_t)(unsigned char)from[index] << (index & 7) * 8;
  return sum;
}

static inline uint64_t bytes_of(int count, MPI_Datatype type) {
  static MPI_Datatype last = MPI_DATATYPE_NULL;
  static int size;
  if (type != last) {
    PMPI_Type_size(type, &size);
    last = type;
  }
  return (uint64_t)count * (uint64_t)size;
}

/// One line for the other rank.
static inline void tell(const void* data, uint64_t bytes, int tag) {
  struct inbox* const box = &boxes[!me];
  const uint64_t number = sent++, sum = digest(data, bytes);
  if (number == sent_room) {
    sent_room = __atomic_load_n(&box->taken, __ATOMIC_ACQUIRE) + kLines;
    if (number >= sent_room) {
      fprintf(stderr, "limit_tool: more than %d messages without an answer\n", kLines);
      PMPI_Abort(MPI_COMM_WORLD, 3);
    }
  }
  struct line* const line = &box->lines[number % kLines];
  line->words[1] = sum, line->words[2] = bytes, line->words[3] = (uint64_t)tag;
  line->words[4] = line->words[5] = line->words[6] = line->words[7] = 0;
  __atomic_store_n(&line->words[0], number + 1, __ATOMIC_RELEASE);
}

/// Compares the next message with its line, if that has come.
static inline int compare(uint64_t sum) {
  struct inbox* const box = &boxes[me];
  const struct line* const line = &box->lines[taken % kLines];
  if (__atomic_load_n(&line->words[0], __ATOMIC_ACQUIRE) != taken + 1) return 0;
  if (line->words[1] == sum) ++compared;
  else ++differ;
  if (++taken % 64 == 0) __atomic_store_n(&box->taken, taken, __ATOMIC_RELEASE);
  return 1;
}

static inline void look(void) {
  while (taken < received && compare(own[taken % kLines].words[0])) {}
}

static inline void check(const void* data, uint64_t bytes) {
  own[received++ % kLines].words[0] = digest(data, bytes);
  if (what & kWait)
    while (taken < received) look();
  else if (received - taken >= kBehind && received % kBehind == 0) look();
  if (received - taken == kLines) {
    fprintf(stderr, "limit_tool: more than %d messages that are not compared\n", kLines);
    PMPI_Abort(MPI_COMM_WORLD, 3);
  }
}

static inline struct pending* place_of(MPI_Request request) {
  const uint64_t key = (uint64_t)(uintptr_t)request;
  uint64_t index = key * 0x9e3779b97f4a7c15u >> 54;
  while (table[index].request != key && table[index].request != 0) index = (index + 1) % kTable;
  return &table[index];
}

/// Entries stay: an MPI gives out the same handles again and again.
static inline void keep(MPI_Request request, const void* buffer, uint64_t bytes) {
  struct pending* const one = place_of(request);
  one->request = (uint64_t)(uintptr_t)request;
  one->buffer = buffer;
  one->bytes = bytes;
}

static inline void complete(struct pending* one) {
  if (one->buffer != NULL) check(one->buffer, one->bytes);
  one->buffer = NULL;
}

static inline int checks(int result) { return what & kCheck && result == MPI_SUCCESS; }

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  if (what & kWait) tell(buffer, bytes_of(count, type), tag);
  const uint64_t begin = enter();
  const int result = PMPI_Send(buffer, count, type, peer, tag, comm);
  leave(begin, 1, count, peer, tag);
  if (checks(result) && !(what & kWait)) tell(buffer, bytes_of(count, type), tag);
  return result;
}

int MPI_Recv(void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status* status) {
  const uint64_t begin = enter();
  const int result = PMPI_Recv(buffer, count, type, peer, tag, comm, status);
  leave(begin, 2, count, peer, tag);
  if (checks(result)) check(buffer, bytes_of(count, type));
  return result;
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (what & kWait) tell(buffer, bytes_of(count, type), tag);
  const uint64_t begin = enter();
  const int result = PMPI_Isend(buffer, count, type, peer, tag, comm, request);
  leave(begin, 3, count, peer, tag);
  if (checks(result)) {
    if (!(what & kWait)) tell(buffer, bytes_of(count, type), tag);
    keep(*request, NULL, 0);
  }
  return result;
}

int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  const uint64_t begin = enter();
  const int result = PMPI_Irecv(buffer, count, type, peer, tag, comm, request);
  leave(begin, 4, count, peer, tag);
  if (checks(result)) keep(*request, buffer, bytes_of(count, type));
  return result;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  struct pending* const one = what & kCheck && *request != MPI_REQUEST_NULL ? place_of(*request) : NULL;
  const uint64_t begin = enter();
  const int result = PMPI_Wait(request, status);
  leave(begin, 5, 1, 0, 0);
  if (checks(result) && one != NULL) complete(one);
  return result;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  struct pending* const one = what & kCheck && *request != MPI_REQUEST_NULL ? place_of(*request) : NULL;
  const uint64_t begin = enter();
  const int result = PMPI_Test(request, flag, status);
  leave(begin, 6, 1, 0, 0);
  if (checks(result) && *flag && one != NULL) complete(one);
  return result;
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  struct pending* all[kMostRequests];
  const int few = what & kCheck && count <= kMostRequests;
  for (int i = 0; few && i < count; ++i) all[i] = requests[i] != MPI_REQUEST_NULL ? place_of(requests[i]) : NULL;
  if (what & kCheck && !few) ++unchecked;
  const uint64_t begin = enter();
  const int result = PMPI_Waitall(count, requests, statuses);
  leave(begin, 7, count, 0, 0);
  for (int i = 0; few && result == MPI_SUCCESS && i < count; ++i)
    if (all[i] != NULL) complete(all[i]);
  return result;
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const uint64_t begin = enter();
  const int result = PMPI_Allreduce(in, out, count, type, op, comm);
  leave(begin, 8, count, 0, 0);
  if (!checks(result)) return result;
  if (me == 1) tell(out, bytes_of(count, type), 0);
  else check(out, bytes_of(count, type));
  return result;
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const uint64_t begin = enter();
  const int result = PMPI_Bcast(buffer, count, type, root, comm);
  leave(begin, 9, count, root, 0);
  if (!checks(result)) return result;
  if (me == root) tell(buffer, bytes_of(count, type), 0);
  else check(buffer, bytes_of(count, type));
  return result;
}

/// Memory that both ranks see, from a file that is gone when both have it.
static void share(void) {
  char name[] = "/dev/shm/limit_tool.XXXXXX";
  const size_t bytes = 2 * sizeof(struct inbox);
  int file = -1;
  if (me == 0 && ((file = mkstemp(name)) < 0 || ftruncate(file, (off_t)bytes) != 0)) PMPI_Abort(MPI_COMM_WORLD, 2);
  PMPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (me != 0) file = open(name, O_RDWR);
  boxes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || boxes == MAP_FAILED) PMPI_Abort(MPI_COMM_WORLD, 2);
  memset(&boxes[me], 0, sizeof boxes[me]);
  PMPI_Barrier(MPI_COMM_WORLD);
  if (me == 0) unlink(name);
  close(file);
}

int MPI_Init(int* argc, char*** argv) {
  static const struct {
    const char* name;
    int what;
  } levels[] = {{"empty", 0},
                {"clock", kClock},
                {"record", kClock | kRecord},
                {"check", kCheck},
                {"record_check", kClock | kRecord | kCheck},
                {"record_wait", kClock | kRecord | kCheck | kWait}};
  const char* const level = getenv("LIMIT_TOOL");
  const int result = PMPI_Init(argc, argv);
  unsigned which = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &me);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  while (which < sizeof levels / sizeof *levels && (level == NULL || strcmp(levels[which].name, level) != 0)) ++which;
  if (which == sizeof levels / sizeof *levels || ranks != 2) {
    fprintf(stderr, "limit_tool: two ranks, and LIMIT_TOOL=empty, clock, record, check, record_check or record_wait\n");
    PMPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (levels[which].what & kCheck) share();
  what = levels[which].what;
  return result;
}

int MPI_Finalize(void) {
  PMPI_Barrier(MPI_COMM_WORLD);
  if (what & kCheck) look();
  const uint64_t mine[] = {calls, records, compared, differ, unchecked + received - taken};
  uint64_t all[5];
  PMPI_Reduce(mine, all, 5, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0)
    printf("tool_calls %llu messages\ntool_records %llu messages\ntool_compared %llu messages\n",
           (unsigned long long)all[0], (unsigned long long)all[1], (unsigned long long)all[2]);
  if (me == 0 && (all[3] != 0 || all[4] != 0)) {
    fprintf(stderr, "limit_tool: %llu messages differ, %llu are not compared\n", (unsigned long long)all[3],
            (unsigned long long)all[4]);
    PMPI_Abort(MPI_COMM_WORLD, 3);
  }
  if (ticks_inside == 1) puts("");  // the clock is wanted
  return PMPI_Finalize();
}
