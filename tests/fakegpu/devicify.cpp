// SPDX-License-Identifier: Apache-2.0
//
// Any MPI program with device buffers: LD_PRELOAD="libdevicify.MPI.so libresil.so". Each data buffer that the program
// hands to MPI is replaced by memory of the stand-in GPU with the same data at the same places, and what MPI wrote
// there is brought back when the call or the request is complete. One-sided and file operations, partitioned messages,
// MPI_BOTTOM and MPI_IN_PLACE are left alone. Compiled for one MPI; the wrappers come from devicify_gen.py.
//
// FAKEGPU_DEVICIFY, comma-separated: names without MPI_ (these calls only), a number N (every N-th buffer, by lot),
// managed, pool or mapped (memory of that kind; default: plain; mapped: in pieces, by virtual memory), hip (HIP instead
// of CUDA). FAKEGPU_DEVICIFY_LOG=FILE: a line at the end of the process, with the numbers of buffers and bytes; %p is
// the process id.
//
// The data takes the way of fakegpu_host_view, so that the engines and counts of the stand-in see only what others do.

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "devicify_buffer.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace devicify;

namespace {

constexpr int kNoRoot = INT_MIN;

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

Pieces one(Large count, MPI_Datatype type) { return {{0, count, type}}; }

struct Inside {
  Inside() : nested(depth++ > 0) {}
  ~Inside() { --depth; }
  const bool nested;
  static thread_local int depth;
};
thread_local int Inside::depth;

std::recursive_mutex lock;

// --- Requests ---

struct Pending {
  std::vector<Buffer> buffers;
  bool persistent;
};
std::multimap<MPI_Request, Pending>& pending() {
  static auto* const map = new std::multimap<MPI_Request, Pending>;
  return *map;
}
/// Of requests that were freed under way: their end is seen by nobody.
std::vector<Buffer>& orphans() {
  static auto* const list = new std::vector<Buffer>;
  return *list;
}

void look_after_orphans() {
  for (Buffer& each : orphans()) each.bring_back();
}

/// What is pending of requests that the program waits for. It is taken out of the table before MPI is asked: once MPI
/// has completed a request, another thread's may get its handle. MPI gives operations that are complete from the
/// beginning one handle for all; with any of them all are complete.
class Taken {
 public:
  Taken(int count, const MPI_Request* requests) {
    const std::lock_guard hold(lock);
    if (requests != nullptr && count > 0) handles_.assign(requests, requests + count);
    for (int i = 0; requests != nullptr && i < count; ++i) {
      const auto range = pending().equal_range(requests[i]);
      for (auto each = range.first; each != range.second; each = pending().erase(each))
        taken_.push_back({requests[i], std::move(each->second)});
    }
  }
  /// What was not completed is pending again.
  ~Taken() {
    const std::lock_guard hold(lock);
    for (Entry& each : taken_)
      if (each.request != MPI_REQUEST_NULL) pending().emplace(each.request, std::move(each.pending));
  }

  void complete(int index, bool ends = true) {
    const std::lock_guard hold(lock);
    for (Entry& each : taken_) {
      if (each.request != handles_[static_cast<size_t>(index)] || each.request == MPI_REQUEST_NULL) continue;
      const bool last = ends && !each.pending.persistent;
      for (Buffer& buffer : each.pending.buffers) {
        buffer.bring_back();
        if (last) buffer.give_back();
      }
      if (last) each.request = MPI_REQUEST_NULL;
    }
  }
  void complete_all(int count, const MPI_Request* requests, int result) {
    for (int i = 0; i < count; ++i)
      if (result == MPI_SUCCESS || requests[i] == MPI_REQUEST_NULL) complete(i);
  }
  void complete_some(int count, const int* indices) {
    for (int i = 0; count != MPI_UNDEFINED && i < count; ++i) complete(indices[i]);
  }
  void upload() {
    for (Entry& each : taken_)
      for (Buffer& buffer : each.pending.buffers) buffer.upload();
  }
  void orphan() {
    const std::lock_guard hold(lock);
    for (Entry& each : taken_) {
      for (Buffer& buffer : each.pending.buffers) orphans().push_back(std::move(buffer));
      each.request = MPI_REQUEST_NULL;
    }
  }

 private:
  struct Entry {
    MPI_Request request;  ///< null: completed
    Pending pending;
  };
  std::vector<MPI_Request> handles_;
  std::vector<Entry> taken_;
};

/// The buffers of one call.
class Call {
 public:
  Call() { lock.lock(), look_after_orphans(), lock.unlock(); }

  bool may(const void* place) const { return place != MPI_IN_PLACE && place != MPI_BOTTOM; }

  void add(unsigned number, const void* place, Use use, const Pieces& pieces) {
    const std::lock_guard hold(lock);
    Buffer buffer = {};
    if (!buffer.make(place, use, pieces)) return;
    given_[number] = reinterpret_cast<void*>(buffer.device);
    buffers_.push_back(std::move(buffer));
  }

  void* at(unsigned number, const void* place) const {
    return given_[number] != nullptr ? given_[number] : const_cast<void*>(place);
  }

  void done() {
    const std::lock_guard hold(lock);
    for (Buffer& buffer : buffers_) {
      buffer.bring_back();
      buffer.give_back();
    }
  }

  void started(int result, const MPI_Request* request, bool persistent) {
    if (result != MPI_SUCCESS || *request == MPI_REQUEST_NULL) return done();
    const std::lock_guard hold(lock);
    if (!buffers_.empty()) pending().emplace(*request, Pending{std::move(buffers_), persistent});
  }

 private:
  std::vector<Buffer> buffers_;
  void* given_[2] = {};
};

/// The ranks of a collective, as far as its buffers are concerned.
struct Group {
  Group(MPI_Comm comm, int root_rank, bool neighbor) : valid(comm != MPI_COMM_NULL) {
    if (!valid) return;
    int inter = 0, size = 0, rank = 0;
    OWN(MPI_Comm_test_inter)(comm, &inter);
    OWN(MPI_Comm_size)(comm, &size);
    OWN(MPI_Comm_rank)(comm, &rank);
    members = size;
    if (inter) OWN(MPI_Comm_remote_size)(comm, &size);
    sends = receives = size;
    own_rank = rank;
    if (root_rank != kNoRoot) {
      root = inter ? root_rank == MPI_ROOT : root_rank == rank;
      leaf = inter ? root_rank >= 0 : true;
      any = root || leaf;
    }
    if (neighbor) count_neighbors(comm);
  }

  void count_neighbors(MPI_Comm comm) {
    int kind = MPI_UNDEFINED, number = 0, weighted = 0, out = 0;
    OWN(MPI_Topo_test)(comm, &kind);
    if (kind == MPI_CART) {
      OWN(MPI_Cartdim_get)(comm, &number);
      sends = receives = 2 * number;
    } else if (kind == MPI_GRAPH) {
      OWN(MPI_Graph_neighbors_count)(comm, own_rank, &number);
      sends = receives = number;
    } else if (kind == MPI_DIST_GRAPH) {
      OWN(MPI_Dist_graph_neighbors_count)(comm, &number, &out, &weighted);
      sends = out;
      receives = number;
    } else {
      valid = false;
    }
  }

  template <class Count>
  Large sum(const Count* counts) const {
    Large all = 0;
    for (Large i = 0; i < members; ++i) all += counts[i];
    return all;
  }
  template <class Count>
  Large mine(const Count* counts) const {
    return counts[own_rank];
  }

  bool valid, root = true, leaf = true, any = true;
  Large members = 0, sends = 0, receives = 0;
  int own_rank = 0;
};

template <class Count, class Displacement>
Pieces vector(Large number, const Count* counts, const Displacement* displacements, MPI_Datatype type) {
  Pieces pieces;
  MPI_Aint lower, extent;
  if (type == MPI_DATATYPE_NULL || number == 0) return pieces;
  OWN(MPI_Type_get_extent)(type, &lower, &extent);
  for (Large i = 0; i < number; ++i) pieces.push_back({Large(displacements[i]) * extent, Large(counts[i]), type});
  return pieces;
}

template <class Count, class Displacement>
Pieces typed(Large number, const Count* counts, const Displacement* displacements, const MPI_Datatype* types) {
  Pieces pieces;
  for (Large i = 0; i < number; ++i) pieces.push_back({Large(displacements[i]), Large(counts[i]), types[i]});
  return pieces;
}

__attribute__((destructor)) void tell() {
  const char* path = getenv("FAKEGPU_DEVICIFY_LOG");
  if (path == nullptr || counts.moved + counts.left == 0) return;
  std::string name = path;
  if (const size_t at = name.find("%p"); at != std::string::npos) name.replace(at, 2, std::to_string(getpid()));
  if (FILE* file = fopen(name.c_str(), "a")) {
    fprintf(file, "buffers=%llu bytes=%llu left=%llu\n", counts.moved, counts.bytes, counts.left);
    fclose(file);
  }
}

}  // namespace

#include "devicify.inc"

// --- Completion ---

#define COMPLETION(name, parameters, arguments, count, requests, before, after) \
  static int wrap_##name(int layer, LIST parameters) {                          \
    using Next = int parameters;                                                \
    static Next* const next[2] = {find<Next>(#name), find<Next>("P" #name)};    \
    const Inside inside;                                                        \
    if (inside.nested) return next[layer] arguments;                            \
    Taken taken(count, requests);                                               \
    before;                                                                     \
    const int result = next[layer] arguments;                                   \
    after;                                                                      \
    return result;                                                              \
  }                                                                             \
  EXPORT int name parameters { return wrap_##name(0, LIST arguments); }         \
  EXPORT int P##name parameters { return wrap_##name(1, LIST arguments); }
#define LIST(...) __VA_ARGS__

COMPLETION(MPI_Wait, (MPI_Request * request, MPI_Status* status), (request, status), 1, request, (void)0,
           taken.complete(0))
COMPLETION(MPI_Test, (MPI_Request * request, int* flag, MPI_Status* status), (request, flag, status), 1, request,
           (void)0, if (*flag || result != MPI_SUCCESS) taken.complete(0))
COMPLETION(MPI_Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]), (count, requests, statuses), count,
           requests, (void)0, taken.complete_all(count, requests, result))
COMPLETION(MPI_Testall, (int count, MPI_Request requests[], int* flag, MPI_Status statuses[]),
           (count, requests, flag, statuses), count, requests, (void)0,
           if (*flag || result != MPI_SUCCESS) taken.complete_all(count, requests, result))
COMPLETION(MPI_Waitany, (int count, MPI_Request requests[], int* index, MPI_Status* status),
           (count, requests, index, status), count, requests, (void)0,
           if (*index != MPI_UNDEFINED) taken.complete(*index))
COMPLETION(MPI_Testany, (int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status),
           (count, requests, index, flag, status), count, requests, (void)0,
           if (*flag && *index != MPI_UNDEFINED) taken.complete(*index))
COMPLETION(MPI_Waitsome, (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
           (count, requests, done, indices, statuses), count, requests, (void)0, taken.complete_some(*done, indices))
COMPLETION(MPI_Testsome, (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
           (count, requests, done, indices, statuses), count, requests, (void)0, taken.complete_some(*done, indices))
COMPLETION(MPI_Request_get_status, (MPI_Request request, int* flag, MPI_Status* status), (request, flag, status), 1,
           &request, (void)0, if (*flag) taken.complete(0, false))
COMPLETION(MPI_Request_free, (MPI_Request * request), (request), 1, request, (void)0, taken.orphan())
COMPLETION(MPI_Start, (MPI_Request * request), (request), 1, request, taken.upload(), (void)0)
COMPLETION(MPI_Startall, (int count, MPI_Request requests[]), (count, requests), count, requests, taken.upload(),
           (void)0)
