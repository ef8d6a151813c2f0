// SPDX-License-Identifier: Apache-2.0
//
// What programs do to their process while MPI runs: signal handlers of their own, alternate stacks, timers, recovery
// from faults, demand paging, seccomp filters, threads on one tag, MPI_T, attributes, dlopen, ports, spawn, shared memory.
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static void traffic(int rounds) {
  static int mine[3000], theirs[3000];
  long sum = 0;
  for (int k = 0; k < rounds; k++) {
    int one = k + me, all;
    fill(mine, sizeof(mine), k);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(mine, k % 3000, MPI_INT, other, 1, theirs, 3000, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum = sum * 31 + all + theirs[k / 2 % 3000];
  }
  say("traffic %ld", sum);
}

static volatile sig_atomic_t caught, on_alternate;
static stack_t alternate;
static void count_signal(int number) { (void)number, caught++; }
static void count_info(int number, siginfo_t* info, void* context) {
  char here;
  (void)number, (void)context;
  caught += info->si_pid == getpid();
  on_alternate += &here > (char*)alternate.ss_sp && &here < (char*)alternate.ss_sp + alternate.ss_size;
}

// The program's own handler for the signal that resil uses by default.
static void own_hangup(void) {
  struct sigaction mine = {.sa_handler = count_signal}, old, now;
  caught = 0;
  sigaction(SIGHUP, &mine, &old);
  sigaction(SIGHUP, NULL, &now);
  say("is mine: %d", now.sa_handler == count_signal);
  for (int k = 0; k < 5; k++) raise(SIGHUP);
  traffic(20);
  say("caught %d", (int)caught);
  sigaction(SIGHUP, &old, NULL);
}

static void alternate_stack(void) {
  struct sigaction mine = {.sa_sigaction = count_info, .sa_flags = SA_SIGINFO | SA_ONSTACK}, old;
  stack_t before;
  alternate.ss_size = 65536, alternate.ss_sp = malloc(65536), alternate.ss_flags = 0;
  sigaltstack(&alternate, &before);
  caught = on_alternate = 0;
  sigaction(SIGUSR1, &mine, &old);
  for (int k = 0; k < 5; k++) raise(SIGUSR1), traffic(3);
  say("caught %d, on the alternate stack %d", (int)caught, (int)on_alternate);
  sigaction(SIGUSR1, &old, NULL);
  sigaltstack(&before, NULL);
  free(alternate.ss_sp);
}

static sigjmp_buf recovery;
static void* fault_address;
static void recover(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  fault_address = info->si_addr;
  siglongjmp(recovery, 1);
}
static void own_segv(void) {
  struct sigaction mine = {.sa_sigaction = recover, .sa_flags = SA_SIGINFO}, old;
  char* page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  volatile int recovered = 0;
  sigaction(SIGSEGV, &mine, &old);
  for (volatile int k = 0; k < 20; k++) {
    if (sigsetjmp(recovery, 1) == 0) page[k] = 1;
    else recovered += fault_address == page + k;
  }
  say("recovered %d", recovered);
  traffic(20);
  sigaction(SIGSEGV, &old, NULL);
  munmap(page, 4096);
}

// Pages that come to life when they are touched: distributed shared memory, checkpointers.
static char* paged;
enum { kPaged = 64 * 4096 };
static void page_in(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  char* page = (char*)((uintptr_t)info->si_addr & ~4095ul);
  if (page < paged || page >= paged + kPaged) _exit(78);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  caught++;
}
static void demand_paging(void) {
  struct sigaction mine = {.sa_sigaction = page_in, .sa_flags = SA_SIGINFO}, old;
  static char got[kPaged];
  MPI_Request request[2];
  paged = mmap(NULL, kPaged, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fill(paged, kPaged, me);
  sigaction(SIGSEGV, &mine, &old);
  for (int k = 0; k < 4; k++) {
    int size = k < 2 ? 3000 : kPaged;  // eager, and not
    mprotect(paged, kPaged, PROT_NONE);
    // Only the side that the MPI reads by itself, in this process: never a page that the kernel is to read.
    MPI_Pack_size(size, MPI_BYTE, MPI_COMM_WORLD, &size);
    int at = 0;
    if (k % 2) {
      MPI_Pack(paged, size, MPI_BYTE, got, kPaged, &at, MPI_COMM_WORLD);
    } else if (k == 0) {
      MPI_Irecv(got, size, MPI_BYTE, other, 1, MPI_COMM_WORLD, &request[0]);
      MPI_Isend(paged, size, MPI_BYTE, other, 1, MPI_COMM_WORLD, &request[1]);
      MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    }
    say("%d: %u", k, sum_of(got, size));
  }
  say("paged %d", caught > 0);
  sigaction(SIGSEGV, &old, NULL);
  munmap(paged, kPaged);
}

static void timers(void) {
  struct sigaction mine = {.sa_handler = count_signal}, old_prof, old_alarm;  // no SA_RESTART: calls end with EINTR
  struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGPROF, &mine, &old_prof), sigaction(SIGALRM, &mine, &old_alarm);
  caught = 0;
  setitimer(ITIMER_PROF, &often, NULL), setitimer(ITIMER_REAL, &often, NULL);
  while (caught < 50) {}
  traffic(100);
  setitimer(ITIMER_PROF, &never, NULL), setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGPROF, &old_prof, NULL), sigaction(SIGALRM, &old_alarm, NULL);
}

static void all_signals_blocked(void) {
  sigset_t all, old;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &old);
  traffic(50);
  sigset_t pending;
  sigpending(&pending);
  int number = 0;
  for (int k = 1; k < 64; k++) number += sigismember(&pending, k) == 1;
  say("pending %d", number);
  sigprocmask(SIG_SETMASK, &old, NULL);
}

static void children(void) {
  struct sigaction mine = {.sa_handler = count_signal}, old;
  int status;
  sigaction(SIGCHLD, &mine, &old);
  caught = 0;
  for (int k = 0; k < 5; k++) {
    pid_t child = fork();
    if (child == 0) _exit(k);
    traffic(2);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    say("%d", WEXITSTATUS(status));
  }
  say("caught some: %d, no other child: %d", caught > 0, waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
  sigaction(SIGCHLD, &old, NULL);
}

// A sandbox as browsers and build farms have: what MPI does not need is refused.
static void sandbox(void) {
  static const int refused[] = {SYS_ptrace, SYS_perf_event_open, SYS_process_vm_readv, SYS_userfaultfd, SYS_kcmp,
    SYS_memfd_create, SYS_get_mempolicy, SYS_tgkill, SYS_mkdir, SYS_rename, SYS_unlink, SYS_link, SYS_symlink,
    SYS_timer_create, SYS_sched_setaffinity, SYS_clone3, SYS_membarrier};
  enum { kRefused = sizeof(refused) / sizeof(refused[0]) };
  struct sock_filter program[kRefused + 3];
  program[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
  for (int k = 0; k < kRefused; k++)
    program[1 + k] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[k], kRefused - k, 0);
  program[kRefused + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  program[kRefused + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  struct sock_fprog filter = {kRefused + 3, program};
  pid_t child = fork();  // shows that the filter works; it then stays to the end of the job
  if (child == 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    _exit(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 && syscall(SYS_kcmp, 1, 1, 0, 0, 0) == -1 ? 5 : 6);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  say("%d", WEXITSTATUS(status));
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
  traffic(100);
}

static void* ping(void* extra) {
  int number = (int)(uintptr_t)extra, got;
  long sum = 0;
  for (int k = 0; k < 500; k++) {
    if (me == 0) MPI_Send(&k, 1, MPI_INT, 1, 7, MPI_COMM_WORLD), MPI_Recv(&got, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_Send(&got, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
    sum += got;
  }
  (void)number;
  return (void*)sum;
}
static void threads_on_one_tag(void) {
  pthread_t thread[4];
  long sum = 0;
  void* one;
  for (long k = 0; k < 4; k++) pthread_create(&thread[k], NULL, ping, (void*)k);
  for (int k = 0; k < 4; k++) pthread_join(thread[k], &one), sum += (long)one;
  say("%ld", sum);
}

static void* requests_of_others(void* extra) {
  MPI_Wait(extra, MPI_STATUS_IGNORE);
  return NULL;
}
static void threads_and_requests(void) {  // started here, completed there; threads come and go
  int got[200], sum = 0;
  for (int k = 0; k < 200; k++) {
    MPI_Request request;
    pthread_t thread;
    MPI_Irecv(&got[k], 1, MPI_INT, other, 9, MPI_COMM_WORLD, &request);
    pthread_create(&thread, NULL, requests_of_others, &request);
    MPI_Send(&k, 1, MPI_INT, other, 9, MPI_COMM_WORLD);
    pthread_join(thread, NULL);
    sum += got[k];
  }
  say("%d", sum);
}
static void* dups(void* extra) {
  MPI_Comm comm = *(MPI_Comm*)extra, copy;
  int sum = 0, all;
  for (int k = 0; k < 20; k++) {
    MPI_Comm_dup(comm, &copy);
    MPI_Allreduce(&k, &all, 1, MPI_INT, MPI_SUM, copy);
    sum += all;
    MPI_Comm_free(&copy);
  }
  return (void*)(long)sum;
}
static void threads_and_communicators(void) {
  MPI_Comm comm[3];
  pthread_t thread[3];
  void* sum;
  for (int k = 0; k < 3; k++) MPI_Comm_dup(MPI_COMM_WORLD, &comm[k]);
  for (int k = 0; k < 3; k++) pthread_create(&thread[k], NULL, dups, &comm[k]);
  for (int k = 0; k < 3; k++) pthread_join(thread[k], &sum), say("%ld", (long)sum);
  for (int k = 0; k < 3; k++) MPI_Comm_free(&comm[k]);
}

static void tools(void) {
  int provided, number, categories;
  MPI_T_pvar_session session;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_T_cvar_get_num(&number), MPI_T_category_get_num(&categories);
  say("%d %d", number > 0, categories > 0);
  for (int k = 0; k < number && k < 50; k++) {
    char name[200], text[1000];
    int name_length = 200, text_length = 1000, verbosity, bind, scope;
    MPI_Datatype type;
    MPI_T_enum list;
    MPI_T_cvar_get_info(k, name, &name_length, &verbosity, &type, &list, text, &text_length, &bind, &scope);
  }
  MPI_T_pvar_get_num(&number);
  TRY(MPI_T_pvar_session_create(&session));
  traffic(5);
  TRY(MPI_T_pvar_session_free(&session));
  MPI_T_finalize();
}

static void names_and_infos(void) {
  MPI_Comm comm;
  MPI_Info info;
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length, flag = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  memset(name, 'x', sizeof(name) - 1);
  TRY(MPI_Comm_set_name(comm, name));
  memset(name, 0, sizeof(name));
  MPI_Comm_get_name(comm, name, &length);
  say("%d %c", length, name[20]);
  TRY(MPI_Comm_set_name(comm, "\"quotes\" \\ \n\t\x01 \xff\xfe <b>"));
  MPI_Comm_get_name(comm, name, &length);
  say("%u", sum_of(name, length));
  MPI_Info_create(&info);
  MPI_Info_set(info, "a key", "\"{}[]\n");
  TRY(MPI_Comm_set_info(comm, info));
  MPI_Info_free(&info);
  MPI_Datatype type;
  MPI_Type_dup(MPI_INT, &type);
  MPI_Type_set_name(type, "type\n\x7f");
  MPI_Bcast(&flag, 1, type, 0, comm);
  MPI_Type_free(&type);
  MPI_Barrier(comm);
  MPI_Comm_free(&comm);
}

static void again_loaded(void) {
  for (int k = 0; k < 3; k++) {
    Dl_info where;
    if (!dladdr(dlsym(RTLD_DEFAULT, "MPI_Win_get_group"), &where)) say("not found");
    void* mpi = dlopen(k == 1 ? "libmpi.so.40" : "libmpich.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (!mpi) continue;
    int (*rank_of)(MPI_Comm, int*) = (int (*)(MPI_Comm, int*))dlsym(mpi, "PMPI_Comm_rank");
    int rank = -1;
    if (rank_of) rank_of(MPI_COMM_WORLD, &rank);
    say("rank %d", rank);
    dlclose(mpi);
  }
  traffic(5);
}

static void shared_memory(void) {
  MPI_Comm node;
  MPI_Win win;
  int *mine, *theirs, unit, together;
  MPI_Aint size;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &together);
  const int has = me || together == 1;  // MPICH 5.0 over UCX shares no memory between ranks
  TRY(MPI_Win_allocate_shared(has ? 4096 : 0, 4, MPI_INFO_NULL, node, &mine, &win));
  TRY(MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &theirs));
  MPI_Win_lock_all(0, win);
  if (has) for (int k = 0; k < 1024; k++) mine[k] = k;
  MPI_Win_sync(win), MPI_Barrier(node), MPI_Win_sync(win);
  say("%ld %d: %u", (long)size, unit, sum_of(theirs, 4096));
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win), MPI_Comm_free(&node);
}

static void connects(void) {
  char port[MPI_MAX_PORT_NAME] = "";
  MPI_Comm inter, merged;
  int sum = 0, size;
  if (me == 0) TRY(MPI_Open_port(MPI_INFO_NULL, port));
  MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  for (int k = 0; k < 2; k++) {
    if (me == 0) TRY(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    else TRY(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    MPI_Intercomm_merge(inter, me, &merged);
    MPI_Comm_size(merged, &size);
    MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, merged);
    say("%d %d", size, sum);
    MPI_Comm_free(&merged);
    TRY(MPI_Comm_disconnect(&inter));
  }
  if (me == 0) MPI_Close_port(port);
}

static void published(void) {
  char port[MPI_MAX_PORT_NAME] = "x";
  if (me == 0) TRY(MPI_Lookup_name("nobody has published this", MPI_INFO_NULL, port));
  meet();
}

static const struct Case kCases[] = {CASE(own_hangup), CASE(alternate_stack), CASE(own_segv), CASE(demand_paging),
  CASE(timers), CASE(all_signals_blocked), CASE(children), CASE(threads_on_one_tag), CASE(threads_and_requests),
  CASE(threads_and_communicators), CASE(tools), CASE(names_and_infos), CASE(again_loaded), CASE(shared_memory),
  CASE(connects), CASE(published), CASE(sandbox), {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_MULTIPLE); }
