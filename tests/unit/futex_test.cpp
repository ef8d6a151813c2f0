// SPDX-License-Identifier: Apache-2.0
//
// Waits for a word with a limit: whose word changes, and whose process is stopped meanwhile.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>

#include "check.h"
#include "shim/base/futex.h"

namespace {

using resil::futex_wait_while;
using resil::futex_wait_while_running;
using resil::monotonic_seconds;

constexpr double kSeconds = 0.5, kStep = 0.05, kStopped = 1;

struct Shared {
  std::atomic<uint32_t> word, begun;
  double waited;
};

}  // namespace

TEST_CASE("a wait ends when the word changes, or at its limit") {
  std::atomic<uint32_t> word = 1;
  CHECK_FALSE(futex_wait_while(word, 1, 0.01));
  CHECK_FALSE(futex_wait_while_running(word, 1, 0.01, kStep));
  std::thread other([&] {
    word = 0;
    resil::futex_wake(&word);
  });
  CHECK(futex_wait_while(word, 1, 60));
  other.join();
  word = 1;
  std::thread another([&] {
    word = 0;
    resil::futex_wake(&word);
  });
  CHECK(futex_wait_while_running(word, 1, 60, kStep));
  another.join();
}

TEST_CASE("time in which the process is stopped does not count") {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  bool stopped = false;
  for (int i = 0; i < 20 && !stopped; ++i) {  // on a busy machine the signal may come when the wait is over
    auto* shared = new (memory) Shared{1, 0, 0};
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const double begin = monotonic_seconds();
      shared->begun = 1;
      const bool changed = futex_wait_while_running(shared->word, 1, kSeconds, kStep);
      shared->waited = monotonic_seconds() - begin;
      _exit(changed ? 1 : 0);
    }
    while (shared->begun == 0) sched_yield();
    int status = 0;
    kill(child, SIGSTOP);
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    stopped = WIFSTOPPED(status) && shared->waited == 0;
    const double begin = monotonic_seconds();
    while (stopped && monotonic_seconds() - begin < kStopped) usleep(10000);
    const double span = monotonic_seconds() - begin;
    if (WIFSTOPPED(status)) {
      kill(child, SIGCONT);
      REQUIRE(waitpid(child, &status, 0) == child);
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    if (stopped) CHECK(shared->waited >= span + kSeconds - 2 * kStep);
  }
  CHECK(stopped);
  munmap(memory, sizeof(Shared));
}
