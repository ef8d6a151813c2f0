// SPDX-License-Identifier: Apache-2.0
//
// Memory of the devices: for each, one file in memory that is mapped twice, without access where programs see it. Pieces
// are given out first fit, 512 bytes apart, so that neighbours share pages and freed addresses come back soon, as with
// the real drivers. Managed and pinned memory is ordinary memory that is known by its address.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

constexpr size_t kGrain = 512, kPage = 4096;

struct Table {
  std::map<uintptr_t, Allocation> live;
  std::map<uintptr_t, size_t> holes[64];  ///< free memory of each device
  size_t pinned = 0;
  uint64_t next_id = 1;
};
Table& table() {
  static Table* const it = new Table;
  return *it;
}

size_t round(size_t bytes, size_t grain) { return (bytes + grain - 1) / grain * grain; }

uintptr_t take(Device& device, size_t bytes) {
  auto& holes = table().holes[device.ordinal];
  for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
    if (hole->second < bytes)
      continue;
    const uintptr_t at = hole->first;
    const size_t left = hole->second - bytes;
    holes.erase(hole);
    if (left > 0)
      holes.emplace(at + bytes, left);
    device.used += bytes;
    return at;
  }
  return 0;
}

void give_back(Device& device, uintptr_t at, size_t bytes) {
  auto& holes = table().holes[device.ordinal];
  device.used -= bytes;
  auto next = holes.lower_bound(at);
  if (next != holes.end() && next->first == at + bytes) {
    bytes += next->second;
    next = holes.erase(next);
  }
  if (next != holes.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == at) {
      previous->second += bytes;
      return;
    }
  }
  holes.emplace(at, bytes);
}

Device* device_of(uintptr_t address) {
  for (int i = 0; Device* each = device(i); ++i)
    if (address >= each->low && address < each->high)
      return each;
  return nullptr;
}

bool overlaps(uintptr_t low, uintptr_t high) {
  const auto& live = table().live;
  const auto after = live.lower_bound(high);
  return after != live.begin() && std::prev(after)->second.base + std::prev(after)->second.bytes > low;
}

bool page_locked(Kind kind) { return kind == Kind::kPinned || kind == Kind::kRegistered; }

}  // namespace

bool memory_start() {
  for (int i = 0; Device* each = device(i); ++i) {
    const size_t bytes = round(settings().memory, kPage);
    const int file = memfd_create("fakegpu", MFD_CLOEXEC);
    if (i >= 64 || file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
      return false;
    void* seen = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* real = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (seen == MAP_FAILED || real == MAP_FAILED)
      return false;
    each->low = reinterpret_cast<uintptr_t>(seen);
    each->high = each->low + bytes;
    each->view = static_cast<char*>(real);
    table().holes[i].emplace(each->low, bytes);
  }
  watch_touches();
  return true;
}

void* allocate(Context& context, Kind kind, size_t bytes, bool pool, unsigned flags) {
  Table& t = table();
  uintptr_t at = 0;
  if (kind == Kind::kDevice) {
    at = bytes <= settings().memory ? take(*context.device, round(bytes, kGrain)) : 0;
  } else {
    if (bytes > settings().memory && kind == Kind::kManaged)
      return nullptr;
    if (page_locked(kind) && bytes > settings().pinned - t.pinned)
      return nullptr;
    void* memory = mmap(nullptr, round(bytes, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = memory != MAP_FAILED ? reinterpret_cast<uintptr_t>(memory) : 0;
  }
  if (at == 0)
    return nullptr;
  if (page_locked(kind))
    t.pinned += bytes;
  t.live[at] = {at, bytes, kind, pool, flags, context.device, pool ? nullptr : &context, t.next_id++};
  return reinterpret_cast<void*>(at);
}

int register_host(Context& context, void* address, size_t bytes, unsigned flags) {
  Table& t = table();
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (device_of(at) != nullptr || overlaps(at, at + bytes))
    return 1;
  if (bytes > settings().pinned - t.pinned)
    return 2;
  t.pinned += bytes;
  t.live[at] = {at, bytes, Kind::kRegistered, false, flags, context.device, &context, t.next_id++};
  return 0;
}

bool release(uintptr_t base, Kind kind) {
  Table& t = table();
  const auto found = t.live.find(base);
  if (found == t.live.end())
    return false;
  const Allocation& it = found->second;
  if (it.kind != kind && !(kind == Kind::kDevice && it.kind == Kind::kManaged))
    return false;
  if (it.kind == Kind::kDevice)
    give_back(*it.device, it.base, round(it.bytes, kGrain));
  else if (it.kind != Kind::kRegistered)
    munmap(reinterpret_cast<void*>(it.base), round(it.bytes, kPage));
  if (page_locked(it.kind))
    t.pinned -= it.bytes;
  t.live.erase(found);
  return true;
}

void release_all(const Context& context) {
  Table& t = table();
  for (auto each = t.live.begin(); each != t.live.end();) {
    const Allocation it = (each++)->second;
    if (it.context == &context)
      release(it.base, it.kind);
  }
}

const Allocation* find(uintptr_t address) {
  const auto& live = table().live;
  auto after = live.upper_bound(address);
  if (after == live.begin())
    return nullptr;
  const Allocation& it = std::prev(after)->second;
  return address - it.base < it.bytes ? &it : nullptr;
}

bool device_range(uintptr_t address) { return device_of(address) != nullptr; }

char* view(uintptr_t address) {
  const Device* owner = device_of(address);
  return owner != nullptr ? owner->view + (address - owner->low) : reinterpret_cast<char*>(address);
}

size_t device_memory_free(const Device& device) { return settings().memory - device.used; }

}  // namespace fakegpu

using namespace fakegpu;

extern "C" __attribute__((visibility("default"))) void* fakegpu_host_view(const void* device_address) {
  const auto address = reinterpret_cast<uintptr_t>(device_address);
  const Locked hold;
  return find(address) != nullptr ? view(address) : nullptr;
}
