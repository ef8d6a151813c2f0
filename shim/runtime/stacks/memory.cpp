// SPDX-License-Identifier: Apache-2.0
//
// Guarded reads: a page is tested with a system call that copies from it and does nothing else, then read directly.
// Two ways to test: rt_sigprocmask with an impossible `how` (the kernel copies the set before it looks at `how`; needs
// no permission, takes no lock for a present page), else process_vm_readv on ourselves. May touch: nothing else.
#include "shim/runtime/stacks/memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim/base/readable.h"
#include "shim/runtime/stacks/objects.h"

namespace resil::stacks {
namespace {

// The smallest page size; testing too often on machines with larger pages is harmless.
constexpr uint64_t kPage = 4096;

enum class Probe { kNone, kMask, kCopy };
Probe probe = Probe::kNone;

bool probe_mask(uint64_t page) { return resil::readable(page) == Readable::kYes; }

bool probe_copy(uint64_t page) {
  uint64_t word;
  iovec to{&word, sizeof word};
  iovec from{reinterpret_cast<void*>(page), sizeof word};
  return syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0) == static_cast<long>(sizeof word);
}

// Not instrumented: the point is to read what a sanitizer calls out of bounds.
__attribute__((no_sanitize("address", "thread", "undefined"), noinline)) void copy(uint64_t from, void* to,
                                                                                   size_t size) {
  const volatile auto* source = reinterpret_cast<const volatile unsigned char*>(from);
  auto* target = static_cast<volatile unsigned char*>(to);
  const uint64_t odd = from | reinterpret_cast<uint64_t>(to) | size;
  if (odd % 8 == 0) {
    for (size_t i = 0; i < size / 8; ++i)
      static_cast<volatile uint64_t*>(to)[i] = reinterpret_cast<const volatile uint64_t*>(from)[i];
    return;
  }
  if (odd % 4 == 0) {
    for (size_t i = 0; i < size / 4; ++i)
      static_cast<volatile uint32_t*>(to)[i] = reinterpret_cast<const volatile uint32_t*>(from)[i];
    return;
  }
  for (size_t i = 0; i < size; ++i) target[i] = source[i];
}

}  // namespace

bool prepare_memory() {
  void* hole = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (hole == MAP_FAILED) return probe != Probe::kNone;
  const auto bad = reinterpret_cast<uint64_t>(hole);
  const uint64_t good = reinterpret_cast<uint64_t>(&probe) & ~(kPage - 1);
  if (probe_mask(good) && !probe_mask(bad)) {
    probe = Probe::kMask;
  } else if (probe_copy(good) && !probe_copy(bad)) {
    probe = Probe::kCopy;
  }
  munmap(hole, kPage);
  return probe != Probe::kNone;
}

void Reader::reset(OtherProcess* other) {
  other_ = other;
  for (uint64_t& page : pages_) page = 0;
}

bool Reader::find(uint64_t address, Object* object) const {
  return other_ != nullptr ? other_->find_object(*other_, address, object) : find_object(address, object);
}

bool Reader::readable(uint64_t page) {
  if (page == 0) return false;
  uint64_t& slot = pages_[(page / kPage) % kPages];
  if (slot == page) return true;
  const bool good = probe == Probe::kMask ? probe_mask(page) : probe == Probe::kCopy && probe_copy(page);
  if (good) slot = page;
  return good;
}

bool Reader::read(uint64_t address, void* to, size_t size) {
  if (size == 0) return true;
  if (address + size < address) return false;
  if (other_ != nullptr) return other_->read(*other_, address, to, size);
  const uint64_t last = (address + size - 1) & ~(kPage - 1);
  for (uint64_t page = address & ~(kPage - 1);; page += kPage) {
    if (!readable(page)) return false;
    if (page == last) break;
  }
  copy(address, to, size);
  return true;
}

bool Reader::text(uint64_t address, char* to, size_t capacity) {
  if (capacity == 0) return false;
  size_t length = 0;
  for (; length + 1 < capacity; ++length) {
    if (!load(address + length, &to[length])) {
      to[length] = 0;
      return length > 0;
    }
    if (to[length] == 0) return true;
  }
  to[length] = 0;
  return true;
}

}  // namespace resil::stacks
