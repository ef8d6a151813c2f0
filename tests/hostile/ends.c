// SPDX-License-Identifier: Apache-2.0
//
// The ways to start and to end: one case a process. Where a rank ends by force, it is rank 1, and rank 0 waits for it,
// so that the launcher has one status to tell.
#include "hostile.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern char** environ;
static char** program_argv;

static void start(void) {
  MPI_Init(NULL, NULL);
  learn_rank();
  meet();
}
static void traffic(void) {
  int mine = me + 1, sum = 0;
  for (int k = 0; k < 20; k++) MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  say("sum %d", sum);
  meet();  // rank 0 has said so before rank 1 goes on
}
static void finish(void) {
  traffic();
  MPI_Finalize();
  say("finalized");
}
/// One rank may end the other before that has said anything.
static void finish_silently(void) { traffic(), MPI_Finalize(); }
/// Rank 0 stays here until the launcher ends it.
static void rank_0_waits(void) {
  int never;
  if (me == 0) MPI_Recv(&never, 1, MPI_INT, 1, 555, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void level(int wanted) {
  int provided = -1, is_main = -1, initialized = -1;
  MPI_Initialized(&initialized);
  MPI_Init_thread(NULL, NULL, wanted, &provided);
  learn_rank();
  MPI_Is_thread_main(&is_main);
  say("before: %d, provided %d, main %d", initialized, provided, is_main);
  MPI_Query_thread(&provided);
  say("query %d", provided);
  finish();
}
static void init_single(void) { level(MPI_THREAD_SINGLE); }
static void init_funneled(void) { level(MPI_THREAD_FUNNELED); }
static void init_serialized(void) { level(MPI_THREAD_SERIALIZED); }
static void init_multiple(void) { level(MPI_THREAD_MULTIPLE); }

static void init_guarded(void) {
  for (int k = 0; k < 3; k++) {
    int flag;
    MPI_Initialized(&flag);
    if (!flag) start();
  }
  finish();
  int flag;
  MPI_Finalized(&flag);
  if (!flag) MPI_Finalize();
  MPI_Initialized(&flag);
  say("still initialized: %d", flag);
}
static void init_twice(void) {
  start();
  say("again: %d", class_of(MPI_Init(NULL, NULL)));
  finish();
}
static void init_after_finalize(void) {
  start();
  finish_silently();
  MPI_Init(NULL, NULL);
  say("started again");
}
static void finalize_twice(void) {
  start();
  finish_silently();
  MPI_Finalize();
  say("finalized again");
}
static void after_finalize(void) {
  int flag, major, minor, length;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  start();
  finish();
  MPI_Initialized(&flag);
  MPI_Finalized(&flag);
  MPI_Get_version(&major, &minor);
  MPI_Get_library_version(text, &length);
  say("%d %d %d", flag, major, length > 5);
}
static void call_before_init(void) { MPI_Barrier(MPI_COMM_WORLD), say("goes on"); }
static void call_after_finalize(void) { start(), finish_silently(), MPI_Barrier(MPI_COMM_WORLD), say("goes on"); }

static void* all_of_it(void* unused) {
  start();
  finish();
  return unused;
}
static void in_a_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, all_of_it, NULL);
  pthread_join(thread, NULL);
  say("joined");
}
static void main_is_gone(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, all_of_it, NULL);
  pthread_exit(NULL);  // the last thread ends the process with 0
}
static void finalize_in_atexit(void) { start(), atexit(finish), exit(0); }
static int wanted_at_exit;
static __attribute__((destructor)) void at_the_end(void) {
  if (wanted_at_exit) finish();
}
static void finalize_in_destructor(void) { start(), wanted_at_exit = 1, exit(0); }

static void no_finalize(void) { start(), traffic(), exit(0); }
static void no_finalize_one(void) {
  start();
  if (me == 1) exit(0);
  rank_0_waits();
}
static void exit_3(void) { start(), traffic(), exit(me == 1 ? 3 : (rank_0_waits(), 0)); }
static void underscore_exit(void) { start(), traffic(), rank_0_waits(), _exit(6); }
static void quick(void) { start(), traffic(), rank_0_waits(), quick_exit(5); }
static void status_after_finalize(void) { start(), finish_silently(), exit(me == 1 ? 9 : 0); }
static void death_after_finalize(void) {
  start(), finish_silently();
  if (me == 1) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
}
static void* exits(void* unused) {
  rank_0_waits();
  if (me == 1) exit(4);
  return unused;
}
static void exit_in_a_thread(void) {
  pthread_t thread;
  start();
  if (me == 0) rank_0_waits();
  pthread_create(&thread, NULL, exits, NULL);
  for (;;) pause();
}

static void aborts(MPI_Comm comm, int code) {
  start(), traffic();
  if (me == 1) MPI_Abort(comm, code);
  rank_0_waits();
}
static void abort_0(void) { aborts(MPI_COMM_WORLD, 0); }
static void abort_1(void) { aborts(MPI_COMM_WORLD, 1); }
static void abort_77(void) { aborts(MPI_COMM_WORLD, 77); }
static void abort_256(void) { aborts(MPI_COMM_WORLD, 256); }
static void abort_minus_1(void) { aborts(MPI_COMM_WORLD, -1); }
static void abort_self(void) { aborts(MPI_COMM_SELF, 12); }
static void* abort_thread(void* unused) {
  MPI_Abort(MPI_COMM_WORLD, 13);
  return unused;
}
static void abort_in_a_thread(void) {
  int provided;
  pthread_t thread;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), learn_rank();
  if (me == 1) pthread_create(&thread, NULL, abort_thread, NULL), pthread_join(thread, NULL);
  rank_0_waits();
}

static void dies(int number) {
  start(), traffic();
  if (me == 1) signal(number, SIG_DFL), raise(number);
  rank_0_waits();
}
static void sig_kill(void) { dies(SIGKILL); }
static void sig_term(void) { dies(SIGTERM); }
static void sig_int(void) { dies(SIGINT); }
static void sig_segv(void) { dies(SIGSEGV); }
static void sig_abrt(void) { dies(SIGABRT); }
static void sig_fpe(void) { dies(SIGFPE); }
static void sig_pipe(void) { dies(SIGPIPE); }
static void sig_usr2(void) { dies(SIGUSR2); }
static void sig_alrm(void) {
  start(), traffic();
  if (me == 1) alarm(1), MPI_Recv(&other, 1, MPI_INT, 0, 556, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  rank_0_waits();
}
// With whatever the MPI has installed for it.
static void real_segv(void) {
  start(), traffic();
  if (me == 1) *(volatile int*)(uintptr_t)16 = 1;
  rank_0_waits();
}
#if __GNUC__ >= 12
#pragma GCC diagnostic ignored "-Winfinite-recursion"
#endif
static int endless(volatile char* above) {
  volatile char here[4096];
  here[0] = above ? above[0] : 0;
  return endless(here) + here[0];
}
static void stack_overflow(void) {
  start(), traffic();
  if (me == 1) signal(SIGSEGV, SIG_DFL), endless(NULL);
  rank_0_waits();
}

static void fatal_error(void) {
  start(), traffic();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (me == 1) MPI_Send(&me, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
  rank_0_waits();
}
static void handler_exits(MPI_Comm* comm, int* code, ...) { (void)comm, say("class %d", class_of(*code)), exit(21); }
static void handler_aborts(MPI_Comm* comm, int* code, ...) { (void)code, MPI_Abort(*comm, 22); }
static void with_handler(MPI_Comm_errhandler_function* function) {
  MPI_Errhandler handler;
  start(), traffic();
  MPI_Comm_create_errhandler(function, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  if (me == 1) MPI_Send(&me, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
  rank_0_waits();
}
static void exit_in_handler(void) { with_handler(handler_exits); }
static void abort_in_handler(void) { with_handler(handler_aborts); }
static jmp_buf back;
static void handler_jumps(MPI_Comm* comm, int* code, ...) { (void)comm, (void)code, longjmp(back, 1); }
static void jump_from_handler(void) {
  MPI_Errhandler handler;
  start();
  MPI_Comm_create_errhandler(handler_jumps, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  for (volatile int k = 0; k < 50; k++) {
    if (setjmp(back) == 0) MPI_Send(&me, 1, MPI_INT, 99, 0, MPI_COMM_WORLD), say("not here");
  }
  finish();
}
static void exit_in_op(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)in, (void)inout, (void)count, (void)type;
  _exit(23);
}
static void exit_in_operator(void) {
  MPI_Op op;
  int sum;
  start();
  MPI_Op_create(exit_in_op, 1, &op);
  MPI_Allreduce(&me, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  say("nobody reduced");
}

static void* spins(void* unused) {
  for (volatile long k = 0; k >= 0; k++) {}
  return unused;
}
static void thread_alive(void) {
  pthread_t thread;
  start();
  pthread_create(&thread, NULL, spins, NULL);
  finish();
}
static void* receives(void* unused) {
  int never;
  MPI_Recv(&never, 1, MPI_INT, other, 557, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return unused;
}
static void thread_in_mpi_at_exit(void) {
  int provided;
  pthread_t thread;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), learn_rank();
  pthread_create(&thread, NULL, receives, NULL);
  meet();
  rank_0_waits();
  exit(14);
}

static int wait_status(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
static void fork_and_exec(void) {
  start(), traffic();
  for (int k = 0; k < 5; k++) {
    pid_t child = k % 2 ? vfork() : fork();
    if (child == 0) execl("/bin/sh", "sh", "-c", "exit 3", NULL), _exit(99);
    say("child %d", wait_status(child));
  }
  char* line[] = {"sh", "-c", "exit 8", NULL};
  pid_t spawned;
  posix_spawn(&spawned, "/bin/sh", NULL, NULL, line, environ);
  say("spawned %d, system %d", wait_status(spawned), WEXITSTATUS(system("exit 6")));
  pid_t child = fork();
  if (child == 0) {
    char* p = malloc(100000);
    memset(p, 1, 100000), free(p);
    exit(7);  // with what atexit knows
  }
  say("plain exit %d", wait_status(child));
  child = fork();
  if (child == 0) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
  say("died %d", wait_status(child));
  child = fork();
  if (child == 0) abort();
  say("aborted %d", wait_status(child));
  finish();
}
static void exec_before_init(void) {
  if (!getenv("HOSTILE_AGAIN")) setenv("HOSTILE_AGAIN", "1", 1), execv("/proc/self/exe", program_argv);
  start(), finish();
}
static void exec_after_finalize(void) { start(), finish(), execl("/bin/sh", "sh", "-c", "exit 0", NULL); }
static void exec_without_finalize(void) {
  start(), traffic();
  if (me == 1) execl("/bin/sh", "sh", "-c", "exit 0", NULL);
  rank_0_waits();
}
static void run_mpi_in_a_child(void) {  // another MPI program, alone, without what makes it a rank
  start(), traffic();
  pid_t child = fork();
  if (child == 0) {
    char* environment[] = {"PATH=/usr/bin:/bin", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") - 11 : NULL, NULL};
    char* line[] = {program_argv[0], "call_nothing", NULL};
    execve(program_argv[0], line, environment), _exit(98);
  }
  say("child %d", wait_status(child));
  finish();
}
static void call_nothing(void) {
  int flag;
  MPI_Initialized(&flag);
}

static void unreceived(void) {
  static int data[100];
  MPI_Request request;
  start();
  MPI_Send(data, 100, MPI_INT, other, 600, MPI_COMM_WORLD);
  MPI_Irecv(data, 1, MPI_INT, other, 601, MPI_COMM_WORLD, &request);
  finish();
}
static void nothing_freed(void) {
  MPI_Comm comm[3];
  MPI_Datatype type;
  MPI_Request request;
  MPI_Group group;
  MPI_Info info;
  MPI_Op op;
  start();
  for (int k = 0; k < 3; k++) MPI_Comm_dup(MPI_COMM_WORLD, &comm[k]);
  MPI_Type_vector(3, 1, 2, MPI_INT, &type), MPI_Type_commit(&type);
  MPI_Send_init(&me, 1, MPI_INT, other, 1, comm[0], &request);
  MPI_Comm_group(comm[1], &group), MPI_Info_create(&info);
  MPI_Op_create(exit_in_op, 1, &op);
  finish();
}

static int communicate(MPI_Comm comm, int key, void* value, void* extra) {
  int mine = me + 3, theirs = 0, sum = 0, flag = -1;
  MPI_Request request[2];
  MPI_Comm copy;
  (void)comm, (void)key, (void)extra;
  MPI_Finalized(&flag);
  say("in Finalize, attribute %d, finalized %d", *(int*)value, flag);
  MPI_Sendrecv(&mine, 1, MPI_INT, other, 700, &theirs, 1, MPI_INT, other, 700, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Isend(&mine, 1, MPI_INT, other, 701, MPI_COMM_WORLD, &request[0]);
  MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, 701, MPI_COMM_WORLD, &request[1]);
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Barrier(copy);
  MPI_Comm_free(&copy);
  say("%d %d", theirs, sum);
  return MPI_SUCCESS;
}
static void callbacks_in_finalize(void) {
  static int number[3] = {0, 1, 2};
  int key;
  start();
  for (int k = 0; k < 3; k++) {
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, communicate, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &number[k]);
    if (k) MPI_Comm_free_keyval(&key);
  }
  finish();
}
static int abort_here(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  if (me == 1) MPI_Abort(MPI_COMM_WORLD, 31);
  rank_0_waits();
  return MPI_SUCCESS;
}
static void abort_in_finalize(void) {
  int key;
  start();
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, abort_here, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  finish();
}

static void no_standard_files(void) {
  start();
  close(0), close(1), close(2);
  finish();
}
// Whoever writes to file 2 now writes into the program's data.
static void data_at_stderr(void) {
  char name[32], text[4096] = "";
  start();
  snprintf(name, sizeof(name), "data-%d", me);
  close(2);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  say("file %d", fd);
  if (write(fd, "mine\n", 5) != 5) exit(79);
  finish();
  lseek(fd, 0, SEEK_SET);
  say("%d bytes", (int)read(fd, text, sizeof(text)));
}
static void stderr_closed_before(void) {
  char name[32];
  snprintf(name, sizeof(name), "early-%s", getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK"));
  close(2);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd != 2 || write(fd, "mine\n", 5) != 5) exit(79);
  start(), finish();
}

static void nobody_reads_stderr(void) {
  int ends[2];
  if (pipe(ends) != 0) exit(79);
  close(ends[0]), dup2(ends[1], 2), close(ends[1]);
  start(), finish();
}

static void limits_files(void) {
  struct rlimit none = {0, 0};
  start();
  setrlimit(RLIMIT_FSIZE, &none);
  for (int k = 0; k < 20; k++) meet();
  MPI_Finalize();  // and not a word in a file
}
static void limits_descriptors(void) {
  start();
  struct rlimit few = {4, 4};
  setrlimit(RLIMIT_NOFILE, &few);
  finish();
}
static void limits_memory(void) {
  struct rlimit limit;
  long pages = 0;
  start();
  traffic();
  FILE* file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%ld", &pages) != 1) exit(79);
  fclose(file);
  limit.rlim_cur = limit.rlim_max = (rlim_t)(pages + 1000) * 4096;
  setrlimit(RLIMIT_AS, &limit);
  finish();
}
static void limits_processes(void) {
  struct rlimit none = {0, 0};
  start();
  setrlimit(RLIMIT_NPROC, &none), setrlimit(RLIMIT_CORE, &none), setrlimit(RLIMIT_MEMLOCK, &none);
  finish();
}
static void another_user(void) {
  start();
  if (getuid() == 0 && setgid(65534) + setuid(65534) != 0) exit(79);
  finish();
}
static void environment_gone(void) { start(), clearenv(), finish(); }
static void directory_gone(void) {
  start();
  const char* folder = getenv("RESIL_DIR");
  char line[600];
  snprintf(line, sizeof(line), "rm -rf '%s'", folder ? folder : "/nonexistent");
  if (me == 0 && system(line) != 0) exit(79);
  finish();
}
static void elsewhere(void) {
  start();
  umask(0777);
  if (chdir("/proc") != 0) exit(79);
  memset(program_argv[0], 'x', strlen(program_argv[0]));  // what setproctitle does
  finish();
}
static void descriptors_closed_after(void) {
  start(), finish();
  for (int fd = 3; fd < 400; fd++) close(fd);
  int fd = open("/dev/null", O_RDONLY);
  say("file %d", fd);
}
static void stopped(void) {
  start();
  pid_t parent = getpid();
  pid_t child = fork();
  if (child == 0) {
    kill(parent, SIGSTOP);
    usleep(300000);
    kill(parent, SIGCONT);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  finish();
}

static const struct Case kCases[] = {CASE(init_single), CASE(init_funneled), CASE(init_serialized), CASE(init_multiple),
  CASE(init_guarded), CASE(init_twice), CASE(init_after_finalize), CASE(finalize_twice), CASE(after_finalize),
  CASE(call_before_init), CASE(call_after_finalize), CASE(in_a_thread), CASE(main_is_gone), CASE(finalize_in_atexit),
  CASE(finalize_in_destructor), CASE(no_finalize), CASE(no_finalize_one), CASE(exit_3), CASE(underscore_exit),
  CASE(quick), CASE(status_after_finalize), CASE(death_after_finalize), CASE(exit_in_a_thread), CASE(abort_0),
  CASE(abort_1), CASE(abort_77), CASE(abort_256), CASE(abort_minus_1), CASE(abort_self), CASE(abort_in_a_thread),
  CASE(sig_kill), CASE(sig_term), CASE(sig_int), CASE(sig_segv), CASE(sig_abrt), CASE(sig_fpe), CASE(sig_pipe),
  CASE(sig_usr2), CASE(sig_alrm), CASE(real_segv), CASE(stack_overflow), CASE(fatal_error), CASE(exit_in_handler),
  CASE(abort_in_handler), CASE(jump_from_handler), CASE(exit_in_operator), CASE(thread_alive),
  CASE(thread_in_mpi_at_exit), CASE(fork_and_exec), CASE(exec_before_init), CASE(exec_after_finalize),
  CASE(exec_without_finalize), CASE(run_mpi_in_a_child), CASE(call_nothing), CASE(unreceived), CASE(nothing_freed),
  CASE(callbacks_in_finalize), CASE(abort_in_finalize), CASE(no_standard_files), CASE(data_at_stderr),
  CASE(stderr_closed_before), CASE(nobody_reads_stderr), CASE(limits_files), CASE(limits_descriptors), CASE(limits_memory), CASE(limits_processes),
  CASE(another_user), CASE(environment_gone), CASE(directory_gone), CASE(elsewhere), CASE(descriptors_closed_after),
  CASE(stopped), {NULL, NULL}};

int main(int argc, char** argv) {
  struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (argc != 2) return list_cases(kCases), 0;
  const struct Case* one = find_case(kCases, argv[1]);
  program_argv = argv;
  case_name = one->name;
  if (strcmp(one->name, "call_nothing") != 0) say("begins");
  one->run();
  return 0;
}
