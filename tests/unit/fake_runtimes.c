// SPDX-License-Identifier: Apache-2.0
//
// Accelerator runtimes for host_memory_test: the functions that tell memory apart, over ranges that the test sets.
// Built as libcuda.so.1, libhsa-runtime64.so.1, libamdhip64.so.1, libze_loader.so.1 and libze_intel_gpu.so.1.

#include <stdint.h>

struct Fake {
  uintptr_t low, high;  ///< memory that the runtime knows
  int kind;  ///< what it says about it
  int initialized;
  int error;  ///< instead of an answer
  int calls;
};

struct Fake fake_runtime;

static inline int known(uintptr_t address) { return address >= fake_runtime.low && address < fake_runtime.high; }

#ifdef FAKE_CUDA
enum { kNotInitialized = 3, kContext = 1, kMemoryType = 2, kIsManaged = 8, kManaged = 16, kNobodys = 32 };

/// `kind`: CU_MEMORYTYPE_, with kManaged added; with kNobodys, too: it says that the memory belongs to no context.
int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, uint64_t address) {
  fake_runtime.calls++;
  if (!fake_runtime.initialized) return kNotInitialized;
  if (fake_runtime.error) return fake_runtime.error;
  int kind = known(address) ? fake_runtime.kind : 0;
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] == kMemoryType) *(unsigned*)values[i] = (unsigned)(kind % kManaged);
    if (attributes[i] == kIsManaged) *(int*)values[i] = (kind & kManaged) != 0;
    if (attributes[i] == kContext && (kind & kNobodys) != 0) *(void**)values[i] = 0;
  }
  return 0;
}
#endif

#ifdef FAKE_HSA
struct PointerInfo {
  uint32_t size;
  int type;
  void *agent, *host;
  uint64_t bytes;
  void* user;
  uint64_t owner;
  uint32_t flags;
  _Bool registered;
};
enum { kNotInitialized = 0x100B, kAllocated = 1, kLocked = 2, kDeviceInfo = 17, kCpuAgent = 100, kGpuAgent = 101 };

/// `kind`: 0 a processor's memory, 1 a device's, 2 locked.
int hsa_amd_pointer_info(const void* address, struct PointerInfo* info, void* allocate, uint32_t* count, void* agents) {
  (void)allocate, (void)count, (void)agents;
  fake_runtime.calls++;
  if (!fake_runtime.initialized) return kNotInitialized;
  if (info->size < 48) return 0x1001;
  info->type = !known((uintptr_t)address) ? 0 : fake_runtime.kind == 2 ? kLocked : kAllocated;
  info->owner = fake_runtime.kind == 0 ? kCpuAgent : kGpuAgent;
  return 0;
}

int hsa_agent_get_info(uint64_t agent, int attribute, int* value) {
  if (attribute != kDeviceInfo) return 0x1001;
  *value = agent == kGpuAgent;
  return 0;
}
#endif

#ifdef FAKE_HIP
/// Every HIP function initialises the runtime.
int hipPointerGetAttributes(void* attributes, const void* address) {
  (void)attributes, (void)address;
  fake_runtime.calls++;
  fake_runtime.initialized = 1;
  return 0;
}
#endif
