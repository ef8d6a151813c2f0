// SPDX-License-Identifier: Apache-2.0
//
// Memory of other processes. A device's memory is a file that others on this machine open through /proc; behind the
// memory the file has a table of what is exported, which both sides look at: who opens finds out what has been freed
// since, who frees finds out what is still open.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

struct Slot {
  std::atomic<uint64_t> id;  ///< 0: nothing, or freed
  std::atomic<uint64_t> opens;
};
constexpr size_t kSlots = kExportTable / sizeof(Slot);
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};

Slot* map_table(int file) {
  void* memory = mmap(nullptr, kExportTable, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                      static_cast<off_t>(file_bytes() - kExportTable));
  return memory != MAP_FAILED ? static_cast<Slot*>(memory) : nullptr;
}

/// What this process exports: allocation's id, place in the table of its device.
std::map<uint64_t, unsigned>& exported() {
  static auto* const it = new std::map<uint64_t, unsigned>;
  return *it;
}

Slot* own_table(const Device& device) {
  static Slot* tables[64];
  Slot*& table = tables[device.ordinal];
  if (table == nullptr) table = map_table(device.file);
  return table;
}

}  // namespace

struct Opened {
  Ticket ticket;
  Context* context;
  uintptr_t base;
  uint64_t times;
  Slot* table;
};

namespace {

std::map<uintptr_t, Opened*>& opened() {
  static auto* const it = new std::map<uintptr_t, Opened*>;
  return *it;
}

}  // namespace

unsigned number_on_node(const Allocation& allocation) {
  if (allocation.opened != nullptr) return allocation.opened->ticket.device;
  return settings().first + static_cast<unsigned>(allocation.device->ordinal);
}

Ipc ipc_export(uintptr_t base, Ticket& ticket) {
  const Allocation* it = find(base);
  if (settings().ipc == 0) return Ipc::kRefused;
  if (it == nullptr || it->kind != Kind::kDevice || it->pool || it->mapped != nullptr || it->opened != nullptr)
    return Ipc::kBadAddress;
  Slot* table = own_table(*it->device);
  const auto before = exported().find(it->id);
  unsigned slot = before != exported().end() ? before->second : 0;
  while (before == exported().end() && slot < kSlots && table[slot].id != 0) ++slot;
  if (slot == kSlots) return Ipc::kRefused;
  exported()[it->id] = slot;
  table[slot].id = it->id;
  ticket = {{}, getpid(), it->device->file, number_on_node(*it), slot, it->id, it->base - it->device->low, it->bytes};
  memcpy(ticket.magic, kMagic, sizeof(kMagic));
  return Ipc::kDone;
}

Ipc ipc_open(Context& context, const Ticket& ticket, bool counted, uintptr_t& base) {
  if (memcmp(ticket.magic, kMagic, sizeof(kMagic)) != 0) return Ipc::kGone;
  if (ticket.pid == getpid()) return Ipc::kOwn;
  if (settings().ipc == 2) return Ipc::kRefused;
  if (settings().ipc == 3 && ticket.device != settings().first + static_cast<unsigned>(context.device->ordinal))
    return Ipc::kNoPeer;
  for (const auto& [at, each] : opened())
    if (counted && each->context == &context && memcmp(&each->ticket, &ticket, sizeof(ticket)) == 0) {
      ++each->times;
      base = at;
      return Ipc::kDone;
    }
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return Ipc::kGone;
  Slot* table = map_table(file);
  Ipc result = Ipc::kGone;
  auto* made = new Opened{ticket, &context, 0, 1, table};
  if (table != nullptr) {
    ++table[ticket.slot].opens;
    if (table[ticket.slot].id == ticket.id) made->base = map_foreign(context, file, ticket.offset, ticket.bytes, made);
    if (made->base != 0) {
      opened()[base = made->base] = made;
      result = Ipc::kDone;
    } else {
      --table[ticket.slot].opens;
    }
  }
  if (result != Ipc::kDone) {
    if (table != nullptr) munmap(table, kExportTable);
    delete made;
  }
  close(file);
  return result;
}

Ipc ipc_close(uintptr_t base) {
  const auto found = opened().find(base);
  if (found == opened().end()) return Ipc::kBadAddress;
  Opened* it = found->second;
  if (--it->times != 0) return Ipc::kDone;
  unmap_foreign(*find(base));
  return Ipc::kDone;
}

void ipc_unmapped(Opened* it) {
  --it->table[it->ticket.slot].opens;
  munmap(it->table, kExportTable);
  opened().erase(it->base);
  delete it;
}

void ipc_freed(const Allocation& allocation, bool alone) {
  const auto found = exported().find(allocation.id);
  if (found == exported().end()) return;
  Slot& slot = own_table(*allocation.device)[found->second];
  if (alone && slot.opens != 0) {
    fprintf(stderr, "fakegpu: %zu bytes of device memory freed that another process has open\n", allocation.bytes);
    abort();
  }
  slot.id = 0;
  exported().erase(found);
}

}  // namespace fakegpu
