// SPDX-License-Identifier: Apache-2.0
//
// Programs that are not linked with MPI: they load it at run time, or a plug-in that is linked with it, find functions in
// three ways, close what they loaded under way or at the end, and load it again; or they would use an MPI if there was one
// (weak references). One case a process. The plug-in is this file with PLUGIN defined: the program's name and ".so".
#include "hostile.h"

#ifdef PLUGIN

int plugin(const char* name, int what);

static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int k = 0; k < *count; k++) ((int*)inout)[k] += ((int*)in)[k];
}

/// 'i': MPI_Init; 't': traffic; 'f': MPI_Finalize. The number of messages that were right.
int plugin(const char* name, int what) {
  enum { kSize = 40000 };
  static int mine[kSize], theirs[kSize];
  int right = 0, sum = 0, one = 1;
  MPI_Op op;
  case_name = name;
  if (what == 'i') MPI_Init(NULL, NULL);
  learn_rank();
  for (int k = 0; k < 20; k++) {
    int size = k % 5 ? 10 * k : kSize;
    MPI_Request request;
    fill(mine, sizeof(mine), k);
    memset(theirs, 0, sizeof(theirs));
    MPI_Irecv(theirs, size, MPI_INT, other, k, MPI_COMM_WORLD, &request);
    MPI_Send(mine, size, MPI_INT, other, k, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    right += memcmp(mine, theirs, size * sizeof(int)) == 0;
    MPI_Allreduce(&k, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Op_create(add, 1, &op);
  MPI_Allreduce(&one, &right, 0, MPI_INT, op, MPI_COMM_WORLD);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  MPI_Op_free(&op);
  MPI_Bcast(mine, 100, MPI_INT, 1, MPI_COMM_WORLD);
  meet();
  if (what == 'f') MPI_Finalize();
  close(out_fd);
  return right * 10 + sum;
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

static char* program;

static void* mpi(int how) {
  char name[40];
  void* found = NULL;
#ifdef RESIL_STANDARD_ABI  // of which there is no later version yet
  const char* stem = "libmpi_abi";
  const int first = 1;
#elif defined(OPEN_MPI)
  const char* stem = "libmpi";
  const int first = 10;
#else
  const char* stem = "libmpich";
  const int first = 10;
#endif
  for (int number = 120; number >= first && !found; number--) {
    snprintf(name, sizeof(name), "%s.so.%d", stem, number);
    found = dlopen(name, RTLD_NOW | how);
  }
  say("loaded %d", found != NULL);
  if (!found) exit(79);
  return found;
}

#define FUNCTION(name) __typeof__(&MPI_##name) name = (__typeof__(&MPI_##name))dlsym(from, "MPI_" #name)
/// What a program does with functions found in `from`; data comes from `library`. what: as in the plug-in, all of it: 0.
static void use(void* library, void* from, int what) {
  FUNCTION(Init);
  FUNCTION(Comm_rank);
  FUNCTION(Allreduce);
  FUNCTION(Sendrecv);
  FUNCTION(Irecv);
  FUNCTION(Send);
  FUNCTION(Wait);
  FUNCTION(Barrier);
  FUNCTION(Finalize);
  FUNCTION(Initialized);
#ifdef OPEN_MPI
  MPI_Comm world = dlsym(library, "ompi_mpi_comm_world");
  MPI_Datatype type = dlsym(library, "ompi_mpi_int");
  MPI_Op op = dlsym(library, "ompi_mpi_op_sum");
#else
  MPI_Comm world = MPI_COMM_WORLD;
  MPI_Datatype type = MPI_INT;
  MPI_Op op = MPI_SUM;
  (void)library;
#endif
  enum { kSize = 30000 };
  static int mine[kSize], theirs[kSize];
  int flag = -1, sum = 0, right = 0;
  MPI_Request request;
  if (!Init || !Barrier) { say("not found"); return; }
  Initialized(&flag);
  if (!what || what == 'i') Init(NULL, NULL);
  Comm_rank(world, &me);
  other = 1 - me;
  for (int k = 0; k < 20; k++) {
    int size = k % 5 ? 10 * k : kSize;
    fill(mine, sizeof(mine), k);
    memset(theirs, 0, sizeof(theirs));
    Irecv(theirs, size, type, other, k, world, &request);
    Send(mine, size, type, other, k, world);
    Wait(&request, MPI_STATUS_IGNORE);
    right += memcmp(mine, theirs, size * sizeof(int)) == 0;
    Allreduce(&k, &sum, 1, type, op, world);
  }
  Sendrecv(&right, 1, type, other, 30, &sum, 1, type, other, 30, world, MPI_STATUS_IGNORE);
  Barrier(world);
  say("initialised %d, right %d %d", flag, right, sum);
  if (!what || what == 'f') Finalize();
}

static void global(void) {
  void* library = mpi(RTLD_GLOBAL);
  use(library, library, 0);
  say("closed %d", dlclose(library));
}
static void local(void) {
  void* library = mpi(RTLD_LOCAL);
  use(library, library, 0);
  say("closed %d", dlclose(library));
}
static void by_default(void) {
  void* library = mpi(RTLD_GLOBAL);
  use(library, RTLD_DEFAULT, 0);
  say("closed %d", dlclose(library));
}
// Started behind the back of what is preloaded, used through it; and the other way round.
static void started_behind(void) {
  void* library = mpi(RTLD_GLOBAL);
  use(library, library, 'i'), use(library, RTLD_DEFAULT, 't'), use(library, library, 'f');
}
static void ended_behind(void) {
  void* library = mpi(RTLD_GLOBAL);
  use(library, RTLD_DEFAULT, 'i'), use(library, library, 't'), use(library, RTLD_DEFAULT, 't'), use(library, library, 'f');
}
static void again(void) {  // closed before it is used, opened again, closed afterwards
  for (int k = 0; k < 3; k++) dlclose(mpi(k == 1 ? RTLD_GLOBAL : RTLD_LOCAL));
  void* library = mpi(RTLD_GLOBAL);
  use(library, library, 0);
  dlclose(library);
  library = mpi(RTLD_GLOBAL);
  __typeof__(&MPI_Finalized) ended = (__typeof__(&MPI_Finalized))dlsym(library, "MPI_Finalized");
  int flag = -1;
  ended(&flag);
  say("still finalized: %d", flag);
  if (!flag) use(library, library, 0);  // the library had left the process: a new one
  dlclose(library);
}
static void again_by_default(void) {
  void* library = mpi(RTLD_GLOBAL);
  use(library, RTLD_DEFAULT, 0);
  dlclose(library);
  void* hole = mmap(NULL, 1 << 24, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // it comes to lie elsewhere
  library = mpi(RTLD_GLOBAL);
  __typeof__(&MPI_Finalized) ended = (__typeof__(&MPI_Finalized))dlsym(RTLD_DEFAULT, "MPI_Finalized");
  int flag = -1;
  ended(&flag);
  say("still finalized: %d", flag);
  if (!flag) use(library, RTLD_DEFAULT, 0);
  dlclose(library), munmap(hole, 1 << 24);
}

typedef int (*Plugin)(const char*, int);
static void* load(int how, Plugin* run) {
  char path[600];
  snprintf(path, sizeof(path), "%s.so", program);
  void* library = dlopen(path, RTLD_NOW | how);
  if (!library) say("%s", dlerror()), exit(79);
  *run = (Plugin)dlsym(library, "plugin");
  return library;
}
/// With the plug-in away while MPI goes on, three times; the place where it lay is taken by something else.
static void plugin_with(int how, void* keep) {
  static const char kOrder[] = "ittf";
  for (int k = 0; k < 4; k++) {
    Plugin run;
    void* library = load(how, &run);
    say("%c: %d", kOrder[k], run(case_name, kOrder[k]));
    void* where = (void*)((uintptr_t)run & ~4095ul);
    if (k < 3 && !keep) continue;  // not closed: MPI would go with it
    dlclose(library);
    int away = mmap(where, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == where;
    say("away %d", away);
    if (away) munmap(where, 4096);
  }
}
static void plugin_local(void) { plugin_with(RTLD_LOCAL, mpi(RTLD_LOCAL)); }
static void plugin_global(void) { plugin_with(RTLD_GLOBAL, mpi(RTLD_GLOBAL)); }
static void plugin_kept(void) { plugin_with(RTLD_LOCAL, NULL); }
static void* in_thread(void* unused) {
  plugin_with(RTLD_LOCAL, mpi(RTLD_LOCAL));
  return unused;
}
static void plugin_in_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
}

// A library that works with and without MPI. Who preloads gives it the symbols, but no MPI.
extern int MPI_Initialized(int* flag) __attribute__((weak));
extern int MPI_Finalized(int* flag) __attribute__((weak));
static void weak_references(void) {
  int flag = 0, ended = 0;
  for (int k = 0; k < 3; k++) {
    if (MPI_Initialized) MPI_Initialized(&flag);
    if (MPI_Finalized) MPI_Finalized(&ended);
    say("runs %d, ended %d", flag, ended);
  }
  void* library = mpi(RTLD_GLOBAL);  // now there is one
  use(library, RTLD_DEFAULT, 0);
}

static const struct Case kCases[] = {CASE(global), CASE(local), CASE(by_default), CASE(started_behind), CASE(ended_behind),
  CASE(again), CASE(again_by_default), CASE(plugin_local), CASE(plugin_global), CASE(plugin_kept), CASE(plugin_in_thread),
  CASE(weak_references), {NULL, NULL}};

int main(int argc, char** argv) {
  program = argv[0];
  if (argc < 2) return list_cases(kCases), 0;
  const struct Case* one = find_case(kCases, argv[1]);
  case_name = one->name;
  say("begins");
  one->run();
  say("ends");
  return 0;
}

#endif
