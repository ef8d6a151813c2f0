// SPDX-License-Identifier: Apache-2.0
//
// See fake_backend.h.
#include "fake_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>

#include "shim/call/attach.h"
#include "shim/call/registry.h"
#include "shim/call/thread.h"
#include "shim/ring/segment.h"

namespace fake {

Library library;
std::vector<const resil::Module*> modules;
std::atomic<bool> attached, has_world;
std::atomic<int> late_attachments;

namespace {

std::mutex mutex;

/// Calls `use` with the communicator under the lock; counts a question about one that is not there.
template <class Use>
bool with_comm(uint64_t handle, Use use) {
  std::lock_guard<std::mutex> guard(mutex);
  auto found = library.comms.find(handle);
  if (found == library.comms.end()) {
    ++library.unknown_handles;
    return false;
  }
  return use(found->second);
}

uint64_t comm_world() { return kCommWorld; }
uint64_t comm_self() { return kCommSelf; }
uint64_t comm_null() { return kCommNull; }
uint64_t request_null() { return kRequestNull; }
uint64_t request_empty() { return kRequestEmpty; }
bool is_in_place(const void* buffer) { return buffer == in_place(); }
bool initialized() { return library.initialized; }
bool finalized() { return library.finalized; }
bool thread_multiple() { return true; }

bool type_size(uint64_t type, int64_t* bytes) {
  std::lock_guard<std::mutex> guard(mutex);
  ++library.type_questions;
  auto found = library.types.find(type);
  if (found == library.types.end()) {
    ++library.unknown_handles;
    return false;
  }
  *bytes = found->second;
  return true;
}

bool comm_shape(uint64_t handle, int* size, int* rank, int* remote_size) {
  ++library.shape_questions;
  return with_comm(handle, [&](const Comm& comm) {
    *size = static_cast<int>(comm.local.size());
    *rank = -1;
    for (int i = 0; i < *size; ++i)
      if (comm.local[static_cast<size_t>(i)] == resil::runtime.rank) *rank = i;
    *remote_size = comm.inter ? static_cast<int>(comm.remote.size()) : -1;
    return true;
  });
}

bool comm_world_ranks(uint64_t handle, bool remote, int count, const int* ranks, int* world_ranks) {
  return with_comm(handle, [&](const Comm& comm) {
    const auto& group = remote ? comm.remote : comm.local;
    for (int i = 0; i < count; ++i) {
      if (ranks[i] < 0 || static_cast<size_t>(ranks[i]) >= group.size()) return false;
      world_ranks[i] = group[static_cast<size_t>(ranks[i])];
    }
    return true;
  });
}

bool group_world_ranks(uint64_t group, int capacity, int* world_ranks, int* size) {
  std::lock_guard<std::mutex> guard(mutex);
  const auto& members = library.groups.at(group);
  *size = static_cast<int>(members.size());
  if (*size > capacity) return false;
  std::copy(members.begin(), members.end(), world_ranks);
  return true;
}

bool comm_degree(uint64_t handle, int* in, int* out) {
  ++library.degree_questions;
  return with_comm(handle, [&](const Comm& comm) {
    *in = comm.degree_in;
    *out = comm.degree_out;
    return comm.degree_out >= 0;
  });
}

void comm_name(uint64_t handle, char* text, size_t bytes) {
  text[0] = 0;
  with_comm(handle, [&](const Comm& comm) {
    strncpy(text, comm.name.c_str(), bytes - 1);
    text[bytes - 1] = 0;
    return true;
  });
}

bool comm_attach(uint64_t handle, void* info) {
  return with_comm(handle, [&](Comm& comm) {
    if (library.attach_works) comm.attribute = info;
    return library.attach_works;
  });
}

bool nothing_with_comm(uint64_t*) { return false; }
bool no_send(uint64_t, const void*, size_t, int, resil::PrivateTag, uint64_t*) { return false; }
bool no_receive(uint64_t, void*, size_t, int, resil::PrivateTag, uint64_t*) { return false; }

resil::Backend table = {.abi = "fake",
                        .wrappers = {nullptr, nullptr},
                        .fallbacks = nullptr,
                        .handle_bytes = 8,
                        .status_bytes = 40,
                        .bind = nullptr,
                        .comm_world = comm_world,
                        .comm_self = comm_self,
                        .comm_null = comm_null,
                        .request_null = request_null,
                        .request_empty = request_empty,
                        .shared_first = 0,
                        .shared_span = 0,
                        .status_layout = resil::StatusLayout::kOpaque,
                        .is_in_place = is_in_place,
                        .in_place = kInPlace,
                        .initialized = initialized,
                        .finalized = finalized,
                        .thread_multiple = thread_multiple,
                        .type_size = type_size,
                        .comm_shape = comm_shape,
                        .comm_world_ranks = comm_world_ranks,
                        .group_world_ranks = group_world_ranks,
                        .comm_degree = comm_degree,
                        .comm_name = comm_name,
                        .comm_attach = comm_attach,
                        .make_own_comm = [] {},
                        .dup_world = nothing_with_comm,
                        .send = no_send,
                        .receive = no_receive,
                        .test = nothing_with_comm,
                        .messages = nullptr,
                        .types = nullptr,
                        .windows = nullptr,
                        .replay = nullptr,
                        .collectives = nullptr,
                        .staging = nullptr,
                        .failures = nullptr,
                        .parts = nullptr};

void prepare_thread(resil::Thread& thread, uint32_t trace) {
  thread.comm_generation = thread.type_generation = ~0u;
  thread.trace = &resil::runtime.traces[trace];
  thread.trace_index = trace;
  namespace ring = resil::ring;
  __atomic_store_n(&thread.trace->last_place, (trace == 0 ? ring::kRecordsPerTrace : ring::kRecordsOfFurther) - 1,
                   __ATOMIC_RELAXED);  // readers look while threads are made
  for (auto& peer : thread.trace->peers) peer.rank = -1;
  thread.trace->peers[resil::ring::kPeerEntries - 1].rank = -2;
}

}  // namespace

void add_comm(uint64_t handle, Comm comm) {
  std::lock_guard<std::mutex> guard(mutex);
  library.comms[handle] = std::move(comm);
}

void free_comm(uint64_t handle) {
  void* attribute;
  {
    std::lock_guard<std::mutex> guard(mutex);
    attribute = library.comms.at(handle).attribute;
  }
  if (attribute != nullptr) resil::comm_forget(static_cast<resil::CommInfo*>(attribute));
  std::lock_guard<std::mutex> guard(mutex);
  library.comms.erase(handle);
}

void set_handle_bytes(size_t bytes) { table.handle_bytes = bytes; }

Core::Core(int rank, int size) {
  static int cores;
  using resil::runtime;
  if (runtime.header != nullptr) munmap(runtime.header, runtime.header->file_bytes);
  runtime = {};
  runtime.pid = getpid();
  runtime.rank = rank;
  runtime.size = size;
  strcpy(runtime.host, "node-1");
  library.comms.clear();
  library.groups.clear();
  library.types = {{kByte, 1}, {kDouble, 8}, {kPair, 12}};
  library.attach_works = library.initialized = true;
  library.finalized = false;
  library.unknown_handles = library.type_questions = library.degree_questions = library.shape_questions = 0;
  Comm world;
  for (int i = 0; i < size; ++i) world.local.push_back(i);
  add_comm(kCommWorld, world);
  Comm self;
  self.local = {rank};
  add_comm(kCommSelf, self);
  set_handle_bytes(8);
  resil::registry_enable();
  char launch[48];
  snprintf(launch, sizeof(launch), "unit-%d-%d", getpid(), cores++);
  if (!resil::segment_create(launch) || !resil::tables_create() || !resil::request_table_create()) abort();
  resil::segment_discard();
  attached = has_world = true;
  resil::request_table_threads(true);
  resil::comm_register_predefined();
  thread_ = make_thread(0);
  resil::current_thread = thread_.get();
}

Core::~Core() {
  resil::current_thread = nullptr;
  attached = has_world = false;
}

std::unique_ptr<resil::Thread> make_thread(uint32_t trace) {
  auto thread = std::make_unique<resil::Thread>();
  prepare_thread(*thread, trace);
  return thread;
}

resil::Event make_event(resil::Thread& thread, resil::CallId id, uint64_t site, uint64_t frame) {
  resil::Event e;
  memset(static_cast<void*>(&e), 0xa7, sizeof(e));
  e.id = id;
  e.attributes = resil::call_info(id).attributes;
  e.nested = false;
  e.untimed = 0;
  e.large = (e.attributes & resil::kCallLargeCount) != 0;
  e.peer = resil::ring::kNoPeer;
  e.tag = resil::ring::kNoTag;
  e.comm_handle = 0;
  e.comm = nullptr;
  e.thread = &thread;
  e.return_address = site;
  e.frame = frame;
  if (e.attributes & (resil::kCallStarts | resil::kCallActivates | resil::kCallCompletes | resil::kCallPoll)) {
    e.request_count = 0;
    e.request_key = 0;
    e.flag = e.index = e.outcount = nullptr;
  }
  if (e.attributes & resil::kCallCollective)
    e.send.counts = e.receive.counts = e.send.types = e.receive.types = nullptr;
  return e;
}

bool call(resil::Event& e, int result) {
  if (e.thread->depth != 0) resil::admit(e);
  if (e.thread == nullptr || !resil::enter(e)) return false;
  e.result = result;
  resil::leave(e);
  return true;
}

bool admitted(resil::CallId id, uint64_t site, uint64_t frame) {
  static resil::Thread unused;
  resil::Event e = make_event(unused, id, site, frame);
  resil::admit(e);
  return e.thread != nullptr;
}

std::vector<uint64_t> pending_keys() {
  std::vector<uint64_t> keys;
  for (uint32_t i = 0; i < resil::runtime.request_count; ++i)
    if (uint64_t key = __atomic_load_n(&resil::runtime.requests[i].key, __ATOMIC_ACQUIRE); key != 0)
      keys.push_back(key);
  return keys;
}

}  // namespace fake

namespace resil {

const Backend* backend = &fake::table;
void* next_functions[2 * kCallCount];

void use_threaded_wrappers() {}

std::span<const Module* const> modules() { return {fake::modules.data(), fake::modules.size()}; }
bool runtime_attached() { return fake::attached.load(); }
bool runtime_has_world() { return fake::has_world.load(); }
bool attach_late() {
  ++fake::late_attachments;
  fake::attached = true;
  return true;
}

}  // namespace resil
