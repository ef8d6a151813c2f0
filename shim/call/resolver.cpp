// SPDX-License-Identifier: Apache-2.0
//
// Finds the MPI that is already in the process, picks the backend by symbols, fills every trampoline slot once.
// Runs on the first MPI call of the process, on that caller's thread; may use the dynamic loader.

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/next.h"
#include "shim/call/objects.h"
#include "shim/call/resolver.h"
#include "shim/messages.h"
#include "shim/report/log.h"

extern "C" {
extern void* resil_slots[];
__attribute__((visibility("hidden"))) void* resil_resolve(unsigned slot, const uint64_t* arguments,
                                                          void* return_address);
}

namespace resil {

const Backend* backend;
void* next_functions[2 * kCallCount];

namespace {

// Of the library found when RTLD_NEXT does not reach it; null: RTLD_NEXT does. While the slots are being filled it may
// be the caller's, in whose dependencies the library was found.
void* mpi_handle;

/// Objects whose functions the slots hold. They stay loaded: who has called through a slot may close the MPI and load
/// it again, and the slots would lead nowhere.
struct Kept {
  Extent extents[8];
  unsigned count;
} kept;

/// As foreign(); what defines it stays loaded. Of a thousand names: the loader is asked once an object.
void* foreign_kept(void* handle, const char* name) {
  void* function = foreign(handle, name);
  const auto address = reinterpret_cast<uint64_t>(function);
  if (function == nullptr) return nullptr;
  for (unsigned i = 0; i < kept.count; ++i) {
    if (kept.extents[i].holds(address)) return function;
  }
  Extent extent;
  if (!extent_of(address, &extent)) return nullptr;
  if (kept.count < sizeof(kept.extents) / sizeof(kept.extents[0])) {
    kept.extents[kept.count++] = extent;
    if (extent.path[0] != 0) static_cast<void>(dlopen(extent.path, RTLD_LAZY | RTLD_NOLOAD));
  }
  return function;
}

struct Walk {
  void* handles[8];
  unsigned found;
  const void* addresses[8];
};

/// False: this object certainly defines no PMPI_Init, by the Bloom filter of its hash table. Asking the loader about
/// each of a hundred objects searches all that they depend on as well. Inside dl_iterate_phdr, where none is unloaded.
bool may_define_mpi(const dl_phdr_info& info) {
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  while (entry != nullptr && entry->d_tag != DT_NULL && entry->d_tag != DT_GNU_HASH) ++entry;
  if (entry == nullptr || entry->d_tag == DT_NULL) return true;
  // The loader has made an address of it, but for objects whose dynamic section is not writable (the vdso).
  const auto* table = reinterpret_cast<const uint32_t*>(
      entry->d_un.d_ptr < info.dlpi_addr ? info.dlpi_addr + entry->d_un.d_ptr : entry->d_un.d_ptr);
  const uint32_t words = table[2], shift = table[3];
  const auto* filter = reinterpret_cast<const ElfW(Addr)*>(table + 4);
  constexpr uint32_t kBits = 8 * sizeof(ElfW(Addr));
  uint32_t hash = 5381;
  for (const char* c = "PMPI_Init"; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const ElfW(Addr) both = ElfW(Addr){1} << (hash % kBits) | ElfW(Addr){1} << ((hash >> shift) % kBits);
  return words == 0 || (filter[hash / kBits % words] & both) == both;
}

/// Collects the objects that themselves define PMPI_Init: the MPI libraries of this process.
int visit_object(dl_phdr_info* info, size_t, void* data) {
  auto* walk = static_cast<Walk*>(data);
  if (info->dlpi_name == nullptr || info->dlpi_name[0] == 0 || walk->found == 8 || !may_define_mpi(*info)) return 0;
  void* handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  const void* address = foreign(handle, "PMPI_Init");
  bool known = address == nullptr;
  for (unsigned i = 0; i < walk->found; ++i) known = known || walk->addresses[i] == address;
  if (known) {
    dlclose(handle);
  } else {
    walk->addresses[walk->found] = address;
    walk->handles[walk->found++] = handle;
  }
  return 0;
}

bool find_mpi(void* return_address) {
  if (foreign(RTLD_NEXT, "PMPI_Init") != nullptr) return true;
  // Loaded out of the global scope (RTLD_LOCAL: Python, plug-ins): through the caller's own dependencies.
  Dl_info info;
  if (dladdr(return_address, &info) != 0 && info.dli_fname != nullptr) {
    mpi_handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (mpi_handle != nullptr && foreign(mpi_handle, "PMPI_Init") != nullptr) return true;
  }
  mpi_handle = nullptr;
  Walk walk = {};
  dl_iterate_phdr(visit_object, &walk);
  if (walk.found == 0) return false;
  mpi_handle = walk.handles[0];
  return true;
}

/// Next definition of a function: behind this library in the global order, else in the MPI library found.
void* lookup_function(const char* name) { return foreign_kept(mpi_handle != nullptr ? mpi_handle : RTLD_NEXT, name); }

/// The caller may be a plug-in, which is the program's to unload: from here on the MPI library stands for it.
void let_caller_go() {
  if (mpi_handle == nullptr) return;
  void* init = dlsym(mpi_handle, "PMPI_Init");
  Dl_info info;
  void* library = init != nullptr && dladdr(init, &info) != 0 && info.dli_fname != nullptr
                      ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                      : nullptr;
  if (library == nullptr) return;
  dlclose(mpi_handle);
  mpi_handle = library;
}

/// Data of the MPI library. An executable may hold the live copy (copy relocation), so the global scope comes first.
void* lookup_data(const char* name) {
  void* address = dlsym(RTLD_DEFAULT, name);
  return address != nullptr ? address : mpi_handle != nullptr ? dlsym(mpi_handle, name) : nullptr;
}

/// Null: none that is known.
const Backend* choose_backend() {
  if (auto* abi = reinterpret_cast<int (*)(int*, int*)>(lookup_function("PMPI_Abi_get_version"))) {
    int major = -1, minor = -1;
    if (abi(&major, &minor) == 0 && major > 0) return major == 1 ? standard_backend() : nullptr;
  }
  if (lookup_data("ompi_mpi_comm_world") != nullptr) return openmpi_backend();
  // Data that programs of the MPICH ABI refer to, so that all of its family have it, whatever else they hide.
  return lookup_data("MPI_UNWEIGHTED") != nullptr || lookup_data("MPIR_Dup_fn") != nullptr ? mpich_backend() : nullptr;
}

const char* mpi_library_name() {
  Dl_info info;
  void* init = lookup_function("PMPI_Init");
  return init != nullptr && dladdr(init, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "it";
}

/// Where no MPI can be found a call cannot be answered; MPI's own errors are fatal by default, and so is this one.
[[noreturn]] void no_mpi() {
  log_line(messages::core::no_mpi);
  _exit(127);
}

void fill_slots() {
  const bool on = mode_is_on();
  for (unsigned layer = 0; layer < 2; ++layer) {
    for (unsigned id = 0; id < kCallCount; ++id) {
      char name[64] = "P";
      strncat(name, kCallInfo[id].name, sizeof(name) - 2);
      void* next = lookup_function(layer == 0 ? name + 1 : name);
      if (next == nullptr && layer == 1)  // a tool may define MPI_X only
        next = next_functions[id];
      next_functions[layer * kCallCount + id] = next != nullptr ? next : backend->fallbacks[id];
    }
  }
  for (unsigned slot = 0; slot < 2 * kCallCount; ++slot) {
    void* target = on ? backend->wrappers[slot / kCallCount][slot % kCallCount] : next_functions[slot];
    __atomic_store_n(&resil_slots[slot], target, __ATOMIC_RELEASE);
  }
}

std::atomic<int> resolved;  // 0 no, 1 being done, 2 done

int says_no(int* flag) {
  *flag = 0;
  return 0;
}

/// What may be asked where there is no MPI: a library with weak references finds this one's names, and takes them for
/// an MPI's. Null: no answer.
void* without_mpi(unsigned slot) {
  const unsigned id = slot % kCallCount;
  const bool asks =
      id == static_cast<unsigned>(CallId::kMPI_Initialized) || id == static_cast<unsigned>(CallId::kMPI_Finalized);
  return asks ? reinterpret_cast<void*>(says_no) : nullptr;
}

}  // namespace

void use_threaded_wrappers() {
  for (unsigned layer = 0; layer < 2; ++layer)
    for (unsigned i = 0; i < backend->threaded_count; ++i) {
      const ThreadedWrapper& other = backend->threaded[layer][i];
      const auto id = static_cast<unsigned>(other.id);
      void*& slot = resil_slots[layer * kCallCount + id];
      if (__atomic_load_n(&slot, __ATOMIC_RELAXED) == backend->wrappers[layer][id])
        __atomic_store_n(&slot, other.function, __ATOMIC_RELEASE);
    }
}

void* mpi_function(const char* name) { return lookup_function(name); }

unsigned count_mpi_libraries() {
  Walk walk = {};
  dl_iterate_phdr(visit_object, &walk);
  for (unsigned i = 0; i < walk.found; ++i) dlclose(walk.handles[i]);
  return walk.found;
}

}  // namespace resil

// Called from the lazy stub, with the application's arguments kept by it. Threads that come while another one fills
// the slots wait for it: there is nothing yet that they could call.
void* resil_resolve(unsigned slot, const uint64_t*, void* return_address) {
  using namespace resil;
  while (resolved.load(std::memory_order_acquire) != 2) {
    if (int expected = 0; !resolved.compare_exchange_strong(expected, 1)) {
      sched_yield();
      continue;
    }
    if (!find_mpi(return_address)) {
      if (void* answer = without_mpi(slot); answer != nullptr) {  // the program may load one later
        resolved.store(0, std::memory_order_release);
        return answer;
      }
      no_mpi();
    }
    const Backend* chosen = choose_backend();
    if (chosen == nullptr || !chosen->bind(lookup_data)) {
      mode_switch_off(mpi_library_name());
      chosen = openmpi_backend();  // for names that this MPI lacks; it passes handles on in full width
    }
    backend = chosen;
    fill_slots();
    let_caller_go();
    resolved.store(2, std::memory_order_release);
  }
  return __atomic_load_n(&resil_slots[slot], __ATOMIC_ACQUIRE);
}
