// SPDX-License-Identifier: Apache-2.0
//
// See host_memory.h. What counts are the drivers through which all memory of a device is had: a CUDA runtime, also one
// that is linked statically, loads libcuda when it is first used; HIP needs libhsa-runtime64.
//
// A driver may be loaded at any time between two MPI calls, and its first buffer must not be touched. glibc counts the
// objects it has loaded; dl_iterate_phdr tells the number for 12 ns, without looking at them when the callback stops
// at the first. As that takes the loader's lock, a thread relies on an answer for a few microseconds: opening a shared
// object takes longer, and getting memory from a driver that is new in the process takes milliseconds.

#include "checksum/datatype/host_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "shim/runtime.h"

namespace resil {

namespace host_memory_detail {

constinit thread_local Range stack __attribute__((tls_model("initial-exec"))) = {};
constinit Range data, heap;

namespace {

// --- Which memory is certainly the host's ---

/// The kernel keeps 128 MiB below the top of the first thread's stack free of other mappings.
constexpr size_t kMainStack = size_t{64} << 20;
constexpr uintptr_t kPage = 4096;

void find_stack() {
  if (gettid() == getpid()) {
    // The kernel put these bytes above all frames, arguments and the environment.
    const uintptr_t high = (getauxval(AT_RANDOM) + kPage - 1) & ~(kPage - 1);
    if (high < kMainStack)
      return;
    stack.set(high - kMainStack, high);
    return;
  }
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0)
    return;
  if (pthread_attr_getstack(&attributes, &low, &bytes) == 0)
    stack.set(reinterpret_cast<uintptr_t>(low), reinterpret_cast<uintptr_t>(low) + bytes);
  pthread_attr_destroy(&attributes);
}

/// The first object is the program.
int visit_program(dl_phdr_info* info, size_t, void*) {
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0)
      data.set(info->dlpi_addr + part.p_vaddr, info->dlpi_addr + part.p_vaddr + part.p_memsz);
  }
  return 1;
}

uintptr_t parse_hex(const char* text) {
  uintptr_t value = 0;
  for (;; ++text) {
    const int digit = *text >= '0' && *text <= '9' ? *text - '0' : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10 : -1;
    if (digit < 0)
      return value;
    value = value * 16 + static_cast<uintptr_t>(digit);
  }
}

/// Where the brk heap begins: only the kernel knows, behind the program at a random distance. 0: there is none.
uintptr_t heap_start() {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  char text[4096];
  size_t used = 0;
  uintptr_t start = 0;
  for (ssize_t got; start == 0 && (got = read(file, text + used, sizeof(text) - 1 - used)) > 0;) {
    used += static_cast<size_t>(got);
    text[used] = 0;
    char* line = text;
    for (char* end; (end = strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = 0;
      if (strstr(line, "[heap]") != nullptr)
        start = start != 0 ? start : parse_hex(line);
    }
    used = static_cast<size_t>(text + used - line);
    memmove(text, line, used);
    if (used == sizeof(text) - 1)
      used = 0;  // no line of the kernel's is that long
  }
  close(file);
  return start;
}

std::atomic<uintptr_t> heap_end_asked;  ///< end of the heap when its start was last looked for

void learn_ranges() {
  if (stack.high == 0)
    find_stack();
  if (__atomic_load_n(&data.high, __ATOMIC_RELAXED) == 0)
    dl_iterate_phdr(visit_program, nullptr);
  const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
  uintptr_t start = __atomic_load_n(&heap.low, __ATOMIC_RELAXED);
  if (start == 0 && heap_end_asked.exchange(end, std::memory_order_relaxed) != end)
    start = heap_start();
  if (start != 0 && __atomic_load_n(&heap.high, __ATOMIC_RELAXED) != end)
    heap.set(start, end);
}

bool certain(const void* address, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return heap.holds(at, bytes) || stack.holds(at, bytes) || data.holds(at, bytes);
}

// --- Which runtimes are there ---

constexpr uint64_t kCuda = 1, kHsa = 2, kHip = 4, kOther = 8, kBits = 8;

struct Known {
  const char* prefix;  ///< of the file's name
  uint64_t bit;
};
constexpr Known kRuntimes[] = {{"libcuda.so", kCuda},
                               {"libhsa-runtime64.so", kHsa},
                               {"libamdhip64.so", kHip},
                               {"libze_loader.so", kOther},
                               {"libze_intel_gpu.so", kOther},
                               {"libascendcl.so", kOther},
                               {"libcnrt.so", kOther},
                               {"libmusa.so", kOther},
                               {"libmxc-runtime64.so", kOther}};

struct Scan {
  uint64_t bits, loaded;
  char cuda[512], hsa[512];
};

int visit_first(dl_phdr_info* info, size_t, void* loaded) {
  *static_cast<uint64_t*>(loaded) = info->dlpi_adds;
  return 1;
}

int visit(dl_phdr_info* info, size_t, void* argument) {
  auto* scan = static_cast<Scan*>(argument);
  scan->loaded = info->dlpi_adds;
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  for (const Known& known : kRuntimes) {
    if (strncmp(name, known.prefix, strlen(known.prefix)) != 0)
      continue;
    scan->bits |= known.bit;
    char* keep = known.bit == kCuda ? scan->cuda : known.bit == kHsa ? scan->hsa : nullptr;
    if (keep != nullptr && strlen(path) < sizeof(scan->cuda))
      strcpy(keep, path);
  }
  return 0;
}

using CudaAttributes = int(unsigned count, int* attributes, void** values, uint64_t address);
struct HsaInfo {
  uint32_t bytes;
  int32_t type;
  void *agent_address, *host_address;
  size_t allocation_bytes;
  void* user_data;
  uint64_t owner;
  uint32_t flags;
};
using HsaPointerInfo = int(const void* address, HsaInfo* info, void* allocate, uint32_t* agents, void* accessible);
using HsaAgentInfo = int(uint64_t agent, int attribute, void* value);

std::atomic<CudaAttributes*> cuda_attributes;
std::atomic<HsaPointerInfo*> hsa_pointer_info;
std::atomic<HsaAgentInfo*> hsa_agent_info;
std::atomic<uint64_t> known_state;  ///< objects loaded so far << kBits | runtimes among them

/// From a library that is there already; stays loaded with it.
template <class Function>
void find(std::atomic<Function*>& function, const char* path, const char* name) {
  if (path[0] == 0 || function.load(std::memory_order_relaxed) != nullptr)
    return;
  if (void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD))
    function.store(reinterpret_cast<Function*>(dlsym(library, name)), std::memory_order_relaxed);
}

uint64_t runtimes() {
  uint64_t loaded = 0;
  dl_iterate_phdr(visit_first, &loaded);
  const uint64_t state = known_state.load(std::memory_order_acquire);
  if (state >> kBits == loaded)
    return state & ((1 << kBits) - 1);
  Scan scan = {};
  dl_iterate_phdr(visit, &scan);
  find(cuda_attributes, scan.cuda, "cuPointerGetAttributes");
  find(hsa_pointer_info, scan.hsa, "hsa_amd_pointer_info");
  find(hsa_agent_info, scan.hsa, "hsa_agent_get_info");
  known_state.store(scan.loaded << kBits | scan.bits, std::memory_order_release);
  return scan.bits;
}

// --- Asking them about one byte ---

/// cuPointerGetAttributes: unlike the plural's sibling it needs no current context and takes any pointer.
bool cuda_says_host(uintptr_t address) {
  CudaAttributes* ask_driver = cuda_attributes.load(std::memory_order_relaxed);
  if (ask_driver == nullptr)
    return false;
  constexpr int kMemoryType = 2, kIsManaged = 8;            // CU_POINTER_ATTRIBUTE_
  constexpr unsigned kUnregistered = 0, kHost = 1;          // CU_MEMORYTYPE_
  constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3;  // CUDA_ERROR_
  int attributes[] = {kMemoryType, kIsManaged};
  unsigned type = 0;
  int managed = 0;
  void* values[] = {&type, &managed};
  const int result = ask_driver(2, attributes, values, address);
  if (result == kSuccess)
    return managed == 0 && (type == kUnregistered || type == kHost);
  return result == kInvalidValue || result == kNotInitialized;  // no pointer of its own
}

/// ROCr rather than HIP: every HIP function initialises the runtime, ROCr's say that it is not initialised.
bool hsa_says_host(uintptr_t address) {
  HsaPointerInfo* ask_runtime = hsa_pointer_info.load(std::memory_order_relaxed);
  HsaAgentInfo* ask_agent = hsa_agent_info.load(std::memory_order_relaxed);
  if (ask_runtime == nullptr || ask_agent == nullptr)
    return false;
  constexpr int kUnknown = 0, kAllocated = 1, kLocked = 2;  // HSA_EXT_POINTER_TYPE_; locked: host memory, registered
  constexpr int kSuccess = 0, kNotInitialized = 0x100B, kDevice = 17, kCpu = 0;
  HsaInfo info = {};
  info.bytes = sizeof(info);
  const int result = ask_runtime(reinterpret_cast<const void*>(address), &info, nullptr, nullptr, nullptr);
  if (result != kSuccess)
    return result == kNotInitialized;
  if (info.type != kAllocated)
    return info.type == kUnknown || info.type == kLocked;
  int device = -1;
  return ask_agent(info.owner, kDevice, &device) == kSuccess && device == kCpu;
}

/// Ticks for which a thread relies on "no runtime": 2 to 5 us on x86-64, at most 400 us on AArch64.
constexpr uint64_t kTrusted = 10000;
constinit thread_local uint64_t absent_at __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

bool ask(const void* address, size_t bytes) {
  if (bytes == 0)
    return true;
  const uint64_t now = ticks();
  if (now - absent_at < kTrusted)
    return true;
  learn_ranges();
  const uint64_t present = runtimes();
  if (present == 0) {
    absent_at = now;
    return true;
  }
  absent_at = 0;
  if (certain(address, bytes))
    return true;
  if ((present & kOther) != 0 || (present & (kHip | kHsa)) == kHip)
    return false;
  const auto first = reinterpret_cast<uintptr_t>(address), last = first + (bytes - 1);
  if ((present & kCuda) != 0 && !(cuda_says_host(first) && (bytes == 1 || cuda_says_host(last))))
    return false;
  return (present & kHsa) == 0 || (hsa_says_host(first) && (bytes == 1 || hsa_says_host(last)));
}

}  // namespace host_memory_detail

}  // namespace resil
