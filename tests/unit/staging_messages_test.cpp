// SPDX-License-Identifier: Apache-2.0
//
// Staged messages with several threads, against a library in memory whose handles are used again at once and packets
// whose copies take a few looks: each message is started once and in the order of its send queue, completed once, and
// no send stays in its send queue while a thread blocks inside the library.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/report/finding.h"

using namespace resil;
using staging::Message;
using staging::PacketState;

namespace {

constexpr uint64_t kNull = 1;
constexpr unsigned kHandles = 4096, kSendQueues = 4;
/// The library's requests; handle 0 and kNull are none.
struct Request {
  std::atomic<bool> taken, started;
  std::atomic<uint32_t> completions;
  uint32_t send_queue;
  uint64_t number;  ///< in its thread and send queue
  unsigned thread;
} requests[kHandles];
std::atomic<unsigned> next_handle{2};
/// By send queue and thread: what was started last. Not atomic: who posts a send queue is alone.
uint64_t last_started[kSendQueues][16];
std::atomic<unsigned> out_of_order, started_twice, lost;

uint64_t new_request() {
  for (;;) {
    const unsigned handle = next_handle.fetch_add(1, std::memory_order_relaxed) % kHandles;
    bool free = false;
    if (handle > kNull && requests[handle].taken.compare_exchange_strong(free, true, std::memory_order_acquire))
      return handle;
  }
}

int start(uint64_t* handle) {
  Request& request = requests[*handle];
  std::this_thread::yield();  // time to be overtaken
  if (request.started.exchange(true)) ++started_twice;
  uint64_t& last = last_started[request.send_queue][request.thread];
  if (request.number <= last) ++out_of_order;
  last = request.number;
  return 0;
}
/// Handlers that change all the time, for those of the tests that want it.
std::atomic<bool> handlers_change{false};
std::atomic<unsigned> asked;
bool askable(uint64_t) { return !handlers_change || asked.fetch_add(1) % 64 < 32; }
Peeked peek(uint64_t handle, uint64_t, bool regardless, StatusInfo* status) {
  if (!regardless && !askable(0)) return Peeked::kNotAsked;
  status->bytes = 64;
  return requests[handle].started.load() ? Peeked::kComplete : Peeked::kPending;
}
int release(uint64_t* handle) {
  requests[*handle].started.store(false);
  requests[*handle].taken.store(false, std::memory_order_release);
  *handle = kNull;
  return 0;
}
/// MPI_Testsome, and MPI_Waitsome as that: those shown that are complete.
int test_as(const Event& e, void* handles, int* flag) {
  const auto* array = static_cast<const uint64_t*>(handles);
  *e.outcount = 0;
  for (int i = 0; i < e.request_count; ++i)
    if (array[i] != kNull && requests[array[i]].started.load()) e.indices[(*e.outcount)++] = i;
  *flag = *e.outcount != 0;
  return 0;
}
int wait_as(const Event& e, void* handles) {
  int flag = 0;
  while (flag == 0) test_as(e, handles, &flag);
  return 0;
}

StagingFunctions staging_functions() {
  StagingFunctions f = {};
  f.start = start;
  f.askable = askable;
  f.peek = peek;
  f.free = release;
  f.test_as = test_as;
  f.wait_as = wait_as;
  f.set_request = [](void* handles, int64_t i, uint64_t handle) { static_cast<uint64_t*>(handles)[i] = handle; };
  f.mark = [](const Event&, int64_t, int) {};
  f.set_envelope = [](const Event&, int64_t, int32_t, int32_t, bool) {};
  f.set_bytes = [](const Event&, int64_t, uint64_t) {};
  f.raise = [](uint64_t, int code) { return code; };
  return f;
}
const StagingFunctions kStaging = staging_functions();
const ReplayFunctions kReplay = [] {
  ReplayFunctions f = {};
  f.progress = [] {};
  f.test = [](const Event&, int64_t, int* flag, void*) { return *flag = 1, 0; };
  return f;
}();
const MessageFunctions kMessages = [] {
  MessageFunctions f = {};
  f.error_kind = [](int) { return ErrorKind::kNone; };
  f.status_read = [](const void*, int64_t, StatusInfo* status) { *status = {0, 0, 0, false, 64}; };
  return f;
}();
const Backend kBackend = [] {
  Backend b = {};
  b.handle_bytes = 8;
  b.status_bytes = 24;
  b.thread_multiple = [] { return true; };
  b.request_null = [] { return kNull; };
  b.messages = &kMessages;
  b.staging = &kStaging;
  b.replay = &kReplay;
  return b;
}();

}  // namespace

namespace resil {
const Backend* backend = &kBackend;
Runtime runtime;
constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));
uint32_t trace_total() { return 0; }
ring::TraceBuffer& trace_at(uint32_t) { abort(); }
uint64_t request_handle(const void* array, int64_t index) { return static_cast<const uint64_t*>(array)[index]; }
bool requests_may_be_tested(const Event&) { return true; }
bool give_statuses(Event&) { return true; }
void log_line(const char*) {}
void Finding::start(const char*, Confidence) {}
void Finding::culprit(int) {}
void Finding::say(const char*, ...) {}
void Finding::to_do(const char*, ...) {}
void Finding::add(const char*, const char*, ...) {}
unsigned finding_publish(const Finding&) { return 0; }
namespace gpu {
const char* last_error() { return ""; }
int ordinal_of(const Device&) { return 0; }
Api api_of(const Device&) { return {}; }
const char* api_name(Api) { return ""; }
}  // namespace gpu
namespace staging {
constinit bool checking = false;
constinit uint32_t chunked_held;
void chunked_notes(Thread&) {}
void check_never(Packet*) {}
void tell_posted(Thread&, Message* op) { op->in_send_queue = false; }
bool chunked_arrived(Thread&, Message*, uint64_t, int32_t) { return false; }
void chunked_release(Message*) {}
void chunked_target_release(Target*) {}
void chunked_persistent_gone(uint64_t) {}
void chunked_announce(Message&) {}
void chunked_head_started(Thread&, Message*) {}
bool chunked_sends_advance(Thread&, bool) { return false; }
bool chunked_receives_advance(Thread&) { return false; }
PacketState chunked_head(const Message&, bool) { return PacketState::kReady; }
void chunked_peers_begin() {}
void wire_arrived(Message&, uint64_t) {}
void wire_departs(Message&) {}
/// A copy takes `count` looks.
PacketState packet_poll(Packet* packet) {
  return packet->state = --packet->count > 0 ? PacketState::kCopying : PacketState::kReady;
}
PacketState packet_wait(Packet* packet) {
  while (packet_poll(packet) == PacketState::kCopying) {}
  return packet->state;
}
PacketState packet_up(Packet* packet, uint64_t) {
  packet->count = 3;
  return packet->state = PacketState::kCopying;
}
void packet_close(Packet*) {}
}  // namespace staging
}  // namespace resil

namespace {

/// One thread of the program: its calls as the module's hooks see them.
struct Program {
  std::unique_ptr<Thread, decltype(&free)> thread{static_cast<Thread*>(calloc(1, sizeof(Thread))), free};
  unsigned number;
  uint64_t sent[kSendQueues] = {};
  std::vector<uint64_t> handles;

  explicit Program(unsigned n) : number(n) { current_thread = thread.get(); }

  Event event(CallId id) {
    Event e;
    memset(&e, 0, sizeof(e));
    e.id = id;
    e.attributes = call_info(id).attributes;
    e.thread = thread.get();
    e.frame = 0x7000;
    return e;
  }

  /// MPI_Isend, or a receive whose message is there.
  uint64_t begin(bool sends, unsigned send_queue, int looks) {
    const uint64_t handle = new_request();
    Request& request = requests[handle];
    Message* op = staging::message_take();
    REQUIRE(op != nullptr);
    op->handle = handle;
    op->staged = true;
    op->sends = sends;
    op->packet.bytes = 64;
    op->packet.count = looks;
    op->packet.state = PacketState::kCopying;
    request.send_queue = send_queue;
    request.thread = number;
    request.number = sends ? ++sent[send_queue] : 0;
    request.started.store(!sends);
    handles.push_back(handle);
    staging::message_enter(op);
    if (sends) {
      op->persistent = op->in_send_queue = true;
      op->send_queue = static_cast<uint8_t>(send_queue);
      staging::message_note_started(op);
    } else {
      staging::wire_append(op);
    }
    staging::release_retired(*thread);
    return handle;
  }

  /// MPI_Waitsome or MPI_Testsome; how many it completed.
  int complete(bool waits) {
    std::vector<int> indices(handles.size());
    int outcount = 0, flag = 0;
    Event e = event(waits ? CallId::kMPI_Waitsome : CallId::kMPI_Testsome);
    e.requests = handles.data();
    e.request_count = static_cast<int64_t>(handles.size());
    e.outcount = &outcount;
    e.indices = indices.data();
    if (!staging::wait_replace(e)) test_as(e, handles.data(), &flag);
    for (int k = 0; k < outcount; ++k) {
      uint64_t& handle = handles[static_cast<size_t>(indices[static_cast<size_t>(k)])];
      if (handle != kNull)  // a receive's, which the library frees
        release(&handle);
    }
    std::erase(handles, kNull);
    staging::release_retired(*thread);
    staging::end_blocking(e);
    return outcount;
  }

  void request_free() {
    Event e = event(CallId::kMPI_Request_free);
    e.requests = &handles.back();
    e.request_count = 1;
    if (!staging::wait_replace(e)) ++lost;
    handles.pop_back();
    staging::release_retired(*thread);
  }
};

void in_threads(unsigned count, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("messages of several threads") {
  constexpr int kRounds = 200;
  handlers_change = GENERATE(false, true);
  memset(last_started, 0, sizeof(last_started));
  std::atomic<int> begun{0}, completed{0};
  in_threads(4, [&](unsigned number) {
    Program program(number);
    std::mt19937 random(number);
    for (int round = 0; round < kRounds; ++round) {
      const unsigned messages = 1 + random() % 8;
      for (unsigned i = 0; i < messages; ++i)
        program.begin(random() % 3 != 0, random() % kSendQueues, 1 + static_cast<int>(random() % 4));
      begun += static_cast<int>(messages);
      if (random() % 8 == 0) {
        program.request_free();
        ++completed;
      }
      if (random() % 4 == 0) {  // a call of the library's that may block: all is handed over
        Event e = program.event(CallId::kMPI_Barrier);
        staging::begin_blocking(e);
        staging::end_blocking(e);
      }
      while (!program.handles.empty()) completed += program.complete(random() % 2 == 0);
    }
    while (staging::under_way()) staging::advance(*program.thread);
  });
  CHECK(begun == completed);
  CHECK(out_of_order == 0);
  CHECK(started_twice == 0);
  CHECK(lost == 0);
  CHECK(!staging::messages_known());
  handlers_change = false;
}

TEST_CASE("a send that is begun while another thread begins to block does not stay in its lane") {
  constexpr int kRounds = 800;
  std::barrier both(2);
  unsigned stayed = 0;
  in_threads(2, [&](unsigned number) {
    Program program(8 + number);
    for (int round = 0; round < kRounds; ++round) {
      Event e = program.event(CallId::kMPI_Recv);
      uint64_t handle = 0;
      both.arrive_and_wait();
      if (number == 0) handle = program.begin(true, 0, 5000);  // it is never down by looking at it in passing
      else staging::begin_blocking(e);
      both.arrive_and_wait();
      if (number == 0) stayed += !requests[handle].started.load();
      both.arrive_and_wait();
      staging::end_blocking(e);
      while (!program.handles.empty()) program.complete(true);
    }
  });
  CHECK(stayed == 0);
}
