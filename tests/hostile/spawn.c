// SPDX-License-Identifier: Apache-2.0
//
// Worlds that start each other: spawned with one command and with several, on both ranks and on one, children of
// children; traffic of all kinds across the worlds; disconnected, freed, and left as they are. A child is this program,
// whose arguments are "child", the case and the directory for what it sees.
#include "hostile.h"

static char* program;
static char* child_line[4];  // the arguments of a child

static char** arguments(const char* what) {
  child_line[0] = (char*)"child", child_line[1] = (char*)what, child_line[2] = getenv("HOSTILE_OUT");
  return child_line;
}

static MPI_Comm spawn(const char* what, int number, MPI_Comm comm) {
  MPI_Comm children = MPI_COMM_NULL;
  int codes[4] = {-7, -7, -7, -7}, size;
  if (TRY(MPI_Comm_spawn(program, arguments(what), number, MPI_INFO_NULL, 0, comm, &children, codes))) return MPI_COMM_NULL;
  MPI_Comm_set_errhandler(children, MPI_ERRORS_RETURN);
  MPI_Comm_remote_size(children, &size);
  say("%d children, codes %d %d", size, codes[0], codes[1]);
  return children;
}

/// Messages between the equal ranks of both sides: eager and large, nonblocking, probed, persistent, matched, empty.
static void messages(MPI_Comm inter, int partner) {
  enum { kLarge = 200000 };
  static int mine[kLarge], theirs[kLarge];
  MPI_Request request[4];
  MPI_Message message;
  MPI_Status status;
  int count = 0, flag;
  for (int k = 0; k < 6; k++) {
    int size = k % 2 ? kLarge : 10 * k;
    fill(mine, sizeof(mine), k);
    memset(theirs, 0, sizeof(theirs));
    MPI_Irecv(theirs, size, MPI_INT, k < 3 ? partner : MPI_ANY_SOURCE, k, inter, &request[0]);
    if (k == 4) MPI_Issend(mine, size, MPI_INT, partner, k, inter, &request[1]);
    else MPI_Isend(mine, size, MPI_INT, partner, k, inter, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    say("%d: %u", k, sum_of(theirs, size * sizeof(int)));
  }
  MPI_Isend(mine, 77, MPI_INT, partner, 10, inter, &request[0]);
  MPI_Mprobe(MPI_ANY_SOURCE, 10, inter, &message, &status);
  MPI_Get_count(&status, MPI_INT, &count);
  MPI_Mrecv(theirs, count, MPI_INT, &message, MPI_STATUS_IGNORE);
  MPI_Wait(&request[0], MPI_STATUS_IGNORE);
  say("matched %d from %d", count, status.MPI_SOURCE);
  MPI_Recv_init(theirs, 5, MPI_INT, partner, 11, inter, &request[0]);
  MPI_Send_init(mine, 5, MPI_INT, partner, 11, inter, &request[1]);
  for (int k = 0; k < 3; k++) MPI_Startall(2, request), MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  MPI_Request_free(&request[0]), MPI_Request_free(&request[1]);
  MPI_Irecv(theirs, 5, MPI_INT, MPI_ANY_SOURCE, 12, inter, &request[0]);
  MPI_Cancel(&request[0]);
  MPI_Wait(&request[0], &status);
  MPI_Test_cancelled(&status, &flag);
  MPI_Sendrecv(mine, 3, MPI_INT, partner, 13, theirs, 3, MPI_INT, MPI_PROC_NULL, 13, inter, &status);
  MPI_Recv(theirs, 3, MPI_INT, partner, MPI_ANY_TAG, inter, &status);
  say("cancelled %d, tag %d", flag, status.MPI_TAG);
}

/// Collectives across the worlds, the roots on the parents' side.
static void collectives(MPI_Comm inter, int parents) {
  int rank, theirs, mine[8], all[32] = {0}, sum = 0;
  MPI_Request request[3];
  MPI_Comm_rank(inter, &rank), MPI_Comm_remote_size(inter, &theirs);
  for (int k = 0; k < 8; k++) mine[k] = 100 * parents + 10 * rank + k;
  int root = !parents ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
  MPI_Bcast(mine, 4, MPI_INT, root, inter);
  MPI_Gather(mine, 4, MPI_INT, all, 4, MPI_INT, root, inter);
  say("%u", sum_of(all, sizeof(all)));
  MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, inter);
  MPI_Allreduce(mine, all + 16, 3, MPI_INT, MPI_SUM, inter);
  MPI_Alltoall(mine, 2, MPI_INT, all + 20, 2, MPI_INT, inter);
  MPI_Ibarrier(inter, &request[0]);
  MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter, &request[1]);
  MPI_Ibcast(mine + 4, 4, MPI_INT, root, inter, &request[2]);
  MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
  MPI_Barrier(inter);
  say("%u %u %d", sum_of(all, sizeof(all)), sum_of(mine, sizeof(mine)), sum);
}

/// Communicators made of one between worlds, and what they tell.
static void communicators(MPI_Comm inter, int parents, int merge_only) {
  MPI_Comm merged, copy, half;
  MPI_Group all, here, there;
  int rank, size, sum = 0, result, is_inter, places[2] = {0, 0}, asked[2] = {0, 1};
  MPI_Intercomm_merge(inter, !parents, &merged);
  MPI_Comm_set_errhandler(merged, MPI_ERRORS_RETURN);
  MPI_Comm_rank(merged, &rank), MPI_Comm_size(merged, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged);
  int left = (rank + size - 1) % size, right = (rank + 1) % size;
  MPI_Sendrecv_replace(&sum, 1, MPI_INT, right, 3, left, 3, merged, MPI_STATUS_IGNORE);
  say("merged: %d of %d, sum %d", rank, size, sum);
  if (!merge_only) {
    MPI_Comm_group(merged, &all), MPI_Comm_group(inter, &here), MPI_Comm_remote_group(inter, &there);
    MPI_Group_translate_ranks(there, 1, asked, all, places);
    MPI_Group_intersection(here, there, &here), MPI_Group_compare(here, MPI_GROUP_EMPTY, &result);
    say("the other side's first is %d, nobody is on both: %d", places[0], result == MPI_IDENT);
    MPI_Group_free(&all), MPI_Group_free(&there);
    MPI_Comm_dup(inter, &copy);
    MPI_Comm_test_inter(copy, &is_inter);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_split(merged, rank % 2, -rank, &half);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_MAX, half);
    MPI_Comm_compare(half, merged, &result);
    say("copy between worlds %d, half: %d, differs %d", is_inter, sum, result == MPI_UNEQUAL);
    MPI_Comm_free(&half);
  }
  MPI_Comm_free(&merged);
}

// What the children do, by the name of the case.
static void as_child(const char* what) {
  MPI_Comm parent, again;
  char name[MPI_MAX_OBJECT_NAME] = "";
  int rank, size, length, theirs, same = -1;
  MPI_Comm_get_parent(&parent), MPI_Comm_get_parent(&again);
  if (parent == MPI_COMM_NULL) { say("no parent"); return; }
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_remote_size(parent, &theirs), MPI_Comm_compare(parent, again, &same);
  MPI_Comm_get_name(parent, name, &length);
  say("%d of %d, %d parents, the same twice: %d, %s", rank, size, theirs, same == MPI_IDENT, name);
  if (strcmp(what, "silent") == 0) return;
  if (strcmp(what, "grand") == 0 || strcmp(what, "leaf") == 0) {
    if (what[0] == 'g') {
      MPI_Comm below = spawn("leaf", 1, MPI_COMM_WORLD);
      collectives(below, 1);
      MPI_Comm_disconnect(&below);
    }
    collectives(parent, 0);
    MPI_Comm_disconnect(&parent);
    return;
  }
  if (theirs == size) messages(parent, rank);
  collectives(parent, 0);
  communicators(parent, 0, strcmp(what, "merged") == 0);
  if (strcmp(what, "pending") == 0) {
    MPI_Request request;
    int value = 31 + rank;
    MPI_Isend(&value, 1, MPI_INT, rank, 21, parent, &request);
    MPI_Comm_free(&parent);  // while in use
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return;
  }
  if (strcmp(what, "freed") == 0) TRY(MPI_Comm_free(&parent));
  else if (strcmp(what, "left") != 0) {
    TRY(MPI_Comm_disconnect(&parent));
    say("null %d", parent == MPI_COMM_NULL);
  }
}

static void with_children(const char* what, int number, MPI_Comm comm) {
  int size;
  MPI_Comm children = spawn(what, number, comm);
  if (children == MPI_COMM_NULL) return;
  MPI_Comm_size(comm, &size);
  if (size == number) messages(children, comm == MPI_COMM_SELF ? 0 : me);
  collectives(children, 1);
  communicators(children, 1, strcmp(what, "merged") == 0);
  if (strcmp(what, "pending") == 0) {
    MPI_Request request;
    int value = 0;
    MPI_Irecv(&value, 1, MPI_INT, me, 21, children, &request);
    MPI_Comm_free(&children);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say("came %d", value);
  } else if (strcmp(what, "freed") == 0) {
    TRY(MPI_Comm_free(&children));
  } else if (strcmp(what, "left") != 0) {
    TRY(MPI_Comm_disconnect(&children));
  }
}
static void disconnected(void) { with_children("disconnected", 2, MPI_COMM_WORLD); }
static void merged(void) { with_children("merged", 1, MPI_COMM_WORLD); }
static void freed(void) { with_children("freed", 2, MPI_COMM_WORLD); }
static void freed_in_use(void) { with_children("pending", 2, MPI_COMM_WORLD); }
static void left(void) { with_children("left", 1, MPI_COMM_WORLD); }
static void by_one(void) {
  if (me == 1) with_children("by_one", 1, MPI_COMM_SELF);
  meet();
}
static void again_and_again(void) {
  for (int k = 0; k < 3; k++) with_children("again", 1, MPI_COMM_WORLD);
}
static void nobody_speaks(void) {
  MPI_Comm children = spawn("silent", 1, MPI_COMM_WORLD);
  if (children != MPI_COMM_NULL) MPI_Comm_free(&children);
}
static void grandchildren(void) {
  MPI_Comm children = spawn("grand", 1, MPI_COMM_WORLD);
  if (children == MPI_COMM_NULL) return;
  collectives(children, 1);
  MPI_Comm_disconnect(&children);
}

static void multiple(void) {
  MPI_Comm children = MPI_COMM_NULL;
  char* commands[2] = {program, program};
  char* first[] = {(char*)"child", (char*)"multiple", getenv("HOSTILE_OUT"), (char*)"one", NULL};
  char** lines[2] = {arguments("multiple"), first};
  int numbers[2] = {1, 1};
  MPI_Info infos[2] = {MPI_INFO_NULL, MPI_INFO_NULL};
  // What is significant at the root alone is garbage elsewhere.
  void* volatile hidden = (void*)(uintptr_t)24;  // from the compiler, which knows which arguments matter no better
  void* garbage = hidden;
  // Open MPI's library of the standard ABI reads what is not significant, and crashes natively.
  int read_here = me == 0 || (standard_abi() && on_openmpi());
  int code = read_here ? MPI_Comm_spawn_multiple(2, commands, lines, numbers, infos, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE)
                       : MPI_Comm_spawn_multiple(2, garbage, garbage, garbage, garbage, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  if (said("MPI_Comm_spawn_multiple", code)) return;
  messages(children, me);
  collectives(children, 1);
  communicators(children, 1, 0);
  TRY(MPI_Comm_disconnect(&children));
}

static void no_parent(void) {
  MPI_Comm parent = MPI_COMM_WORLD;
  TRY(MPI_Comm_get_parent(&parent));
  say("%d", parent == MPI_COMM_NULL);
}

static const struct Case kCases[] = {CASE(no_parent), CASE(disconnected), CASE(merged), CASE(freed), CASE(freed_in_use),
  CASE(by_one), CASE(again_and_again), CASE(grandchildren), CASE(multiple), CASE(left), CASE(nobody_speaks), {NULL, NULL}};

int main(int argc, char** argv) {
  program = argv[0];
  if (argc < 4 || strcmp(argv[1], "child") != 0) return run_cases(argc, argv, kCases, MPI_THREAD_MULTIPLE);
  setenv("HOSTILE_OUT", argv[3], 1);
  char name[64];
  snprintf(name, sizeof(name), "child-%s", argv[2]);
  out_name = case_name = name;
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  as_child(argv[2]);
  MPI_Finalize();
  say("finalized");
  return 0;
}
