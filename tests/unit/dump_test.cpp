// SPDX-License-Identifier: Apache-2.0
//
// The dump signal against programs in every awkward state: what must be in the dump, and that the program goes on.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "check.h"
#include "detectors/dump/dump.h"
#include "dump_fixture.h"
#include "shim/runtime/stacks/objects.h"

using namespace fixture;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kScale = 10;
#else
constexpr int kScale = 1;
#endif

namespace {

/// Number of the system call that a thread of this process sleeps in, -1 while it runs.
long system_call(int tid) {
  const std::string text = read_file("/proc/self/task/" + std::to_string(tid) + "/syscall");
  return text.empty() || text[0] < '0' || text[0] > '9' ? -1 : atol(text.c_str());
}

}  // namespace

// Exported, so that their names can be in a dump.
extern "C" {
[[gnu::noinline, gnu::visibility("default")]] void exported_spin() {
  ready();
  while (!stopped()) asm volatile("" ::: "memory");
}
[[gnu::noinline, gnu::visibility("default")]] int exported_recursion(int depth) {
  if (depth == 0) exported_spin();
  const int below = depth == 0 ? 0 : exported_recursion(depth - 1);
  asm volatile("" ::: "memory");
  return below + 1;
}
}

TEST_CASE("a spinning program dumps and goes on", "[dump]") {
  Directory directory;
  int status;
  std::string errors;
  const std::string text = dump_of(directory, &status, &errors, [] {
    auto& receive = record("MPI_Recv", 12.4, true);
    receive.peer = 2;
    receive.tag = 7;
    receive.comm = 1;
    receive.bytes = 8;
    receive.site = reinterpret_cast<uint64_t>(&exported_spin) + 5;
    exported_spin();
    return 0;
  });
  CHECK(status == 0);
  CHECK_THAT(text, Catch::StartsWith("rank 3 of 16 (node17, pid "));
  const std::string sentence = text.substr(0, text.find('\n'));
  CHECK_THAT(sentence, Catch::Contains("): in MPI_Recv from rank 2, tag 7, MPI_COMM_WORLD, 8 bytes, for 12."));
  CHECK_THAT(sentence, Catch::Contains(" s, called at ") && Catch::Contains("(exported_spin+0x5)"));
  CHECK_THAT(text, Catch::Contains("phase running, because of SIGHUP from pid "));
  CHECK_THAT(text, Catch::Contains("exported_spin+0x") && Catch::Contains("main"));
  CHECK_THAT(text, !Catch::Contains("ends here"));
  CHECK_THAT(errors, Catch::StartsWith("\nresil: rank 3 of 16"));
  CHECK_THAT(errors, Catch::EndsWith("state dump in " + first_dump(directory) + "\n"));
  CHECK(count(errors, "\n") <= 12);
}

TEST_CASE("a sleeping program dumps and its read is restarted", "[dump]") {
  Directory directory;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Child child = start([&] {
    attach_and_install(directory.path);
    char byte;
    ready();
    return read(ends[0], &byte, 1) == 1 ? 0 : 1;
  });
  REQUIRE(wait_for(shared->ready, 1));
  kill(child.pid, SIGHUP);
  const std::string text = wait_for_dump(first_dump(directory));
  REQUIRE(write(ends[1], "x", 1) == 1);
  CHECK(finish(child) == 0);
  CHECK_THAT(text, Catch::Contains("read"));
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("nanosleep, a held mutex and a full stack of threads", "[dump]") {
  Directory directory;
  int status;
  const std::string text = dump_of(directory, &status, nullptr, [] {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    // The main thread blocks on a lock that another thread holds; that one sleeps.
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 63; ++i) {
      threads.emplace_back([&] {
        ++started;
        while (!stopped()) {
          timespec pause{0, 20000000};
          nanosleep(&pause, nullptr);
        }
      });
    }
    std::thread holder([&] {
      pthread_mutex_lock(&mutex);
      ++started;
      while (started.load() < 64) sched_yield();
      ready();
      while (!stopped()) sched_yield();
      pthread_mutex_unlock(&mutex);
    });
    while (started.load() < 64) sched_yield();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    for (auto& thread : threads) thread.join();
    holder.join();
    return 0;
  });
  CHECK(status == 0);
  CHECK_THAT(text, Catch::Contains("Threads: 65\n"));
  CHECK(count(text, "\n  Thread ") == 65);
  CHECK(count(text, "did not answer") == 0);
  CHECK(count(text, "nanosleep") >= 63);
}

TEST_CASE("signals into malloc and free, from everywhere at once", "[dump][race]") {
  Directory directory;
  const int status = in_child([&] {
    attach_and_install(directory.path);
    const int null = open("/dev/null", 1);
    dup2(null, 2);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        for (unsigned n = i; !stop; n = n * 1103515245 + 12345) {
          void* volatile block = malloc(n % 100000);
          free(block);
        }
      });
    }
    for (int i = 0; i < 1000 / kScale; ++i) {
      // To one thread after the other, in the middle of whatever it does; each dump asks all the others.
      if (pthread_kill(threads[i % 3].native_handle(), SIGHUP) != 0) return 1;
      free(malloc(static_cast<size_t>(i)));
    }
    while (__atomic_load_n(&resil::runtime.header->dumps, __ATOMIC_ACQUIRE) == 0) sched_yield();
    stop = true;
    for (auto& thread : threads) thread.join();
    return 0;
  });
  CHECK(status == 0);
}

TEST_CASE("no request is lost and none is answered twice", "[dump][race]") {
  Directory directory;
  constexpr int kThreads = 4;
  constexpr int kEach = 20;
  const int status = in_child([&] {
    attach_and_install(directory.path);
    const int null = open("/dev/null", 1);
    dup2(null, 2);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([] {
        for (int n = 0; n < kEach; ++n) resil::dump_now("a test");
      });
    }
    for (auto& thread : threads) thread.join();
    return 0;
  });
  REQUIRE(status == 0);
  int answered = 0;
  for (const auto& file : directory.files()) {
    const std::string text = read_file(directory.path + "/" + file);
    ++answered;
    const auto number_after = [&](const char* before) {
      const size_t at = text.find(before);
      return at == std::string::npos ? 0 : atoi(text.c_str() + at + strlen(before));
    };
    answered += number_after("because of a test and ");
    answered += number_after("because of requests during the dump before and ");
    answered += number_after("answered by it: ");
  }
  CHECK(answered == kThreads * kEach);
}

TEST_CASE("threads that cannot be asked are described and left alone", "[dump]") {
  Directory directory;
  std::string errors;
  const int status = in_child(
      [&] {
        attach_and_install(directory.path);
        int ends[2];
        if (pipe(ends) != 0) return 1;
        std::atomic<int> waiting{0};
        std::atomic<int> pending{-1};
        std::atomic<int> taken{0};
        std::atomic<int> blocker_tid{0};
        std::atomic<int> waiter_tid{0};
        std::thread blocker([&] {
          blocker_tid = static_cast<int>(syscall(SYS_gettid));
          sigset_t set;
          sigemptyset(&set);
          sigaddset(&set, SIGHUP);
          pthread_sigmask(SIG_BLOCK, &set, nullptr);
          ++waiting;
          char byte;
          if (read(ends[0], &byte, 1) != 1) return;
          sigpending(&set);
          pending = sigismember(&set, SIGHUP);
        });
        std::thread waiter([&] {
          waiter_tid = static_cast<int>(syscall(SYS_gettid));
          sigset_t set;
          sigemptyset(&set);
          sigaddset(&set, SIGHUP);
          sigaddset(&set, SIGUSR2);
          pthread_sigmask(SIG_BLOCK, &set, nullptr);
          ++waiting;
          int number = 0;
          sigwait(&set, &number);
          taken = number;
        });
        while (waiting < 2) sched_yield();
        // Their system calls are what tells, so both must be in them.
        while (system_call(blocker_tid) != SYS_read || system_call(waiter_tid) != SYS_rt_sigtimedwait) sched_yield();
        resil::dump_now("a test");
        pthread_kill(waiter.native_handle(), SIGUSR2);
        waiter.join();
        if (write(ends[1], "x", 1) != 1) return 2;
        blocker.join();
        if (pending != 0) return 3;
        return taken == SIGUSR2 ? 0 : 4;
      },
      &errors);
  CHECK(status == 0);
  const std::string text = read_file(first_dump(directory));
  CHECK_THAT(text, Catch::Contains("blocks the signal, so it was not asked; stack as far as it can be followed"));
  CHECK_THAT(text, Catch::Contains("waits for signals (sigwait), so it was not asked"));
}

TEST_CASE("deep recursion keeps both ends of the stack", "[dump]") {
  Directory directory;
  int status;
  const std::string text =
      dump_of(directory, &status, nullptr, [] { return exported_recursion(1000) == 1001 ? 0 : 1; });
  CHECK(status == 0);
  CHECK_THAT(text, Catch::Contains("frames left out"));
  CHECK_THAT(text, Catch::Contains("exported_spin+"));
  CHECK_THAT(text, Catch::Contains("main"));
  CHECK_THAT(text, !Catch::Contains("ends here"));
}

TEST_CASE("endless recursion ends", "[dump]") {
  Directory directory;
  int status;
  const std::string text =
      dump_of(directory, &status, nullptr, [] { return exported_recursion(20000) == 20001 ? 0 : 1; });
  CHECK(status == 0);
  CHECK_THAT(text, Catch::Contains("(ends here: more than 5000 frames)"));
}

TEST_CASE("a forked child never dumps and acts as before", "[dump]") {
  Directory directory;
  CHECK(in_child([&] {
          attach_and_install(directory.path);
          const int pid = fork();
          if (pid == 0) {
            raise(SIGHUP);
            _exit(7);
          }
          int status = 0;
          waitpid(pid, &status, 0);
          return WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP ? 0 : 1;
        }) == 0);
  CHECK(directory.files().empty());
}

TEST_CASE("the program's own handler is called after the dump", "[dump]") {
  for (const bool with_info : {false, true}) {
    Directory directory;
    const int status = in_child([&] {
      struct sigaction action {};
      if (with_info) {
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
          shared->value = info->si_pid;
          errno = 99;
          ++shared->chained;
        };
        action.sa_flags = SA_SIGINFO;
      } else {
        action.sa_handler = [](int) {
          // Only what the handler itself asked for is blocked.
          sigset_t now;
          pthread_sigmask(SIG_BLOCK, nullptr, &now);
          shared->value = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGTERM) == 0 ? getpid() : 0;
          ++shared->chained;
        };
        sigaddset(&action.sa_mask, SIGUSR1);
      }
      sigaction(SIGHUP, &action, nullptr);
      attach_and_install(directory.path);
      errno = 5;
      raise(SIGHUP);
      if (errno != 5) return 1;
      if (shared->chained != 1 || shared->value != getpid()) return 2;
      sigset_t now;
      pthread_sigmask(SIG_BLOCK, nullptr, &now);
      if (sigismember(&now, SIGTERM) == 1) return 3;
      const int pid = fork();
      if (pid == 0) {
        shared->value = 0;
        raise(SIGHUP);
        _exit(shared->chained == 2 ? 0 : 1);
      }
      int child_status = 0;
      waitpid(pid, &child_status, 0);
      return child_status == 0 ? 0 : 4;
    });
    CHECK(status == 0);
    CHECK(directory.files().size() == 1);
  }
}

TEST_CASE("an ignored signal dumps and stays harmless", "[dump]") {
  Directory directory;
  CHECK(in_child([&] {
          signal(SIGHUP, SIG_IGN);
          attach_and_install(directory.path);
          raise(SIGHUP);
          const int pid = fork();
          if (pid == 0) {
            raise(SIGHUP);
            _exit(0);
          }
          int status = 1;
          waitpid(pid, &status, 0);
          return status;
        }) == 0);
  CHECK(directory.files().size() == 1);
}

TEST_CASE("a lost terminal dumps and then kills as before", "[dump]") {
  for (const bool ignored : {false, true}) {
    Directory directory;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(terminal >= 0);
    REQUIRE(grantpt(terminal) == 0);
    REQUIRE(unlockpt(terminal) == 0);
    const std::string name = ptsname(terminal);
    const Child child = start([&] {
      close(terminal);
      setsid();
      if (open(name.c_str(), O_RDWR) < 0) return 1;  // becomes the controlling terminal
      if (ignored) signal(SIGHUP, SIG_IGN);
      attach_and_install(directory.path);
      ready();
      while (!stopped()) sched_yield();
      return 0;
    });
    REQUIRE(wait_for(shared->ready, 1));
    close(terminal);
    const std::string text = wait_for_dump(first_dump(directory));
    CHECK_THAT(text, Catch::Contains("SIGHUP from the kernel (terminal lost)"));
    if (ignored) shared->stop = 1;
    CHECK(finish(child) == (ignored ? 0 : 1000 + SIGHUP));
  }
}

TEST_CASE("UCX's handler is replaced and never called", "[dump]") {
  for (const bool before : {false, true}) {
    Directory directory;
    CHECK(in_child([&] {
            void* library = dlopen(LIBUCS_FAKE, RTLD_NOW);
            if (library == nullptr) return 10;
            auto install = reinterpret_cast<void (*)(int)>(dlsym(library, "fake_ucs_install"));
            auto calls = reinterpret_cast<int (*)()>(dlsym(library, "fake_ucs_calls"));
            if (before) install(SIGHUP);
            attach(directory.path, SIGHUP);
            module().before_init();
            if (!before) install(SIGHUP);  // as MPI_Init does
            module().after_init();
            raise(SIGHUP);
            return calls() == 0 && notes().empty() ? 0 : 1;
          }) == 0);
    CHECK(directory.files().size() == 1);
  }
}

TEST_CASE("another handler from MPI_Init or later wins and is noted", "[dump]") {
  for (const bool during : {false, true}) {
    Directory directory;
    CHECK(in_child([&] {
            attach(directory.path, SIGUSR2);
            module().before_init();
            if (during) signal(SIGUSR2, [](int) { ++shared->chained; });
            module().after_init();
            if (!during) signal(SIGUSR2, [](int) { ++shared->chained; });
            raise(SIGUSR2);
            module().before_finalize();
            module().before_finalize();
            const std::string all = notes();
            const bool noted = all.find("SIGUSR2 does not dump state: ") == 0 && count(all, "\n") == 1;
            return shared->chained == 1 && noted ? 0 : 1;
          }) == 0);
    CHECK(directory.files().empty());
  }
}

TEST_CASE("without a directory the dump goes to standard error", "[dump]") {
  std::string errors;
  CHECK(in_child(
            [] {
              attach_and_install("");
              raise(SIGHUP);
              return 0;
            },
            &errors) == 0);
  CHECK_THAT(errors, Catch::StartsWith("rank 3 of 16") && Catch::Contains("\nThreads: 1\n"));

  CHECK(in_child(
            [] {
              attach_and_install("/proc/no/such/directory");
              raise(SIGHUP);
              return 0;
            },
            &errors) == 0);
  CHECK_THAT(errors, Catch::StartsWith("resil: cannot create /proc/no/such/directory/dump-00003-0.txt: ENOENT"));
  CHECK_THAT(errors, Catch::Contains("\nThreads: 1\n"));
}

TEST_CASE("standard error that is closed, full or broken does no harm", "[dump]") {
  for (const int kind : {0, 1, 2}) {
    Directory directory;
    CHECK(in_child([&] {
            attach_and_install(directory.path);
            int ends[2];
            if (pipe(ends) != 0) return 1;
            dup2(ends[1], 2);
            if (kind == 0) close(2);
            if (kind == 1) {
              fcntl(ends[1], F_SETFL, O_NONBLOCK);
              char block[4096] = {};
              while (write(ends[1], block, sizeof block) > 0) continue;
              fcntl(ends[1], F_SETFL, 0);
            }
            if (kind == 2) close(ends[0]);
            raise(SIGHUP);
            return 0;
          }) == 0);
    CHECK(directory.files().size() == 1);
  }
}

TEST_CASE("older dumps are never overwritten", "[dump]") {
  Directory directory;
  for (int run = 0; run < 2; ++run) {
    CHECK(in_child([&] {
            attach_and_install(directory.path);
            raise(SIGHUP);
            return resil::runtime.header->dumps == static_cast<uint32_t>(run + 1) ? 0 : 1;
          }) == 0);
  }
  CHECK(directory.files().size() == 2);
}

TEST_CASE("stacks without _dl_find_object", "[dump]") {
  Directory directory;
  int status;
  const std::string text = dump_of(directory, &status, nullptr, [] {
    resil::stacks::forget_find_object_for_tests();
    exported_recursion(3);
    return 0;
  });
  CHECK(status == 0);
  CHECK(count(text, "exported_recursion+") >= 4);
  CHECK_THAT(text, Catch::Contains("C library older than 2.35") && !Catch::Contains("ends here"));
}
