// SPDX-License-Identifier: Apache-2.0
//
// A bug that hangs the program: makes one rank stop, at one moment, in one way. A library to be preloaded in front of
// libresil.so, so that to resil it is the program's own doing; needs nothing of resil.
//
//   HANG_INJECT      "CLASS[,rank=R][,after=SECONDS][,call=N][,where=user|mpi][,patience=SECONDS]"
//   HANG_INJECT_LOG  file for one line of JSON, written just before: class, rank, pid, time (CLOCK_REALTIME, ns), where
//
// sleep spin stop lock io exit kill: what the rank does instead of going on. `after` SECONDS after MPI_Init a timer
// interrupts the main thread, and again a millisecond or so later, or at a random instant between two of its calls,
// until it finds it in the program's own code (where=mpi: inside of the MPI library); a program that hardly ever is in
// its own is hung before its next message, after two seconds of this. With `call` it is the Nth message or collective
// of the rank, just before it. skip: a collective is not called. reorder: a barrier comes before a collective (a sum
// before a barrier). tag: a message goes out with another tag. These take the Nth collective (message) of more than one
// rank, or the first after SECONDS.
//
// Both layers are wrapped, since Fortran's bindings call PMPI_ names in Open MPI and MPI_ names in MPICH; what the MPI
// library calls inside of itself is not counted. No thread is made: one more thread would make another program of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum Class { kNone, kSleep, kSpin, kStop, kLock, kIo, kExit, kKill, kSkip, kReorder, kTag };
static const char* const kNames[] = {"",     "sleep", "spin", "stop",    "lock", "io",
                                     "exit", "kill",  "skip", "reorder", "tag"};
enum What { kMessage, kCollective };
enum { kFrames = 64 };  // stack frames looked at
#define kSignal (SIGRTMAX - 9)  // nobody else's here

static enum Class class_wanted;
static int own_rank, in_mpi_wanted, started, done;
static unsigned long call_wanted, calls;
static double after = -1, patience = 2;  // seconds
static volatile sig_atomic_t hunting;  // `after` is over, and the rank was not where it should be
static double left_at, between_calls;  // when the last call returned; how long it was until the next
static struct timespec start;
static timer_t timer;
static int timer_made;
static __thread int depth;

static double elapsed(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
}

// ---- whose code is it ----------------------------------------------------------------------------------------------

enum Owner { kProgram, kMpi, kBinding, kResil, kSystem, kOwn };

static enum Owner owner(const void* address) {
  static const char* const of_mpi[] = {"libmpi", "libmpich",  "libopen-", "libmca",   "mca_",   "libpmi",
                                       "libuc",  "libfabric", "libevent", "libhwloc", "libpsm", "libnl-"};
  static const char* const of_system[] = {"libc.so", "libc-", "ld-linux", "linux-vdso", "libpthread", "libgcc_s"};
  Dl_info info, own;
  if (!dladdr(address, &info) || info.dli_fname == NULL) return kSystem;  // the kernel's page, code made at run time
  if (dladdr((void*)owner, &own) && own.dli_fbase == info.dli_fbase) return kOwn;
  const char* name = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
  if (strstr(name, "mpifh") || strstr(name, "usempi") || strstr(name, "mpichfort")) return kBinding;
  if (!strncmp(name, "libresil", 8)) return kResil;
  for (size_t i = 0; i < sizeof of_mpi / sizeof *of_mpi; i++)
    if (!strncmp(name, of_mpi[i], strlen(of_mpi[i]))) return kMpi;
  for (size_t i = 0; i < sizeof of_system / sizeof *of_system; i++)
    if (!strncmp(name, of_system[i], strlen(of_system[i]))) return kSystem;
  return kProgram;
}

// Whether the interrupted instruction is where the hang is wanted.
static int at_right_place(const void* instruction) {
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  int mpi = 0, library = 0;
  for (int i = 0; i < count; i++) {
    const enum Owner whose = owner(frames[i]);
    library |= whose == kMpi;
    mpi |= whose == kMpi || whose == kBinding || whose == kResil;
  }
  return in_mpi_wanted ? library : !mpi && owner(instruction) == kProgram;
}

// ---- what happens then ---------------------------------------------------------------------------------------------

// Whether the record is there: what is not told does not happen.
static int note(const char* where) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char line[512];
  const long long nanoseconds = (long long)now.tv_sec * 1000000000 + now.tv_nsec;
  snprintf(line, sizeof line,
           "{\"class\": \"%s\", \"rank\": %d, \"pid\": %d, \"time_ns\": %lld, \"where\": \"%s\", \"call\": %lu}\n",
           kNames[class_wanted], own_rank, (int)getpid(), nanoseconds, where, calls);
  const char* path = getenv("HANG_INJECT_LOG");
  char unfinished[4096];
  if (path == NULL || snprintf(unfinished, sizeof unfinished, "%s.tmp", path) >= (int)sizeof unfinished)
    return path == NULL;
  const int file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC, 0600);  // whole when it appears
  if (file < 0) return 0;
  const int whole = write(file, line, strlen(line)) == (ssize_t)strlen(line);
  return close(file) == 0 && whole && rename(unfinished, path) == 0;
}

static void hang_sleep(void) {
  const struct timespec hour = {3600, 0};
  for (;;) nanosleep(&hour, NULL);
}

static void hang_spin(void) {
  for (volatile int on = 1; on;) continue;
}

static void hang_lock(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  for (;;) pthread_mutex_lock(&mutex);  // the second time for ever
}

static void hang_io(void) {
  char path[4096], byte;
  const char* log = getenv("HANG_INJECT_LOG");
  snprintf(path, sizeof path, "%s.fifo", log ? log : "/tmp/hang_inject");
  unlink(path);
  const int pipe = mkfifo(path, 0600) == 0 ? open(path, O_RDWR) : -1;  // both ends: opening it does not block
  unlink(path);
  while (pipe >= 0)
    if (read(pipe, &byte, 1) == 1) return;
}

static int hang(const char* where) {
  done = 1;
  if (!note(where)) return 0;
  switch (class_wanted) {
    case kSleep: hang_sleep(); break;
    case kSpin: hang_spin(); break;
    case kStop: kill(getpid(), SIGSTOP); break;
    case kLock: hang_lock(); break;
    case kIo: hang_io(); break;
    case kExit: _exit(0);
    case kKill: kill(getpid(), SIGKILL); break;
    default: break;
  }
  return 1;
}

// ---- when ----------------------------------------------------------------------------------------------------------

static int is_of_calls(void) { return class_wanted >= kSkip; }

// 0 to 1. Not rand(): its lock may be held by the code that the timer interrupts, and the rank would hang there.
static unsigned long state = 88172645463325252ul;

static double chance(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) / 9007199254740992.0;
}

static void set_timer(double seconds) {
  struct itimerspec when = {{0, 0}, {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) + 1}};
  timer_settime(timer, 0, &when, NULL);
}

static void on_timer(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  if (done) return;
#if defined(__x86_64__)
  const void* instruction = (const void*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  const void* instruction = (const void*)((ucontext_t*)context)->uc_mcontext.pc;
#else
#error "where is the program counter?"
#endif
  hunting = !in_mpi_wanted;
  if (at_right_place(instruction)) hang(in_mpi_wanted ? "in MPI" : "in user code");
  else set_timer(0.0005 + 0.000001 * chance() * 2000);
}

// A call returns to the program: a rank that waits most of its time is caught here, not by a clock.
static void left(void) {
  left_at = elapsed();
  if (between_calls > 0) set_timer(between_calls * chance());
}

static void begin(void) {
  if (started || class_wanted == kNone) return;
  started = 1;
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (is_of_calls() || after < 0) return;
  void* frames[4];
  (void)backtrace(frames, 4);  // loads what it needs now, not in the handler
  struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(kSignal, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = kSignal};
  event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return perror("hang_inject");
  timer_made = 1;
  set_timer(after);
}

__attribute__((constructor)) static void configure(void) {
  char text[256];
  const char* wanted = getenv("HANG_INJECT");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
  if (!wanted || !rank || snprintf(text, sizeof text, "%s", wanted) >= (int)sizeof text) return;
  int rank_wanted = 0;
  enum Class found = kNone;
  for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
    if (!strncmp(word, "rank=", 5)) rank_wanted = atoi(word + 5);
    else if (!strncmp(word, "after=", 6)) after = atof(word + 6);
    else if (!strncmp(word, "call=", 5)) call_wanted = strtoul(word + 5, NULL, 10);
    else if (!strncmp(word, "patience=", 9)) patience = atof(word + 9);
    else if (!strcmp(word, "where=mpi")) in_mpi_wanted = 1;
    else if (!strcmp(word, "where=user")) in_mpi_wanted = 0;
    else
      for (int i = kSleep; i <= kTag; i++)
        if (!strcmp(word, kNames[i])) found = (enum Class)i;
  }
  own_rank = atoi(rank);
  if (rank_wanted != own_rank) return;
  if (found == kNone || (after < 0) == (call_wanted == 0)) {
    fprintf(stderr, "hang_inject: '%s' is no injection\n", wanted);
    return;
  }
  class_wanted = found;
  state ^= (unsigned long)getpid() << 20;
}

static void find(const char* name, void* next) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    fprintf(stderr, "hang_inject: no %s behind me\n", name);
    abort();
  }
  memcpy(next, &found, sizeof found);
}

static int more_than_one(MPI_Comm comm) {
  static int (*next)(MPI_Comm, int*);
  int size = 0;
  if (!next) find("PMPI_Comm_size", &next);
  depth++;
  const int result = next(comm, &size);
  depth--;
  return result == MPI_SUCCESS && size > 1;
}

// Whether the injection happens to this call; hangs in it when it is one that takes any call.
static int strikes(enum What what, MPI_Comm comm, const char* name, const void* caller) {
  begin();
  const int right_kind = !is_of_calls() || (class_wanted == kTag) == (what == kMessage);
  const enum Owner whose = owner(caller);
  if (!right_kind || whose == kMpi || (is_of_calls() && !more_than_one(comm))) return 0;
  calls++;
  if (left_at > 0) between_calls = elapsed() - left_at;
  left_at = 0;
  const double late = is_of_calls() ? 0 : patience;
  if (call_wanted ? calls != call_wanted : in_mpi_wanted || elapsed() < after + late) return 0;
  char where[128];
  snprintf(where, sizeof where, is_of_calls() ? "at %s" : "before %s", name);
  return hang(where);
}

#define ARMED (class_wanted != kNone && !done && depth == 0)
#define NEXT(arguments)           \
  depth++;                        \
  const int out = next arguments; \
  depth--;                        \
  if (hunting && ARMED) left();   \
  return out

#define MESSAGE1(name, parameters, arguments)                                                                \
  int name parameters {                                                                                      \
    static int(*next) parameters;                                                                            \
    if (!next) find(#name, &next);                                                                           \
    if (ARMED && d >= 0 && strikes(kMessage, c, #name, __builtin_return_address(0)) && class_wanted == kTag) \
      g = g > 0 ? g - 1 : 1;                                                                                 \
    NEXT(arguments);                                                                                         \
  }
#define COLLECTIVE1(name, parameters, arguments)                                \
  int name parameters {                                                         \
    static int(*next) parameters;                                               \
    if (!next) find(#name, &next);                                              \
    if (ARMED && strikes(kCollective, c, #name, __builtin_return_address(0))) { \
      if (class_wanted == kSkip) return MPI_SUCCESS;                            \
      if (class_wanted == kReorder) call_another_than(#name, c);                \
    }                                                                           \
    NEXT(arguments);                                                            \
  }
// One layer only: who defines PMPI_Init is an MPI library. Fortran programs with Open MPI, and those of mpi_f08 with
// MPICH, begin with their first message or collective.
#define START(name, parameters, arguments) \
  int MPI_##name parameters {              \
    static int(*next) parameters;          \
    if (!next) find("MPI_" #name, &next);  \
    depth++;                               \
    const int out = next arguments;        \
    depth--;                               \
    if (depth == 0) begin();               \
    return out;                            \
  }
#define MESSAGE(name, parameters, arguments) \
  MESSAGE1(MPI_##name, parameters, arguments) MESSAGE1(PMPI_##name, parameters, arguments)
#define COLLECTIVE(name, parameters, arguments) \
  COLLECTIVE1(MPI_##name, parameters, arguments) COLLECTIVE1(PMPI_##name, parameters, arguments)

typedef MPI_Datatype Type;

static void call_another_than(const char* name, MPI_Comm comm) {
  static int (*barrier)(MPI_Comm);
  static int (*sum)(const void*, void*, int, Type, MPI_Op, MPI_Comm);
  int own = 1, all;
  depth++;
  if (strstr(name, "MPI_Barrier")) {
    if (!sum) find("MPI_Allreduce", &sum);
    sum(&own, &all, 1, MPI_INT, MPI_SUM, comm);
  } else {
    if (!barrier) find("MPI_Barrier", &barrier);
    barrier(comm);
  }
  depth--;
}

START(Init, (int* n, char*** v), (n, v))
START(Init_thread, (int* n, char*** v, int w, int* p), (n, v, w, p))

MESSAGE(Send, (const void* b, int n, Type t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
MESSAGE(Ssend, (const void* b, int n, Type t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
MESSAGE(Rsend, (const void* b, int n, Type t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
MESSAGE(Bsend, (const void* b, int n, Type t, int d, int g, MPI_Comm c), (b, n, t, d, g, c))
MESSAGE(Isend, (const void* b, int n, Type t, int d, int g, MPI_Comm c, MPI_Request* r), (b, n, t, d, g, c, r))
MESSAGE(Issend, (const void* b, int n, Type t, int d, int g, MPI_Comm c, MPI_Request* r), (b, n, t, d, g, c, r))
MESSAGE(Sendrecv,
        (const void* b, int n, Type t, int d, int g, void* rb, int rn, Type rt, int s, int rg, MPI_Comm c,
         MPI_Status* st),
        (b, n, t, d, g, rb, rn, rt, s, rg, c, st))
MESSAGE(Sendrecv_replace, (void* b, int n, Type t, int d, int g, int s, int rg, MPI_Comm c, MPI_Status* st),
        (b, n, t, d, g, s, rg, c, st))

COLLECTIVE(Barrier, (MPI_Comm c), (c))
COLLECTIVE(Bcast, (void* b, int n, Type t, int r, MPI_Comm c), (b, n, t, r, c))
COLLECTIVE(Reduce, (const void* s, void* b, int n, Type t, MPI_Op o, int r, MPI_Comm c), (s, b, n, t, o, r, c))
COLLECTIVE(Allreduce, (const void* s, void* b, int n, Type t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
COLLECTIVE(Scan, (const void* s, void* b, int n, Type t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
COLLECTIVE(Exscan, (const void* s, void* b, int n, Type t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
COLLECTIVE(Reduce_scatter, (const void* s, void* b, const int n[], Type t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
COLLECTIVE(Gather, (const void* s, int n, Type t, void* b, int m, Type u, int r, MPI_Comm c), (s, n, t, b, m, u, r, c))
COLLECTIVE(Scatter, (const void* s, int n, Type t, void* b, int m, Type u, int r, MPI_Comm c), (s, n, t, b, m, u, r, c))
COLLECTIVE(Allgather, (const void* s, int n, Type t, void* b, int m, Type u, MPI_Comm c), (s, n, t, b, m, u, c))
COLLECTIVE(Alltoall, (const void* s, int n, Type t, void* b, int m, Type u, MPI_Comm c), (s, n, t, b, m, u, c))
COLLECTIVE(Gatherv, (const void* s, int n, Type t, void* b, const int m[], const int e[], Type u, int r, MPI_Comm c),
           (s, n, t, b, m, e, u, r, c))
COLLECTIVE(Scatterv, (const void* s, const int n[], const int e[], Type t, void* b, int m, Type u, int r, MPI_Comm c),
           (s, n, e, t, b, m, u, r, c))
COLLECTIVE(Allgatherv, (const void* s, int n, Type t, void* b, const int m[], const int e[], Type u, MPI_Comm c),
           (s, n, t, b, m, e, u, c))
COLLECTIVE(Alltoallv,
           (const void* s, const int n[], const int e[], Type t, void* b, const int m[], const int f[], Type u,
            MPI_Comm c),
           (s, n, e, t, b, m, f, u, c))
