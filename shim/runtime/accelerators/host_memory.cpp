// SPDX-License-Identifier: Apache-2.0
//
// See host_memory.h. The ranges that are certainly the host's are found here; about others the accelerator runtimes in
// the process are asked (runtimes.h).

#include "shim/runtime/accelerators/host_memory.h"

#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iterator>

#include "shim/base/text_file.h"
#include "shim/runtime/accelerators/runtimes.h"

namespace resil {

namespace host_memory_detail {

constinit thread_local Range stack __attribute__((tls_model("initial-exec"))) = {};
constinit Range data = {}, heap = {};

namespace {

// --- Which memory is certainly the host's ---

/// The kernel keeps 128 MiB below the top of the first thread's stack free of other mappings.
constexpr size_t kMainStack = size_t{64} << 20;
constexpr uintptr_t kPage = 4096;

void find_stack() {
  if (gettid() == getpid()) {
    // The kernel put these bytes above all frames, arguments and the environment.
    const uintptr_t high = (getauxval(AT_RANDOM) + kPage - 1) & ~(kPage - 1);
    if (high < kMainStack) return;
    stack.set(high - kMainStack, high);
    return;
  }
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
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

/// Where the brk heap begins: only the kernel knows, behind the program at a random distance. 0: there is none.
uintptr_t heap_start() {
  TextFileLines lines("/proc/self/maps");
  while (const char* line = lines.next())
    if (Mapping mapping; read_mapping(line, &mapping) && strcmp(mapping.path, "[heap]") == 0) return mapping.low;
  return 0;
}

std::atomic<uintptr_t> heap_end_asked;  ///< end of the heap when its start was last looked for

constexpr uintptr_t kMostHeap = uintptr_t{1} << 40;  ///< what lies farther from its start is not in it

void learn_ranges(uintptr_t address) {
  if (stack.high == 0) find_stack();
  if (__atomic_load_n(&data.high, __ATOMIC_RELAXED) == 0) dl_iterate_phdr(visit_program, nullptr);
  uintptr_t start = __atomic_load_n(&heap.low, __ATOMIC_RELAXED);
  if (start != 0 && address - start >= kMostHeap) return;  // with UCX's hooks sbrk takes a system call, 0.3 us
  const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
  if (start == 0 && heap_end_asked.exchange(end, std::memory_order_relaxed) != end) start = heap_start();
  if (start != 0 && __atomic_load_n(&heap.high, __ATOMIC_RELAXED) != end) heap.set(start, end);
}

constinit Range own[64] = {};
std::atomic<uint32_t> own_count;

bool certain(const void* address, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (heap.holds(at, bytes) || stack.holds(at, bytes) || data.holds(at, bytes)) return true;
  const uint32_t count = own_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i)
    if (own[i].holds(at, bytes)) return true;
  return false;
}

/// The runtimes (gpu::Runtime bits) that must be asked about the buffer; 0: it is certainly the host's.
uint64_t to_ask(const void* address, size_t bytes) {
  if (bytes == 0 || gpu::runtimes_absent()) return 0;
  learn_ranges(reinterpret_cast<uintptr_t>(address));
  const uint64_t present = gpu::runtimes();
  return present == 0 || certain(address, bytes) ? 0 : present;
}

/// What they say. `present`: of to_ask(), not 0.
gpu::Said said_of(uint64_t present, const void* address, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(address);
  gpu::Said said = gpu::ask_runtimes(present, first);
  if (bytes > 1 && gpu::is_host(said.memory) && !gpu::is_host(gpu::ask_runtimes(present, first + (bytes - 1)).memory))
    said.memory = gpu::Memory::kForeign;
  return said;
}

}  // namespace

bool ask(const void* address, size_t bytes) {
  const uint64_t present = to_ask(address, bytes);
  return present == 0 || gpu::is_host(said_of(present, address, bytes).memory);
}

}  // namespace host_memory_detail

bool host_memory_certain(const void* address, size_t bytes) { return host_memory_detail::to_ask(address, bytes) == 0; }

gpu::Said whose_memory(const void* address, size_t bytes) {
  const uint64_t present = host_memory_detail::to_ask(address, bytes);
  return present == 0 ? gpu::kHosts : host_memory_detail::said_of(present, address, bytes);
}

void host_memory_add(const void* memory, size_t bytes) {
  using namespace host_memory_detail;
  const uint32_t count = own_count.load(std::memory_order_relaxed);
  if (count == std::size(own)) return;
  const auto low = reinterpret_cast<uintptr_t>(memory);
  own[count].set(low, low + bytes);
  own_count.store(count + 1, std::memory_order_release);
}

}  // namespace resil
