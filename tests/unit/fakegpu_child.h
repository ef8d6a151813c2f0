// SPDX-License-Identifier: Apache-2.0
//
// Cases on the stand-in GPU, each in a child of its own because a driver reads FAKEGPU once.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

#define NEED(condition)                                                       \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                               \
    }                                                                         \
  } while (0)

/// Exit status of `body` in a child with this FAKEGPU, or 1000 + the signal that ended it; what it wrote on stderr.
inline int child(const char* settings, const std::function<void()>& body, std::string* said = nullptr) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (said != nullptr) dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    setenv("FAKEGPU", settings, 1);
    for (const int number : {SIGSEGV, SIGABRT}) signal(number, SIG_DFL);  // not Catch's
    alarm(20);
    body();
    _exit(0);
  }
  close(ends[1]);
  char text[4096];
  for (ssize_t got; said != nullptr && (got = read(ends[0], text, sizeof(text))) > 0;)
    said->append(text, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
