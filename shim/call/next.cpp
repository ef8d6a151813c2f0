// SPDX-License-Identifier: Apache-2.0
//
// See next.h.

#include "shim/call/next.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

// Of the linker: where this library begins and ends in memory.
extern "C" [[gnu::visibility("hidden")]] char __ehdr_start[], _end[];

namespace resil {

namespace {

constexpr unsigned kPlaces = 1024, kProbes = 8;

/// One call site and one name; filled once, never changed. What finds no room is looked up each time.
struct Place {
  std::atomic<const void*> site;
  std::atomic<const char*> name;
  std::atomic<void*> function;
};
constinit Place places[kPlaces];

struct Walk {
  const char* name;
  void* found;
};

int visit(dl_phdr_info* info, size_t, void* data) {
  auto* walk = static_cast<Walk*>(data);
  if (info->dlpi_name == nullptr || info->dlpi_name[0] == 0) return 0;
  void* handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  walk->found = foreign(handle, walk->name);
  dlclose(handle);
  return walk->found != nullptr ? 1 : 0;
}

void* look_up(const char* name, const void* return_address) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(const_cast<void*>(return_address), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 &&
      map != nullptr && map->l_name != nullptr && map->l_name[0] != 0) {
    if (void* handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD); handle != nullptr) {
      void* function = foreign(handle, name);
      dlclose(handle);
      if (function != nullptr) return function;
    }
  }
  if (void* function = next_in_order(name); function != nullptr) return function;
  Walk walk = {name, nullptr};
  dl_iterate_phdr(visit, &walk);
  return walk.found;
}

}  // namespace

void* foreign(void* handle, const char* name) {
  char* address = static_cast<char*>(dlsym(handle, name));
  return address >= __ehdr_start && address < _end ? nullptr : address;
}

void* next_in_order(const char* name) { return foreign(RTLD_NEXT, name); }

void* next_function(const char* name, const void* return_address) {
  const auto key = reinterpret_cast<uintptr_t>(return_address) ^ (reinterpret_cast<uintptr_t>(name) << 7);
  const auto start = static_cast<unsigned>((key * 0x9E3779B97F4A7C15u) >> 48);
  for (unsigned i = 0; i < kProbes; ++i) {
    Place& place = places[(start + i) % kPlaces];
    if (place.site.load(std::memory_order_acquire) == return_address &&
        place.name.load(std::memory_order_acquire) == name)
      if (void* function = place.function.load(std::memory_order_acquire); function != nullptr) return function;
  }
  void* function = look_up(name, return_address);
  if (function == nullptr) return nullptr;
  for (unsigned i = 0; i < kProbes; ++i) {
    Place& place = places[(start + i) % kPlaces];
    const void* free = nullptr;
    if (!place.site.compare_exchange_strong(free, return_address)) continue;
    place.name.store(name, std::memory_order_release);
    place.function.store(function, std::memory_order_release);
    break;
  }
  return function;
}

}  // namespace resil
