// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for an MPI library with the standard ABI: one process that sends messages to itself. Built as
// libmpi_abi.so.1; MPI_X is a weak alias of PMPI_X, as in real libraries. Wrong use ends the program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpi.h"

#define FAKEMPI_ALIAS(type, name, parameters) __attribute__((weak, alias("PMPI_" #name))) type MPI_##name parameters;
FAKEMPI_FUNCTIONS(FAKEMPI_ALIAS)

enum { kKeys = 8, kComms = 64, kRequests = 256, kMessages = 256, kFirstHandle = 0x10000 };

static void check(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "fakempi: %s\n", what);
  abort();
}

static int initialized, finalized;

static struct Comm {
  int live;
  char name[MPI_MAX_OBJECT_NAME];
  void* values[kKeys];
  char has[kKeys];
} comms[kComms] = {[1] = {1, "MPI_COMM_WORLD", {0}, {0}}, [2] = {1, "MPI_COMM_SELF", {0}, {0}}};

static struct Key {
  MPI_Comm_copy_attr_function* copy;
  MPI_Comm_delete_attr_function* remove;
  void* extra;
} keys[kKeys];
static int key_count;

static struct Request {
  int live, done, receive;
  void* buf;
  size_t bytes;
  int source, tag;
  MPI_Comm comm;
  MPI_Status status;
} requests[kRequests];

static struct Message {
  int live, tag;
  MPI_Comm comm;
  size_t bytes;
  void* data;
  unsigned long order;
} messages[kMessages];
static unsigned long order;

static int comm_index(MPI_Comm comm) {
  const uintptr_t handle = (uintptr_t)comm;
  const int index = handle < 0x1000 ? (int)(handle - 0x100) : (int)(handle - kFirstHandle);
  check(initialized && !finalized, "called outside MPI_Init and MPI_Finalize");
  check(index >= 1 && index < kComms && comms[index].live, "no such communicator");
  return index;
}

static size_t type_bytes(MPI_Datatype type) {
  if (type == MPI_INT) return sizeof(int);
  if (type == MPI_DOUBLE) return sizeof(double);
  check(type == MPI_BYTE, "no such datatype");
  return 1;
}

/// An MPI of another time: FAKEMPI_ABI, FAKEMPI_VERSION.
static int version_from(const char* variable, int usual, int* major, int* minor) {
  const char* text = getenv(variable);
  *minor = 0;
  if (text == NULL || sscanf(text, "%d.%d", major, minor) < 1) *major = usual;
  return MPI_SUCCESS;
}

int PMPI_Abi_get_version(int* major, int* minor) { return version_from("FAKEMPI_ABI", 1, major, minor); }

int PMPI_Get_version(int* major, int* minor) { return version_from("FAKEMPI_VERSION", 5, major, minor); }

int PMPI_Get_library_version(char* text, int* length) {
  *length = sprintf(text, "fakempi 1.0, standard ABI");
  return MPI_SUCCESS;
}

int PMPI_Init(int* argc, char*** argv) {
  (void)argc, (void)argv;
  check(!initialized, "started twice");
  initialized = 1;
  return MPI_SUCCESS;
}

int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  *provided = required;
  return PMPI_Init(argc, argv);
}

static void delete_attributes(MPI_Comm comm) {
  struct Comm* one = &comms[comm_index(comm)];
  for (int key = key_count - 1; key >= 0; key--)
    if (one->has[key]) {
      one->has[key] = 0;
      if (keys[key].remove) check(keys[key].remove(comm, key, one->values[key], keys[key].extra) == 0, "delete fails");
    }
}

int PMPI_Finalize(void) {
  delete_attributes(MPI_COMM_SELF);
  delete_attributes(MPI_COMM_WORLD);
  finalized = 1;
  return MPI_SUCCESS;
}

int PMPI_Initialized(int* flag) {
  *flag = initialized;
  return MPI_SUCCESS;
}

int PMPI_Finalized(int* flag) {
  *flag = finalized;
  return MPI_SUCCESS;
}

int PMPI_Abort(MPI_Comm comm, int code) {
  (void)comm;
  exit(code);
}

int PMPI_Comm_rank(MPI_Comm comm, int* rank) {
  comm_index(comm);
  *rank = 0;
  return MPI_SUCCESS;
}

int PMPI_Comm_size(MPI_Comm comm, int* size) {
  comm_index(comm);
  *size = 1;
  return MPI_SUCCESS;
}

int PMPI_Comm_remote_size(MPI_Comm comm, int* size) {
  (void)comm, (void)size;
  check(0, "there is no intercommunicator");
  return MPI_SUCCESS;
}

int PMPI_Comm_test_inter(MPI_Comm comm, int* flag) {
  comm_index(comm);
  *flag = 0;
  return MPI_SUCCESS;
}

static MPI_Comm new_comm(void) {
  for (int index = 3; index < kComms; index++)
    if (!comms[index].live) {
      memset(&comms[index], 0, sizeof comms[index]);
      comms[index].live = 1;
      return (MPI_Comm)(uintptr_t)(kFirstHandle + index);
    }
  check(0, "too many communicators");
  return MPI_COMM_NULL;
}

int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  const struct Comm* from = &comms[comm_index(comm)];
  *copy = new_comm();
  struct Comm* to = &comms[comm_index(*copy)];
  for (int key = 0; key < key_count; key++) {
    int flag = 0;
    if (!from->has[key] || !keys[key].copy) continue;
    check(keys[key].copy(comm, key, keys[key].extra, from->values[key], &to->values[key], &flag) == 0, "copy fails");
    to->has[key] = (char)flag;
  }
  return MPI_SUCCESS;
}

int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
  (void)key;
  comm_index(comm);
  *part = color == MPI_UNDEFINED ? MPI_COMM_NULL : new_comm();
  return MPI_SUCCESS;
}

int PMPI_Comm_free(MPI_Comm* comm) {
  delete_attributes(*comm);
  comms[comm_index(*comm)].live = 0;
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

int PMPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  comm_index(comm);
  *group = (MPI_Group)(uintptr_t)(kFirstHandle + 7);
  return MPI_SUCCESS;
}

int PMPI_Comm_get_name(MPI_Comm comm, char* name, int* length) {
  *length = sprintf(name, "%s", comms[comm_index(comm)].name);
  return MPI_SUCCESS;
}

int PMPI_Comm_set_name(MPI_Comm comm, const char* name) {
  snprintf(comms[comm_index(comm)].name, MPI_MAX_OBJECT_NAME, "%s", name);
  return MPI_SUCCESS;
}

int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  comm_index(comm);
  check(handler == MPI_ERRORS_RETURN || handler == MPI_ERRORS_ARE_FATAL, "no such error handler");
  return MPI_SUCCESS;
}

int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function* copy, MPI_Comm_delete_attr_function* remove, int* key,
                            void* extra) {
  check(key_count < kKeys, "too many keys");
  // 0 and 1 stand for functions that do nothing (MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN).
  keys[key_count] = (struct Key){(uintptr_t)copy < 16 ? NULL : copy, (uintptr_t)remove < 16 ? NULL : remove, extra};
  *key = key_count++;
  return MPI_SUCCESS;
}

int PMPI_Comm_free_keyval(int* key) {
  *key = -1;
  return MPI_SUCCESS;
}

int PMPI_Comm_set_attr(MPI_Comm comm, int key, void* value) {
  struct Comm* one = &comms[comm_index(comm)];
  check(key >= 0 && key < key_count, "no such key");
  one->values[key] = value;
  one->has[key] = 1;
  return MPI_SUCCESS;
}

int PMPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* flag) {
  const struct Comm* one = &comms[comm_index(comm)];
  check(key >= 0 && key < key_count, "no such key");
  *flag = one->has[key];
  if (*flag) *(void**)value = one->values[key];
  return MPI_SUCCESS;
}

int PMPI_Comm_delete_attr(MPI_Comm comm, int key) {
  struct Comm* one = &comms[comm_index(comm)];
  check(one->has[key], "no such attribute");
  one->has[key] = 0;
  if (keys[key].remove) keys[key].remove(comm, key, one->values[key], keys[key].extra);
  return MPI_SUCCESS;
}

int PMPI_Group_size(MPI_Group group, int* size) {
  check(group != MPI_GROUP_NULL, "no such group");
  *size = 1;
  return MPI_SUCCESS;
}

int PMPI_Group_translate_ranks(MPI_Group from, int count, const int ranks[], MPI_Group to, int out[]) {
  check(from != MPI_GROUP_NULL && to != MPI_GROUP_NULL, "no such group");
  // As the standard has it, input and output must not overlap.
  check(ranks + count <= out || out + count <= ranks, "aliased arguments");
  for (int i = 0; i < count; i++) out[i] = MPI_UNDEFINED;
  for (int i = 0; i < count; i++) out[i] = ranks[i] == 0 ? 0 : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int PMPI_Group_free(MPI_Group* group) {
  *group = MPI_GROUP_NULL;
  return MPI_SUCCESS;
}

int PMPI_Topo_test(MPI_Comm comm, int* status) {
  comm_index(comm);
  *status = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int PMPI_Type_size(MPI_Datatype type, int* size) {
  *size = (int)type_bytes(type);
  return MPI_SUCCESS;
}

int PMPI_Type_size_c(MPI_Datatype type, MPI_Count* size) {
  *size = (MPI_Count)type_bytes(type);
  return MPI_SUCCESS;
}

int PMPI_Type_size_x(MPI_Datatype type, MPI_Count* size) { return PMPI_Type_size_c(type, size); }

int PMPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
  *count = (int)((size_t)status->MPI_internal[0] / type_bytes(type));
  return MPI_SUCCESS;
}

// The oldest message that a receive matches.
static struct Message* match(int source, int tag, MPI_Comm comm) {
  struct Message* oldest = NULL;
  check(source == 0 || source == MPI_ANY_SOURCE, "no such source");
  for (int i = 0; i < kMessages; i++)
    if (messages[i].live && messages[i].comm == comm && (tag == MPI_ANY_TAG || messages[i].tag == tag) &&
        (!oldest || messages[i].order < oldest->order))
      oldest = &messages[i];
  return oldest;
}

static void deliver(struct Request* request) {
  struct Message* message = match(request->source, request->tag, request->comm);
  if (!message) return;
  const size_t bytes = message->bytes < request->bytes ? message->bytes : request->bytes;
  memcpy(request->buf, message->data, bytes);
  request->status = (MPI_Status){
      0, message->tag, message->bytes > request->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS, {(int)bytes, 0, 0, 0, 0}};
  request->done = 1;
  free(message->data);
  message->live = 0;
}

static MPI_Request new_request(struct Request value) {
  for (int i = 0; i < kRequests; i++)
    if (!requests[i].live) {
      requests[i] = value;
      requests[i].live = 1;
      return (MPI_Request)(uintptr_t)(kFirstHandle + i);
    }
  check(0, "too many requests");
  return MPI_REQUEST_NULL;
}

int PMPI_Isend(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request* request) {
  comm_index(comm);
  if (dest != 0 && dest != MPI_PROC_NULL) return MPI_ERR_RANK;
  for (int i = 0; dest == 0; i++) {
    check(i < kMessages, "too many messages");
    if (messages[i].live) continue;
    const size_t bytes = (size_t)count * type_bytes(type);
    messages[i] = (struct Message){1, tag, comm, bytes, malloc(bytes + 1), order++};
    memcpy(messages[i].data, buf, bytes);
    break;
  }
  *request = new_request((struct Request){.done = 1, .status = {0, tag, 0, {0}}});
  for (unsigned long turn = 0; turn < kRequests; turn++)  // receives in posting order: their place in the table
    if (requests[turn].live && requests[turn].receive && !requests[turn].done) deliver(&requests[turn]);
  return MPI_SUCCESS;
}

int PMPI_Irecv(void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  comm_index(comm);
  struct Request value = {
      .receive = 1, .buf = buf, .bytes = (size_t)count * type_bytes(type), .source = source, .tag = tag, .comm = comm};
  if (source == MPI_PROC_NULL) {
    value.done = 1;
    value.status = (MPI_Status){MPI_PROC_NULL, MPI_ANY_TAG, 0, {0}};
  } else {
    deliver(&value);
  }
  *request = new_request(value);
  return MPI_SUCCESS;
}

int PMPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (*request == MPI_REQUEST_NULL) {
    *flag = 1;
    if (status) *status = (MPI_Status){MPI_ANY_SOURCE, MPI_ANY_TAG, 0, {0}};
    return MPI_SUCCESS;
  }
  struct Request* one = &requests[(uintptr_t)*request - kFirstHandle];
  check(one->live, "no such request");
  *flag = one->done;
  if (!one->done) return MPI_SUCCESS;
  if (status) *status = one->status;
  one->live = 0;
  *request = MPI_REQUEST_NULL;
  return one->status.MPI_ERROR;
}

/// Of an MPI newer than any: nobody's table of functions has it.
int PMPI_Future_isend(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                      MPI_Request* request) {
  return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}

int PMPI_Wait(MPI_Request* request, MPI_Status* status) {
  int flag;
  const int code = PMPI_Test(request, &flag, status);
  check(flag, "waits for ever");
  return code;
}

int PMPI_Waitall(int count, MPI_Request list[], MPI_Status statuses[]) {
  for (int i = 0; i < count; i++) {
    const int code = PMPI_Wait(&list[i], statuses ? &statuses[i] : NULL);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

int PMPI_Request_free(MPI_Request* request) {
  requests[(uintptr_t)*request - kFirstHandle].live = 0;
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

int PMPI_Send(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  MPI_Request request;
  const int code = PMPI_Isend(buf, count, type, dest, tag, comm, &request);
  return code != MPI_SUCCESS ? code : PMPI_Wait(&request, NULL);
}

int PMPI_Recv(void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  MPI_Request request;
  PMPI_Irecv(buf, count, type, source, tag, comm, &request);
  return PMPI_Wait(&request, status);
}

int PMPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  const struct Message* message = match(source, tag, comm);
  *flag = message != NULL;
  if (message && status) *status = (MPI_Status){0, message->tag, 0, {(int)message->bytes, 0, 0, 0, 0}};
  return MPI_SUCCESS;
}

int PMPI_Barrier(MPI_Comm comm) {
  comm_index(comm);
  return MPI_SUCCESS;
}

int PMPI_Bcast(void* buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  (void)buf, (void)count, (void)type;
  comm_index(comm);
  return root == 0 ? MPI_SUCCESS : MPI_ERR_RANK;
}

int PMPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  comm_index(comm);
  check(op == MPI_SUM || op == MPI_BAND, "no such operation");  // of one rank: what it gives
  if (in != MPI_IN_PLACE) memcpy(out, in, (size_t)count * type_bytes(type));
  return MPI_SUCCESS;
}

double PMPI_Wtime(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* As in MPICH 3.4, whose assertion holds for errors only: a program that asks this way ends. The other way is right. */
int MPIX_Query_cuda_support(void) {
  check(0, "MPIX_Query_cuda_support: mpi_errno");
  return 0;
}

int MPIX_GPU_query_support(int type, int* supported) {
  check(type == 0, "no such type of GPU");
  *supported = 0;
  return MPI_SUCCESS;
}
