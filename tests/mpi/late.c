// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point traffic that ends in an unusual way, one case a run: cancelled, freed, truncated, outliving its
// communicator, never matched, untracked. Two ranks, or as many as the case says. Usage: late CASE
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { kBig = 50000 };

static int rank, size, other;
static int data[kBig], room[kBig];

static void write_to(int* buffer, int n, int with) {
  for (int i = 0; i < n; i++) buffer[i] = with * 1000003 + i;
}

static void is_right(const int* buffer, int n, int with) {
  for (int i = 0; i < n; i++) CHECK(buffer[i] == with * 1000003 + i);
}

// A message in each direction, so that both know that the other is so far, without a collective.
static void meet(void) {
  int mine = rank, theirs;
  OK(MPI_Sendrecv(&mine, 1, MPI_INT, other, 999, &theirs, 1, MPI_INT, other, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(theirs == other);
}

static void send_number(int number, int tag) {
  write_to(data, 10, number);
  OK(MPI_Send(data, 10, MPI_INT, other, tag, MPI_COMM_WORLD));
}

static void receive_number(int number, int tag) {
  OK(MPI_Recv(room, 10, MPI_INT, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  is_right(room, 10, number);
}

// Receives are cancelled between ones that take messages of the same lane.
static void cancelled(void) {
  MPI_Request requests[30];
  static int rooms[30][10];
  if (rank == 0) {
    for (int i = 0; i < 30; i++)
      OK(MPI_Irecv(rooms[i], 10, MPI_INT, i % 3 ? other : MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &requests[i]));
    for (int i = 0; i < 30; i += 4) OK(MPI_Cancel(&requests[i]));
    for (int i = 0; i < 30; i += 4) {
      MPI_Status status;
      int is;
      OK(MPI_Wait(&requests[i], &status));
      OK(MPI_Test_cancelled(&status, &is));
      CHECK(is);
    }
    meet();
    OK(MPI_Waitall(30, requests, MPI_STATUSES_IGNORE));
    for (int i = 0, next = 0; i < 30; i++)
      if (i % 4 != 0) is_right(rooms[i], 10, next++);
  } else {
    meet();
    for (int i = 0; i < 22; i++) send_number(i, 5);
  }
}

// Sends are cancelled, where the MPI can, before the receiver posts. `same`: a cancelled one equals the next.
static void cancelled_send(int same, int freed) {
  MPI_Request requests[2];
  MPI_Status status;
  static int first[kBig], second[kBig];
  int is = 0;
  if (rank == 0) {
    write_to(first, kBig, 1);
    write_to(second, kBig, same ? 1 : 2);
    OK(MPI_Issend(first, kBig, MPI_INT, other, 7, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Issend(second, kBig, MPI_INT, other, 7, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Cancel(&requests[0]));
    int flag = 0;
    for (int i = 0; i < 20000 && !flag && !freed; i++) OK(MPI_Test(&requests[0], &flag, &status));
    if (flag) OK(MPI_Test_cancelled(&status, &is));
    if (freed) is = 2;
    OK(MPI_Send(&is, 1, MPI_INT, other, 8, MPI_COMM_WORLD));
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    if (freed) OK(MPI_Request_free(&requests[0]));
    else OK(MPI_Wait(&requests[0], &status));
    for (int i = 0; i < 20; i++) send_number(100 + i, 7);
    OK(MPI_Recv(&flag, 1, MPI_INT, other, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  } else {
    OK(MPI_Recv(&is, 1, MPI_INT, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Recv(room, kBig, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (is == 0) OK(MPI_Recv(room, kBig, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (is == 2 && room[0] == 1 * 1000003 && !same)
      OK(MPI_Recv(room, kBig, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    is_right(room, kBig, same ? 1 : 2);
    for (int i = 0; i < 20; i++) receive_number(100 + i, 7);
    OK(MPI_Send(&is, 1, MPI_INT, other, 9, MPI_COMM_WORLD));
  }
}

// Active requests are freed: the receive's end is not seen, so the order of its communicator is lost; sends are fine.
static void freed_active(void) {
  MPI_Request request;
  static int hidden[10], sent[5][10];
  if (rank == 0) {
    OK(MPI_Irecv(hidden, 10, MPI_INT, other, 5, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    meet();
    for (int i = 1; i < 20; i++) receive_number(i, 5);
    is_right(hidden, 10, 0);
    for (int i = 0; i < 5; i++) {
      write_to(sent[i], 10, i);
      OK(MPI_Isend(sent[i], 10, MPI_INT, other, 6, MPI_COMM_WORLD, &request));
      OK(MPI_Request_free(&request));
    }
    meet();
  } else {
    meet();
    for (int i = 0; i < 20; i++) send_number(i, 5);
    for (int i = 0; i < 5; i++) receive_number(i, 6);
    meet();
  }
}

// A communicator is freed while its receives are pending, and its place in every table taken by another one.
static void outlives_its_communicator(void) {
  MPI_Request requests[8];
  static int rooms[8][10];
  MPI_Comm comm, reversed;
  for (int round = 0; round < 20; round++) {
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < 8; i++)
      OK(MPI_Irecv(rooms[i], 10, MPI_INT, i % 2 ? other : MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[i]));
    MPI_Comm kept = comm;
    MPI_Request sends[8];
    static int out[8][10];
    meet();
    for (int i = 0; i < 8; i++) {
      write_to(out[i], 10, 100 * round + i);
      OK(MPI_Isend(out[i], 10, MPI_INT, other, i, kept, &sends[i]));
    }
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed));  // ranks the other way round
    int mine = rank, theirs;
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, rank, 3, &theirs, 1, MPI_INT, rank, 3, reversed, MPI_STATUS_IGNORE));
    CHECK(theirs == other);
    OK(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 8; i++) is_right(rooms[i], 10, 100 * round + i);
    OK(MPI_Waitall(8, sends, MPI_STATUSES_IGNORE));
    OK(MPI_Comm_free(&reversed));
  }
}

// Receives that are too short, of every kind; then traffic of the same lanes.
static void truncated(void) {
  MPI_Request request;
  MPI_Status status;
  int class, code;
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  for (int round = 0; round < 10; round++) {
    write_to(data, 40, round);
    OK(MPI_Isend(data, 40, MPI_INT, other, 4, MPI_COMM_WORLD, &request));
    if (round % 2) {
      code = MPI_Recv(room, 20, MPI_INT, other, 4, MPI_COMM_WORLD, &status);
    } else {
      MPI_Request receive;
      OK(MPI_Irecv(room, 20, MPI_INT, other, MPI_ANY_TAG, MPI_COMM_WORLD, &receive));
      code = MPI_Wait(&receive, &status);
    }
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_TRUNCATE);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
  // In both directions at once, of one rank only: what it sent has been sent.
  for (int round = 0; round < 10; round++) {
    static int out[40];
    write_to(out, 40, 100 + round);
    code =
        MPI_Sendrecv(out, 40, MPI_INT, other, 4, room, rank == 0 ? 20 : 40, MPI_INT, other, 4, MPI_COMM_WORLD, &status);
    CHECK((code != MPI_SUCCESS) == (rank == 0));
    if (rank == 1) is_right(room, 40, 100 + round);
  }
  for (int round = 0; round < 10; round++) {
    if (rank == 0) send_number(round, 4), receive_number(round, 4);
    if (rank == 1) receive_number(round, 4), send_number(round, 4);
  }
  meet();
}

static void no_process(void) {
  MPI_Request requests[4];
  MPI_Message message;
  MPI_Status status;
  for (int i = 0; i < 10; i++) {
    OK(MPI_Send(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD));
    OK(MPI_Recv(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Isend(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send_init(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Recv_init(data, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[3]));
    OK(MPI_Startall(2, requests + 2));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Request_free(&requests[2]));
    OK(MPI_Request_free(&requests[3]));
    OK(MPI_Mprobe(MPI_PROC_NULL, 5, MPI_COMM_WORLD, &message, &status));
    OK(MPI_Mrecv(data, 10, MPI_INT, &message, &status));
    OK(MPI_Sendrecv(data, 10, MPI_INT, MPI_PROC_NULL, 5, room, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &status));
    if (rank == 0) {
      write_to(data, 10, i);
      OK(MPI_Sendrecv(data, 10, MPI_INT, other, 5, room, 10, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &status));
      OK(MPI_Sendrecv_replace(data, 10, MPI_INT, other, 6, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &status));
    } else {
      write_to(data, 10, 0);
      OK(MPI_Sendrecv(data, 10, MPI_INT, MPI_PROC_NULL, 5, room, 10, MPI_INT, other, 5, MPI_COMM_WORLD, &status));
      is_right(room, 10, i);
      OK(MPI_Sendrecv_replace(room, 10, MPI_INT, MPI_PROC_NULL, 5, other, 6, MPI_COMM_WORLD, &status));
      is_right(room, 10, i);
    }
  }
}

// More persistent requests than the library can follow; their lanes are also used by ordinary sends.
static void untracked(void) {
  enum { kMany = 12000 };
  static MPI_Request requests[kMany];
  static int values[kMany];
  for (int i = 0; i < kMany; i++) {
    values[i] = i * 7;
    if (rank == 0) OK(MPI_Send_init(&values[i], 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, &requests[i]));
    else OK(MPI_Recv_init(&values[i], 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, &requests[i]));
  }
  for (int i = kMany - 100; i < kMany; i++) {
    if (rank == 1) values[i] = -1;
    OK(MPI_Start(&requests[i]));
    OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    CHECK(values[i] == i * 7);
    int single = i;
    if (rank == 0) OK(MPI_Send(&single, 1, MPI_INT, other, i % 10, MPI_COMM_WORLD));
    else OK(MPI_Recv(&single, 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(single == i);
  }
  for (int i = 0; i < kMany; i++) OK(MPI_Request_free(&requests[i]));
}

// Only the sender's requests are too many to be followed: the receiver does not know.
static void untracked_sends(void) {
  enum { kMany = 12000 };
  static MPI_Request requests[kMany];
  static int values[kMany];
  for (int i = 0; i < kMany && rank == 0; i++) {
    values[i] = i * 7;
    OK(MPI_Send_init(&values[i], 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, &requests[i]));
  }
  for (int i = kMany - 100; i < kMany; i++) {
    int value = i;
    if (rank == 0) {
      OK(MPI_Start(&requests[i]));
      OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
      OK(MPI_Send(&value, 1, MPI_INT, other, i % 10, MPI_COMM_WORLD));
    } else {
      OK(MPI_Recv(&value, 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(value == i * 7);
      OK(MPI_Recv(&value, 1, MPI_INT, other, i % 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(value == i);
    }
  }
  for (int i = 0; i < kMany && rank == 0; i++) OK(MPI_Request_free(&requests[i]));
}

// Communicators come and go by the hundred, with traffic on each.
static void communicators(void) {
  for (int i = 0; i < 500; i++) {
    MPI_Comm comm;
    if (i % 3 == 0) OK(MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? rank : -rank, &comm));
    else OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    int here, mine = i * 2 + rank, theirs;
    OK(MPI_Comm_rank(comm, &here));
    int there = 1 - here;
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, there, 1, &theirs, 1, MPI_INT, i % 2 ? there : MPI_ANY_SOURCE, 1, comm,
                    MPI_STATUS_IGNORE));
    CHECK(theirs == i * 2 + other);
    OK(MPI_Comm_free(&comm));
  }
}

static void intercommunicator(void) {
  MPI_Comm half, across;
  OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half));
  OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &across));
  for (int i = 0; i < 50; i++) {
    int mine = i * 100 + rank, theirs, remote, here;
    OK(MPI_Comm_remote_size(across, &remote));
    OK(MPI_Comm_rank(half, &here));
    if (here >= remote) continue;
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, here, 1, &theirs, 1, MPI_INT, i % 2 ? here : MPI_ANY_SOURCE, 1, across,
                    MPI_STATUS_IGNORE));
    CHECK(theirs == i * 100 + 2 * here + 1 - rank % 2);
  }
  OK(MPI_Comm_free(&across));
  OK(MPI_Comm_free(&half));
}

// Sends that nobody receives: 20 small ones.
static void unmatched(void) {
  if (rank == 0)
    for (int i = 0; i < 20; i++) send_number(i, 50 + i % 2);
  meet();
}

// Threads on one lane, each with blocking and nonblocking calls.
static void* use_lane(void* argument) {
  long thread = (long)argument;
  int values[8], rooms[8];
  MPI_Request requests[16];
  for (int round = 0; round < 40; round++) {
    for (int i = 0; i < 8; i++) {
      values[i] = (int)(thread * 1000000 + round * 8 + i);
      OK(MPI_Irecv(&rooms[i], 1, MPI_INT, i % 4 == 3 ? MPI_ANY_SOURCE : other, 1, MPI_COMM_WORLD, &requests[i]));
      OK(MPI_Isend(&values[i], 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[8 + i]));
    }
    for (int left = 16; left > 0; left--) {
      int place;
      OK(MPI_Waitany(16, requests, &place, MPI_STATUS_IGNORE));
      CHECK(place != MPI_UNDEFINED);
    }
    // Each thread has its own tag as well: there the order is kept.
    int mine = values[0], theirs;
    OK(MPI_Sendrecv(&mine, 1, MPI_INT, other, 10 + (int)thread, &theirs, 1, MPI_INT, other, 10 + (int)thread,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(theirs == mine);
  }
  return NULL;
}

static void threads(void) {
  pthread_t made[3];
  for (long i = 0; i < 3; i++) CHECK(pthread_create(&made[i], NULL, use_lane, (void*)(i + 1)) == 0);
  use_lane((void*)0);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(made[i], NULL) == 0);
}

// Nobody looks at what arrives.
static void careless(void) {
  for (int i = 0; i < 10; i++) {
    if (rank == 0) send_number(i, 3);
    if (rank == 1) OK(MPI_Recv(room, 10, MPI_INT, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  meet();
}

static void close_file(void) {
  MPI_File file;
  OK(MPI_File_open(MPI_COMM_SELF, "late.out", MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_DELETE_ON_CLOSE,
                   MPI_INFO_NULL, &file));
  OK(MPI_File_close(&file));
}

// Rank 0 closes a file of its own and so asks for the records of what it received. Rank 1 waits in MPI meanwhile.
static void file_while_others_wait(int in_barrier) {
  if (rank == 0) {
    for (int i = 0; i < 5; i++) receive_number(i, 3);
    close_file();
    if (!in_barrier) send_number(7, 4);
  } else {
    for (int i = 0; i < 5; i++) send_number(i, 3);
    if (!in_barrier) receive_number(7, 4);
  }
  if (in_barrier) OK(MPI_Barrier(MPI_COMM_WORLD));
}

// The same, but rank 1 is stopped, without having been in MPI after its sends, until rank 0 goes on.
static void file_while_another_is_stopped(void) {
  int number;
  if (rank == 0) {
    int flag = 0;
    OK(MPI_Recv(&number, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 5; i++) receive_number(i, 3);
    close_file();
    while (!flag) {
      CHECK(kill(number, SIGCONT) == 0);  // it may not have been there yet
      OK(MPI_Iprobe(other, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    }
    receive_number(9, 5);
  } else {
    number = (int)getpid();
    OK(MPI_Send(&number, 1, MPI_INT, other, 2, MPI_COMM_WORLD));
    for (int i = 0; i < 5; i++) send_number(i, 3);
    CHECK(raise(SIGSTOP) == 0);
    send_number(9, 5);
  }
}

// Rank 1 dies without having been in MPI after its sends; rank 0 closes a file, and aborts: MPI_Finalize would wait for
// the dead.
static void file_while_another_is_killed(void) {
  if (rank == 0) {
    for (int i = 0; i < 5; i++) receive_number(i, 3);
    close_file();
    printf("late file-killed\n");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
  for (int i = 0; i < 5; i++) send_number(i, 3);
  CHECK(raise(SIGKILL) == 0);
}

// Rank 1 computes for long before it comes to MPI_Finalize, with records that rank 0 waits for.
static void late_for_finalize(void) {
  struct timespec now, end;
  careless();
  if (rank == 0) {
    for (int i = 0; i < 5; i++) receive_number(i, 6);
    return;
  }
  for (int i = 0; i < 5; i++) send_number(i, 6);
  CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
  end.tv_sec += 1;
  do CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

// MPI_Sendrecv on one side, MPI_Recv and then MPI_Send on the other: the first cannot return before the second has.
static void crossing(void) {
  for (int i = 0; i < 50; i++) {
    int mine = i + rank, theirs;
    if (rank == 0) {
      OK(MPI_Sendrecv(&mine, 1, MPI_INT, other, 1, &theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      OK(MPI_Recv(&theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      OK(MPI_Send(&mine, 1, MPI_INT, other, 1, MPI_COMM_WORLD));
    }
    CHECK(theirs == i + other);
  }
}

int main(int argc, char** argv) {
  CHECK(argc > 1);
  const char* name = argv[1];
  int provided;
  OK(MPI_Init_thread(&argc, &argv, strcmp(name, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  other = rank ^ 1;
  if (strcmp(name, "cancelled") == 0) cancelled();
  else if (strcmp(name, "cancelled-send") == 0) cancelled_send(0, 0);
  else if (strcmp(name, "cancelled-send-same") == 0) cancelled_send(1, 0);
  else if (strcmp(name, "cancelled-send-freed") == 0) cancelled_send(0, 1);
  else if (strcmp(name, "freed") == 0) freed_active();
  else if (strcmp(name, "comm") == 0) outlives_its_communicator();
  else if (strcmp(name, "truncated") == 0) truncated();
  else if (strcmp(name, "null") == 0) no_process();
  else if (strcmp(name, "untracked") == 0) untracked();
  else if (strcmp(name, "untracked-sends") == 0) untracked_sends();
  else if (strcmp(name, "communicators") == 0) communicators();
  else if (strcmp(name, "intercommunicator") == 0) intercommunicator();
  else if (strcmp(name, "unmatched") == 0) unmatched();
  else if (strcmp(name, "careless") == 0) careless();
  else if (strcmp(name, "file-receive") == 0) file_while_others_wait(0);
  else if (strcmp(name, "file-barrier") == 0) file_while_others_wait(1);
  else if (strcmp(name, "file-killed") == 0) file_while_another_is_killed();
  else if (strcmp(name, "late-finalize") == 0) late_for_finalize();
  else if (strcmp(name, "file-stopped") == 0) file_while_another_is_stopped();
  else if (strcmp(name, "crossing") == 0) crossing();
  else if (strcmp(name, "status") == 0) careless();
  else if (strcmp(name, "abort") == 0) careless(), MPI_Abort(MPI_COMM_WORLD, 5);
  else if (strcmp(name, "exit") == 0) careless(), exit(3);
  else if (strcmp(name, "threads") == 0) {
    CHECK(provided == MPI_THREAD_MULTIPLE);
    threads();
  } else CHECK(!"no such case");
  if (rank == 0) printf("late %s\n", name);
  OK(MPI_Finalize());
  return strcmp(name, "status") == 0 ? 7 : 0;
}
