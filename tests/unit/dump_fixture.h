// SPDX-License-Identifier: Apache-2.0
//
// What the dump module needs around it, without MPI: a ring in plain memory, configuration, notes. Each case runs in a
// process of its own (`in_child`), because a dump belongs to a process and a crash must be a failed check.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "shim/call/module.h"
#include "shim/call/runtime.h"

namespace fixture {

/// Memory that the case's process and the test share.
struct Shared {
  std::atomic<int> ready, stop, chained, value;
};
extern Shared* shared;

/// A new directory for reports, removed with all its files by the destructor.
struct Directory {
  Directory();
  ~Directory();
  std::vector<std::string> files() const;
  std::string path;
};

struct Child {
  int pid;
  int errors;  ///< read end of its standard error
};

/// Starts `body` in a child; its return value is the exit status.
Child start(const std::function<int()>& body);
/// Waits at most 60 s (else kills it and returns -1); exit status, or 1000 + signal. `errors`: what it wrote to
/// standard error, at most a pipe full.
int finish(const Child& child, std::string* errors = nullptr);
/// Both.
int in_child(const std::function<int()>& body, std::string* errors = nullptr);

/// Waits until the flag has the value; false after 60 s.
bool wait_for(const std::atomic<int>& flag, int value);
/// Waits for a complete dump file; its text, or "" after 60 s.
std::string wait_for_dump(const std::string& path);
std::string read_file(const std::string& path);
size_t count(const std::string& text, const std::string& part);

/// In the child: a fresh ring for rank 3 of 16 with one trace buffer (this thread) and MPI_COMM_WORLD. `directory` may
/// be "".
void attach(const std::string& directory, int signal);
/// The hooks of the module under test.
const resil::Module& module();
std::string notes();

/// Adds a record to trace buffer 0 as the recorder would; `seconds_ago` back in time. Returns it.
resil::ring::Record& record(const char* call, double seconds_ago, bool open);
uint16_t call_id(const char* name);
uint64_t ticks_ago(double seconds);

/// attach() and the module's start, as in MPI_Init.
void attach_and_install(const std::string& directory, int signal = SIGHUP);
std::string first_dump(const Directory& directory);
/// In the child: tells the test that it may signal; whether it shall end.
void ready();
bool stopped();
/// Runs `body`, which must end when `stopped()`, in a child; signals it once it is ready; returns the dump.
std::string dump_of(const Directory& directory, int* status, std::string* errors, const std::function<int()>& body);

}  // namespace fixture
