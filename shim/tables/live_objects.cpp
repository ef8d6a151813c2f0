// SPDX-License-Identifier: Apache-2.0
//
// See live_objects.h. Open addressing with linear probing, at most half full; an entry that goes makes those behind it
// move up, so that objects made and freed millions of times leave nothing behind.

#include "shim/tables/live_objects.h"

#include <dlfcn.h>
#include <link.h>

#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/call/thread.h"
#include "shim/runtime/memory.h"

namespace resil {

constinit thread_local ObjectCall::Open ObjectCall::open = {};

namespace {

constexpr uint32_t kFirstRoom = 1024, kMostRoom = 2 * kMostObjects;

SpinLock lock;
LiveObject* table;
uint32_t room, used;  // `room`: a power of two, or 0
uint64_t beyond;  // made when there was no place

uint32_t place_of(MpiObject kind, uint64_t handle) {
  return static_cast<uint32_t>(hash_combine(handle, static_cast<uint64_t>(kind))) & (room - 1);
}

/// Its entry, or the empty one where it belongs.
uint32_t find(MpiObject kind, uint64_t handle) {
  uint32_t i = place_of(kind, handle);
  while (table[i].kind != MpiObject::kNone && (table[i].handle != handle || table[i].kind != kind))
    i = (i + 1) & (room - 1);
  return i;
}

void remove(uint32_t hole) {
  for (uint32_t i = (hole + 1) & (room - 1); table[i].kind != MpiObject::kNone; i = (i + 1) & (room - 1)) {
    const uint32_t home = place_of(table[i].kind, table[i].handle);
    if (((i - home) & (room - 1)) < ((i - hole) & (room - 1))) continue;  // it is not looked for across the hole
    table[hole] = table[i];
    hole = i;
  }
  table[hole] = {};
  __atomic_store_n(&used, used - 1, __ATOMIC_RELAXED);  // add() looks at it before it has the lock
}

/// The system is asked outside the lock.
void grow() {
  const uint32_t had = __atomic_load_n(&room, __ATOMIC_RELAXED), wanted = had != 0 ? 2 * had : kFirstRoom;
  if (wanted > kMostRoom) return;
  LiveObject* larger = memory::map_array<LiveObject>(wanted);
  if (larger == nullptr) return;
  LiveObject* old = larger;
  uint32_t old_room = wanted;
  {
    SpinGuard guard(lock);
    if (room == had) {
      old = table, old_room = room;
      table = larger, room = wanted;
      for (uint32_t i = 0; i < old_room; ++i)
        if (old[i].kind != MpiObject::kNone) table[find(old[i].kind, old[i].handle)] = old[i];
    }
  }
  memory::unmap_array(old, old_room);
}

void add(const LiveObject& object) {
  if (2 * __atomic_load_n(&used, __ATOMIC_RELAXED) >= __atomic_load_n(&room, __ATOMIC_RELAXED)) [[unlikely]]
    grow();
  SpinGuard guard(lock);
  if (room == 0) {
    ++beyond;
    return;
  }
  LiveObject& entry = table[find(object.kind, object.handle)];
  if (entry.kind != MpiObject::kNone) {
    const uint32_t count = is_shared_by_handle(object.kind) ? entry.count + object.count : object.count;
    entry = object;
    entry.count = count;
  } else if (2 * used >= room) {
    ++beyond;
  } else {
    entry = object;
    __atomic_store_n(&used, used + 1, __ATOMIC_RELAXED);
  }
}

LiveObject take(MpiObject kind, uint64_t handle) {
  SpinGuard guard(lock);
  if (used == 0) return {};
  const uint32_t i = find(kind, handle);
  LiveObject was = table[i];
  if (was.kind == MpiObject::kNone) return {};
  if (was.count > 1) --table[i].count;
  else remove(i);
  was.count = 1;
  return was;
}

/// Whether the call is the program's to be looked at; `site`: where.
bool is_programs(const ObjectCall& call, uint64_t return_address, uint64_t frame, bool frees, uint64_t* site) {
  Thread* thread = current_thread;
  if (thread == nullptr || thread->disabled) return false;
  SiteEntry& entry = site_lookup(*thread, return_address, frame);
  *site = return_address;
  if (entry.kind == SiteClass::kInternal) return false;
  if (entry.kind == SiteClass::kApplication) return true;
  *site = site_address(entry, frame);
  // Inside MPI a binding stands for a callback of the program's, or for a tool that carries the call on. A handle that
  // is freed there is freed.
  return !call.nested && (frees || thread->depth == 0);
}

struct Image {
  uint64_t start, end;
};
Image images[3];

void learn_image(Image& image, const void* address) {
  Dl_info info;
  link_map* map = nullptr;
  if (address == nullptr || dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr || info.dli_fbase == nullptr)
    return;
  const auto* header = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(reinterpret_cast<const char*>(header) + header->e_phoff);
  image.start = reinterpret_cast<uint64_t>(info.dli_fbase);
  image.end = image.start;
  for (unsigned i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD && map->l_addr + segments[i].p_vaddr + segments[i].p_memsz > image.end)
      image.end = map->l_addr + segments[i].p_vaddr + segments[i].p_memsz;
}

int learn_executable(dl_phdr_info* info, size_t, void* image) {
  auto& range = *static_cast<Image*>(image);
  range = {~uint64_t{0}, 0};
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uint64_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = start + info->dlpi_phdr[i].p_memsz;
    range = {start < range.start ? start : range.start, end > range.end ? end : range.end};
  }
  return 1;  // the first one is the executable
}

}  // namespace

void object_made_at(MpiObject kind, uint64_t handle, CallId id, uint64_t site) {
  add({handle, site, 1, static_cast<uint16_t>(id), kind});
}

void object_made(const ObjectCall& call, MpiObject kind, uint64_t handle, CallId id, uint64_t return_address,
                 uint64_t frame) {
  uint64_t site = 0;
  if (is_programs(call, return_address, frame, false, &site)) object_made_at(kind, handle, id, site);
}

LiveObject object_freed(const ObjectCall& call, MpiObject kind, uint64_t handle, uint64_t return_address,
                        uint64_t frame) {
  uint64_t site = 0;
  if (!is_programs(call, return_address, frame, true, &site)) return {};
  if (kind == MpiObject::kCommunicator || kind == MpiObject::kSession)
    take(MpiObject::kBuffer, handle);  // detached with it
  return take(kind, handle);
}

void object_kept(const LiveObject& was) {
  if (was.kind != MpiObject::kNone) add(was);
}

void objects_learn_library() {
  learn_image(images[0], next_functions[kCallCount + static_cast<unsigned>(CallId::kMPI_Finalize)]);
  learn_image(images[1], reinterpret_cast<const void*>(backend->comm_null()));
  dl_iterate_phdr(learn_executable, &images[2]);
}

bool is_static_object(uint64_t handle) {
  for (const Image& image : images)
    if (handle >= image.start && handle < image.end) return true;
  return handle < 4096;
}

bool is_made_type(uint64_t type) {
  TypeContents contents = {};
  return backend->types->decode(type, nullptr, 0, &contents) != Decoded::kFailed && !is_predefined(contents.combiner);
}

uint64_t objects_visit(void (*visit)(const LiveObject&, void* context), void* context) {
  SpinGuard guard(lock);
  for (uint32_t i = 0; i < room; ++i)
    if (table[i].kind != MpiObject::kNone) visit(table[i], context);
  return beyond;
}

void objects_forget() {
  SpinGuard guard(lock);
  for (uint32_t i = 0; i < room; ++i) table[i] = {};
  used = 0;
  beyond = 0;
}

}  // namespace resil
