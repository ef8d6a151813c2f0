// SPDX-License-Identifier: Apache-2.0
//
// See runtimes.h. A driver may be loaded at any time between two MPI calls, and its first buffer must not be touched:
// all objects are looked at when their number (loads.h) has changed.

#include "shim/runtime/accelerators/runtimes.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "shim/runtime/accelerators/cuda_api.h"
#include "shim/runtime/accelerators/hip_api.h"
#include "shim/runtime/accelerators/level_zero.h"

namespace resil::gpu {

constinit uint64_t runtimes_detail::absent_until;
constinit const char* runtimes_detail::root = "";
constinit thread_local uint64_t runtimes_detail::absent_at __attribute__((tls_model("initial-exec"))) = 0;

namespace {

struct Known {
  const char* prefix;  ///< of the file's name
  Runtime runtime;
};
constexpr Known kKnown[] = {{"libcuda.so", kCudaRuntime},          {"libhsa-runtime64.so", kHsaRuntime},
                            {"libamdhip64.so", kHipRuntime},       {"libascendcl.so", kOtherRuntime},
                            {"libcnrt.so", kOtherRuntime},         {"libmusa.so", kOtherRuntime},
                            {"libmxc-runtime64.so", kOtherRuntime}};
// Level Zero, which cannot be asked either, is in processes that do not use it: level_zero.h. The others of
// kOtherRuntime are there because the program uses them.
constexpr unsigned kAsked = 3;  ///< runtimes that can be asked: the first of kKnown, in order of their bits

struct Scan {
  uint64_t bits, loaded;
  bool level_zero_loader, level_zero_driver;
  char paths[kAsked][512];
};

int visit(dl_phdr_info* info, size_t, void* argument) {
  auto* scan = static_cast<Scan*>(argument);
  scan->loaded = info->dlpi_adds;
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  const LevelZero level_zero = level_zero_library(name);
  scan->level_zero_loader |= level_zero == LevelZero::kLoader;
  scan->level_zero_driver |= level_zero == LevelZero::kDriver;
  for (const Known& known : kKnown) {
    if (strncmp(name, known.prefix, strlen(known.prefix)) != 0) continue;
    scan->bits |= known.runtime;
    const auto place = static_cast<unsigned>(__builtin_ctzll(known.runtime));
    if (place < kAsked && strlen(path) < sizeof(scan->paths[0])) strcpy(scan->paths[place], path);
  }
  return 0;
}

std::atomic<void*> libraries[kAsked];
std::atomic<cuda::PointerGetAttributes*> cuda_attributes;
std::atomic<hip::HsaPointerInfo*> hsa_pointer_info;
std::atomic<hip::HsaAgentInfo*> hsa_agent_info;
std::atomic<uint64_t> known_state;  ///< objects loaded so far << kRuntimeBits | runtimes among them

template <class Function>
void find(std::atomic<Function*>& function, void* library, const char* name) {
  if (library != nullptr && function.load(std::memory_order_relaxed) == nullptr)
    function.store(reinterpret_cast<Function*>(dlsym(library, name)), std::memory_order_relaxed);
}

void* library_of(Runtime runtime) { return libraries[__builtin_ctzll(runtime)].load(std::memory_order_relaxed); }

// --- Asking them about one byte ---

constexpr Said kUnclear = {Memory::kForeign, Api::kNone, nullptr, -1, 0, 0, false};

/// cuPointerGetAttributes: unlike the plural's sibling it needs no current context and takes any pointer.
Said ask_cuda(cuda::PointerGetAttributes* ask_driver, uintptr_t address) {
  int attributes[] = {cuda::kAttributeMemoryType, cuda::kAttributeIsManaged, cuda::kAttributeContext,
                      cuda::kAttributeOrdinal,    cuda::kAttributeBase,      cuda::kAttributeBytes,
                      cuda::kAttributeSynchronous};
  constexpr unsigned kUnregistered = 0, kHost = cuda::kTypeHost, kDevice = cuda::kTypeDevice;
  unsigned type = 0;
  int managed = 0, ordinal = -1, synchronous = 0;
  void* const not_said = &type;
  void *context = not_said, *base = nullptr;
  size_t bytes = 0;
  void* values[] = {&type, &managed, &context, &ordinal, &base, &bytes, &synchronous};
  int result = ask_driver(7, attributes, values, address);
  if (result == kInvalidValue) {  // a driver older than the range's attributes, or without a name for "nobody's"
    context = not_said;
    result = ask_driver(2, attributes, values, address);
  }
  if (result != 0) return result == kInvalidValue || result == kNotInitialized ? kHosts : kUnclear;
  if (managed == 0 && type == kUnregistered) return kHosts;
  if (managed == 0 && type != kHost && type != kDevice) return kUnclear;
  // Memory on the host that belongs to no context has been mapped by the program, or is from a pool: whether the host
  // has access to it, too, is not said.
  if (managed == 0 && type == kHost && context == nullptr) return kUnclear;
  context = context == not_said ? nullptr : context;
  const Memory memory = managed != 0 ? Memory::kManaged : type == kHost ? Memory::kPinned : Memory::kDevice;
  return {memory,
          Api::kCuda,
          context,
          ordinal < 0 ? -1 : ordinal,
          reinterpret_cast<uintptr_t>(base),
          bytes,
          context == nullptr,
          synchronous != 0 && context != nullptr};
}

/// ROCr rather than HIP: every HIP function initialises the runtime, ROCr's say that it is not initialised.
Said ask_hsa(uintptr_t address) {
  hip::HsaPointerInfo* ask_runtime = hsa_pointer_info.load(std::memory_order_relaxed);
  hip::HsaAgentInfo* ask_agent = hsa_agent_info.load(std::memory_order_relaxed);
  if (ask_runtime == nullptr || ask_agent == nullptr) return kUnclear;
  hip::HsaInfo info = {};
  info.bytes = sizeof(info);
  Said said = kHosts;
  const int result = ask_runtime(reinterpret_cast<const void*>(address), &info, nullptr, nullptr, nullptr);
  if (result != 0) return result == hip::kHsaNotInitialized ? said : kUnclear;
  if (info.type == hip::kHsaUnknown) return said;
  said.api = Api::kHip;
  said.memory = Memory::kPinned;
  said.bytes = info.allocation_bytes;
  if (info.type == hip::kHsaLocked) {
    said.base = reinterpret_cast<uintptr_t>(info.host_address);
    return said;
  }
  said.base = reinterpret_cast<uintptr_t>(info.agent_address);
  said.mapped = info.type >= hip::kHsaReserved;
  int device = -1;
  if (ask_agent(info.owner, hip::kHsaAgentDevice, &device) != 0) return kUnclear;
  if (device != hip::kHsaCpu) said.memory = Memory::kDevice;
  return said;
}

}  // namespace

uint64_t runtimes() {
  uint64_t loaded = loads::count();
  const uint64_t state = known_state.load(std::memory_order_acquire);
  uint64_t bits = state & ((1 << kRuntimeBits) - 1);
  if (state >> kRuntimeBits != loaded) {
    Scan scan = {};
    dl_iterate_phdr(visit, &scan);
    for (unsigned i = 0; i < kAsked; ++i)  // there already; stays loaded with this
      if (scan.paths[i][0] != 0 && libraries[i].load(std::memory_order_relaxed) == nullptr)
        libraries[i].store(dlopen(scan.paths[i], RTLD_LAZY | RTLD_NOLOAD), std::memory_order_relaxed);
    find(cuda_attributes, library_of(kCudaRuntime), "cuPointerGetAttributes");
    // HIP's library needs ROCr's, so that it is found through either.
    for (const Runtime runtime : {kHsaRuntime, kHipRuntime}) {
      find(hsa_pointer_info, library_of(runtime), "hsa_amd_pointer_info");
      find(hsa_agent_info, library_of(runtime), "hsa_agent_get_info");
    }
    if (hsa_pointer_info.load(std::memory_order_relaxed) != nullptr) scan.bits |= kHsaRuntime;
    if ((scan.level_zero_driver || (scan.level_zero_loader && level_zero_any_driver())) &&
        level_zero_device(runtimes_detail::root))
      scan.bits |= kOtherRuntime;
    bits = scan.bits;
    known_state.store(scan.loaded << kRuntimeBits | bits, std::memory_order_release);
    loads::learn(scan.loaded);
    loaded = scan.loaded;
  }
  if (bits == 0) __atomic_store_n(&runtimes_detail::absent_until, loaded, __ATOMIC_RELAXED);
  if (loads::found() == nullptr) runtimes_detail::absent_at = bits == 0 ? ticks() : 0;
  return bits;
}

void* runtime_library(Runtime runtime) { return runtime < 1 << kAsked ? library_of(runtime) : nullptr; }

Said ask_runtimes(uint64_t present, uintptr_t address) {
  Said said = kHosts;
  if ((present & kCudaRuntime) != 0) {
    cuda::PointerGetAttributes* ask_driver = cuda_attributes.load(std::memory_order_relaxed);
    said = ask_driver != nullptr ? ask_cuda(ask_driver, address) : kUnclear;
    if (!is_host(said.memory)) return said;
  }
  if ((present & (kHsaRuntime | kHipRuntime)) != 0) {
    const Said other = ask_hsa(address);
    if (!is_host(other.memory) || said.memory == Memory::kHost) said = other;
    if (!is_host(said.memory)) return said;
  }
  if ((present & kOtherRuntime) != 0 && said.memory == Memory::kHost) said.memory = Memory::kForeign;
  return said;
}

}  // namespace resil::gpu
