// SPDX-License-Identifier: Apache-2.0
//
// Whose call is it? Classifies the object that a call comes from, finds the application behind a language binding,
// and keeps the list of object files with call sites. First call from an address only; uses the dynamic loader.

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"

namespace resil {

namespace {

struct Object {
  uint64_t start, end, bias;
  const char* path;
};

/// The mapped object that holds `address`. Its extent is read from its program headers.
bool find_object(uint64_t address, Object* object) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr)
    return false;
  auto* header = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  auto* segments = reinterpret_cast<const ElfW(Phdr)*>(reinterpret_cast<const char*>(header) + header->e_phoff);
  object->start = reinterpret_cast<uint64_t>(info.dli_fbase);
  object->end = object->start;
  object->bias = map->l_addr;
  for (unsigned i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD && map->l_addr + segments[i].p_vaddr + segments[i].p_memsz > object->end)
      object->end = map->l_addr + segments[i].p_vaddr + segments[i].p_memsz;
  object->path = map->l_name[0] != 0 ? map->l_name : runtime.header->executable;
  return true;
}

/// Does the object itself (not one that it depends on) define the symbol?
bool defines(void* handle, const Object& object, const char* symbol) {
  auto address = reinterpret_cast<uint64_t>(dlsym(handle, symbol));
  return address >= object.start && address < object.end;
}

SiteClass classify(const Object& object) {
  const char* base = strrchr(object.path, '/');
  base = base != nullptr ? base + 1 : object.path;
  if (strncmp(base, "mca_", 4) == 0)
    return SiteClass::kInternal;  // Open MPI's plug-ins (ROMIO among them) define no MPI function themselves
  if (strcmp(object.path, runtime.header->executable) == 0) return SiteClass::kApplication;
  void* handle = dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return SiteClass::kApplication;
  SiteClass kind = SiteClass::kApplication;
  for (const char* symbol :
       {"mpi_init_", "mpi_init__", "mpi_init", "MPI_INIT", "mpi_init_f08_", "ompi_init_f", "_ZN3MPI4InitEv"})
    if (defines(handle, object, symbol)) kind = SiteClass::kBinding;
  if (kind == SiteClass::kApplication && defines(handle, object, "PMPI_Init")) kind = SiteClass::kInternal;
  if (kind == SiteClass::kApplication && defines(handle, object, "MPI_Init"))
    kind = SiteClass::kBinding;  // another tool above resil: the application is its caller
  dlclose(handle);
  return kind;
}

SpinLock modules_lock;

/// Adds the object to the ring's list once; the list is what offline symbolisation has.
void remember_module(const Object& object) {
  SpinGuard guard(modules_lock);  // two threads would fill one place
  for (uint32_t i = 0; i < runtime.module_count; ++i) {
    ring::Module& module = runtime.modules[i];
    uint64_t start = __atomic_load_n(&module.start, __ATOMIC_ACQUIRE);
    if (start == object.start) return;
    if (start != 0) continue;
    module.end = object.end;
    module.base = object.bias;
    strncpy(module.path, object.path, sizeof(module.path) - 1);
    __atomic_store_n(&module.start, object.start, __ATOMIC_RELEASE);
    return;
  }
}

// What is known of the process's objects, so that a miss in a thread's cache costs no trip to the dynamic loader.
// Append-only and lock-free; an object unloaded and another mapped in its place would be taken for the first.
constexpr unsigned kKnownObjects = 128;
struct KnownObject {
  std::atomic<uint64_t> start;
  uint64_t end = 0;
  SiteClass kind = SiteClass::kUnknown;
};
constinit KnownObject known_objects[kKnownObjects];
std::atomic<unsigned> known_count;

SiteClass class_of(uint64_t address) {
  unsigned count = known_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count && i < kKnownObjects; ++i) {
    uint64_t start = known_objects[i].start.load(std::memory_order_acquire);
    if (start != 0 && address >= start && address < known_objects[i].end) return known_objects[i].kind;
  }
  Object object;
  if (!find_object(address, &object)) return SiteClass::kApplication;  // generated code: nobody's library
  SiteClass kind = classify(object);
  if (kind != SiteClass::kInternal) remember_module(object);
  unsigned index = known_count.fetch_add(1);
  if (index < kKnownObjects) {
    known_objects[index].end = object.end;
    known_objects[index].kind = kind;
    known_objects[index].start.store(object.start, std::memory_order_release);
  } else {
    known_count.store(kKnownObjects);
  }
  return kind;
}

// Call sites inside bindings: finding their caller takes an unwind, so it is kept for all threads.
constexpr unsigned kBindingSites = 2048;
struct BindingSite {
  std::atomic<uint64_t> key;
  std::atomic<bool> claimed, ready;
  SiteEntry entry{};
};
constinit BindingSite binding_sites[kBindingSites];

BindingSite* binding_site(uint64_t return_address) {
  for (unsigned probe = 0; probe < 16; ++probe) {
    BindingSite& site = binding_sites[((return_address * 0x9e3779b97f4a7c15 >> 40) + probe) % kBindingSites];
    uint64_t key = 0;
    if (site.key.compare_exchange_strong(key, return_address) || key == return_address) return &site;
  }
  return nullptr;
}

struct BindingWalk {
  uint64_t wanted;  // return address in the binding
  uint64_t caller;  // the first application frame above it
  uint64_t caller_frame;
  Object caller_object;
  bool seen;
  int frames;
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* data) {
  auto* walk = static_cast<BindingWalk*>(data);
  uint64_t pc = _Unwind_GetIP(context);
  if (++walk->frames > 64) return _URC_END_OF_STACK;
  if (!walk->seen) {
    walk->seen = pc == walk->wanted;
    return _URC_NO_REASON;
  }
  if (class_of(pc) != SiteClass::kApplication) return _URC_NO_REASON;
  if (!find_object(pc, &walk->caller_object)) return _URC_END_OF_STACK;
  walk->caller = pc;
  walk->caller_frame = _Unwind_GetCFA(context);
  return _URC_END_OF_STACK;
}

/// Where, above the wrapper's frame, the application's return address into its own code lies. 0: not found.
uint32_t binding_offset(SiteEntry& entry, uint64_t frame) {
  BindingWalk walk = {};
  walk.wanted = entry.return_address;
  _Unwind_Backtrace(visit_frame, &walk);
  if (walk.caller == 0) return 0;
  entry.module_start = walk.caller_object.start;
  entry.module_end = walk.caller_object.end;
  remember_module(walk.caller_object);
  // The return address lies just below the caller's canonical frame address (x86-64; elsewhere the check decides).
  uint64_t offset = walk.caller_frame - sizeof(void*) - frame;
  return offset < (1u << 20) && *reinterpret_cast<const uint64_t*>(frame + offset) == walk.caller
             ? static_cast<uint32_t>(offset)
             : 0;
}

}  // namespace

SiteEntry& site_resolve(Thread& thread, uint64_t return_address, uint64_t frame) {
  SiteEntry& entry = thread.sites[site_place(return_address)];
  SiteEntry fresh = {};
  fresh.return_address = return_address;
  fresh.kind = class_of(return_address);
  fresh.special = fresh.kind != SiteClass::kApplication;
  if (fresh.kind == SiteClass::kBinding) {
    BindingSite* shared = binding_site(return_address);
    if (shared != nullptr && shared->ready.load(std::memory_order_acquire)) {
      fresh = shared->entry;
    } else {
      fresh.offset = binding_offset(fresh, frame);
      if (shared != nullptr && !shared->claimed.exchange(true)) {
        shared->entry = fresh;
        shared->ready.store(true, std::memory_order_release);
      }
    }
  }
  entry = fresh;
  return entry;
}

}  // namespace resil
