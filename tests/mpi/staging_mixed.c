// SPDX-License-Identifier: Apache-2.0
//
// Messages with device buffers beside requests and errors that are not staging's. Usage: staging_mixed PART host|device
// [FILE]
//
// kinds: completed in one call together with requests of each other kind, which have to come first: rank 1 sends when
// the other request is complete on its side. errors: two threads, one provokes errors on MPI_COMM_WORLD, the other
// receives messages that are too long; every error reaches the handler that is set at that time, once.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "staging_p2p.h"

enum { kLong = 300000, kRounds = 4, kErrors = 300 };
static int on_device;
static const char* path;

// --- kinds
// ------------------------------------------------------------------------------------------------------------

static const char* const kWays[] = {"all", "any", "some"};
static int queried, freed_state;

static int query(void* state, MPI_Status* status) {
  (void)state;
  queried++;
  OK(MPI_Status_set_elements(status, MPI_BYTE, 0));
  OK(MPI_Status_set_cancelled(status, 0));
  status->MPI_SOURCE = MPI_UNDEFINED, status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
static int free_state(void* state) { return (void)state, freed_state++, MPI_SUCCESS; }
static int cancel_state(void* state, int complete) { return (void)state, (void)complete, MPI_SUCCESS; }

static void complete(int way, int count, MPI_Request* requests) {
  MPI_Status statuses[8];
  int indices[8], index, done;
  if (way == 0) OK(MPI_Waitall(count, requests, statuses));
  for (int seen = 0; way == 1 && seen < count; seen++) {
    OK(MPI_Waitany(count, requests, &index, statuses));
    CHECK(index != MPI_UNDEFINED);
  }
  for (int seen = 0; way == 2 && seen < count; seen += done) {
    OK(MPI_Waitsome(count, requests, &done, indices, statuses));
    CHECK(done > 0);
  }
}

/// The other request: made on both ranks. Not a persistent collective's: MPICH 4.0.2 itself completes it, and what
/// stands beside it, too early.
struct Other {
  const char* name;
  int collective_file, file, generalized, partitioned, idup;
};
static const struct Other kOthers[] = {
    {"collective file", 1, 0, 0, 0, 0}, {"file", 0, 1, 0, 0, 0},
    {"generalized", 0, 0, 1, 0, 0},     {"communicator", 0, 0, 0, 0, 1},
#if MPI_VERSION >= 4
    {"partitioned", 0, 0, 0, 1, 0},
#endif
};

static void kind(const struct Other* o, int way, int bytes, unsigned seed) {
  MPI_Request requests[3];
  MPI_File file;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Datatype every_other = MPI_DATATYPE_NULL;
  int values[64], to[64];
  char *out = filled(on_device, (size_t)bytes, seed + (unsigned)rank), *in = filled(on_device, (size_t)bytes + 16, 0);
  for (int i = 0; i < 64; i++) values[i] = (int)seed * 1000 + 100 * rank + i, to[i] = -1;
  queried = freed_state = 0;
  if (o->collective_file || o->file)
    OK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  const MPI_Offset place = (MPI_Offset)(rank * (int)sizeof(values));
  if (o->collective_file) {  // one integer each in turn: the ranks exchange what they write
    OK(MPI_Type_vector(64, 1, 2, MPI_INT, &every_other));
    OK(MPI_Type_commit(&every_other));
    OK(MPI_File_set_view(file, rank * (int)sizeof(int), MPI_INT, every_other, "native", MPI_INFO_NULL));
    OK(MPI_File_iwrite_at_all(file, 0, values, 64, MPI_INT, &requests[2]));
  }
  if (o->file) OK(MPI_File_iwrite_at(file, place, values, 64, MPI_INT, &requests[2]));
  if (o->generalized) {
    OK(MPI_Grequest_start(query, free_state, cancel_state, NULL, &requests[2]));
    OK(MPI_Grequest_complete(requests[2]));
  }
  if (o->idup) OK(MPI_Comm_idup(comm, &made, &requests[2]));
#if MPI_VERSION >= 4
  if (o->partitioned) {
    if (rank == 0) OK(MPI_Precv_init(to, 4, 16, MPI_INT, other, 3, comm, MPI_INFO_NULL, &requests[2]));
    else OK(MPI_Psend_init(values, 4, 16, MPI_INT, other, 3, comm, MPI_INFO_NULL, &requests[2]));
    OK(MPI_Start(&requests[2]));
    for (int i = 0; rank == 1 && i < 4; i++) OK(MPI_Pready(i, requests[2]));
  }
#endif
  if (rank == 0) {
    OK(MPI_Irecv(in, bytes, MPI_BYTE, other, 1, comm, &requests[0]));
    OK(MPI_Isend(out, bytes, MPI_BYTE, other, 2, comm, &requests[1]));
    complete(way, 3, requests);
  } else {
    OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
    OK(MPI_Irecv(in, bytes, MPI_BYTE, other, 2, comm, &requests[0]));
    OK(MPI_Isend(out, bytes, MPI_BYTE, other, 1, comm, &requests[1]));
    complete(way, 2, requests);
  }
  check(on_device, in, (size_t)bytes, (size_t)bytes + 16, seed + (unsigned)other);
  if (o->generalized) CHECK(queried == 1 && freed_state == 1);
  if (o->partitioned) {
    OK(MPI_Request_free(&requests[2]));
    for (int i = 0; i < 64 && rank == 0; i++) CHECK(to[i] == (int)seed * 1000 + 100 + i);
  }
  if (made != MPI_COMM_NULL) {
    OK(MPI_Barrier(made));
    OK(MPI_Comm_free(&made));
  }
  if (o->collective_file || o->file) {
    OK(MPI_Barrier(comm));
    if (o->collective_file)
      OK(MPI_File_set_view(file, other * (int)sizeof(int), MPI_INT, every_other, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, o->collective_file ? 0 : (MPI_Offset)(other * (int)sizeof(values)), to, 64, MPI_INT,
                        MPI_STATUS_IGNORE));
    for (int i = 0; i < 64; i++) CHECK(to[i] == (int)seed * 1000 + 100 * other + i);
    OK(MPI_File_close(&file));
  }
  if (every_other != MPI_DATATYPE_NULL) OK(MPI_Type_free(&every_other));
  memory_free(on_device, out), memory_free(on_device, in);
}

static void kinds(void) {
  unsigned seed = 1;
  for (size_t i = 0; i < sizeof(kOthers) / sizeof(kOthers[0]); i++)
    for (int way = 0; way < 3; way++)
      for (int round = 0; round < kRounds; round++) {
        kind(&kOthers[i], way, round < kRounds - 1 ? kLong : 1000, seed++);
        if (rank == 0 && round == 0) printf("%s, %s\n", kOthers[i].name, kWays[way]);
      }
}

// --- errors
// -----------------------------------------------------------------------------------------------------------

static _Atomic int ranks_told[2], truncations_told, others_told, provoking;

static void count_error(int which, const int* code) {
  const int found_class = class_of(*code);
  if (found_class == MPI_ERR_RANK) ranks_told[which]++;
  else if (found_class == MPI_ERR_TRUNCATE || found_class == MPI_ERR_IN_STATUS) truncations_told++;
  else others_told++;
}
static void first_handler(MPI_Comm* where, int* code, ...) { (void)where, count_error(0, code); }
static void second_handler(MPI_Comm* where, int* code, ...) { (void)where, count_error(1, code); }

/// Errors on the world, to two handlers in turn.
static void* provoke(void* argument) {
  MPI_Errhandler* handlers = argument;
  for (int i = 0; provoking; i++) {
    MPI_Errhandler now;
    char byte = 0;
    const int which = i & 1, before = ranks_told[which];
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers[which]));
    MPI_Send(&byte, 1, MPI_BYTE, 99, 1, MPI_COMM_WORLD);
    CHECK(ranks_told[which] == before + 1);
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now));
    CHECK(now == handlers[which]);
    OK(MPI_Errhandler_free(&now));
    sched_yield();
  }
  return NULL;
}

static void errors(void) {
  pthread_t thread;
  MPI_Errhandler handlers[2];
  MPI_Comm quiet;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  char *data = filled(on_device, 1000, 5), *small = memory_new(on_device, 600), *enough = memory_new(on_device, 600);
  OK(MPI_Comm_dup(comm, &quiet));
  OK(MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN));
  OK(MPI_Comm_create_errhandler(first_handler, &handlers[0]));
  OK(MPI_Comm_create_errhandler(second_handler, &handlers[1]));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers[0]));
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, handlers[0]));
  provoking = 1;
  CHECK(pthread_create(&thread, NULL, provoke, handlers) == 0);
  while (!ranks_told[0] || !ranks_told[1]) sched_yield();
  for (int i = 0; i < kErrors; i++) {
    if (rank == 0) {
      OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 3, quiet, MPI_STATUS_IGNORE));
      OK(MPI_Send(data, 1000, MPI_BYTE, other, 1, quiet));
      OK(MPI_Send(data, 100, MPI_BYTE, other, 2, quiet));
      continue;
    }
    fill(on_device, small, 600, 0), fill(on_device, enough, 600, 0);
    const int before = truncations_told, way = i % 4;
    OK(MPI_Irecv(small, 500, MPI_BYTE, other, 1, quiet, &requests[0]));
    OK(MPI_Irecv(enough, 500, MPI_BYTE, other, 2, quiet, &requests[1]));
    OK(MPI_Send(NULL, 0, MPI_BYTE, other, 3, quiet));
    int result = MPI_SUCCESS, flag = 0, told = 1, index = 0;
    // MPICH 5 says MPI_SUCCESS once a handler of the program's has returned.
    switch (way) {
      case 0: result = MPI_Wait(&requests[0], &statuses[0]); break;
      case 1:
        while (!flag && result == MPI_SUCCESS && requests[0] != MPI_REQUEST_NULL)
          result = MPI_Test(&requests[0], &flag, &statuses[0]);
        break;
      case 2: result = MPI_Waitany(1, requests, &index, &statuses[0]); break;
      default:
        while (!flag && result == MPI_SUCCESS && truncations_told == before)
          result = MPI_Request_get_status(requests[0], &flag, &statuses[0]);
        result = MPI_Wait(&requests[0], &statuses[0]), told = 2;
    }
    CHECK(class_of(result) == MPI_ERR_TRUNCATE || (result == MPI_SUCCESS && truncations_told > before));
    CHECK(requests[0] == MPI_REQUEST_NULL && truncations_told - before <= told);
    OK(MPI_Wait(&requests[1], &statuses[1]));
    check_status(&statuses[1], other, 2, MPI_BYTE, 100);
    check(on_device, enough, 100, 600, 5);
    memory_read(on_device, found, small, 600);
    for (int k = 500; k < 600; k++) CHECK(found[k] == 0xee);
  }
  provoking = 0;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(others_told == 0);
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
  OK(MPI_Errhandler_free(&handlers[0]));
  OK(MPI_Errhandler_free(&handlers[1]));
  OK(MPI_Comm_free(&quiet));
  memory_free(on_device, data), memory_free(on_device, small), memory_free(on_device, enough);
}

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  const int threads = strcmp(argv[1], "errors") == 0;
  int provided, size;
  parts = argv + argc;
  on_device = strcmp(argv[2], "device") == 0;
  path = argc > 3 ? argv[3] : NULL;
  if (on_device) device_open();
  OK(MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
  CHECK(!threads || provided == MPI_THREAD_MULTIPLE);
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(size == 2);
  other = 1 - rank;
  OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  threads ? errors() : kinds();
  OK(MPI_Comm_free(&comm));
  OK(MPI_Finalize());
  if (rank == 0) puts("staging_mixed: ok");
  return 0;
}
