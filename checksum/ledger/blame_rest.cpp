// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: what lies behind the first 4 KiB of packets, up to 4 MiB of each, in a ring of 64 MiB. It is copied
// outside the lock, into room that is this packet's from then on: whoever looks later sees by the head that the ring
// has come round, and takes nothing.

#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

SpinLock lock;

}  // namespace

bool RestStore::create() {
  memory_ = memory::map_array<char>(kRestBytes);
  head_ = 0;
  return memory_ != nullptr;
}

Rest RestStore::put(const View& view, uint64_t bytes) {
  if (bytes <= kKeptBytes || memory_ == nullptr) return {};
  const uint64_t rest = bytes - kKeptBytes < kMostRest ? bytes - kKeptBytes : kMostRest;
  uint64_t at = 0;
  {
    Guard guard(lock);
    if (head_ % kRestBytes + rest > kRestBytes)  // a packet lies in one piece
      head_ += kRestBytes - head_ % kRestBytes;
    at = head_;
    head_ += (rest + 7) / 8 * 8;
  }
  copy_of(view, kKeptBytes, rest, memory_ + at % kRestBytes);
  return {at, static_cast<uint32_t>(rest)};
}

uint32_t RestStore::get(const Rest& rest, uint64_t from, uint32_t bytes, char* to) {
  if (from < kKeptBytes || from - kKeptBytes >= rest.bytes) return 0;
  const uint64_t skipped = from - kKeptBytes;
  const uint32_t there = static_cast<uint32_t>(rest.bytes - skipped < bytes ? rest.bytes - skipped : bytes);
  Guard guard(lock);
  if (head_ - rest.at > kRestBytes) return 0;
  memcpy(to, memory_ + (rest.at + skipped) % kRestBytes, there);
  return there;
}

}  // namespace resil::blame
