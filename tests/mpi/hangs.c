// SPDX-License-Identifier: Apache-2.0
//
// Programs that hang, one kind each, and some that only look so: hangs KIND [SECONDS]. Every rank ends itself after 600
// s (and SECONDS), whatever happens. "ready" on standard output of rank 0, when the hang is about to begin.
//
// cycle      each rank receives from the next, nobody sends           proved, deadlock
// ssend      two ranks send 4 MiB to each other                       proved, deadlock
// eager      as above, 8 bytes with MPI_Ssend                         proved, deadlock
// missing    rank 1 receives what nobody sends, the others in MPI_Barrier      proved
// tag        rank 1 waits for tag 8, rank 0 has sent tag 9 and waits for the answer      proved
// finished   rank 1 is in MPI_Finalize, rank 0 receives from it       proved, missing_rank
// wildcard   all receive from MPI_ANY_SOURCE                          proved, deadlock
// waitall    MPI_Waitall on receives of which one never comes         proved
// anyfirst   MPI_Waitall on a receive from anybody and one from rank 2, which sends one message     proved
// anylate    as above, and rank 1 sends one as well, later      verified, after a long timeout
// anyright   as above, and rank 2 sends two                           nothing
// waitany    MPI_Waitany on receives that never come                  proved
// sendrecv   MPI_Sendrecv round a ring with one wrong tag             proved
// collective rank 1 calls MPI_Barrier on another communicator first   proved
// twins      as above, with two duplicates of one communicator        proved
// windows    MPI_Win_fence on two windows in different orders       proved
// ibarrier   MPI_Ibarrier and MPI_Wait; rank 1 waits for a message    proved
// partial    ranks 0 and 1 are deadlocked, the others go on for ever  proved
// exposure   rank 0 exposes its window and waits, rank 1 receives          proved
// access     rank 1 starts an access that rank 0, receiving, does not permit  proved
// lock       rank 0 receives while it holds the lock that rank 1 wants      proved
// groups     rank 0 in MPI_Barrier of an intercommunicator, rank 1 receives  proved
// merge      rank 0 in MPI_Intercomm_merge, rank 1 receives                 proved
// leaders    MPI_Intercomm_create with two tags                             proved
// ordered    rank 1 writes in order, rank 0 receives instead               proved
// poll       rank 1 polls for a message that never comes              verified, after a while
// compute    rank 1 does not come back from its own code              verified, after learning
// fortyone   rank 1 ends by _exit(0) without MPI_Finalize             (the launcher's business)
// busy       all go on for ever                                   nothing
// unreceived rank 0 sends what nobody receives, the last but one two on another communicator    a note
// quiet      rank 0 sleeps SECONDS, or until the file SECONDS is there; the others wait         nothing
// epochs     exposures, accesses and locks that wait SECONDS each     nothing
// transfers  collective transfers and one in order, one rank SECONDS late     nothing
// between    two groups that wait SECONDS for each other              nothing
// staggered  a slow chain of messages with pauses of half a second    nothing
// twice      as quiet, twice in a row                         nothing
// apart      all compute for SECONDS, nobody waits            nothing
// alone      one rank that computes for SECONDS               nothing
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kLarge = 4 << 20 };

static int me, size;
static const char* until = "";  // the second argument, if it is a file
static char out[kLarge], in[kLarge];

static void nap(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

static void sleep_until_there(const char* file) {
  while (access(file, F_OK) != 0) nap(0.01);
}

static void ready(void) {
  CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  if (me == 0) {
    printf("ready\n");
    fflush(stdout);
  }
}

static void receive(int from, int tag) {
  CHECK(MPI_Recv(in, 4, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

static void iterate(int rounds, double seconds, MPI_Comm comm) {
  double value = 1, sum;
  for (int i = 0; i < rounds; i++) {
    if (seconds > 0) nap(seconds);
    CHECK(MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm) == MPI_SUCCESS);
  }
}

/// One access epoch of rank 1 on rank 0's window, after a pause. Negative, likewise: rank 0 polls for its end.
static void access_epoch(MPI_Win window, double pause) {
  MPI_Group all, other;
  const int peer = 1 - me;
  CHECK(MPI_Win_get_group(window, &all) == MPI_SUCCESS);
  CHECK(MPI_Group_incl(all, 1, &peer, &other) == MPI_SUCCESS);
  if (me == 1) {
    nap(pause < 0 ? -pause : pause);
    CHECK(MPI_Win_start(other, 0, window) == MPI_SUCCESS);
    CHECK(MPI_Get(out, 4, MPI_BYTE, 0, 0, 4, MPI_BYTE, window) == MPI_SUCCESS);
    CHECK(MPI_Win_complete(window) == MPI_SUCCESS);
  } else if (me == 0) {
    CHECK(MPI_Win_post(other, 0, window) == MPI_SUCCESS);
    for (int done = pause >= 0; !done;) CHECK(MPI_Win_test(window, &done) == MPI_SUCCESS);
    if (pause >= 0) CHECK(MPI_Win_wait(window) == MPI_SUCCESS);
  }
  CHECK(MPI_Group_free(&all) == MPI_SUCCESS);
  CHECK(MPI_Group_free(&other) == MPI_SUCCESS);
}

static void lock_epoch(MPI_Win window) {
  CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window) == MPI_SUCCESS);
  CHECK(MPI_Put(out, 4, MPI_BYTE, 0, 0, 4, MPI_BYTE, window) == MPI_SUCCESS);
  CHECK(MPI_Win_unlock(0, window) == MPI_SUCCESS);
}

static void one_sided(const char* kind, double seconds) {
  MPI_Win window;
  CHECK(MPI_Win_create(in, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window) == MPI_SUCCESS);
  lock_epoch(window);
  access_epoch(window, -1e-3);  // all is well once
  ready();
  if (!strcmp(kind, "exposure")) {
    if (me == 1) receive(0, 3);
    access_epoch(window, 0);
    if (me == 0) CHECK(MPI_Send(out, 4, MPI_BYTE, 1, 3, MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "access")) {
    if (me == 0) receive(1, 3);
    access_epoch(window, 0);
    if (me == 1) CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 3, MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "lock")) {
    if (me == 0) {
      CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window) == MPI_SUCCESS);
      receive(1, 3);  // rank 1 is to have the lock first: never
      CHECK(MPI_Win_unlock(0, window) == MPI_SUCCESS);
    } else {
      nap(0.5);
      lock_epoch(window);
      CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 3, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
  } else {
    access_epoch(window, seconds);
    if (me == 1) CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 4, MPI_COMM_WORLD) == MPI_SUCCESS);
    if (me == 0) {
      receive(1, 4);
      CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window) == MPI_SUCCESS);
      CHECK(MPI_Send(out, 4, MPI_BYTE, 1, 4, MPI_COMM_WORLD) == MPI_SUCCESS);
      nap(seconds);
      CHECK(MPI_Win_unlock(0, window) == MPI_SUCCESS);
    } else {
      receive(0, 4);
      lock_epoch(window);
    }
    if (me == 0) nap(seconds);
    access_epoch(window, -seconds);
  }
  CHECK(MPI_Win_free(&window) == MPI_SUCCESS);
}

static void file_kinds(const char* kind, double seconds) {
  MPI_File file;
  char name[1024];  // beside the reports, which the test takes away
  snprintf(name, sizeof(name), "%s/data", getenv("RESIL_DIR") != NULL ? getenv("RESIL_DIR") : ".");
  CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
  CHECK(MPI_File_write_ordered(file, out, 4, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  ready();
  if (!strcmp(kind, "ordered")) {
    if (me == 0) receive(1, 3);
  } else if (me == 0) {
    nap(seconds);
  }
  CHECK(MPI_File_write_ordered(file, out, 4, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  if (me == 1) nap(seconds);
  CHECK(MPI_File_read_at_all(file, 0, in, 4, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(MPI_File_close(&file) == MPI_SUCCESS);
}

static void two_groups(const char* kind, double seconds) {
  const int leaders = !strcmp(kind, "leaders"), innocent = !strcmp(kind, "between");
  MPI_Comm inter, merged;
  if (innocent && me == 1) nap(seconds);
  if (!leaders) CHECK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - me, 7, &inter) == MPI_SUCCESS);
  ready();
  if (leaders) CHECK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - me, 8 + me, &inter) == MPI_SUCCESS);
  if (me == 1 && !leaders) {
    if (innocent) nap(seconds);
    else receive(0, 9);
  }
  if (strcmp(kind, "merge")) CHECK(MPI_Barrier(inter) == MPI_SUCCESS);
  if (innocent && me == 0) nap(seconds);
  CHECK(MPI_Intercomm_merge(inter, me, &merged) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&merged) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&inter) == MPI_SUCCESS);
}

static void hang(const char* kind, double seconds) {
  const int next = (me + 1) % size, previous = (me + size - 1) % size;
  if (!strcmp(kind, "exposure") || !strcmp(kind, "access") || !strcmp(kind, "lock") || !strcmp(kind, "epochs")) {
    one_sided(kind, seconds);
    return;
  }
  if (!strcmp(kind, "groups") || !strcmp(kind, "merge") || !strcmp(kind, "leaders") || !strcmp(kind, "between")) {
    two_groups(kind, seconds);
    return;
  }
  if (!strcmp(kind, "ordered") || !strcmp(kind, "transfers")) {
    file_kinds(kind, seconds);
    return;
  }
  MPI_Comm copy, half;
  MPI_Request requests[3];
  CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy) == MPI_SUCCESS);
  CHECK(MPI_Comm_split(MPI_COMM_WORLD, me < 2, me, &half) == MPI_SUCCESS);
  ready();
  if (!strcmp(kind, "cycle")) {
    receive(next, 3);
  } else if (!strcmp(kind, "ssend")) {
    CHECK(MPI_Send(out, kLarge, MPI_BYTE, me ^ 1, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
    receive(me ^ 1, 1);
  } else if (!strcmp(kind, "eager")) {
    CHECK(MPI_Ssend(out, 8, MPI_BYTE, me ^ 1, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
    receive(me ^ 1, 1);
  } else if (!strcmp(kind, "missing")) {
    if (me == 1) receive(0, 9);
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "tag")) {
    if (me == 0) {
      CHECK(MPI_Send(out, 4, MPI_BYTE, 1, 9, MPI_COMM_WORLD) == MPI_SUCCESS);
      receive(1, 10);
    } else if (me == 1) {
      receive(0, 8);
      CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 10, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "finished")) {
    if (me == 0) receive(1, 5);
  } else if (!strcmp(kind, "wildcard")) {
    receive(MPI_ANY_SOURCE, 2);
  } else if (!strcmp(kind, "waitall")) {
    CHECK(MPI_Irecv(in, 4, MPI_BYTE, previous, 1, MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Irecv(in + 8, 4, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]) == MPI_SUCCESS);
    CHECK(MPI_Isend(out, 4, MPI_BYTE, next, 1, MPI_COMM_WORLD, &requests[2]) == MPI_SUCCESS);
    CHECK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
  } else if (!strcmp(kind, "anyfirst") || !strcmp(kind, "anylate") || !strcmp(kind, "anyright")) {
    const int messages = !strcmp(kind, "anyright") ? 2 : 1;
    if (me == 0) {
      CHECK(MPI_Irecv(in, 4, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS);
      CHECK(MPI_Irecv(in + 8, 4, MPI_BYTE, 2, 1, MPI_COMM_WORLD, &requests[1]) == MPI_SUCCESS);
      CHECK(MPI_Send(out, 4, MPI_BYTE, 2, 2, MPI_COMM_WORLD) == MPI_SUCCESS);
      CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    } else if (me == 2) {
      receive(0, 2);
      for (int i = 0; i < messages; i++) CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
      CHECK(MPI_Ssend(out, 4, MPI_BYTE, 1, 3, MPI_COMM_WORLD) == MPI_SUCCESS);
    } else if (me == 1) {
      receive(2, 3);
      if (seconds > 0) nap(seconds);
      if (!strcmp(kind, "anylate")) CHECK(MPI_Send(out, 4, MPI_BYTE, 0, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "waitany")) {
    int index;
    CHECK(MPI_Irecv(in, 4, MPI_BYTE, previous, 1, MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Irecv(in + 8, 4, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]) == MPI_SUCCESS);
    CHECK(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  } else if (!strcmp(kind, "sendrecv")) {
    CHECK(MPI_Sendrecv(out, 4, MPI_BYTE, next, me == 0 ? 2 : 1, in, 4, MPI_BYTE, previous, 1, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "collective")) {
    CHECK(MPI_Barrier(me == 1 ? copy : MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Barrier(me == 1 ? MPI_COMM_WORLD : copy) == MPI_SUCCESS);
  } else if (!strcmp(kind, "twins")) {
    MPI_Comm second;
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &second) == MPI_SUCCESS);
    CHECK(MPI_Barrier(me == 1 ? second : copy) == MPI_SUCCESS);
  } else if (!strcmp(kind, "windows")) {
    MPI_Win first, second;
    CHECK(MPI_Win_create(in, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &first) == MPI_SUCCESS);
    CHECK(MPI_Win_create(out, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &second) == MPI_SUCCESS);
    CHECK(MPI_Win_fence(0, me == 1 ? second : first) == MPI_SUCCESS);
  } else if (!strcmp(kind, "ibarrier")) {
    if (me == 1) receive(0, 9);
    CHECK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  } else if (!strcmp(kind, "partial")) {
    if (me < 2) receive(me ^ 1, 3);
    iterate(1 << 30, 0.01, half);
  } else if (!strcmp(kind, "poll")) {
    int flag = 0;
    if (me == 1) {
      CHECK(MPI_Irecv(in, 4, MPI_BYTE, 0, 9, MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS);
      while (!flag) CHECK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "compute")) {
    for (volatile double x = 0;; x += 1) {
      iterate(1, 0.002, MPI_COMM_WORLD);
      if (x > seconds / 0.002 && me == 1)
        for (;;) x += 1;
    }
  } else if (!strcmp(kind, "fortyone")) {
    if (me == 1) _exit(0);
    receive(1, 4);
  } else if (!strcmp(kind, "busy")) {
    iterate(1 << 30, 0.01, MPI_COMM_WORLD);
  } else if (!strcmp(kind, "unreceived")) {
    if (me == 0) CHECK(MPI_Send(out, 4, MPI_BYTE, 1, 77, MPI_COMM_WORLD) == MPI_SUCCESS);
    for (int i = 0; i < 2 && me == size - 2; i++) CHECK(MPI_Send(out, 4, MPI_BYTE, 1, 78, half) == MPI_SUCCESS);
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  } else if (!strcmp(kind, "quiet")) {
    iterate(200, 0.001, MPI_COMM_WORLD);
    if (me == 0 && until[0] != 0) sleep_until_there(until);
    else if (me == 0) nap(seconds);
    iterate(200, 0.001, MPI_COMM_WORLD);
  } else if (!strcmp(kind, "twice")) {
    for (int i = 0; i < 2; i++) {
      iterate(20, 0.001, MPI_COMM_WORLD);
      if (me == 0) nap(seconds);
    }
    iterate(20, 0.001, MPI_COMM_WORLD);
  } else if (!strcmp(kind, "apart") || !strcmp(kind, "alone")) {
    nap(seconds);
    iterate(20, 0.001, MPI_COMM_WORLD);
  } else if (!strcmp(kind, "staggered")) {
    for (double passed = 0; passed < seconds; passed += 0.5 * size) {
      if (me != 0 || passed > 0) receive(previous, 1);
      nap(0.5);
      CHECK(MPI_Send(out, 4, MPI_BYTE, next, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    if (me == 0) receive(previous, 1);
  } else {
    CHECK(!"known kind");
  }
  CHECK(MPI_Comm_free(&copy) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&half) == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  const double seconds = argc > 2 ? atof(argv[2]) : 0;
  if (argc > 2 && argv[2][0] == '/') until = argv[2];
  alarm(600 + (unsigned)seconds);
  CHECK(argc > 1);
  CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &me) == MPI_SUCCESS);
  CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS);
  hang(argv[1], seconds);
  CHECK(MPI_Finalize() == MPI_SUCCESS);
  if (me == 0) printf("hangs %s %d\n", argv[1], size);
  return 0;
}
