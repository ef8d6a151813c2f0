// SPDX-License-Identifier: Apache-2.0
//
// Objects made and freed again and again, up to a million times: handles are reused, tables fill, nothing may grow.
#include "hostile.h"

// Growth of the resident memory since the last call, in MiB.
static long grown(void) {
  static long before;
  long pages = 0, unused;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &unused, &pages) != 2) exit(79);
  fclose(file);
  long difference = (pages - before) * 4096 / (1 << 20);
  before = pages;
  return difference;
}
// Says only whether it stayed within what any run may need.
static void say_growth(const char* what, long limit) {
  long mib = grown();
  if (mib > limit) say("%s: %ld MiB more", what, mib);
  else say("%s: within %ld MiB", what, limit);
}

static void types(void) {
  MPI_Datatype type, twice;
  int value = me, sum = 0;
  grown();
  for (int k = 0; k < 1000000; k++) {
    MPI_Type_contiguous(1 + k % 7, MPI_INT, &type);
    if (k % 64 == 0) {
      MPI_Type_dup(type, &twice);
      MPI_Type_commit(&twice);
      MPI_Type_size(twice, &value);
      sum += value;
      MPI_Type_free(&twice);
    }
    MPI_Type_free(&type);
  }
  say("%d", sum);
  say_growth("types", 64);
}

// Most messages go to the rank itself: where ranks take turns on a core, each message between two costs a turn of whoever is there too.
static void used_types(void) {
  MPI_Datatype type;
  int mine[16], theirs[16], peer;
  unsigned sum = 0;
  grown();
  for (int k = 0; k < 20000; k++) {
    MPI_Type_vector(2 + k % 3, 1, 2 + k % 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    memset(theirs, 0, sizeof(theirs));
    for (int i = 0; i < 16; i++) mine[i] = k + i;
    peer = k % 64 ? me : other;
    MPI_Sendrecv(mine, 1, type, peer, 1, theirs, 1, type, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum = sum * 31 + sum_of(theirs, sizeof(theirs));
    MPI_Type_free(&type);
  }
  say("%u", sum);
  say_growth("used types", 64);
}

static void requests(void) {
  MPI_Request request[2];
  int mine, theirs;
  long sum = 0;
  grown();
  for (int k = 0; k < 300000; k++) {
    mine = k;
    MPI_Irecv(&theirs, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request[0]);
    MPI_Isend(&mine, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    sum += theirs;
  }
  say("%ld", sum);
  say_growth("requests", 64);
  for (int k = 0; k < 100000; k++) {
    MPI_Recv_init(&theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &request[0]);
    MPI_Send_init(&mine, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &request[1]);
    MPI_Request_free(&request[0]), MPI_Request_free(&request[1]);
  }
  say_growth("persistent requests", 64);
}

static void outstanding(void) {  // many at once
  enum { kMany = 20000 };
  static MPI_Request request[2 * kMany];
  static int mine[kMany], theirs[kMany];
  for (int k = 0; k < kMany; k++) MPI_Irecv(&theirs[k], 1, MPI_INT, other, k % 500, MPI_COMM_WORLD, &request[k]);
  meet();
  for (int k = 0; k < kMany; k++) mine[k] = k * 3, MPI_Isend(&mine[k], 1, MPI_INT, other, k % 500, MPI_COMM_WORLD, &request[kMany + k]);
  MPI_Waitall(2 * kMany, request, MPI_STATUSES_IGNORE);
  say("%u", sum_of(theirs, sizeof(theirs)));
}

static void no_operator(void* in, void* inout, int* count, MPI_Datatype* type) { (void)in, (void)inout, (void)count, (void)type; }
static void no_handler(MPI_Comm* comm, int* code, ...) { (void)comm, (void)code; }
static void small_objects(void) {
  MPI_Group world, group;
  MPI_Info info;
  MPI_Op op;
  MPI_Errhandler handler;
  int key, zero = 0;
  grown();
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int k = 0; k < 1000000; k++) MPI_Group_incl(world, 1, &zero, &group), MPI_Group_free(&group);
  say_growth("groups", 64);
  for (int k = 0; k < 100000; k++) {
    MPI_Info_create(&info), MPI_Info_set(info, "key", "value"), MPI_Info_free(&info);
    MPI_Op_create(no_operator, 1, &op), MPI_Op_free(&op);
    MPI_Comm_create_errhandler(no_handler, &handler), MPI_Errhandler_free(&handler);
  }
  say_growth("infos, operators, handlers", 64);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  for (int k = 0; k < 1000000; k++) MPI_Comm_set_attr(MPI_COMM_SELF, key, &zero);
  MPI_Comm_delete_attr(MPI_COMM_SELF, key), MPI_Comm_free_keyval(&key);
  say_growth("attributes", 64);
  MPI_Group_free(&world);
}

// Of all ranks few, see used_types; those of one rank go round the table, which has 512.
static void communicators(void) {
  MPI_Comm comm, half;
  int sum = 0, all;
  grown();
  for (int k = 0; k < 100; k++) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce(&k, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_split(comm, (me + k) % 2, 0, &half);
    MPI_Allreduce(&k, &sum, 1, MPI_INT, MPI_SUM, half);
    sum += all;
    MPI_Comm_free(&half), MPI_Comm_free(&comm);
  }
  for (int k = 0; k < 10000; k++) MPI_Comm_dup(MPI_COMM_SELF, &comm), MPI_Comm_free(&comm);
  say("%d", sum);
  say_growth("communicators", 64);
}

static void many_communicators(void) {  // alive at once
  static MPI_Comm comm[400];
  int sum = 0, all;
  for (int k = 0; k < 400; k++) MPI_Comm_dup(MPI_COMM_WORLD, &comm[k]);
  for (int k = 0; k < 400; k++) MPI_Allreduce(&k, &all, 1, MPI_INT, MPI_SUM, comm[(k * 7) % 400]), sum += all;
  for (int k = 399; k >= 0; k--) MPI_Comm_free(&comm[k]);
  say("%d", sum);
}

static void windows_and_files(void) {
  MPI_Win win;
  MPI_File file;
  static int memory[16];
  char name[40];
  grown();
  for (int k = 0; k < 60; k++) {
    MPI_Win_create(memory, sizeof(memory), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win), MPI_Put(&k, 1, MPI_INT, other, 0, 1, MPI_INT, win), MPI_Win_fence(0, win);
    MPI_Win_free(&win);
  }
  say("%d", memory[0]);
  snprintf(name, sizeof(name), "churn-%d", me);
  for (int k = 0; k < 200; k++) {
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
    MPI_File_write_at(file, 4 * k, &k, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
  }
  say_growth("windows and files", 64);
}

static void polls(void) {
  int flag, count = 0;
  // Not more: each of them yields, which on a crowded machine takes as long as the others' turns; 30 s of polls in vain by all
  // ranks are told as a hang.
  for (int k = 0; k < 4000; k++) MPI_Iprobe(MPI_ANY_SOURCE, 31000, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE), count += flag;
  for (int k = 0; k < 1000000; k++) MPI_Initialized(&flag), count += flag;
  say("%d", count);
}

static const struct Case kCases[] = {CASE(types), CASE(used_types), CASE(requests), CASE(outstanding), CASE(small_objects),
  CASE(communicators), CASE(many_communicators), CASE(windows_and_files), CASE(polls), {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_SINGLE); }
