// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/hook.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "detectors/hang/verdict/note.h"
#include "shim/config/config.h"

extern char** environ;

namespace resil::hang {

namespace {

pid_t children[16];

void reap_later(pid_t child) {
  for (pid_t& place : children)
    if (place == 0) {
      place = child;
      return;
    }
}

/// The hook's environment: this process's, but nothing is preloaded into it, and the report is named.
char** hook_environment(char* report) {
  static char* list[4096];
  uint32_t count = 0;
  for (char** variable = environ; *variable != nullptr && count + 2 < sizeof(list) / sizeof(list[0]); ++variable)
    if (strncmp(*variable, "LD_PRELOAD=", 11) != 0 && strncmp(*variable, "RESIL_HANG_REPORT=", 18) != 0)
      list[count++] = *variable;
  list[count++] = report;
  list[count] = nullptr;
  return list;
}

}  // namespace

/// The command comes from the environment of the job's owner and from nowhere else.
void run_hook(const char* json_path) {
  const char* command = config_text("RESIL_HANG_HOOK");
  if (command[0] == 0) return;
  static char report[1400], text[4096];
  snprintf(report, sizeof(report), "RESIL_HANG_REPORT=%s", json_path);
  snprintf(text, sizeof(text), "%s", command);
  char shell[] = "/bin/sh", option[] = "-c";
  char* arguments[] = {shell, option, text, nullptr};
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  if (posix_spawn(&child, shell, nullptr, &attributes, arguments, hook_environment(report)) != 0)
    print(Message::kHookFailed);
  else reap_later(child);
  posix_spawnattr_destroy(&attributes);
}

void reap_hooks() {
  for (pid_t& place : children)
    if (place != 0 && waitpid(place, nullptr, WNOHANG) != 0) place = 0;
}

}  // namespace resil::hang
