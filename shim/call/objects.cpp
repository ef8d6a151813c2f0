// SPDX-License-Identifier: Apache-2.0
//
// The process's objects from which MPI is called: whose code they are, where they lie, and what the ring's list calls
// them; and what changes in it when one is unloaded. Asks the dynamic loader, so neither for the steady call path nor
// for signal handlers.

#include "shim/call/objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/call/resolver.h"
#include "shim/call/runtime.h"

namespace resil {

namespace {

/// As extent_of(), the program by its path.
bool find_object(uint64_t address, Extent* object) {
  if (!extent_of(address, object)) return false;
  if (object->path[0] == 0) object->path = runtime.header->executable;
  return true;
}

/// Does the object itself (not one that it depends on) define the symbol?
bool defines(void* handle, const Extent& object, const char* symbol) {
  return object.holds(reinterpret_cast<uint64_t>(dlsym(handle, symbol)));
}

SiteClass classify(const Extent& object) {
  const char* base = strrchr(object.path, '/');
  base = base != nullptr ? base + 1 : object.path;
  if (strncmp(base, "mca_", 4) == 0)
    return SiteClass::kInternal;  // Open MPI's plug-ins (ROMIO among them) define no MPI function themselves
  if (strcmp(object.path, runtime.header->executable) == 0) return SiteClass::kApplication;
  void* handle = dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return SiteClass::kApplication;
  SiteClass kind = SiteClass::kApplication;
  for (const char* symbol :
       {"mpi_init_", "mpi_init__", "mpi_init", "MPI_INIT", "mpi_init_f08_", "ompi_init_f", "_ZN3MPI4InitEv",
        "__mpi_f08_MOD_mpi_init", "mpi_f08_mp_mpi_init_", "_QMmpi_f08Pmpi_init", "mpi_comm_rank_"})
    if (defines(handle, object, symbol)) kind = SiteClass::kBinding;
  for (const char* symbol : kOfMpi)
    if (kind == SiteClass::kApplication && defines(handle, object, symbol)) kind = SiteClass::kInternal;
  if (kind == SiteClass::kApplication && defines(handle, object, "MPI_Init"))
    kind = SiteClass::kBinding;  // another tool above resil: the application is its caller
  // A tool below resil, whatever it wraps: what it calls has been seen on the way in.
  for (unsigned id = 0; id < kCallCount && kind == SiteClass::kApplication; ++id)
    if (object.holds(reinterpret_cast<uint64_t>(next_functions[id]))) kind = SiteClass::kBinding;
  dlclose(handle);
  return kind;
}

// What is known, so that a miss in a thread's cache costs no trip to the dynamic loader. Read without a lock: `start`
// is written last, and is read once more behind the others.
constexpr unsigned kKnownObjects = 128;
struct KnownObject {
  std::atomic<uint64_t> start, end, shift, path;
  std::atomic<SiteClass> kind;
};
constinit KnownObject known_objects[kKnownObjects];
SpinLock lock;  ///< of whoever changes them, or the ring's list

// Beside the ring's list, entry for entry. A site must name one object for good, as it is read long after the call. So
// an object that lies where another one lay has its sites elsewhere: `shift` bytes further, where no memory is.
struct Listed {
  uint64_t shift;
};
constexpr unsigned kListed = 256;
Listed listed[kListed];
#if defined(__x86_64__)
uint64_t next_elsewhere = 0x8000'0000'0000;  // the kernel's half, of 48 bits
#else
uint64_t next_elsewhere = 0x5000'0000'0000;  // between programs and libraries
#endif

uint64_t hash_of(const char* path) {
  uint64_t hash = 0xcbf29ce484222325;
  for (; *path != 0; ++path) hash = (hash ^ static_cast<unsigned char>(*path)) * 0x100000001b3;
  return hash;
}

/// Adds the object to the ring's list once; the list is what offline symbolisation has. Returns how far away its sites
/// are.
uint64_t list_object(const Extent& object) {
  bool reused = false;
  for (uint32_t i = 0; i < runtime.module_count && i < kListed; ++i) {
    ring::Module& module = runtime.modules[i];
    const uint64_t start = __atomic_load_n(&module.start, __ATOMIC_ACQUIRE);
    const uint64_t real_start = start - listed[i].shift, real_end = module.end - listed[i].shift;
    if (start == 0) {
      const uint64_t shift = reused ? next_elsewhere - object.start : 0;
      if (reused) next_elsewhere += (object.end - object.start + 0x1fff) & ~uint64_t{0xfff};
      listed[i].shift = shift;
      module.end = object.end + shift;
      module.base = object.bias + shift;
      strncpy(module.path, object.path, sizeof(module.path) - 1);
      __atomic_store_n(&module.start, object.start + shift, __ATOMIC_RELEASE);
      return shift;
    }
    const bool same = real_start == object.start && real_end == object.end &&
                      strncmp(module.path, object.path, sizeof(module.path) - 1) == 0;
    if (same) return listed[i].shift;
    reused |= real_start < object.end && object.start < real_end;
  }
  return 0;
}

bool there_still(uint64_t start, uint64_t end, uint64_t path) {
  Extent object;
  return find_object(start, &object) && object.start == start && object.end == end && hash_of(object.path) == path;
}

}  // namespace

bool extent_of(uint64_t address, Extent* extent) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr)
    return false;
  auto* header = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  auto* segments = reinterpret_cast<const ElfW(Phdr)*>(reinterpret_cast<const char*>(header) + header->e_phoff);
  const auto start = reinterpret_cast<uint64_t>(info.dli_fbase);
  *extent = {start, start, map->l_addr, map->l_name};
  for (unsigned i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD && map->l_addr + segments[i].p_vaddr + segments[i].p_memsz > extent->end)
      extent->end = map->l_addr + segments[i].p_vaddr + segments[i].p_memsz;
  return true;
}

std::atomic<uint32_t> objects_unloaded;

CodeObject object_at(uint64_t address) {
  for (KnownObject& known : known_objects) {
    const uint64_t start = known.start.load(std::memory_order_acquire), end = known.end.load(std::memory_order_relaxed);
    if (start == 0 || address < start || address >= end) continue;
    const CodeObject found = {start, end, known.shift.load(std::memory_order_relaxed),
                              known.kind.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (known.start.load(std::memory_order_relaxed) == start) return found;
  }
  Extent object;
  if (!find_object(address, &object)) return {0, 0, 0, SiteClass::kUnknown};
  CodeObject found = {object.start, object.end, 0, classify(object)};
  SpinGuard guard(lock);  // two threads would fill one place
  if (found.kind != SiteClass::kInternal) found.shift = list_object(object);
  for (KnownObject& known : known_objects) {
    const uint64_t start = known.start.load(std::memory_order_relaxed);
    if (start == object.start) break;
    if (start != 0) continue;
    known.end.store(object.end, std::memory_order_relaxed);
    known.shift.store(found.shift, std::memory_order_relaxed);
    known.path.store(hash_of(object.path), std::memory_order_relaxed);
    known.kind.store(found.kind, std::memory_order_relaxed);
    known.start.store(object.start, std::memory_order_release);
    break;
  }
  return found;
}

SiteClass class_of_object_named(const char* name, size_t length) {
  struct Search {
    const char* name;
    size_t length;
    uint64_t address;
  } search = {name, length, 0};
  auto visit = [](dl_phdr_info* info, size_t, void* data) {
    auto* wanted = static_cast<Search*>(data);
    const char* path =
        info->dlpi_name != nullptr && info->dlpi_name[0] != 0 ? info->dlpi_name : runtime.header->executable;
    const char* slash = strrchr(path, '/');
    const char* base = slash != nullptr ? slash + 1 : path;
    if (strlen(base) != wanted->length || memcmp(base, wanted->name, wanted->length) != 0) return 0;
    for (unsigned i = 0; i < info->dlpi_phnum && wanted->address == 0; ++i)
      if (info->dlpi_phdr[i].p_type == PT_LOAD) wanted->address = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    return 1;
  };
  dl_iterate_phdr(visit, &search);
  return search.address != 0 ? object_at(search.address).kind : SiteClass::kUnknown;
}

bool objects_forget_unloaded() {
  bool some = false;
  for (KnownObject& known : known_objects) {
    uint64_t start = known.start.load(std::memory_order_acquire);
    if (start == 0 ||
        there_still(start, known.end.load(std::memory_order_relaxed), known.path.load(std::memory_order_relaxed)))
      continue;
    SpinGuard guard(lock);
    some |= known.start.compare_exchange_strong(start, 0);
  }
  if (some) objects_unloaded.fetch_add(1, std::memory_order_release);
  return some;
}

}  // namespace resil
