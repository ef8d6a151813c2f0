// SPDX-License-Identifier: Apache-2.0
//
// See pinned.h. The memory is the process's own and registered with the runtime, rather than the runtime's: it stays
// when the context in which it was registered is destroyed, and another device's then registers it anew.

#include "pipeline/gpu/pinned.h"

#include <sys/mman.h>

#include "pipeline/gpu/arena.h"
#include "pipeline/gpu/device.h"
#include "pipeline/gpu/messages.h"
#include "shim/report/log.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"

namespace resil::gpu {

namespace {

constexpr size_t kFirstSlab = size_t{32} << 20;
constexpr size_t kStep = size_t{2} << 20;  ///< slabs begin and end at huge pages
constexpr unsigned kSlabs = 64;

struct Slab {
  char* memory;
  size_t bytes;
  Device* owner;  ///< registered it; written by the growing thread only
  Arena arena;
};

Slab slabs[kSlabs];
std::atomic<uint32_t> slab_count;
std::atomic<uint64_t> limit_bytes, pinned_bytes;
SpinLock lock;  ///< arenas and the counts of use
uint64_t used_bytes, most_used_bytes;
std::atomic<uint64_t> refused_count;
std::atomic<bool> growing, said;
/// The runtime has given no more so many times; it is asked again when so many acquisitions have been refused.
std::atomic<uint64_t> failures, ask_again_at;

constexpr size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/// One thread at a time grows or registers anew; the others wait for it: milliseconds, a few times in a run.
class Growing {
 public:
  Growing() {
    while (growing.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Growing() { growing.store(false, std::memory_order_release); }
  Growing(const Growing&) = delete;
};

bool pin(Device& device, void* memory, size_t bytes) {
  Inside inside(device);
  return inside.good() && inside.check(device.driver->pin(memory, bytes));
}

/// Aligned to a huge page. A forked child does not get it: its copy-on-write would move pages under the device.
char* map(size_t bytes) {
  auto* start = memory::map_array<char>(bytes + kStep);
  if (start == nullptr) return nullptr;
  char* aligned = start + (kStep - reinterpret_cast<uintptr_t>(start) % kStep) % kStep;
  if (aligned != start) memory::unmap(start, static_cast<size_t>(aligned - start));
  if (aligned + bytes != start + bytes + kStep)
    memory::unmap(aligned + bytes, static_cast<size_t>(start + kStep - aligned));
  madvise(aligned, bytes, MADV_HUGEPAGE);
  madvise(aligned, bytes, MADV_DONTFORK);
  return aligned;
}

/// A slab of `bytes`. Growing.
bool add_slab(Device& device, size_t bytes) {
  const auto granules = static_cast<uint32_t>(bytes / Arena::kGranule);
  const size_t kept = round_up(Arena::bookkeeping(granules), 4096);
  char* memory = map(bytes);
  if (memory == nullptr) return false;
  void* nodes = memory::map(kept);
  if (nodes == nullptr || !pin(device, memory, bytes)) {
    if (nodes != nullptr) memory::unmap(nodes, kept);
    memory::unmap(memory, bytes);
    return false;
  }
  const uint32_t place = slab_count.load(std::memory_order_relaxed);
  Slab& slab = slabs[place];
  slab.memory = memory;
  slab.bytes = bytes;
  slab.arena.open(nodes, granules);
  __atomic_store_n(&slab.owner, &device, __ATOMIC_RELAXED);
  host_memory_add(memory, bytes);
  pinned_bytes.fetch_add(bytes, std::memory_order_relaxed);
  slab_count.store(place + 1, std::memory_order_release);
  return true;
}

/// Doubles what there is, or as much as is needed, as far as the limit and the runtime allow. Growing.
bool grow(Device& device, size_t needed) {
  const uint64_t limit = limit_bytes.load(std::memory_order_relaxed);
  const uint64_t have = pinned_bytes.load(std::memory_order_relaxed);
  if (refused_count.load(std::memory_order_relaxed) < ask_again_at.load(std::memory_order_relaxed) ||
      slab_count.load(std::memory_order_relaxed) == kSlabs || have >= limit)
    return false;
  const size_t least = round_up(needed, kStep);
  size_t room = (limit - have) / kStep * kStep;
  if (room > size_t{Arena::kMost} * Arena::kGranule) room = size_t{Arena::kMost} * Arena::kGranule;
  if (least > room) return false;
  size_t wanted = have != 0 ? round_up(have, kStep) : kFirstSlab;
  wanted = wanted > room ? room : wanted < least ? least : wanted;
  for (;; wanted = round_up(wanted / 2, kStep) > least ? round_up(wanted / 2, kStep) : least) {
    if (add_slab(device, wanted)) return true;
    if (wanted == least || device.lost.load(std::memory_order_relaxed)) break;
  }
  if (device.lost.load(std::memory_order_relaxed)) return false;
  const uint64_t failed = failures.fetch_add(1, std::memory_order_relaxed);
  ask_again_at.store(refused_count.load(std::memory_order_relaxed) + (uint64_t{2} << (failed < 20 ? failed : 20)),
                     std::memory_order_relaxed);
  if (failed == 0)
    log_format(messages::gpu::pinned_refused, static_cast<unsigned long long>(have >> 20), last_error(),
               static_cast<unsigned long long>(wanted >> 20));
  return false;
}

void* take(size_t bytes) {
  const auto granules = static_cast<uint32_t>((bytes + Arena::kGranule - 1) / Arena::kGranule);
  SpinGuard guard(lock);
  const uint32_t count = slab_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t first = slabs[i].arena.acquire(granules);
    if (first == Arena::kNone) continue;
    used_bytes += uint64_t{granules} * Arena::kGranule;
    most_used_bytes = used_bytes > most_used_bytes ? used_bytes : most_used_bytes;
    return slabs[i].memory + size_t{first} * Arena::kGranule;
  }
  return nullptr;
}

/// The contexts in which slabs were registered may be gone: then that of `device`, which is not, registers them.
void keep_registered(Device& device) {
  const uint32_t count = slab_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (!__atomic_load_n(&slabs[i].owner, __ATOMIC_RELAXED)->lost.load(std::memory_order_relaxed)) [[likely]]
      continue;
    Growing alone;
    if (slabs[i].owner->lost.load(std::memory_order_relaxed)) {
      pin(device, slabs[i].memory, slabs[i].bytes);  // else its copies are slower, and right
      __atomic_store_n(&slabs[i].owner, &device, __ATOMIC_RELAXED);
    }
  }
}

}  // namespace

bool pinned_prepare(Device& device, size_t limit) {
  limit_bytes.store(limit, std::memory_order_relaxed);
  if (slab_count.load(std::memory_order_acquire) != 0) [[likely]]
    return true;
  Growing alone;
  return slab_count.load(std::memory_order_relaxed) != 0 || grow(device, 1);
}

void* pinned_acquire(Device& device, size_t bytes) {
  const uint64_t limit = limit_bytes.load(std::memory_order_relaxed);
  bytes = bytes == 0 ? 1 : bytes;
  if (device.lost.load(std::memory_order_relaxed)) return nullptr;
  if (bytes <= limit) {
    keep_registered(device);
    if (void* block = take(bytes)) [[likely]]
      return block;
    Growing alone;
    // Another thread may have grown it meanwhile.
    if (void* block = take(bytes)) return block;
    if (grow(device, bytes))
      if (void* block = take(bytes)) return block;
  }
  refused_count.fetch_add(1, std::memory_order_relaxed);
  if (failures.load(std::memory_order_relaxed) == 0 && !said.exchange(true, std::memory_order_relaxed))
    log_format(messages::gpu::pinned_full, bytes,
               static_cast<unsigned long long>(pinned_bytes.load(std::memory_order_relaxed) >> 20),
               static_cast<unsigned long long>(limit >> 20));
  return nullptr;
}

void pinned_release(void* block) {
  if (block == nullptr) return;
  const auto at = static_cast<char*>(block);
  SpinGuard guard(lock);
  const uint32_t count = slab_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (at < slabs[i].memory || at >= slabs[i].memory + slabs[i].bytes) continue;
    const auto first = static_cast<uint32_t>(static_cast<size_t>(at - slabs[i].memory) / Arena::kGranule);
    used_bytes -= uint64_t{slabs[i].arena.release(first)} * Arena::kGranule;
    return;
  }
}

PinnedUse pinned_use() {
  SpinGuard guard(lock);
  return {pinned_bytes.load(std::memory_order_relaxed),
          limit_bytes.load(std::memory_order_relaxed),
          most_used_bytes,
          used_bytes,
          slab_count.load(std::memory_order_relaxed),
          refused_count.load(std::memory_order_relaxed)};
}

}  // namespace resil::gpu
