// SPDX-License-Identifier: Apache-2.0
//
// Any MPI program with device buffers: LD_PRELOAD="libdevicify.MPI.so libresil.so". Each data buffer that the program
// hands to MPI is replaced by memory of the stand-in GPU with the same data at the same places, and what MPI wrote there
// is brought back when the call or the request is complete. One-sided and file operations, partitioned messages,
// MPI_BOTTOM and MPI_IN_PLACE are left alone. Compiled for one MPI; the wrappers come from devicify_gen.py.
//
// FAKEGPU_DEVICIFY, comma-separated: names without MPI_ (these calls only), a number N (every N-th buffer, by lot),
// managed, pool or mapped (memory of that kind; default: plain; mapped: in pieces, by virtual memory), hip (HIP instead of CUDA). FAKEGPU_DEVICIFY_LOG=FILE: a line
// at the end of the process, with the numbers of buffers and bytes; %p is the process id.
//
// The data takes the way of fakegpu_host_view, so that the engines and counts of the stand-in see only what others do.

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_api.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Large = long long;
constexpr int kNoRoot = INT_MIN;

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

[[noreturn]] void stop(const char* what) {
  fprintf(stderr, "devicify: %s\n", what);
  abort();
}

// --- MPI's own functions, below all tools ---

template <class Function>
Function* own(const char* name, Function*) {
  static void* const library = [] {
    std::string path;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {
          const char* slash = strrchr(info->dlpi_name, '/');
          const char* file = slash != nullptr ? slash + 1 : info->dlpi_name;
          if (strncmp(file, "libmpi.so", 9) == 0 || strncmp(file, "libmpich.so", 11) == 0)
            *static_cast<std::string*>(to) = info->dlpi_name;
          return 0;
        },
        &path);
    return dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  }();
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define OWN(name) (*own("P" #name, &name))

// --- What is wanted ---

struct Settings {
  std::vector<std::string> names;
  unsigned every = 1;
  bool managed = false, pool = false, mapped = false, hip = false;
};

const Settings& settings() {
  static const Settings it = [] {
    Settings s;
    const char* text = getenv("FAKEGPU_DEVICIFY");
    std::string all = text != nullptr ? text : "";
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find(',', begin), all.size());
      const std::string word = all.substr(begin, end - begin);
      begin = end + 1;
      if (word == "managed")
        s.managed = true;
      else if (word == "pool")
        s.pool = true;
      else if (word == "mapped")
        s.mapped = true;
      else if (word == "hip")
        s.hip = true;
      else if (const int number = atoi(word.c_str()); number > 0)
        s.every = static_cast<unsigned>(number);
      else
        s.names.push_back(word);
    }
    return s;
  }();
  return it;
}

bool wanted(const char* name) {
  if (settings().names.empty())
    return true;
  for (const std::string& each : settings().names)
    if (each == name)
      return true;
  return false;
}

struct Inside {
  Inside() : nested(depth++ > 0) {}
  ~Inside() { --depth; }
  const bool nested;
  static thread_local int depth;
};
thread_local int Inside::depth;

std::recursive_mutex lock;
unsigned long long buffers_moved, bytes_moved, buffers_left;

// --- Device memory ---

/// The stand-in's functions, as a program finds them that loads its runtime itself.
class Driver {
public:
  Driver() {
    library_ = dlopen(settings().hip ? "libamdhip64.so.5" : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr)
      stop(dlerror());
    view = get<void*(const void*)>("fakegpu_host_view");
    if (settings().hip) {
      must(get<int(int*)>("hipGetDeviceCount")(&devices_));
      return;
    }
    must(get<int(unsigned)>("cuInit")(0));
    must(get<int(int*)>("cuDeviceGetCount")(&devices_));
    for (int i = 0; i < devices_; ++i) {
      contexts_.push_back(nullptr);
      must(get<int(void**, int)>("cuDevicePrimaryCtxRetain")(&contexts_.back(), i));
    }
    must(get<int(void*)>("cuCtxSetCurrent")(contexts_[0]));
  }

  /// 0: out of memory. The thread's current device stays what it was.
  uintptr_t allocate(size_t bytes) {
    const auto number = static_cast<unsigned>(next_++ % static_cast<unsigned>(devices_));
    uintptr_t memory = 0;
    int result;
    if (settings().hip) {
      int before = 0;
      get<int(int*)>("hipGetDevice")(&before);
      get<int(int)>("hipSetDevice")(static_cast<int>(number));
      result = settings().managed ? get<int(uintptr_t*, size_t, unsigned)>("hipMallocManaged")(&memory, bytes, 1)
                                  : get<int(uintptr_t*, size_t)>("hipMalloc")(&memory, bytes);
      get<int(int)>("hipSetDevice")(before);
      return result == 0 ? memory : 0;
    }
    void* popped;
    must(get<int(void*)>("cuCtxPushCurrent_v2")(contexts_[number]));
    if (settings().mapped)
      result = map_pieces(number, &memory, bytes);
    else if (settings().pool)
      result = get<int(uintptr_t*, size_t, void*)>("cuMemAllocAsync")(&memory, bytes, nullptr);
    else if (settings().managed)
      result = get<int(uintptr_t*, size_t, unsigned)>("cuMemAllocManaged")(&memory, bytes, 1);
    else
      result = get<int(uintptr_t*, size_t)>("cuMemAlloc_v2")(&memory, bytes);
    must(get<int(void**)>("cuCtxPopCurrent_v2")(&popped));
    return result == 0 ? memory : 0;
  }

  void* (*view)(const void*);

private:
  /// Pieces of one granule each, with room left behind them.
  int map_pieces(unsigned number, uintptr_t* memory, size_t bytes) {
    const CUmemAllocationProp prop = {1, 0, {1, static_cast<int>(number)}, nullptr, {}};
    size_t granule = 0;
    must(get<int(size_t*, const void*, int)>("cuMemGetAllocationGranularity")(&granule, &prop, 0));
    const size_t pieces = (bytes + granule - 1) / granule;
    must(get<int(uintptr_t*, size_t, size_t, uintptr_t, unsigned long long)>("cuMemAddressReserve")(
        memory, (pieces + 3) * granule, 0, 0, 0));
    for (size_t i = 0; i < pieces; ++i) {
      uintptr_t piece = 0;
      if (get<int(uintptr_t*, size_t, const void*, unsigned long long)>("cuMemCreate")(&piece, granule, &prop, 0) != 0)
        return 1;
      must(get<int(uintptr_t, size_t, size_t, uintptr_t, unsigned long long)>("cuMemMap")(*memory + i * granule, granule,
                                                                                          0, piece, 0));
    }
    return 0;
  }
  template <class Function>
  Function* get(const char* name) {
    auto* function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr)
      stop(name);
    return function;
  }
  static void must(int result) {
    if (result != 0)
      stop("the stand-in refuses");
  }
  void* library_;
  int devices_ = 0;
  unsigned next_ = 0;
  std::vector<void*> contexts_;
};

Driver& driver() {
  static Driver* const it = new Driver;
  return *it;
}

/// Memory comes back to lists by size, as programs keep their buffers: freeing would wait for the device.
std::map<size_t, std::vector<uintptr_t>>& kept() {
  static auto* const lists = new std::map<size_t, std::vector<uintptr_t>>;
  return *lists;
}

constexpr size_t kLargest = size_t{256} << 20;

// --- Buffers ---

struct Piece {
  Large offset, count;  ///< bytes, elements
  MPI_Datatype type;
};
using Pieces = std::vector<Piece>;

Pieces one(Large count, MPI_Datatype type) { return {{0, count, type}}; }

enum Use { kSent = 1, kReceived = 2, kBoth = 3 };

struct Buffer {
  char *program, *view;        ///< the same place in both memories: where its span begins
  size_t bytes;                ///< of the span
  uintptr_t memory, device;    ///< allocation; what MPI is given
  size_t capacity;
  Use use;
  std::vector<bool> mask;      ///< bytes of the span that belong to it; empty: all
  std::vector<char> before;    ///< what the device had when MPI got it

  bool holds(size_t i) const { return mask.empty() || mask[i]; }

  void upload() {
    if (mask.empty()) {
      memcpy(view, program, bytes);
    } else {
      memset(view, 0xDB, bytes);
      for (size_t i = 0; i < bytes; ++i)
        if (mask[i])
          view[i] = program[i];
    }
    before.assign(view, view + bytes);
  }

  /// Only what changed: other receives may be at work between the bytes of this one, or on bytes that this one did not get.
  void bring_back() {
    if (memcmp(view, before.data(), bytes) == 0)
      return;
    for (size_t i = 0; i < bytes; ++i) {
      if (view[i] == before[i])
        continue;
      if (!holds(i))
        stop("MPI wrote between the bytes of a receive buffer");
      if ((use & kReceived) == 0)
        stop("MPI wrote into a send buffer");
      program[i] = view[i];
      before[i] = view[i];
    }
  }

  void give_back() { kept()[capacity].push_back(memory); }
};

MPI_Comm helper_comm() {
  static const MPI_Comm comm = [] {
    MPI_Comm made;
    OWN(MPI_Comm_dup)(MPI_COMM_SELF, &made);
    OWN(MPI_Comm_set_errhandler)(made, MPI_ERRORS_RETURN);
    return made;
  }();
  return comm;
}

/// The bytes of the pieces: which of the span [low, high) around `place` belong to them. False: leave it alone.
struct Span {
  Large low = 0, high = 0;
  bool dense = true;
  std::vector<bool> mask;

  bool measure(const Pieces& pieces) {
    Large data = 0;
    for (const Piece& piece : pieces) {
      if (piece.count == 0)
        continue;
      if (piece.count < 0 || piece.type == MPI_DATATYPE_NULL)
        return false;
      int size = 0;
      MPI_Aint lower, extent, true_lower, true_extent;
      if (OWN(MPI_Pack_size)(1, piece.type, helper_comm(), &size) != MPI_SUCCESS)  // refuses what is no type
        return false;
      OWN(MPI_Type_size)(piece.type, &size);
      OWN(MPI_Type_get_extent)(piece.type, &lower, &extent);
      OWN(MPI_Type_get_true_extent)(piece.type, &true_lower, &true_extent);
      if (size == 0)
        continue;
      const Large spread = (piece.count - 1) * extent, first = piece.offset + true_lower;
      low = std::min(low, first + std::min(spread, Large{0}));
      high = std::max(high, first + std::max(spread, Large{0}) + true_extent);
      dense = dense && size == true_extent && size == extent;
      data += piece.count * size;
      if (high - low > Large{kLargest} || piece.count > INT_MAX)
        return false;
    }
    dense = dense && data == high - low;
    return data > 0;
  }

  bool mark(const Pieces& pieces) {
    if (dense)
      return true;
    std::vector<char> bytes(static_cast<size_t>(high - low), 0);
    for (const Piece& piece : pieces) {
      int size = 0, position = 0;
      if (piece.count == 0 || OWN(MPI_Pack_size)(static_cast<int>(piece.count), piece.type, helper_comm(), &size) != 0)
        continue;
      const std::vector<char> ones(static_cast<size_t>(size), 1);
      if (OWN(MPI_Unpack)(ones.data(), size, &position, bytes.data() - low + piece.offset,
                          static_cast<int>(piece.count), piece.type, helper_comm()) != MPI_SUCCESS)
        return false;
    }
    mask.assign(bytes.begin(), bytes.end());
    return true;
  }
};

bool by_lot() {
  static unsigned long long counter;
  unsigned long long x = ++counter * 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  return (x * 0xBF58476D1CE4E5B9ull >> 33) % settings().every == 0;
}

/// Not so in programs that only know sessions: the helpers need a communicator of the world.
bool initialized() {
  int flag = 0;
  OWN(MPI_Initialized)(&flag);
  return flag != 0;
}

bool make(Buffer& buffer, const void* place, Use use, const Pieces& pieces) {
  Span span;
  if (!initialized() || !span.measure(pieces) || !by_lot() || !span.mark(pieces)) {
    ++buffers_left;
    return false;
  }
  buffer.program = static_cast<char*>(const_cast<void*>(place)) + span.low;
  buffer.bytes = static_cast<size_t>(span.high - span.low);
  buffer.use = use;
  buffer.mask = std::move(span.mask);
  // At the end of its memory, so that who goes beyond is refused; aligned as the program's.
  for (buffer.capacity = 512; buffer.capacity < buffer.bytes + 64;)
    buffer.capacity *= 2;
  auto& list = kept()[buffer.capacity];
  if (!list.empty()) {
    buffer.memory = list.back();
    list.pop_back();
  } else if ((buffer.memory = driver().allocate(buffer.capacity)) == 0) {
    ++buffers_left;
    return false;
  }
  const auto alignment = reinterpret_cast<uintptr_t>(buffer.program) % 64;
  const uintptr_t start = (buffer.memory + buffer.capacity - buffer.bytes - alignment) / 64 * 64 + alignment;
  buffer.view = static_cast<char*>(driver().view(reinterpret_cast<void*>(start)));
  buffer.device = start - static_cast<uintptr_t>(span.low);
  buffer.upload();
  ++buffers_moved;
  bytes_moved += buffer.bytes;
  return true;
}

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
  for (Buffer& each : orphans())
    each.bring_back();
}

/// What is pending of requests that the program waits for. It is taken out of the table before MPI is asked: once MPI has
/// completed a request, another thread's may get its handle. MPI gives operations that are complete from the beginning one
/// handle for all; with any of them all are complete.
class Taken {
public:
  Taken(int count, const MPI_Request* requests) {
    const std::lock_guard hold(lock);
    if (requests != nullptr && count > 0)
      handles_.assign(requests, requests + count);
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
      if (each.request != MPI_REQUEST_NULL)
        pending().emplace(each.request, std::move(each.pending));
  }

  void complete(int index, bool ends = true) {
    const std::lock_guard hold(lock);
    for (Entry& each : taken_) {
      if (each.request != handles_[static_cast<size_t>(index)] || each.request == MPI_REQUEST_NULL)
        continue;
      const bool last = ends && !each.pending.persistent;
      for (Buffer& buffer : each.pending.buffers) {
        buffer.bring_back();
        if (last)
          buffer.give_back();
      }
      if (last)
        each.request = MPI_REQUEST_NULL;
    }
  }
  void complete_all(int count, const MPI_Request* requests, int result) {
    for (int i = 0; i < count; ++i)
      if (result == MPI_SUCCESS || requests[i] == MPI_REQUEST_NULL)
        complete(i);
  }
  void complete_some(int count, const int* indices) {
    for (int i = 0; count != MPI_UNDEFINED && i < count; ++i)
      complete(indices[i]);
  }
  void upload() {
    for (Entry& each : taken_)
      for (Buffer& buffer : each.pending.buffers)
        buffer.upload();
  }
  void orphan() {
    const std::lock_guard hold(lock);
    for (Entry& each : taken_) {
      for (Buffer& buffer : each.pending.buffers)
        orphans().push_back(std::move(buffer));
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
    if (!make(buffer, place, use, pieces))
      return;
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
    if (result != MPI_SUCCESS || *request == MPI_REQUEST_NULL)
      return done();
    const std::lock_guard hold(lock);
    if (!buffers_.empty())
      pending().emplace(*request, Pending{std::move(buffers_), persistent});
  }

private:
  std::vector<Buffer> buffers_;
  void* given_[2] = {};
};

/// The ranks of a collective, as far as its buffers are concerned.
struct Group {
  Group(MPI_Comm comm, int root_rank, bool neighbor) : valid(comm != MPI_COMM_NULL) {
    if (!valid)
      return;
    int inter = 0, size = 0, rank = 0;
    OWN(MPI_Comm_test_inter)(comm, &inter);
    OWN(MPI_Comm_size)(comm, &size);
    OWN(MPI_Comm_rank)(comm, &rank);
    members = size;
    if (inter)
      OWN(MPI_Comm_remote_size)(comm, &size);
    sends = receives = size;
    own_rank = rank;
    if (root_rank != kNoRoot) {
      root = inter ? root_rank == MPI_ROOT : root_rank == rank;
      leaf = inter ? root_rank >= 0 : true;
      any = root || leaf;
    }
    if (neighbor)
      count_neighbors(comm);
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
    for (Large i = 0; i < members; ++i)
      all += counts[i];
    return all;
  }
  template <class Count>
  Large mine(const Count* counts) const { return counts[own_rank]; }

  bool valid, root = true, leaf = true, any = true;
  Large members = 0, sends = 0, receives = 0;
  int own_rank = 0;
};

template <class Count, class Displacement>
Pieces vector(Large number, const Count* counts, const Displacement* displacements, MPI_Datatype type) {
  Pieces pieces;
  MPI_Aint lower, extent;
  if (type == MPI_DATATYPE_NULL || number == 0)
    return pieces;
  OWN(MPI_Type_get_extent)(type, &lower, &extent);
  for (Large i = 0; i < number; ++i)
    pieces.push_back({Large(displacements[i]) * extent, Large(counts[i]), type});
  return pieces;
}

template <class Count, class Displacement>
Pieces typed(Large number, const Count* counts, const Displacement* displacements, const MPI_Datatype* types) {
  Pieces pieces;
  for (Large i = 0; i < number; ++i)
    pieces.push_back({Large(displacements[i]), Large(counts[i]), types[i]});
  return pieces;
}

__attribute__((destructor)) void tell() {
  const char* path = getenv("FAKEGPU_DEVICIFY_LOG");
  if (path == nullptr || buffers_moved + buffers_left == 0)
    return;
  std::string name = path;
  if (const size_t at = name.find("%p"); at != std::string::npos)
    name.replace(at, 2, std::to_string(getpid()));
  if (FILE* file = fopen(name.c_str(), "a")) {
    fprintf(file, "buffers=%llu bytes=%llu left=%llu\n", buffers_moved, bytes_moved, buffers_left);
    fclose(file);
  }
}

}  // namespace

#include "devicify.inc"

// --- Completion ---

#define COMPLETION(name, parameters, arguments, count, requests, before, after)                     \
  static int wrap_##name(int layer, LIST parameters) {                                              \
    using Next = int parameters;                                                                    \
    static Next* const next[2] = {find<Next>(#name), find<Next>("P" #name)};                        \
    const Inside inside;                                                                            \
    if (inside.nested)                                                                              \
      return next[layer] arguments;                                                                 \
    Taken taken(count, requests);                                                                   \
    before;                                                                                         \
    const int result = next[layer] arguments;                                                       \
    after;                                                                                          \
    return result;                                                                                  \
  }                                                                                                 \
  EXPORT int name parameters { return wrap_##name(0, LIST arguments); }                             \
  EXPORT int P##name parameters { return wrap_##name(1, LIST arguments); }
#define LIST(...) __VA_ARGS__

COMPLETION(MPI_Wait, (MPI_Request* request, MPI_Status* status), (request, status), 1, request, (void)0,
           taken.complete(0))
COMPLETION(MPI_Test, (MPI_Request* request, int* flag, MPI_Status* status), (request, flag, status), 1, request, (void)0,
           if (*flag || result != MPI_SUCCESS) taken.complete(0))
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
COMPLETION(MPI_Request_free, (MPI_Request* request), (request), 1, request, (void)0, taken.orphan())
COMPLETION(MPI_Start, (MPI_Request* request), (request), 1, request, taken.upload(), (void)0)
COMPLETION(MPI_Startall, (int count, MPI_Request requests[]), (count, requests), count, requests, taken.upload(), (void)0)
