// SPDX-License-Identifier: Apache-2.0
//
// Per-thread state: trace buffers for more threads than there are, reuse, ends, forked children. Each case runs in a
// process of its own, because trace buffers in private memory stay for the life of a process.
#include "shim/call/thread.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_backend.h"
#include "shim/report/log.h"

namespace {

using resil::CallId;
using resil::Event;
using resil::Thread;
namespace ring = resil::ring;

bool in_child(const std::function<int()>& body) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int status = 1;
    {
      fake::Core core;
      resil::current_thread = nullptr;
      core.trace().state = 0;
      status = body();
    }
    _exit(status);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) WARN("killed by signal " << WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0) WARN("condition in line " << WEXITSTATUS(status) << " failed");
  return status == 0;
}

#define MUST(condition) \
  if (!(condition)) return __LINE__

/// `count` threads, each in `body`, all alive until the last one has finished it.
void all_at_once(unsigned count, const std::function<void(unsigned)>& body) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, count);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      body(t);
      pthread_barrier_wait(&barrier);
    });
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
}

void calls(int count) {
  for (int i = 0; i < count; ++i) {
    Event e = fake::make_event(*resil::thread_register(), CallId::kMPI_Probe, 0x1000);
    e.comm_handle = fake::kCommSelf;
    e.peer = ring::kAnySource;
    fake::call(e);
  }
}

/// What the report sums up.
uint64_t counted(CallId id) {
  uint64_t total = 0;
  for (uint32_t trace = 0; trace < resil::trace_total(); ++trace)
    total += resil::trace_at(trace).counters[static_cast<unsigned>(id)].count;
  return total;
}

}  // namespace

TEST_CASE("threads: each has a lane of its own, in the ring first, then in private memory") {
  CHECK(in_child([] {
    std::vector<ring::TraceBuffer*> traces(32);
    std::vector<uint32_t> indices(32);
    all_at_once(32, [&](unsigned t) {
      Thread* thread = resil::thread_register();
      traces[t] = thread->trace;
      indices[t] = thread->trace_index;
      calls(100);
    });
    MUST(std::set<ring::TraceBuffer*>(traces.begin(), traces.end()).size() == 32);
    MUST(std::set<uint32_t>(indices.begin(), indices.end()).size() == 32);
    for (size_t t = 0; t < 32; ++t) MUST(&resil::trace_at(indices[t]) == traces[t]);
    for (size_t t = 0; t < 32; ++t)
      MUST(ring::records_of(*traces[t]) == (indices[t] == 0 ? ring::kRecordsPerTrace : ring::kRecordsOfFurther));
    MUST(resil::trace_total() == 32);
    MUST(counted(CallId::kMPI_Probe) == 3200);
    MUST(resil::note_count() == 0);
    return 0;
  }));
}

TEST_CASE("threads: beyond all lanes they share one, which the sum includes and a note tells") {
  CHECK(in_child([] {
    constexpr unsigned kThreads = 40;
    pthread_mutex_t one_at_a_time =
        PTHREAD_MUTEX_INITIALIZER;  // or the shared trace buffer's counts would be approximate
    std::vector<ring::TraceBuffer*> traces(kThreads);
    std::vector<uint32_t> indices(kThreads);
    all_at_once(kThreads, [&](unsigned t) {
      pthread_mutex_lock(&one_at_a_time);
      traces[t] = resil::thread_register()->trace;
      indices[t] = resil::thread_register()->trace_index;
      calls(10);
      pthread_mutex_unlock(&one_at_a_time);
    });
    MUST(std::set<ring::TraceBuffer*>(traces.begin(), traces.end()).size() == 33);
    for (size_t t = 0; t < kThreads; ++t) MUST(&resil::trace_at(indices[t]) == traces[t]);
    MUST(counted(CallId::kMPI_Probe) == 10 * kThreads);
    MUST(resil::note_count() == 1);
    // The shared trace buffer is nobody's to take over: later threads find the trace buffers that came free.
    std::set<ring::TraceBuffer*> later;
    pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    all_at_once(32, [&](unsigned) {
      pthread_mutex_lock(&guard);
      later.insert(resil::thread_register()->trace);
      pthread_mutex_unlock(&guard);
    });
    MUST(later.size() == 32);
    MUST(resil::note_count() == 1);
    return 0;
  }));
}

TEST_CASE("threads: that come and go reuse lanes, and their counts go on") {
  CHECK(in_child([] {
    std::set<ring::TraceBuffer*> traces;
    for (int i = 0; i < 500; ++i)
      std::thread([&] {
        traces.insert(resil::thread_register()->trace);
        calls(2);
      }).join();
    MUST(traces.size() <= 8);
    MUST(counted(CallId::kMPI_Probe) == 1000);
    for (ring::TraceBuffer* trace : traces) MUST(trace->state == static_cast<uint32_t>(ring::TraceState::kEnded));
    return 0;
  }));
}

TEST_CASE("threads: racing for the last lanes, round after round") {
  CHECK(in_child([] {
    for (int round = 0; round < 20; ++round) all_at_once(32, [&](unsigned) { calls(3); });
    MUST(counted(CallId::kMPI_Probe) == 20 * 32 * 3);
    MUST(resil::trace_total() == 32);
    MUST(resil::note_count() == 0);
    return 0;
  }));
}

// The shared trace buffer is counted in without locks: data races by design, so this case is not for the thread
// sanitizer.
TEST_CASE("threads: racing for more lanes than there are", "[races]") {
  CHECK(in_child([] {
    for (int round = 0; round < 20; ++round) all_at_once(40, [&](unsigned) { calls(1); });
    const uint64_t total = counted(CallId::kMPI_Probe);
    MUST(total >= 20 * 32 && total <= 20 * 40);
    MUST(resil::trace_total() == 33);
    MUST(resil::note_count() == 1);
    return 0;
  }));
}

TEST_CASE("threads: a note that many make at once is kept once, and what is too much is counted") {
  CHECK(in_child([] {
    for (int i = 0; i < 10; ++i) all_at_once(16, [&](unsigned) { resil::add_note_format("note %d", i); });
    MUST(resil::note_count() == 10);
    all_at_once(16, [&](unsigned t) { resil::add_note_format("of thread %u", t); });
    MUST(resil::note_count() == 24);
    MUST(resil::notes_dropped() == 2);
    std::set<std::string> texts;
    for (unsigned i = 0; i < resil::note_count(); ++i) texts.insert(resil::note_text(i));
    MUST(texts.size() == 24);
    resil::add_note(std::string(2000, 'x').c_str());
    return 0;
  }));
}

TEST_CASE("threads: a lane knows its thread's id and name") {
  CHECK(in_child([] {
    int status = 0;
    std::thread([&] {
      status = [] {
        pthread_setname_np(pthread_self(), "worker-7");
        Thread* thread = resil::thread_register();
        MUST(thread->trace->name == std::string("worker-7"));
        MUST(thread->trace->tid == gettid());
        MUST(thread->trace->state == static_cast<uint32_t>(ring::TraceState::kLive));
        MUST(thread == resil::thread_register());
        return 0;
      }();
    }).join();
    return status;
  }));
}

TEST_CASE("threads: cut off at MPI's end and back with the next session, in the same lane") {
  CHECK(in_child([] {
    Thread* thread = resil::thread_register();
    ring::TraceBuffer* trace = thread->trace;
    for (int round = 0; round < 50; ++round) {
      resil::thread_disable();
      fake::attached = false;
      MUST(resil::thread_register() == nullptr);
      MUST(!fake::admitted(CallId::kMPI_Probe));
      fake::attached = true;  // as attach_begin does
      resil::current_thread = nullptr;
      MUST(resil::thread_register() != nullptr);
      MUST(resil::current_thread->trace == trace);
      calls(1);
    }
    MUST(counted(CallId::kMPI_Probe) == 50);
    return 0;
  }));
}

TEST_CASE("threads: a forked child writes nothing into its parent's lanes") {
  CHECK(in_child([] {
    calls(1);
    pid_t child = fork();
    if (child == 0) {
      resil::current_thread = nullptr;
      _exit(resil::thread_register() == nullptr && resil::current_thread->disabled &&
                    !fake::admitted(CallId::kMPI_Probe)
                ? 0
                : 1);
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(counted(CallId::kMPI_Probe) == 1);
    return 0;
  }));
}

TEST_CASE("threads: modules hear of each thread's start and end once") {
  static std::atomic<int> started, ended;
  static resil::Module module{};
  module.thread_start = [](Thread&) { ++started; };
  module.thread_end = [](Thread&) { ++ended; };
  fake::modules = {&module};
  CHECK(in_child([] {
    all_at_once(12, [](unsigned) { calls(3); });
    MUST(started == 12);
    MUST(ended == 12);
    return 0;
  }));
  fake::modules.clear();
}
