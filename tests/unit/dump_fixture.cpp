// SPDX-License-Identifier: Apache-2.0
//
// See dump_fixture.h. Also defines what the rest of the library would: Runtime, configuration, notes.
#include "dump_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "check.h"
#include "shim/base/safe_text.h"
#include "shim/call/registry.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/report/log.h"

namespace resil {

Runtime runtime;

namespace {
int configured_signal = 0;
std::string collected_notes;
// A module with something to say in every dump.
constexpr Module kTalker = {
    .name = "talker",
    .description = "",
    .stage = Stage::kWatch,
    .dump = [](SafeText& text, const char* prefix) { text.str(prefix).str("a module's line\n"); },
};
constexpr const Module* kEnabled[] = {&kTalker};
}  // namespace

std::span<const Module* const> enabled_modules() { return kEnabled; }

int64_t config_integer(const char* name) { return strcmp(name, "RESIL_SIGNAL") == 0 ? configured_signal : 0; }
void add_note(const char* text) { collected_notes += std::string(text) + "\n"; }
void add_note_format(const char* format, ...) {
  char text[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  add_note(text);
}

}  // namespace resil

extern "C" const resil::Module* const __start_resil_modules[];

namespace fixture {
namespace {

using namespace resil;

uint64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

constexpr uint64_t kPatienceMs = 60000;

/// Polls until `done`; false when patience ends.
template <class Done>
bool poll_until(Done done) {
  for (uint64_t end = now_ms() + kPatienceMs; now_ms() < end;) {
    if (done()) return true;
    timespec pause{0, 1000000};
    nanosleep(&pause, nullptr);
  }
  return done();
}

Shared* make_shared_memory() {
  return static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

constexpr uint32_t kTraces = 4, kComms = 64, kRequests = 256, kNames = 8;

/// Rate of the tick counter, measured once for the test's own ring.
double measured_rate() {
  timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  const uint64_t first = ticks();
  do clock_gettime(CLOCK_MONOTONIC, &b);
  while ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec) < 2e6);
  return (ticks() - first) / ((b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) * 1e-9);
}

}  // namespace

Shared* shared = make_shared_memory();

Directory::Directory() {
  char name[] = "/tmp/resil-dump-test-XXXXXX";
  path = mkdtemp(name);
}

Directory::~Directory() {
  for (const auto& file : files()) unlink((path + "/" + file).c_str());
  rmdir(path.c_str());
}

std::vector<std::string> Directory::files() const {
  std::vector<std::string> names;
  DIR* directory = opendir(path.c_str());
  while (dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(directory);
  return names;
}

Child start(const std::function<int()>& body) {
  new (shared) Shared{};
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const int pid = fork();
  if (pid == 0) {
    dup2(ends[1], 2);
    signal(SIGHUP, SIG_DFL);  // ignored when the tests run under nohup
    _exit(body());
  }
  close(ends[1]);
  return {pid, ends[0]};
}

int finish(const Child& child, std::string* errors) {
  int status = 0;
  std::string text;
  const bool ended = poll_until([&] {
    pollfd ready{child.errors, POLLIN, 0};
    char buffer[4096];
    while (poll(&ready, 1, 0) > 0) {
      const ssize_t got = read(child.errors, buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return waitpid(child.pid, &status, WNOHANG) == child.pid;
  });
  char buffer[4096];
  if (!ended) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, &status, 0);
  }
  for (ssize_t got; (got = read(child.errors, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(child.errors);
  if (errors != nullptr) *errors = text;
  if (ended && WIFEXITED(status) && WEXITSTATUS(status) != 0) UNSCOPED_INFO("child wrote: " << text);
  if (!ended) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int in_child(const std::function<int()>& body, std::string* errors) { return finish(start(body), errors); }

bool wait_for(const std::atomic<int>& flag, int value) {
  return poll_until([&] { return flag.load() == value; });
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string wait_for_dump(const std::string& path) {
  std::string text;
  // The section of objects comes last, and the executable is among them.
  poll_until([&] {
    text = read_file(path);
    const size_t last = text.find("\nObjects named above");
    return last != std::string::npos && text.find(": /", last) != std::string::npos && text.back() == '\n';
  });
  return text;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

void attach(const std::string& directory, int signal) {
  configured_signal = signal;
  collected_notes.clear();
  static const double rate = measured_rate();
  auto* header = static_cast<ring::Header*>(calloc(1, 4096));
  header->rank = runtime.rank = 3;
  header->world_size = runtime.size = 16;
  header->pid = runtime.pid = getpid();
  strcpy(header->host, "node17");
  strcpy(runtime.host, "node17");
  snprintf(runtime.directory, sizeof runtime.directory, "%s", directory.c_str());
  const ssize_t length = readlink("/proc/self/exe", header->executable, sizeof header->executable - 1);
  header->executable[length > 0 ? length : 0] = 0;
  strcpy(header->resil_version, "0.0.1");
  strcpy(header->mpi, "no MPI");
  header->phase = static_cast<uint32_t>(ring::Phase::kRunning);
  header->ticks_per_second = rate;
  header->ticks_start = ticks();
  header->realtime_start_ns = static_cast<uint64_t>(time(nullptr)) * 1000000000;
  runtime.header = header;
  runtime.trace_count = kTraces;
  runtime.traces = static_cast<ring::TraceBuffer*>(aligned_alloc(64, kTraces * sizeof(ring::TraceBuffer)));
  memset(static_cast<void*>(runtime.traces), 0, kTraces * sizeof(ring::TraceBuffer));
  runtime.comm_count = kComms;
  runtime.comms = static_cast<ring::Comm*>(calloc(kComms, sizeof(ring::Comm)));
  runtime.request_count = kRequests;
  runtime.requests = static_cast<ring::Request*>(calloc(kRequests, sizeof(ring::Request)));
  runtime.name_count = kNames;
  runtime.names = static_cast<ring::Name*>(calloc(kNames, sizeof(ring::Name)));
  runtime.traces[0].state = static_cast<uint32_t>(ring::TraceState::kLive);
  runtime.traces[0].tid = static_cast<int32_t>(syscall(SYS_gettid));
  runtime.comms[1].id = 0x77;
  runtime.comms[1].size = 16;
  runtime.comms[1].rank = 3;
  runtime.comms[1].remote_size = -1;
  strcpy(runtime.comms[1].name, "MPI_COMM_WORLD");
}

const Module& module() { return *__start_resil_modules[0]; }

std::string notes() { return collected_notes; }

uint16_t call_id(const char* name) {
  for (unsigned i = 0; i < kCallCount; ++i) {
    if (strcmp(kCallInfo[i].name, name) == 0) return static_cast<uint16_t>(i);
  }
  return 0xffff;
}

uint64_t ticks_ago(double seconds) {
  return ticks() - static_cast<uint64_t>(seconds * runtime.header->ticks_per_second);
}

ring::Record& record(const char* call, double seconds_ago, bool open) {
  ring::TraceBuffer& trace = runtime.traces[0];
  ring::Record& record = trace.records[trace.head % ring::kRecordsPerTrace];
  record = ring::Record{};
  record.time = ticks_ago(seconds_ago);
  record.call = call_id(call);
  record.peer = ring::kNoPeer;
  record.tag = ring::kNoTag;
  record.repeat = 1;
  record.state = static_cast<uint8_t>(open ? ring::RecordState::kOpen : ring::RecordState::kDone);
  ++trace.head;
  ++trace.calls;
  trace.current = open ? trace.head : 0;
  return record;
}

void attach_and_install(const std::string& directory, int signal) {
  attach(directory, signal);
  module().before_init();
  module().after_init();
}

std::string first_dump(const Directory& directory) { return directory.path + "/dump-00003-0.txt"; }

void ready() { shared->ready.store(1); }
bool stopped() { return shared->stop.load() != 0; }

std::string dump_of(const Directory& directory, int* status, std::string* errors, const std::function<int()>& body) {
  const Child child = start([&] {
    attach_and_install(directory.path);
    return body();
  });
  REQUIRE(wait_for(shared->ready, 1));
  kill(child.pid, SIGHUP);
  const std::string text = wait_for_dump(first_dump(directory));
  shared->stop.store(1);
  *status = finish(child, errors);
  return text;
}

}  // namespace fixture
