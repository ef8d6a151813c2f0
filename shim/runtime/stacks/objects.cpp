// SPDX-License-Identifier: Apache-2.0
//
// Objects: _dl_find_object through dlsym, so that the library needs no symbol version that an older glibc lacks; where
// it is missing, two alternating tables filled by dl_iterate_phdr. May touch: the loader's tables, read only.
#include "shim/runtime/stacks/objects.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "shim/call/runtime.h"

namespace resil::stacks {
namespace {

// struct dl_find_object of glibc 2.35 and later (an older header lacks it). x86-64 has no dbase member; room for it
// elsewhere does no harm.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  link_map* map;
  void* eh_frame;
  void* reserved[9];
};
using FindObject = int (*)(void*, FoundObject*);
FindObject dl_find = nullptr;

// Enough for a large Python program; further objects are unknown on an old glibc.
constexpr uint32_t kObjects = 256;
struct Table {
  uint32_t count;
  Object objects[kObjects];
};
// Two, so that a handler which interrupts the filling of one still reads the other.
Table tables[2];
std::atomic<uint32_t> current_table{0};

int add_object(dl_phdr_info* info, size_t, void* data) {
  auto& table = *static_cast<Table*>(data);
  if (table.count == kObjects) return 1;
  Object object{};
  object.start = ~uint64_t{0};
  object.base = info->dlpi_addr;
  object.name = reinterpret_cast<uint64_t>(info->dlpi_name);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const uint64_t at = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      if (at < object.start) object.start = at;
      if (at + segment.p_memsz > object.end) object.end = at + segment.p_memsz;
    } else if (segment.p_type == PT_DYNAMIC) {
      object.dynamic = at;
    } else if (segment.p_type == PT_GNU_EH_FRAME) {
      object.eh_frame_hdr = at;
    }
  }
  if (object.end != 0) table.objects[table.count++] = object;
  return 0;
}

}  // namespace

void prepare_objects() {
  dl_find = reinterpret_cast<FindObject>(dlsym(RTLD_DEFAULT, "_dl_find_object"));
  if (dl_find != nullptr) return;
  const uint32_t next = 1 - current_table.load(std::memory_order_relaxed);
  tables[next].count = 0;
  dl_iterate_phdr(add_object, &tables[next]);
  current_table.store(next, std::memory_order_release);
}

bool objects_are_live() { return dl_find != nullptr; }

bool find_object(uint64_t address, Object* object) {
  if (dl_find != nullptr) {
    FoundObject found;
    if (dl_find(reinterpret_cast<void*>(address), &found) != 0) return false;
    object->start = reinterpret_cast<uint64_t>(found.map_start);
    object->end = reinterpret_cast<uint64_t>(found.map_end);
    object->eh_frame_hdr = reinterpret_cast<uint64_t>(found.eh_frame);
    object->base = found.map->l_addr;
    object->dynamic = reinterpret_cast<uint64_t>(found.map->l_ld);
    object->name = reinterpret_cast<uint64_t>(found.map->l_name);
    return true;
  }
  const Table& table = tables[current_table.load(std::memory_order_acquire)];
  for (uint32_t i = 0; i < table.count; ++i) {
    if (address >= table.objects[i].start && address < table.objects[i].end) {
      *object = table.objects[i];
      return true;
    }
  }
  return false;
}

void object_path(const Object& object, Reader& reader, char* path, size_t capacity) {
  if (!reader.text(object.name, path, capacity)) path[0] = 0;
  if (path[0] != 0) return;
  const char* executable = runtime.header != nullptr ? runtime.header->executable : "";
  const size_t limit = sizeof(ring::Header::executable);
  size_t length = 0;
  while (length + 1 < capacity && length < limit && executable[length] != 0) {
    path[length] = executable[length];
    ++length;
  }
  if (length == 0) path[length++] = '?';
  path[length] = 0;
}

void forget_find_object_for_tests() {
  dl_find = nullptr;
  const uint32_t next = 1 - current_table.load(std::memory_order_relaxed);
  tables[next].count = 0;
  dl_iterate_phdr(add_object, &tables[next]);
  current_table.store(next, std::memory_order_release);
}

}  // namespace resil::stacks
