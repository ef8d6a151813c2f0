// SPDX-License-Identifier: Apache-2.0
//
// Correct programs that do things in an order that MPI leaves free: orders KIND... runs the kinds one after the other;
// a kind NAME+ takes several seconds, long enough for a proof, the others a moment. Prints "KIND ok" on rank 0. Nothing
// here is an error, whoever watches; all kinds work with two ranks or more.
//
// starts      persistent collectives, made in one order, are started in another one on each rank, and overlap (MPI 4)
// starts+     likewise until they have been compared; then the last rank starts late what the others wait for
// completed   nonblocking collectives are completed in any order, by all kinds of calls
// between     nonblocking collectives of two communicators, in another order on each rank
// startall    persistent messages of one envelope in one MPI_Startall, others started in any order
// partitioned partitions are ready in any order; requests of one envelope match by the order of their making (MPI 4)
// windows     epochs of two windows overlap, operations by requests are completed in any order
// duplicates  MPI_Comm_idup overlaps other collectives of its communicator
// groups      MPI_Comm_create_group with two tags in another order of threads on each rank, beside collectives of the
// parent leaders     MPI_Intercomm_create again and again with one tag and the same leaders, and other members sessions
// communicators from groups by string tags (MPI 4) ports       two pairs of accept and connect files       split
// collective transfers around collectives of the communicator callbacks   delete callbacks of attributes communicate,
// in MPI_Comm_free and in MPI_Finalize threads     threads share one tag: sends, receives, matched probes in any order
// (MPI_THREAD_MULTIPLE) cancelled   receives are cancelled, others get what comes neighbours  neighbourhood collectives
// on a graph in which some have no neighbours nothing     collectives without data, in which some ranks need not wait
// nothing+    likewise, with the last rank late for each of them in turn
// leaves+     who gives to a rooted collective goes on to MPI_Finalize while others come late: last of all kinds
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../which_mpi.h"
#include "check.h"

enum { kHold = 3 };  // seconds

static int me, size, last;
static MPI_Comm world;

static void nap(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

#if MPI_VERSION >= 4
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void starts(int hold) {
  enum { kMade = 4 };
  MPI_Request requests[kMade];
  int in[kMade], out[kMade];
  const double began = now();
  int more = 1;
  OK(MPI_Allreduce_init(&in[0], &out[0], 1, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &requests[0]));
  OK(MPI_Bcast_init(&out[1], 1, MPI_INT, 0, world, MPI_INFO_NULL, &requests[1]));
  OK(MPI_Allreduce_init(&in[2], &out[2], 1, MPI_INT, MPI_MAX, world, MPI_INFO_NULL, &requests[2]));
  OK(MPI_Barrier_init(world, MPI_INFO_NULL, &requests[3]));
  for (int round = 0; more; round++) {
    in[0] = in[2] = me + round;
    out[1] = me == 0 ? round : -1;
    for (int k = 0; k < kMade; k++) OK(MPI_Start(&requests[me % 2 ? kMade - 1 - k : (k + round) % kMade]));
    OK(MPI_Barrier(world));  // a collective of another kind between their starts and their ends
    for (int k = 0; k < kMade; k++) OK(MPI_Wait(&requests[(k + me + round) % kMade], MPI_STATUS_IGNORE));
    CHECK(out[0] == size * (size - 1) / 2 + size * round && out[1] == round && out[2] == last + round);
    if (hold) nap(0.02);
    more = hold ? now() - began < kHold : round < 3;
    OK(MPI_Bcast(&more, 1, MPI_INT, 0, world));
  }
  // The last rank starts number 0 late and the others wait for it; it has started number 2 meanwhile.
  if (hold && me == last) {
    OK(MPI_Start(&requests[2]));
    nap(hold);
    OK(MPI_Start(&requests[0]));
  } else {
    OK(MPI_Start(&requests[0]));
    OK(MPI_Start(&requests[2]));
  }
  OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
  OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
  for (int k = 0; k < kMade; k++) OK(MPI_Request_free(&requests[me % 2 ? k : kMade - 1 - k]));
}

static void partitioned(void) {
  enum { kPartitions = 4, kPart = 64, kLanes = 2 };
  static double data[kLanes][kPartitions * kPart];
  MPI_Request requests[kLanes];
  const int pair = me ^ 1;
  for (int lane = 0; lane < kLanes && pair < size; lane++)
    if (me % 2 == 0)
      OK(MPI_Psend_init(data[lane], kPartitions, kPart, MPI_DOUBLE, pair, 3, world, MPI_INFO_NULL, &requests[lane]));
    else OK(MPI_Precv_init(data[lane], kPartitions, kPart, MPI_DOUBLE, pair, 3, world, MPI_INFO_NULL, &requests[lane]));
  for (int round = 0; round < 2 && pair < size; round++) {
    for (int k = 0; k < kLanes; k++) OK(MPI_Start(&requests[me % 2 ? k : kLanes - 1 - k]));
    for (int lane = 0; lane < kLanes && me % 2 == 0; lane++)
      for (int i = 0; i < kPartitions * kPart; i++) data[lane][i] = 1000 * lane + round + i;
    for (int k = kPartitions; k-- > 0 && me % 2 == 0;)
      for (int lane = kLanes; lane-- > 0;) OK(MPI_Pready(k, requests[lane]));
    for (int k = 0; k < kLanes; k++) {
      const int lane = me % 2 ? kLanes - 1 - k : k;
      OK(MPI_Wait(&requests[lane], MPI_STATUS_IGNORE));
      CHECK(data[lane][kPart + 5] == 1000 * lane + round + kPart + 5);
    }
  }
  for (int lane = 0; lane < kLanes && pair < size; lane++) OK(MPI_Request_free(&requests[lane]));
}

static void sessions(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comms[2];
  int value = me, sum = 0;
  OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
  OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  for (int k = 0; k < 2; k++)
    OK(MPI_Comm_create_from_group(group, k ? "one" : "other", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comms[k]));
  for (int k = 0; k < 2; k++) {
    MPI_Request requests[2];
    int first = 0, second = 0;
    for (int which = 0; which < 2; which++)
      if (which == me % 2) OK(MPI_Iallreduce(&value, &first, 1, MPI_INT, MPI_SUM, comms[0], &requests[0]));
      else OK(MPI_Iallreduce(&value, &second, 1, MPI_INT, MPI_MAX, comms[1], &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    sum += first + second;
  }
  CHECK(sum > 0 || size == 1);
  OK(MPI_Comm_free(&comms[0]));
  OK(MPI_Comm_free(&comms[1]));
  OK(MPI_Group_free(&group));
  OK(MPI_Session_finalize(&session));
}
#endif

static void completed(void) {
  enum { kMany = 12 };
  MPI_Request requests[kMany];
  int in[kMany], out[kMany], index, flag, indices[kMany], count;
  for (int way = 0; way < 5; way++) {
    for (int k = 0; k < kMany; k++) {
      in[k] = me + k;
      if (k % 3 == 2) OK(MPI_Ibarrier(world, &requests[k]));
      else OK(MPI_Iallreduce(&in[k], &out[k], 1, MPI_INT, MPI_SUM, world, &requests[k]));
    }
    for (int left = kMany; left > 0;) switch ((way + me) % 5) {
        case 0: OK(MPI_Wait(&requests[--left], MPI_STATUS_IGNORE)); break;
        case 1:
          OK(MPI_Waitany(kMany, requests, &index, MPI_STATUS_IGNORE));
          left--;
          break;
        case 2:
          OK(MPI_Waitsome(kMany, requests, &count, indices, MPI_STATUSES_IGNORE));
          left -= count;
          break;
        case 3:
          OK(MPI_Testall(kMany, requests, &flag, MPI_STATUSES_IGNORE));
          if (flag) left = 0;
          break;
        default: OK(MPI_Waitall(kMany, requests, MPI_STATUSES_IGNORE)); left = 0;
      }
    CHECK(out[4] == size * (size - 1) / 2 + 4 * size);
  }
}

static void between(void) {
  MPI_Comm comms[2];
  MPI_Request requests[4];
  int in = me, out[4] = {0};
  for (int k = 0; k < 2; k++) OK(MPI_Comm_dup(world, &comms[k]));
  for (int k = 0; k < 4; k++) {
    const int which = me % 2 ? 3 - k : k;  // 0 and 1 on one communicator, 2 and 3 on the other
    const int slot = which / 2 * 2 + (me % 2 ? 1 - which % 2 : which % 2);
    OK(MPI_Iallreduce(&in, &out[slot], 1, MPI_INT, MPI_SUM, comms[slot / 2], &requests[slot]));
  }
  OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  for (int k = 0; k < 4; k++) CHECK(out[k] == size * (size - 1) / 2);
  // In pairs: some ranks call on one communicator only, without a cycle.
  MPI_Comm low, high;
  OK(MPI_Comm_split(world, me == last ? MPI_UNDEFINED : 0, me, &low));
  OK(MPI_Comm_split(world, me == 0 ? MPI_UNDEFINED : 0, me, &high));
  for (int k = 0; k < 3; k++) {
    if (low != MPI_COMM_NULL) OK(MPI_Barrier(low));
    if (high != MPI_COMM_NULL) OK(MPI_Barrier(high));
    if (low != MPI_COMM_NULL) OK(MPI_Bcast(&in, 0, MPI_INT, 0, low));
  }
  if (low != MPI_COMM_NULL) OK(MPI_Comm_free(&low));
  if (high != MPI_COMM_NULL) OK(MPI_Comm_free(&high));
  for (int k = 0; k < 2; k++) OK(MPI_Comm_free(&comms[k]));
}

static void startall(void) {
  enum { kMany = 6 };
  MPI_Request requests[kMany];
  int data[kMany], sum = 0;
  const int pair = me ^ 1;
  if (pair >= size) return;
  for (int k = 0; k < kMany; k++) {
    data[k] = 10 * k;
    if (me % 2 == 0) OK(MPI_Send_init(&data[k], 1, MPI_INT, pair, k < 3 ? 5 : k, world, &requests[k]));
    else OK(MPI_Recv_init(&data[k], 1, MPI_INT, pair, k < 3 ? 5 : k, world, &requests[k]));
  }
  OK(MPI_Startall(3, requests));
  for (int k = 3; k < kMany; k++) OK(MPI_Start(&requests[me % 2 ? k : 8 - k]));
  for (int k = 0; k < kMany; k++) OK(MPI_Wait(&requests[me % 2 ? kMany - 1 - k : k], MPI_STATUS_IGNORE));
  for (int k = 0; k < kMany; k++) sum += data[k];
  CHECK(sum == 150);
  for (int k = 0; k < kMany; k++) OK(MPI_Request_free(&requests[k]));
}

static void windows(void) {
  MPI_Win wins[2];
  int *base[2], value = me + 1, got[2] = {-1, -1};
  MPI_Request requests[2];
  for (int k = 0; k < 2; k++) {
    OK(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, world, &base[k], &wins[k]));
    base[k][0] = base[k][1] = 0;
  }
  const int next = (me + 1) % size, before = (me + size - 1) % size;
  OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, wins[0]));
  OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, wins[1]));
  OK(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, wins[me % 2]));
  OK(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, wins[1 - me % 2]));
  OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, wins[0]));
  OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, wins[1]));
  CHECK(base[0][0] == before + 1 && base[1][0] == before + 1);
  OK(MPI_Barrier(world));
  for (int k = 0; k < 2; k++) OK(MPI_Win_lock_all(0, wins[me % 2 ? k : 1 - k]));
  for (int k = 0; k < 2; k++) OK(MPI_Rget(&got[k], 1, MPI_INT, next, 0, 1, MPI_INT, wins[k], &requests[k]));
  OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
  CHECK(got[0] == me + 1 && got[1] == me + 1);
  for (int k = 0; k < 2; k++) OK(MPI_Win_unlock_all(wins[me % 2 ? 1 - k : k]));
  // Exposures of one window within accesses of the other.
  MPI_Group all, pair;
  const int other = me ^ 1;
  OK(MPI_Comm_group(world, &all));
  if (other < size) {
    OK(MPI_Group_incl(all, 1, &other, &pair));
    OK(MPI_Win_post(pair, 0, wins[me % 2]));
    OK(MPI_Win_start(pair, 0, wins[other % 2]));
    OK(MPI_Put(&value, 1, MPI_INT, other, 1, 1, MPI_INT, wins[other % 2]));
    OK(MPI_Win_complete(wins[other % 2]));
    OK(MPI_Win_wait(wins[me % 2]));
    CHECK(base[me % 2][1] == other + 1);
    OK(MPI_Group_free(&pair));
  }
  OK(MPI_Group_free(&all));
  for (int k = 0; k < 2; k++) OK(MPI_Win_free(&wins[k]));
}

static void duplicates(void) {
  MPI_Comm comms[3];
  MPI_Request requests[3], sum_request;
  // Open MPI 4.1.4 by itself hangs in three at a time, or with another collective beside them.
  const int number = on_openmpi() ? 1 : 3;
  int in = me, sum = 0;
  for (int k = 0; k < number; k++) {
    OK(MPI_Comm_idup(world, &comms[k], &requests[k]));
    OK(MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, number > 1 ? world : MPI_COMM_SELF, &sum_request));
    OK(MPI_Wait(&sum_request, MPI_STATUS_IGNORE));
  }
  for (int k = 0; k < number; k++) OK(MPI_Wait(&requests[me % 2 ? k : number - 1 - k], MPI_STATUS_IGNORE));
  for (int k = 0; k < number; k++) OK(MPI_Barrier(comms[k]));
  for (int k = 0; k < number; k++) OK(MPI_Comm_free(&comms[k]));
  CHECK(sum == (number > 1 ? size * (size - 1) / 2 : me));
}

static MPI_Comm made[2];

static void* make_group(void* argument) {
  const int tag = (int)(long)argument;
  MPI_Group all;
  OK(MPI_Comm_group(world, &all));
  OK(MPI_Comm_create_group(world, all, tag, &made[tag]));
  OK(MPI_Group_free(&all));
  for (int k = 0; k < 5; k++) OK(MPI_Barrier(made[tag]));
  return NULL;
}

static void groups(void) {
  int level, in = me, sum;
  MPI_Query_thread(&level);
  pthread_t thread;
  if (level == MPI_THREAD_MULTIPLE) {
    OK(pthread_create(&thread, NULL, make_group, (void*)(long)(me % 2)));
    make_group((void*)(long)(1 - me % 2));
    OK(pthread_join(thread, NULL));
  } else {
    make_group((void*)0);
    make_group((void*)1);
  }
  MPI_Request request;  // collectives of the parent need not be in their order
  MPI_Group all;
  MPI_Comm third;
  OK(MPI_Comm_group(world, &all));
  OK(MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, world, &request));
  if (me % 2) OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Comm_create_group(world, all, 7, &third));
  if (me % 2 == 0) OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_Barrier(third));
  OK(MPI_Comm_free(&third));
  OK(MPI_Comm_free(&made[me % 2]));
  OK(MPI_Comm_free(&made[1 - me % 2]));
  OK(MPI_Group_free(&all));
}

static void leaders(void) {
  // 0 and 1 lead each time; the others are with rank 0 in turn: who is new has seen fewer of them. All live on until
  // the end.
  enum { kRounds = 4 };
  MPI_Comm local[kRounds], inter[kRounds][2];
  for (int round = 0; round < kRounds; round++) {
    const int in = me < 2 || me % 2 == round % 2;
    OK(MPI_Comm_split(world, in ? me == 1 : MPI_UNDEFINED, me, &local[round]));
    if (!in) continue;
    for (int k = 0; k < 2; k++) OK(MPI_Intercomm_create(local[round], 0, world, me == 1 ? 0 : 1, 9, &inter[round][k]));
    for (int k = 0; k < round; k++) OK(MPI_Barrier(inter[round][0]));
    int value = me, out = -1;
    OK(MPI_Allreduce(&value, &out, 1, MPI_INT, MPI_MIN, inter[round][1]));
    CHECK(out == (me == 1 ? 0 : 1));
  }
  OK(MPI_Barrier(world));
  nap(1.2);  // until they have been compared
  for (int round = 0; round < kRounds; round++) {
    if (local[round] == MPI_COMM_NULL) continue;
    for (int k = 0; k < 2; k++) OK(MPI_Comm_free(&inter[round][k]));
    OK(MPI_Comm_free(&local[round]));
  }
}

static void ports(void) {
  char names[2][MPI_MAX_PORT_NAME];
  MPI_Comm inter[2], pair;
  const int other = me ^ 1;
  OK(MPI_Comm_split(world, me / 2, me, &pair));
  if (other < size) {
    for (int k = 0; k < 2; k++) {
      if (me % 2 == 0) OK(MPI_Open_port(MPI_INFO_NULL, names[k]));
      OK(MPI_Bcast(names[k], MPI_MAX_PORT_NAME, MPI_CHAR, 0, pair));
    }
    for (int k = 0; k < 2; k++)
      if (me % 2 == 0) OK(MPI_Comm_accept(names[k], MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter[k]));
      else OK(MPI_Comm_connect(names[k], MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter[k]));
    int value = me, got = -1;
    for (int k = 2; k-- > 0;)
      OK(MPI_Sendrecv(&value, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, inter[k], MPI_STATUS_IGNORE));
    CHECK(got == other);
    for (int k = 0; k < 2; k++) OK(MPI_Barrier(inter[k]));
    for (int k = 0; k < 2; k++) OK(MPI_Comm_disconnect(&inter[k]));
    for (int k = 0; k < 2 && me % 2 == 0; k++) OK(MPI_Close_port(names[k]));
  }
  OK(MPI_Comm_free(&pair));
}

static void files(void) {
  MPI_File one, two;
  char name[1100];
  int data[8], in[8], sum;
  const char* where = getenv("ORDERS_DIR") != NULL ? getenv("ORDERS_DIR") : ".";
  for (int i = 0; i < 8; i++) data[i] = 100 * me + i;
  snprintf(name, sizeof(name), "%s/one", where);
  OK(MPI_File_open(world, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &one));
  snprintf(name, sizeof(name), "%s/two", where);
  OK(MPI_File_open(world, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &two));
  OK(MPI_File_write_at_all_begin(one, (MPI_Offset)sizeof(data) * me, data, 8, MPI_INT));
  OK(MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, world));
  OK(MPI_File_write_at_all_begin(two, (MPI_Offset)sizeof(data) * me, data, 8, MPI_INT));
  OK(MPI_File_write_at_all_end(one, data, MPI_STATUS_IGNORE));
  OK(MPI_Barrier(world));
  OK(MPI_File_write_at_all_end(two, data, MPI_STATUS_IGNORE));
  OK(MPI_File_sync(one));
  OK(MPI_Barrier(world));
  OK(MPI_File_read_at(one, (MPI_Offset)sizeof(data) * ((me + 1) % size), in, 8, MPI_INT, MPI_STATUS_IGNORE));
  CHECK(in[3] == 100 * ((me + 1) % size) + 3);
  OK(MPI_File_close(&two));
  OK(MPI_File_close(&one));
}

static int talk(MPI_Comm comm, int keyval, void* attribute, void* extra) {
  (void)keyval, (void)attribute, (void)extra, (void)comm;
  int value = me, got = -1;
  OK(MPI_Sendrecv(&value, 1, MPI_INT, (me + 1) % size, 77, &got, 1, MPI_INT, (me + size - 1) % size, 77, world,
                  MPI_STATUS_IGNORE));
  return MPI_SUCCESS;
}

static void callbacks(void) {
  MPI_Comm comm;
  int keyval;
  OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, talk, &keyval, NULL));
  OK(MPI_Comm_dup(world, &comm));
  OK(MPI_Comm_set_attr(comm, keyval, NULL));
  OK(MPI_Comm_free(&comm));
  OK(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL));  // in MPI_Finalize
}

static void* share_tag(void* argument) {
  const int other = me ^ 1, kind = (int)(long)argument;
  int value = me, got;
  for (int i = 0; i < 200; i++) {
    MPI_Message message;
    MPI_Request request;
    OK(MPI_Isend(&value, 1, MPI_INT, other, 4, world, &request));
    if (kind % 3 == 0) {
      OK(MPI_Mprobe(other, 4, world, &message, MPI_STATUS_IGNORE));
      OK(MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    } else if (kind % 3 == 1) {
      OK(MPI_Recv(&got, 1, MPI_INT, other, 4, world, MPI_STATUS_IGNORE));
    } else {
      OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, world, MPI_STATUS_IGNORE));
    }
    CHECK(got == other);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  return NULL;
}

static void threads(void) {
  int level;
  pthread_t thread[3];
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE || (me ^ 1) >= size) return;
  for (int k = 0; k < 3; k++) OK(pthread_create(&thread[k], NULL, share_tag, (void*)(long)k));
  for (int k = 0; k < 3; k++) OK(pthread_join(thread[k], NULL));
}

static void cancelled(void) {
  const int other = me ^ 1;
  if (other >= size) return;
  for (int i = 0; i < 20; i++) {
    MPI_Request unwanted, wanted;
    MPI_Status status;
    int got[2] = {-1, -1}, gone;
    OK(MPI_Irecv(&got[0], 1, MPI_INT, other, 6, world, &unwanted));
    OK(MPI_Cancel(&unwanted));
    OK(MPI_Wait(&unwanted, &status));
    OK(MPI_Test_cancelled(&status, &gone));
    if (gone) OK(MPI_Irecv(&got[1], 1, MPI_INT, other, 6, world, &wanted));
    OK(MPI_Send(&me, 1, MPI_INT, other, 6, world));
    if (gone) OK(MPI_Wait(&wanted, MPI_STATUS_IGNORE));
    CHECK(got[gone ? 1 : 0] == other);
  }
}

static void neighbours(void) {
  MPI_Comm graph;
  MPI_Request request;
  const int in = (me + size - 1) % size, out = (me + 1) % size;
  const int degree = me != last;  // the last rank has no neighbours
  const int sources = degree && me != 0, destinations = degree && out != last;
  int value = me, got = -1;
  OK(MPI_Dist_graph_create_adjacent(world, sources, &in, MPI_UNWEIGHTED, destinations, &out, MPI_UNWEIGHTED,
                                    MPI_INFO_NULL, 0, &graph));
  for (int k = 0; k < 3; k++) {
    OK(MPI_Neighbor_allgather(&value, 1, MPI_INT, &got, 1, MPI_INT, graph));
    OK(MPI_Ineighbor_alltoall(&value, 1, MPI_INT, &got, 1, MPI_INT, graph, &request));
    if (k == 1) OK(MPI_Barrier(graph));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  CHECK(sources == 0 || got == in);
  OK(MPI_Comm_free(&graph));
}

/// Collectives without data, or in which this rank has none. `hold`: the last rank is late for all of them at once, and
/// whoever the library lets through waits for it in a receive.
static void nothing(int hold) {
  int counts[64] = {0}, displacements[64] = {0}, in[2] = {me, me}, out[2];
  CHECK(size <= 64);
  if (hold && me == last) nap(hold);
  OK(MPI_Bcast(in, 0, MPI_INT, last, world));
  OK(MPI_Reduce(in, out, 0, MPI_INT, MPI_SUM, 0, world));
  OK(MPI_Allreduce(in, out, 0, MPI_INT, MPI_SUM, world));
  OK(MPI_Alltoallv(in, counts, displacements, MPI_INT, out, counts, displacements, MPI_INT, world));
  OK(MPI_Allgatherv(in, 0, MPI_INT, out, counts, displacements, MPI_INT, world));
  counts[0] = 1;  // rank 0 alone gives, and gets
  OK(MPI_Gatherv(in, me == 0, MPI_INT, out, counts, displacements, MPI_INT, last, world));
  OK(MPI_Scatterv(in, counts, displacements, MPI_INT, out, me == 0, MPI_INT, last, world));
  OK(MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, world));
  OK(MPI_Scan(in, out, 0, MPI_INT, MPI_SUM, world));
  if (hold && me != last) OK(MPI_Recv(out, 1, MPI_INT, last, 8, world, MPI_STATUS_IGNORE));
  for (int rank = 0; hold && me == last && rank < last; rank++) OK(MPI_Send(in, 1, MPI_INT, rank, 8, world));
}

/// Rank 0 has given all it has to give, and is in MPI_Finalize while the last rank comes late to what it gave.
static void leaves(void) {
  int value = me, out[64];
  OK(MPI_Barrier(world));
  if (me == last) nap(kHold);
  OK(MPI_Bcast(&value, 1, MPI_INT, 0, world));
  OK(MPI_Reduce(&value, out, 1, MPI_INT, MPI_SUM, last, world));
  OK(MPI_Gather(&value, 1, MPI_INT, out, 1, MPI_INT, last, world));
  if (me == 0) OK(MPI_Send(&value, 1, MPI_INT, last, 11, world));
  if (me == last) OK(MPI_Recv(&value, 1, MPI_INT, 0, 11, world, MPI_STATUS_IGNORE));
  if (me > 0 && me < last) OK(MPI_Send(&value, 1, MPI_INT, last, 12, world));
  for (int rank = 1; me == last && rank < last; rank++)
    OK(MPI_Recv(&value, 1, MPI_INT, rank, 12, world, MPI_STATUS_IGNORE));
}

static void run(const char* kind) {
  if (!strcmp(kind, "completed")) completed();
  else if (!strcmp(kind, "between")) between();
  else if (!strcmp(kind, "startall")) startall();
  else if (!strcmp(kind, "windows")) windows();
  else if (!strcmp(kind, "duplicates")) duplicates();
  else if (!strcmp(kind, "groups")) groups();
  else if (!strcmp(kind, "leaders")) leaders();
  else if (!strcmp(kind, "ports")) ports();
  else if (!strcmp(kind, "files")) files();
  else if (!strcmp(kind, "callbacks")) callbacks();
  else if (!strcmp(kind, "threads")) threads();
  else if (!strcmp(kind, "cancelled")) cancelled();
  else if (!strcmp(kind, "neighbours")) neighbours();
  else if (!strncmp(kind, "nothing", 7)) nothing(kind[7] == '+' ? kHold : 0);
  else if (!strcmp(kind, "leaves+")) leaves();
#if MPI_VERSION >= 4
  else if (!strncmp(kind, "starts", 6)) starts(kind[6] == '+' ? kHold : 0);
  else if (!strcmp(kind, "partitioned")) partitioned();
  else if (!strcmp(kind, "sessions")) sessions();
#endif
  else CHECK(!"a kind");
}

int main(int argc, char** argv) {
  int level;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level));
  world = MPI_COMM_WORLD;
  MPI_Comm_rank(world, &me);
  MPI_Comm_size(world, &size);
  last = size - 1;
  for (int i = 1; i < argc; i++) {
    run(argv[i]);
    if (strcmp(argv[i], "leaves+")) OK(MPI_Barrier(world));
    if (me == 0) printf("%s ok\n", argv[i]);
  }
  fflush(stdout);
  OK(MPI_Finalize());
  return 0;
}
