// SPDX-License-Identifier: Apache-2.0
//
// Receives against a small MPI in memory that matches as the standard says: random posts with and without wildcards,
// probes, cancels, persistent requests and completions in any order. What reaches the ledger is compared with what was
// sent, and at every step with what may be known by then.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "checksum/ledger/blame_internal.h"
#include "checksum/ledger/parts_internal.h"
#include "checksum/p2p/p2p.h"
#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

using resil::CallId;
using resil::Event;
using resil::StatusInfo;
using Status = resil::OpenMpiStatus;
namespace ledger = resil::ledger;
namespace p2p = resil::p2p;

namespace {

struct Arrival {
  int source, tag;
  uint64_t content;
  uint8_t flags;
};
std::vector<Arrival> expected;  // what reached the ledger, in that order
std::vector<uint64_t> expected_on;  // communicators of these
std::map<ledger::Reason, uint64_t> uncovered;
ledger::Peer peers[8];
ledger::Peer* table[8];

resil::TypeMap word() {
  resil::TypeMap map = {};
  map.size = 8;
  map.extent = map.high = 8;
  map.contiguous = map.permanent = true;
  return map;
}
const resil::TypeMap kWord = word();

bool status_ignored(const void* statuses) { return statuses == nullptr; }
void status_read(const void* statuses, int64_t index, StatusInfo* info) {
  const auto& status = static_cast<const Status*>(statuses)[index];
  *info = {status.source, status.tag, status.error, status.cancelled != 0, status.bytes};
}
resil::ErrorKind error_kind(int) { return resil::ErrorKind::kOther; }

}  // namespace

// What receives.cpp, fast_path.cpp and order.cpp need of the rest.
namespace resil {
Runtime runtime;
const Backend* backend;
thread_local Thread* current_thread;
uint64_t request_handle(const void* array, int64_t index) { return static_cast<const uint64_t*>(array)[index]; }
const TypeMap* type_map_slow(Thread&, uint64_t) { return &kWord; }
void type_map_hold(const TypeMap*) {}
void type_map_release(const TypeMap*) {}
void type_span(const TypeMap&, int64_t, int64_t*, int64_t*) {}
uint64_t type_digest(const TypeMap&, const void*, int64_t, uint64_t) { return 0; }
uint64_t digest(const void* data, size_t) { return *static_cast<const uint64_t*>(data); }
namespace host_memory_detail {
constinit thread_local Range stack __attribute__((tls_model("initial-exec"))) = {};
constinit Range data = {}, heap = {};
bool ask(const void*, size_t) { return true; }
}  // namespace host_memory_detail
namespace ledger {
bool is_concurrent, is_full, is_strict, is_plain;
int32_t until_look = 1 << 30;
void look_around(Thread&) {}
uint64_t announce(Thread&, Peer&, const Record&) { return 0; }
int world_rank_of(const Peer& peer) { return peer.world_rank; }
SpinLock ledger_lock;
Coverage coverage;
Peer** peer_table = table;
bool full_blame() { return false; }
Peer* peer_of(CommInfo&, int, Reason*) { return nullptr; }
void count_uncovered(Reason reason, uint64_t messages, uint64_t) { uncovered[reason] += messages; }
void count_untracked() {}
void expected(Thread&) {}
void raise_difference(Thread&, Peer&, const Difference&) {}
void expect_quietly(Peer& from, const Record& record, uint64_t, Difference*) {
  expected_on.push_back(record.comm);
  ::expected.push_back({from.world_rank, static_cast<int>(record.tag), record.digest, record.flags});
}
void expect(Thread&, Peer& from, const Record& record, uint64_t evidence) {
  expect_quietly(from, record, evidence, nullptr);
}
}  // namespace ledger
namespace p2p {
std::atomic<bool> order_lost;
}
namespace blame {
History history;
uint64_t receive_posted(const View&) { return 0; }
uint64_t receive_complete(uint64_t, const View&, uint64_t, uint64_t, LookWhen, const Right*) { return 0; }
void drop(uint64_t) {}
void right(uint64_t) {}
uint64_t receive_pending(const View&, const Event&) { return 0; }
void drop_posted(uint64_t) {}
}  // namespace blame
}  // namespace resil

namespace {

using resil::ring::kAnySource;
using resil::ring::kAnyTag;

struct Message {
  int source, tag;
  uint64_t content;
};

struct Request {
  int source, tag;  // as posted
  uint64_t order, buffer = 0;
  bool active = true, persistent = false, matched = false, told = false, probed = false;
  Message message;
  uint64_t cookie = 0, handle;
};

bool fits(int source, int tag, const Message& message) {
  return (source == kAnySource || source == message.source) && (tag == kAnyTag || tag == message.tag);
}

/// One rank's MPI, its program, and resil's hooks around it.
class World {
 public:
  explicit World(int comm_index) {
    comm_.index = static_cast<uint32_t>(comm_index);
    comm_.ring = &ring_;
    ring_.id = 0xabc0 + static_cast<uint64_t>(comm_index);
    comm_.world_ranks_are_ranks = true;
    thread_.types[8] = {8, 8, &kWord};
    thread_.trace = &trace_;
    expected.clear();
    uncovered.clear();
  }

  void arrive(int source, int tag) {
    const Message message = {source, tag, ++content_};
    sent[{source, tag}].push_back(message.content);
    for (auto& request : requests)
      if (request->active && !request->matched && !request->probed && fits(request->source, request->tag, message)) {
        take(*request, message);
        return;
      }
    queue_.push_back(message);
  }

  void post(int source, int tag, bool persistent) {
    Event event = make(persistent ? CallId::kMPI_Recv_init : CallId::kMPI_Irecv, source, tag);
    auto request = std::make_shared<Request>();
    request->source = source;
    request->tag = tag;
    request->persistent = persistent;
    request->active = false;
    event.receive.buffer = &request->buffer;
    event.cookies = &request->cookie;
    event.request_key = 1;
    if (!persistent) begin(request);
    p2p::receive_enter(event);
    if (!quick || persistent || !taken(p2p::fast_path_posted(event))) p2p::receive_posted(event);
    if (persistent) idle.push_back(request);
  }

  void start(std::shared_ptr<Request> request) {
    idle.remove(request);
    begin(request);
    Event event = make(CallId::kMPI_Start, 0, 0);
    p2p::receive_starting(event, &request->cookie);
    p2p::receive_started(event, &request->cookie);
  }

  /// False: nothing to receive.
  bool receive(int source, int tag) {
    auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Message& m) { return fits(source, tag, m); });
    if (found == queue_.end()) return false;
    const Message message = *found;
    queue_.erase(found);
    Status status = status_of(message);
    uint64_t buffer = message.content;
    Event event = make(CallId::kMPI_Recv, source, tag);
    event.receive.buffer = &buffer;
    event.given_statuses = &status;
    p2p::receive_enter(event);
    ++order_;
    done_blocking_.push_back({order_, message});
    if (!quick || !taken(p2p::fast_path_received(event))) p2p::receive_leave(event);
    return true;
  }

  bool probe(int source, int tag) {
    auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Message& m) { return fits(source, tag, m); });
    if (found == queue_.end()) return false;
    auto request = std::make_shared<Request>();
    request->probed = request->matched = true;
    request->message = *found;
    request->source = found->source;
    request->tag = found->tag;
    request->handle = free_handle != 0 ? free_handle : ++handles_;
    request->order = ++order_;
    queue_.erase(found);
    requests.push_back(request);
    Status status = status_of(request->message);
    Event event = make(CallId::kMPI_Mprobe, source, tag);
    event.given_statuses = &status;
    event.message = &request->handle;
    p2p::matched_probe(event);
    return true;
  }

  /// Ends one: a test that says so, or MPI_Mrecv.
  void complete(std::shared_ptr<Request> request) {
    Status status = status_of(request->message);
    request->told = true;
    request->active = false;
    request->buffer = request->message.content;
    if (request->probed) {
      Event event = make(CallId::kMPI_Mrecv, 0, 0);
      event.comm = nullptr;
      event.message = &request->handle;
      event.receive.buffer = &request->buffer;
      event.given_statuses = &status;
      p2p::message_enter(event);
      if (meanwhile != nullptr) meanwhile(*this);
      p2p::receive_leave(event);
    } else {
      Event event = make(CallId::kMPI_Test, 0, 0);
      event.given_statuses = &status;
      if (!quick || !taken(p2p::fast_path_completed(event, 0, request->cookie)))
        p2p::receive_completed(event, 0, &request->cookie, false);
    }
    requests.remove(request);
    told_.push_back(*request);
    if (request->persistent) {
      request->matched = request->told = false;
      idle.push_back(request);
    }
  }

  void cancel(std::shared_ptr<Request> request) {
    Status status = {0, 0, 0, 1, 0};
    requests.remove(request);
    request->active = false;
    Event event = make(CallId::kMPI_Wait, 0, 0);
    event.given_statuses = &status;
    p2p::receive_completed(event, 0, &request->cookie, false);
    if (request->persistent) idle.push_back(request);
  }

  /// Which packets cannot be in the ledger yet: an older receive could still have claimed them.
  std::vector<uint64_t> held() const {
    std::vector<std::pair<uint64_t, Message>> done = done_blocking_;
    for (const Request& request : told_) done.push_back({request.order, request.message});
    std::sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<uint64_t> result;
    std::vector<Message> held_messages;
    for (const auto& [order, of_order] : done) {
      const Message& message = of_order;  // a binding cannot be captured
      bool shut = std::any_of(held_messages.begin(), held_messages.end(),
                              [&](const Message& m) { return m.source == message.source && m.tag == message.tag; });
      for (const auto& request : requests)
        shut = shut || (request->order < order && (request->active || request->probed) &&
                        fits(request->source, request->tag, message));
      if (shut) {
        held_messages.push_back(message);
        result.push_back(message.content);
      }
    }
    return result;
  }

  uint64_t id() const { return ring_.id; }

  void (*meanwhile)(World&) = nullptr;  ///< while an MPI_Mrecv is in the library
  uint64_t free_handle = 0;  ///< what the next probe gives out

  size_t received() const { return told_.size() + done_blocking_.size(); }

  bool quick = false;  // asks fast_path.cpp first
  uint64_t quickly_done = 0;  // and what it took
  std::list<std::shared_ptr<Request>> requests, idle;
  std::map<std::pair<int, int>, std::vector<uint64_t>> sent;

 private:
  void begin(std::shared_ptr<Request> request) {
    request->order = ++order_;
    request->active = true;
    requests.push_back(request);
    auto found = std::find_if(queue_.begin(), queue_.end(),
                              [&](const Message& m) { return fits(request->source, request->tag, m); });
    if (found == queue_.end()) return;
    take(*request, *found);
    queue_.erase(found);
  }
  void take(Request& request, const Message& message) {
    request.matched = true;
    request.message = message;
  }
  Status status_of(const Message& message) { return {message.source, message.tag, 0, 0, 8}; }
  /// What the quick way has put into a queue.
  bool taken(bool quickly) {
    quickly_done += quickly;
    for (ledger::Peer& peer : peers)
      for (ledger::Queue& queue = *peer.queue; queue.count != 0;
           --queue.count, queue.head = (queue.head + 1) % ledger::kQueue) {
        const ledger::Record& record = queue.items[queue.head].record;
        expected.push_back({peer.world_rank, static_cast<int>(record.tag), record.digest, record.flags});
      }
    return quickly;
  }
  Event make(CallId id, int source, int tag) {
    Event event;
    memset(static_cast<void*>(&event), 0xa5, sizeof(event));
    event.id = id;
    event.attributes = resil::call_info(id).attributes;
    event.thread = &thread_;
    event.comm = &comm_;
    event.peer = source;
    event.tag = tag;
    event.result = 0;
    event.receive.count = 1;
    event.receive.type = 8;
    event.cookies = nullptr;
    event.state<resil::p2p::CallState>() = {};
    event.site = 1;
    event.record_number = ++trace_.head;
    return event;
  }

  static resil::Thread thread_;
  static resil::ring::TraceBuffer trace_;
  resil::CommInfo comm_ = {};
  resil::ring::Comm ring_ = {};
  std::list<Message> queue_;
  std::vector<Request> told_;
  std::vector<std::pair<uint64_t, Message>> done_blocking_;
  uint64_t content_ = 0, order_ = 0, handles_ = 0;
};
resil::Thread World::thread_;
resil::ring::TraceBuffer World::trace_;

void prepare() {
  static const bool ready = [] {
    static resil::MessageFunctions messages = {};
    messages.status_ignored = status_ignored;
    messages.status_read = status_read;
    messages.error_kind = error_kind;
    static resil::Backend backend = {};
    backend.status_layout = resil::StatusLayout::kOpenMpi;
    static ledger::Queue queues[8];
    backend.messages = &messages;
    resil::backend = &backend;
    resil::runtime.comm_count = 1 << 15;
    for (int i = 0; i < 8; ++i) {
      peers[i].world_rank = i;
      peers[i].queue = &queues[i];
      table[i] = &peers[i];
    }
    return p2p::prepare();
  }();
  REQUIRE(ready);
}

int next_comm = 2;

/// Everything of a matching queue that is in the ledger is there in the order in which it was sent.
void in_order(const World& world, bool whole) {
  std::map<std::pair<int, int>, size_t> place;
  for (const Arrival& arrival : expected) {
    const std::pair match_queue{arrival.source, arrival.tag};
    const auto& stream = world.sent.at(match_queue);
    REQUIRE(place[match_queue] < stream.size());
    REQUIRE(arrival.content == stream[place[match_queue]++]);
    REQUIRE(arrival.flags == 0);
  }
  if (whole)
    for (const auto& [match_queue, stream] : world.sent) REQUIRE(place[match_queue] == stream.size());
}

std::shared_ptr<Request> any_of(const std::list<std::shared_ptr<Request>>& list, std::mt19937& random) {
  return *std::next(list.begin(), static_cast<int>(random() % list.size()));
}

}  // namespace

TEST_CASE("receives reach the ledger in the order of sending, and as soon as that is known") {
  prepare();
  uint64_t quickly_done = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    World world(next_comm++);
    world.quick = seed % 2 != 0;
    const int sources = 1 + static_cast<int>(random() % 3), tags = 1 + static_cast<int>(random() % 3);
    const unsigned wildness = random() % 4, steps = 40 + random() % 200;
    auto source = [&] {
      return random() % 4 < wildness ? kAnySource : static_cast<int>(random() % static_cast<unsigned>(sources));
    };
    auto tag = [&] {
      return random() % 4 < wildness ? kAnyTag : static_cast<int>(random() % static_cast<unsigned>(tags));
    };
    auto matched = [&] {
      std::list<std::shared_ptr<Request>> list;
      for (const auto& request : world.requests)
        if (request->matched) list.push_back(request);
      return list;
    };
    for (unsigned step = 0; step < steps; ++step) {
      switch (random() % 8) {
        case 0:
        case 1:
          world.arrive(static_cast<int>(random() % static_cast<unsigned>(sources)),
                       static_cast<int>(random() % static_cast<unsigned>(tags)));
          break;
        case 2: world.post(source(), tag(), random() % 8 == 0); break;
        case 3:
          if (!world.idle.empty()) world.start(any_of(world.idle, random));
          break;
        case 4: world.receive(source(), tag()); break;
        case 5: world.probe(source(), tag()); break;
        case 6: {
          auto request = world.requests.empty() ? nullptr : any_of(world.requests, random);
          if (request != nullptr && !request->matched && random() % 4 == 0) world.cancel(request);
          break;
        }
        default:
          if (auto list = matched(); !list.empty()) world.complete(any_of(list, random));
      }
      const std::vector<uint64_t> held = world.held();
      REQUIRE(expected.size() + held.size() == world.received());
      for (const Arrival& arrival : expected)
        REQUIRE(std::find(held.begin(), held.end(), arrival.content) == held.end());
    }
    for (auto list = matched(); !list.empty(); list = matched()) world.complete(any_of(list, random));
    while (!world.requests.empty()) world.cancel(any_of(world.requests, random));
    while (world.receive(kAnySource, kAnyTag)) {}
    in_order(world, true);
    CHECK(uncovered.empty());
    quickly_done += world.quickly_done;
  }
  CHECK(quickly_done > 1000);
}

TEST_CASE("wildcards completed in any order", "[order]") {
  prepare();
  for (unsigned how = 0; how < 4; ++how) {
    INFO("how " << how);
    World world(next_comm++);
    std::mt19937 random(how);
    const int count = 500;
    world.post(0, 5, false);
    for (int i = 0; i < count; ++i) world.post(how & 1 ? kAnySource : i % 3, how & 2 ? kAnyTag : i % 2, false);
    std::vector<std::shared_ptr<Request>> order(world.requests.begin(), world.requests.end());
    for (int i = 0; i < count; ++i) world.arrive(i % 3, i % 2);
    world.arrive(0, 5);
    std::shuffle(order.begin(), order.end(), random);
    for (const auto& request : order)
      if (request->matched) world.complete(request);
    while (!world.requests.empty()) world.cancel(world.requests.front());
    while (world.receive(kAnySource, kAnyTag)) {}
    in_order(world, true);
  }
}

TEST_CASE("a matched message's handle given to another communicator's message before MPI_Mrecv has returned") {
  prepare();
  World world(next_comm++);
  static World* other;
  World second(next_comm++);
  other = &second;
  for (int source : {1, 3}) world.arrive(source, source);
  second.arrive(2, 2);
  REQUIRE((world.probe(3, 3) && world.probe(1, 1)));  // the third makes place before the first in any table
  const auto first = world.requests.back();
  world.complete(world.requests.front());
  second.free_handle = first->handle;
  world.meanwhile = [](World& w) {
    w.meanwhile = nullptr;
    CHECK(other->probe(2, 2));
  };
  expected_on.clear();
  world.complete(first);
  second.complete(second.requests.front());
  CHECK(expected_on == std::vector<uint64_t>{world.id(), second.id()});
}

/// Instructions by number of pending wildcards, under a tool that counts them: hidden, one section a run.
TEST_CASE("many wildcards completed out of order", "[.count]") {
  prepare();
  const int count = atoi(getenv("PENDING") != nullptr ? getenv("PENDING") : "1000");
  World world(next_comm++);
  std::vector<std::shared_ptr<Request>> order;
  for (int i = 0; i < count; ++i) world.post(i % 2 ? kAnySource : 1, kAnyTag, false);
  order.assign(world.requests.begin(), world.requests.end());
  std::mt19937 random(1);
  for (const auto& request : order) {  // each takes the next message of one matching queue
    request->matched = true;
    request->message = {1, 0, request->order};
    world.sent[{1, 0}].push_back(request->order);
  }
  world.requests.clear();
  std::shuffle(order.begin(), order.end(), random);
  for (const auto& request : order) world.complete(request);
  in_order(world, true);
}
