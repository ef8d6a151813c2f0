// SPDX-License-Identifier: Apache-2.0
//
// See devicify_buffer.h: which bytes a buffer has, device memory for them, and the way there and back.

#include "devicify_buffer.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "cuda_api.h"

namespace devicify {

Counts counts;

void stop(const char* what) {
  fprintf(stderr, "devicify: %s\n", what);
  abort();
}

void* own(const char* name) {
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
  return dlsym(library, name);
}

namespace {

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
      if (word == "managed") s.managed = true;
      else if (word == "pool") s.pool = true;
      else if (word == "mapped") s.mapped = true;
      else if (word == "hip") s.hip = true;
      else if (const int number = atoi(word.c_str()); number > 0) s.every = static_cast<unsigned>(number);
      else s.names.push_back(word);
    }
    return s;
  }();
  return it;
}

}  // namespace

bool wanted(const char* name) {
  if (settings().names.empty()) return true;
  for (const std::string& each : settings().names)
    if (each == name) return true;
  return false;
}

namespace {

// --- Device memory ---

/// The stand-in's functions, as a program finds them that loads its runtime itself.
class Driver {
 public:
  Driver() {
    library_ = dlopen(settings().hip ? "libamdhip64.so.5" : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr) stop(dlerror());
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
    if (settings().mapped) result = map_pieces(number, &memory, bytes);
    else if (settings().pool) result = get<int(uintptr_t*, size_t, void*)>("cuMemAllocAsync")(&memory, bytes, nullptr);
    else if (settings().managed)
      result = get<int(uintptr_t*, size_t, unsigned)>("cuMemAllocManaged")(&memory, bytes, 1);
    else result = get<int(uintptr_t*, size_t)>("cuMemAlloc_v2")(&memory, bytes);
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
      must(get<int(uintptr_t, size_t, size_t, uintptr_t, unsigned long long)>("cuMemMap")(*memory + i * granule,
                                                                                          granule, 0, piece, 0));
    }
    return 0;
  }
  template <class Function>
  Function* get(const char* name) {
    auto* function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) stop(name);
    return function;
  }
  static void must(int result) {
    if (result != 0) stop("the stand-in refuses");
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

constexpr size_t kLargest = size_t{256} << 20;  ///< bytes of a span

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
      if (piece.count == 0) continue;
      if (piece.count < 0 || piece.type == MPI_DATATYPE_NULL) return false;
      int size = 0;
      MPI_Aint lower, extent, true_lower, true_extent;
      if (OWN(MPI_Pack_size)(1, piece.type, helper_comm(), &size) != MPI_SUCCESS)  // refuses what is no type
        return false;
      OWN(MPI_Type_size)(piece.type, &size);
      OWN(MPI_Type_get_extent)(piece.type, &lower, &extent);
      OWN(MPI_Type_get_true_extent)(piece.type, &true_lower, &true_extent);
      if (size == 0) continue;
      const Large spread = (piece.count - 1) * extent, first = piece.offset + true_lower;
      low = std::min(low, first + std::min(spread, Large{0}));
      high = std::max(high, first + std::max(spread, Large{0}) + true_extent);
      dense = dense && size == true_extent && size == extent;
      data += piece.count * size;
      if (high - low > Large{kLargest} || piece.count > INT_MAX) return false;
    }
    dense = dense && data == high - low;
    return data > 0;
  }

  bool mark(const Pieces& pieces) {
    if (dense) return true;
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

}  // namespace

bool Buffer::make(const void* place, Use used, const Pieces& pieces) {
  Span span;
  if (!initialized() || !span.measure(pieces) || !by_lot() || !span.mark(pieces)) {
    ++counts.left;
    return false;
  }
  program = static_cast<char*>(const_cast<void*>(place)) + span.low;
  bytes = static_cast<size_t>(span.high - span.low);
  use = used;
  mask = std::move(span.mask);
  // At the end of its memory, so that who goes beyond is refused; aligned as the program's.
  for (capacity = 512; capacity < bytes + 64;) capacity *= 2;
  auto& list = kept()[capacity];
  if (!list.empty()) {
    memory = list.back();
    list.pop_back();
  } else if ((memory = driver().allocate(capacity)) == 0) {
    ++counts.left;
    return false;
  }
  const auto alignment = reinterpret_cast<uintptr_t>(program) % 64;
  const uintptr_t start = (memory + capacity - bytes - alignment) / 64 * 64 + alignment;
  view = static_cast<char*>(driver().view(reinterpret_cast<void*>(start)));
  device = start - static_cast<uintptr_t>(span.low);
  upload();
  ++counts.moved;
  counts.bytes += bytes;
  return true;
}

void Buffer::upload() {
  if (mask.empty()) {
    memcpy(view, program, bytes);
  } else {
    memset(view, 0xDB, bytes);
    for (size_t i = 0; i < bytes; ++i)
      if (mask[i]) view[i] = program[i];
  }
  before.assign(view, view + bytes);
}

void Buffer::bring_back() {
  if (memcmp(view, before.data(), bytes) == 0) return;
  for (size_t i = 0; i < bytes; ++i) {
    if (view[i] == before[i]) continue;
    if (!(mask.empty() || mask[i])) stop("MPI wrote between the bytes of a receive buffer");
    if ((use & kReceived) == 0) stop("MPI wrote into a send buffer");
    program[i] = view[i];
    before[i] = view[i];
  }
}

void Buffer::give_back() { kept()[capacity].push_back(memory); }

}  // namespace devicify
