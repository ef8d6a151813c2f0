// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a program can begin and end, chosen by the first argument. Which exit status is right is what
// the same program does without resil.
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "check.h"

static int me;

// Children that exec, that only leave, and that are made by the C library.
static void fork_children(void) {
  int status, number = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", "exit 3", (char*)NULL);
    _exit(99);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
  child = fork();
  if (child == 0) _exit(4);
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
  child = fork();
  if (child == 0) exit(5);  // runs the handlers of atexit in a copy of the process
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
  FILE* pipe = popen("echo 42", "r");
  CHECK(pipe && fscanf(pipe, "%d", &number) == 1 && number == 42);
  CHECK(pclose(pipe) == 0);
}

// Some traffic first, so that there is something in the recorder.
static void talk(void) {
  int mine = me + 1, sum, theirs;
  for (int k = 0; k < 10; k++) OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  OK(MPI_Sendrecv(&mine, 1, MPI_INT, 1 - me, 0, &theirs, 1, MPI_INT, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(sum == 3 && theirs == 2 - me);
  OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const char* how = argv[1];
  int flag = -1, major, minor;
  if (strcmp(how, "no-init") == 0) {
    OK(MPI_Initialized(&flag));
    OK(MPI_Get_version(&major, &minor));
    CHECK(!flag && major >= 3);
    puts("no init");
    return 0;
  }
  if (strcmp(how, "no-mpi") == 0) {
    puts("no MPI call");
    return 0;
  }
  if (strcmp(how, "fork-before") == 0) fork_children();
  if (strcmp(how, "null-arguments") == 0) {
    OK(MPI_Init(NULL, NULL));
  } else {
    OK(MPI_Init(&argc, &argv));
  }
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  OK(MPI_Pcontrol(1));
  OK(MPI_Pcontrol(2, "phase", 3.5));
  talk();
  if (me == 0) {
    printf("before the end: %s\n", how);
    fflush(stdout);
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (strcmp(how, "fork") == 0) fork_children();
  if (strcmp(how, "abort") == 0) {
    if (me == 1) MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (strcmp(how, "_exit") == 0) _exit(6);
  if (strcmp(how, "no-finalize") == 0) return 0;
  if (strcmp(how, "libc-abort") == 0) abort();
  if (strcmp(how, "segv") == 0) {
    signal(SIGSEGV, SIG_DFL);  // without Open MPI's own report
    raise(SIGSEGV);
  }
  if (strcmp(how, "kill") == 0) {
    if (me == 1) raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  OK(MPI_Finalize());
  OK(MPI_Finalized(&flag));
  CHECK(flag);
  if (me == 0) printf("after MPI_Finalize\n");
  return strcmp(how, "exit7") == 0 ? 7 : 0;
}
