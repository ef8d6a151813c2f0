// SPDX-License-Identifier: Apache-2.0
//
// Memory of the devices: for each, one file in memory that is mapped twice, without access where programs see it.
// Pieces are given out first fit, 512 bytes apart, so that neighbours share pages and freed addresses come back soon,
// as with the real drivers. Managed and pinned memory is ordinary memory that is known by its address.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

constexpr size_t kGrain = 512, kPage = 4096;

/// Addresses that programs see, and the driver's view of the same pages.
struct Range {
  size_t bytes;
  char* view;
};

struct Table {
  std::map<uintptr_t, Range> ranges;  ///< memory of devices, and reserved
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
    if (hole->second < bytes) continue;
    const uintptr_t at = hole->first;
    const size_t left = hole->second - bytes;
    holes.erase(hole);
    if (left > 0) holes.emplace(at + bytes, left);
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

/// Null: neither a device's nor reserved.
const std::pair<const uintptr_t, Range>* range_of(uintptr_t address) {
  const auto& ranges = table().ranges;
  const auto after = ranges.upper_bound(address);
  if (after == ranges.begin() || address - std::prev(after)->first >= std::prev(after)->second.bytes) return nullptr;
  return &*std::prev(after);
}

uintptr_t add_range(size_t bytes, int file, size_t offset = 0) {
  const int flags = MAP_NORESERVE | (file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  void* seen = mmap(nullptr, bytes, PROT_NONE, flags, file, static_cast<off_t>(offset));
  void* real =
      mmap(nullptr, bytes, file >= 0 ? PROT_READ | PROT_WRITE : PROT_NONE, flags, file, static_cast<off_t>(offset));
  if (seen == MAP_FAILED || real == MAP_FAILED) return 0;
  table().ranges[reinterpret_cast<uintptr_t>(seen)] = {bytes, static_cast<char*>(real)};
  return reinterpret_cast<uintptr_t>(seen);
}

bool overlaps(uintptr_t low, uintptr_t high) {
  const auto& live = table().live;
  const auto after = live.lower_bound(high);
  return after != live.begin() && std::prev(after)->second.base + std::prev(after)->second.bytes > low;
}

bool page_locked(Kind kind) { return kind == Kind::kPinned || kind == Kind::kRegistered; }

}  // namespace

size_t file_bytes() { return round(settings().memory, kPage) + kExportTable; }

bool memory_start() {
  for (int i = 0; Device* each = device(i); ++i) {
    const size_t bytes = round(settings().memory, kPage);
    each->file = memfd_create("fakegpu", MFD_CLOEXEC);
    if (i >= 64 || each->file < 0 || ftruncate(each->file, static_cast<off_t>(file_bytes())) != 0) return false;
    each->low = add_range(bytes, each->file);
    if (each->low == 0) return false;
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
    if (bytes > settings().memory && kind == Kind::kManaged) return nullptr;
    if (page_locked(kind) && bytes > settings().pinned - t.pinned) return nullptr;
    void* memory = mmap(nullptr, round(bytes, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = memory != MAP_FAILED ? reinterpret_cast<uintptr_t>(memory) : 0;
  }
  if (at == 0) return nullptr;
  if (page_locked(kind)) t.pinned += bytes;
  t.live[at] = {at, bytes, kind, pool, flags, context.device, pool ? nullptr : &context, t.next_id++, nullptr};
  return reinterpret_cast<void*>(at);
}

int register_host(Context& context, void* address, size_t bytes, unsigned flags) {
  Table& t = table();
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (range_of(at) != nullptr || overlaps(at, at + bytes)) return 1;
  if (bytes > settings().pinned - t.pinned) return 2;
  t.pinned += bytes;
  t.live[at] = {at, bytes, Kind::kRegistered, false, flags, context.device, &context, t.next_id++, nullptr};
  return 0;
}

bool release(uintptr_t base, Kind kind, bool alone) {
  Table& t = table();
  const auto found = t.live.find(base);
  if (found == t.live.end()) return false;
  const Allocation& it = found->second;
  if (it.mapped != nullptr || it.opened != nullptr ||
      (it.kind != kind && !(kind == Kind::kDevice && it.kind == Kind::kManaged)))
    return false;
  ipc_freed(it, alone);
  if (it.kind == Kind::kDevice) give_back(*it.device, it.base, round(it.bytes, kGrain));
  else if (it.kind != Kind::kRegistered) munmap(reinterpret_cast<void*>(it.base), round(it.bytes, kPage));
  if (page_locked(it.kind)) t.pinned -= it.bytes;
  t.live.erase(found);
  return true;
}

void release_all(const Context& context) {
  Table& t = table();
  for (auto each = t.live.begin(); each != t.live.end();) {
    const Allocation it = (each++)->second;
    if (it.context != &context) continue;
    if (it.opened != nullptr) unmap_foreign(it);
    else release(it.base, it.kind, false);
  }
}

const Allocation* find(uintptr_t address) {
  const auto& live = table().live;
  auto after = live.upper_bound(address);
  if (after == live.begin()) return nullptr;
  const Allocation& it = std::prev(after)->second;
  return address - it.base < it.bytes ? &it : nullptr;
}

bool device_range(uintptr_t address) { return range_of(address) != nullptr; }

char* view(uintptr_t address) {
  const auto* range = range_of(address);
  return range != nullptr ? range->second.view + (address - range->first) : reinterpret_cast<char*>(address);
}

uintptr_t map_foreign(Context& context, int file, size_t offset, size_t bytes, Opened* opened) {
  const size_t before = offset % kPage;
  const uintptr_t range = add_range(round(before + bytes, kPage), file, offset - before);
  if (range == 0) return 0;
  const uintptr_t at = range + before;
  table().live[at] = {at, bytes, Kind::kDevice, false, 0, context.device, &context, table().next_id++, nullptr, opened};
  return at;
}

void unmap_foreign(const Allocation& allocation) {
  Opened* const opened = allocation.opened;
  const auto range = table().ranges.find(allocation.base / kPage * kPage);
  table().live.erase(allocation.base);  // allocation may be what is erased
  munmap(reinterpret_cast<void*>(range->first), range->second.bytes);
  munmap(range->second.view, range->second.bytes);
  table().ranges.erase(range);
  ipc_unmapped(opened);
}

size_t device_memory_free(const Device& device) { return settings().memory - device.used; }

// --- Virtual memory ---

struct Physical {
  Device* device;
  uintptr_t at;  ///< in the device's memory
  size_t bytes;
  unsigned maps;
  bool released;
};

namespace {

void drop_if_unused(Physical* memory) {
  if (memory->maps > 0 || !memory->released) return;
  give_back(*memory->device, memory->at, memory->bytes);
  delete memory;
}

bool whole(size_t value) { return value != 0 && value % kGranularity == 0; }

}  // namespace

uintptr_t reserve(size_t bytes) { return whole(bytes) ? add_range(bytes, -1) : 0; }

bool unreserve(uintptr_t at, size_t bytes) {
  const auto found = table().ranges.find(at);
  if (found == table().ranges.end() || found->second.bytes != bytes || overlaps(at, at + bytes)) return false;
  munmap(reinterpret_cast<void*>(at), bytes);
  munmap(found->second.view, bytes);
  table().ranges.erase(found);
  return true;
}

bool reserved_range(uintptr_t address, uintptr_t* low, size_t* bytes) {
  const auto* range = range_of(address);
  if (range == nullptr) return false;
  *low = range->first;
  *bytes = range->second.bytes;
  return true;
}

Physical* physical_create(Device& device, size_t bytes) {
  if (!whole(bytes) || bytes > settings().memory) return nullptr;
  // Pages of the file: whole ones.
  const uintptr_t rough = take(device, bytes + kPage);
  if (rough == 0) return nullptr;
  const uintptr_t at = round(rough, kPage);
  if (at != rough) give_back(device, rough, at - rough);
  if (rough + kPage != at) give_back(device, at + bytes, rough + kPage - at);
  return new Physical{&device, at, bytes, 0, false};
}

bool physical_release(Physical* memory) {
  memory->released = true;
  drop_if_unused(memory);
  return true;
}

bool map_physical(uintptr_t at, size_t bytes, Physical* memory) {
  const auto* range = range_of(at);
  if (range == nullptr || at % kPage != 0 || bytes != memory->bytes || overlaps(at, at + bytes) ||
      bytes > range->first + range->second.bytes - at)
    return false;
  const auto offset = static_cast<off_t>(memory->at - memory->device->low);
  if (mmap(view(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->device->file, offset) == MAP_FAILED)
    return false;
  ++memory->maps;
  Table& t = table();
  t.live[at] = {at, bytes, Kind::kDevice, true, 0, memory->device, nullptr, t.next_id++, memory};
  return true;
}

bool unmap_physical(uintptr_t at, size_t bytes) {
  Table& t = table();
  const auto found = t.live.find(at);
  if (found == t.live.end() || found->second.mapped == nullptr || found->second.bytes != bytes) return false;
  Physical* memory = found->second.mapped;
  t.live.erase(found);
  mmap(view(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  --memory->maps;
  drop_if_unused(memory);
  return true;
}

}  // namespace fakegpu

using namespace fakegpu;

extern "C" __attribute__((visibility("default"))) void* fakegpu_host_view(const void* device_address) {
  const auto address = reinterpret_cast<uintptr_t>(device_address);
  const Locked hold;
  return find(address) != nullptr ? view(address) : nullptr;
}
