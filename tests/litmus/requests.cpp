// SPDX-License-Identifier: Apache-2.0
//
// The tables of requests and communicators: threads of a rank look things up while others add and take away, and the
// helper of the node reads what is pending. What the tables call of the rest of the library stands here.
#include <cstdlib>
#include <cstring>

#include "detectors/hang/reader/reader.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/fast_path.h"
#include "shim/call/flight.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/tables.h"
#include "tests/litmus/programs.h"

namespace resil {

Runtime runtime;
Hooks hook_lists[2];
const Hooks* current_hooks = &hook_lists[0];
const Backend* backend;
void add_note(const char*) {}
void* scratch_acquire(Thread&, size_t, uint64_t) { return nullptr; }
void scratch_release(Thread&, void*) {}
void object_made_at(MpiObject, uint64_t, CallId, uint64_t) {}
ring::Pending* fast::pending;
uint8_t fast::enabled;
const fast::MessageHooks* fast::messages;
int (*fast::reduction_over)(Thread&, uint64_t);
void fast::event_of(Event&, Call, CallId, int) { abort(); }  // nothing here goes the fast path

}  // namespace resil

namespace litmus {
namespace {

using namespace resil;

uint64_t handed_on;  // the program's own way of telling another thread of a handle
Backend stand_in;
Thread* threads[3];
Event* events[3];
ring::TraceBuffer* trace;
SiteEntry* site;
uint64_t traffic[4];
uint64_t completed_cookies[3];
hang::Pending* pending;

// --- requests ---

constexpr uint32_t kRequests = ring::kRequestBucket * ring::kRequestReach;

uint64_t key_of_bucket(uint32_t wanted, unsigned which) {
  for (uint64_t key = 0x1000;; key += 8)
    if (ring::request_home(key, kRequests / ring::kRequestBucket) == wanted && which-- == 0) return key;
}

void note_completed(Event& e, int64_t, uint64_t* cookie, bool) { completed_cookies[e.thread->trace_index] = *cookie; }

void begin_threads() {
  for (unsigned i = 0; i < 3; ++i) {
    threads[i] = zeroed<Thread>();
    threads[i]->trace_index = i;
    threads[i]->comm_generation = ~0u;
    events[i] = zeroed<Event>();
    events[i]->thread = threads[i];
    events[i]->record = zeroed<ring::Record>();
    completed_cookies[i] = 0;
  }
  __atomic_store_n(&handed_on, 0, __ATOMIC_RELAXED);
}

void begin_requests(bool concurrent) {
  begin_threads();
  stand_in = {};
  stand_in.handle_bytes = 8;
  stand_in.request_null = [] { return uint64_t{1}; };
  stand_in.request_empty = [] { return uint64_t{2}; };
  stand_in.shared_first = 1;
  stand_in.shared_span = 1;
  backend = &stand_in;
  hook_lists[0] = {};
  hook_lists[0].completed[0] = note_completed;
  current_hooks = &hook_lists[0];
  runtime.request_count = kRequests;
  runtime.requests = static_cast<ring::Request*>(memory(kRequests * sizeof(ring::Request)));
  LITMUS_EXPECT(request_table_create());
  request_table_threads(concurrent);
}

uint64_t started_handle[3];

void start_request(unsigned by, uint64_t key, uint64_t number) {
  Event& e = *events[by];
  started_handle[by] = key;
  e.id = CallId::kMPI_Isend;
  e.attributes = call_info(e.id).attributes;
  e.requests = &started_handle[by];
  e.bytes = number;
  e.tag = static_cast<int32_t>(number);
  e.cookies = nullptr;
  request_started(e);
  LITMUS_EXPECT(e.cookies != nullptr);
  e.cookies[0] = number;
}

void enter_wait(unsigned by, uint64_t key) {
  Event& e = *events[by];
  started_handle[by] = key;
  e.id = CallId::kMPI_Wait;
  e.attributes = call_info(e.id).attributes;
  e.requests = &started_handle[by];
  e.request_count = 1;
  request_remember(e);
}

void leave_wait(unsigned by, uint64_t number) {
  Event& e = *events[by];
  e.flag = nullptr;
  e.result = 0;
  completed_cookies[by] = 0;
  request_completed(e);
  LITMUS_EXPECT(completed_cookies[by] == number);
}

void complete_request(unsigned by, uint64_t key, uint64_t number) {
  enter_wait(by, key);
  leave_wait(by, number);
}

bool told() { return __atomic_load_n(&handed_on, __ATOMIC_ACQUIRE) == 1; }
void tell() { __atomic_store_n(&handed_on, 1, __ATOMIC_RELEASE); }

// --- what the helper of the node reads of them ---

constexpr uint64_t kHead = 7;

void enter_call() {
  Event& e = *events[1];
  e.time = 1;
  e.untimed = 0;
  flight::enter(e, *site);
}

void leave_call() { __atomic_store_n(&trace->current, uint64_t{0}, __ATOMIC_RELEASE); }

uint32_t place_of(uint64_t key) {
  return ring::request_home(key, kRequests / ring::kRequestBucket) * ring::kRequestBucket;
}

/// A request and the words beside it, as hang detection writes them.
void post(uint64_t key, uint64_t number) {
  enter_call();
  start_request(1, key, number);
  pending[place_of(key)].ordinal = static_cast<uint32_t>(number);
  pending[place_of(key)].sequence = number;
  leave_call();
}

void begin_pending() {
  begin_requests(false);
  trace = zeroed<ring::TraceBuffer>();
  site = zeroed<SiteEntry>();
  site->traffic = traffic;
  threads[1]->trace = trace;
  trace->head = trace->calls = kHead;
  pending = static_cast<hang::Pending*>(memory(kRequests * sizeof(hang::Pending)));
  const uint64_t key = key_of_bucket(0, 0);
  const uint32_t place = place_of(key);
  post(key, 1);
  ring::Request& entry = runtime.requests[place];
  racy(&entry.key, 8);
  racy(&entry.bytes, 8);
  racy(&pending[place].sequence, 8);
  unwatched(&entry.time, 16);
  unwatched(&entry.serial, offsetof(ring::Request, cleanup) + 8 - offsetof(ring::Request, serial));
  unwatched(&pending[place], offsetof(hang::Pending, sequence));
  unwatched(trace->records, sizeof trace->records);
  unwatched(&trace->head, 8);
  enter_call();  // it waits
}

void return_and_post_again() {
  const uint64_t key = key_of_bucket(0, 0);
  complete_request(1, key, 1);
  leave_call();
  post(key, 2);
}

/// While a call is open that was open before, what is pending is whole: the proof rests on this and on nothing more.
/// The key alone would not do, since handles come again.
void read_pending() {
  const uint64_t open = hang::load(trace->current);
  hang::Watched watched = {};
  watched.requests = runtime.requests;
  watched.pending = pending;
  ring::Request request{};
  hang::Pending words{};
  const bool is = hang::pending_at(watched, place_of(key_of_bucket(0, 0)), &request, &words);
  if (open != kHead + 2 || hang::load(trace->current) != open || !is) return;
  LITMUS_EXPECT(request.bytes == 1 && words.sequence == 1);
}

// --- communicators ---

constexpr uint64_t kComm = 0x500;
constexpr uint32_t kComms = 8;

bool comm_shape(uint64_t handle, int* size, int* rank, int* remote) {
  *size = static_cast<int>(handle & 0xffffff);
  *rank = 1;
  *remote = -1;
  return true;
}
bool comm_world_ranks(uint64_t, bool, int count, const int* ranks, int* world) {
  for (int i = 0; i < count; ++i) world[i] = ranks[i];
  return true;
}

/// Another handle whose search begins at the same place.
uint64_t comm_beside(unsigned which) {
  for (uint64_t handle = kComm + 8;; handle += 8)
    if (((mix64(handle) ^ mix64(kComm)) & (4 * kComms - 1)) == 0 && which-- == 0) return handle;
}

CommInfo* made(unsigned by, uint64_t handle, uint64_t derived) {
  comm_register_new(*threads[by], handle, derived, nullptr, CallId::kMPI_Comm_dup, 0);
  return comm_lookup(*threads[by], handle);
}

CommInfo* first;

void begin_comms() {
  begin_threads();
  stand_in = {};
  stand_in.handle_bytes = 8;
  stand_in.comm_null = [] { return uint64_t{3}; };
  stand_in.comm_shape = comm_shape;
  stand_in.comm_world_ranks = comm_world_ranks;
  stand_in.comm_name = [](uint64_t, char* text, size_t) { *text = 'c'; };
  stand_in.comm_attach = [](uint64_t, void*) { return true; };
  backend = &stand_in;
  runtime.comm_count = kComms;
  runtime.comms = static_cast<ring::Comm*>(memory(kComms * sizeof(ring::Comm)));
  LITMUS_EXPECT(tables_create());
  first = made(1, kComm, 100);
}

void expect_comm(const CommInfo* info, uint64_t handle) {
  LITMUS_EXPECT(info != nullptr && info->index >= 2);
  LITMUS_EXPECT(info->handle == handle && info->size == static_cast<int>(handle & 0xffffff));
  LITMUS_EXPECT(info->ring->handle == handle);
}

CommInfo* looked_up[3];

}  // namespace

std::vector<Program> request_programs() {
  return {
      {"requests shown: completed by another thread",
       "request table",
       [] { begin_requests(true); },
       {[] {
          start_request(1, key_of_bucket(0, 0), 7);
          tell();
        },
        [] {
          if (told()) complete_request(2, key_of_bucket(0, 0), 7);
        }},
       {},
       2},
      {"requests shown: a handle is given again before its end was seen",
       "request table",
       [] {
         begin_requests(true);
         start_request(1, key_of_bucket(0, 0), 1);
       },
       {[] {
          enter_wait(1, key_of_bucket(0, 0));
          tell();
          leave_wait(1, 1);
        },
        [] {
          if (told()) {
            start_request(2, key_of_bucket(0, 0), 3);
            complete_request(2, key_of_bucket(0, 0), 3);
          }
        }},
       {},
       2,
       {3000, 1000, 3}},
      {"requests shown: a place goes to another thread",
       "request table",
       [] {
         begin_requests(true);
         start_request(1, key_of_bucket(0, 0), 1);
       },
       {[] { complete_request(1, key_of_bucket(0, 0), 1); },
        [] {
          start_request(2, key_of_bucket(0, 1), 3);
          complete_request(2, key_of_bucket(0, 1), 3);
        }},
       {},
       1,
       {3000, 1000, 3}},
      {"requests shown: pending while a call is open",
       "request table, read by another process",
       begin_pending,
       {return_and_post_again, read_pending},
       {},
       2,
       {800, 300, 3}},
      {"communicators: a handle is given again",
       "communicators of a rank",
       [] {
         begin_comms();
         comm_lookup(*threads[2], kComm);
       },
       {[] {
          comm_forget(first);
          made(1, kComm, 200);
          tell();
        },
        [] {
          if (!told()) return;
          const CommInfo* info = comm_lookup(*threads[2], kComm);
          expect_comm(info, kComm);
          LITMUS_EXPECT(info->ring->generation == 1 + (info == first));
        }},
       {},
       2,
       {300, 100, 3}},
      {"communicators: one goes, one comes, another is looked up",
       "communicators of a rank",
       [] {
         begin_comms();
         made(1, comm_beside(0), 101);
       },
       {[] {
          comm_forget(first);
          made(1, comm_beside(1), 102);
        },
        [] { expect_comm(comm_lookup(*threads[2], comm_beside(0)), comm_beside(0)); }},
       {},
       0,
       {300, 100, 3}},
      {"communicators: two threads meet one that was made out of sight",
       "communicators of a rank",
       begin_comms,
       {[] { looked_up[1] = comm_lookup(*threads[1], comm_beside(0)); },
        [] {
          looked_up[2] = comm_lookup(*threads[2], comm_beside(0));
          expect_comm(looked_up[2], comm_beside(0));
        }},
       [] { LITMUS_EXPECT(looked_up[1] == looked_up[2]); },
       2,
       {200, 50, 3}},
  };
}

}  // namespace litmus
