// SPDX-License-Identifier: Apache-2.0
//
// See wire.h. Messages are received by matched probes, which are one thread's alone and can be of any size.

#include "pipeline/reduction/wire.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/call/flight.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"

namespace resil::reduction {

namespace {

struct Header {
  Key key;
  uint64_t bytes;
};
static_assert(sizeof(Header) <= kHeadroom);

/// A message that came to the wrong thread.
struct UnexpectedMessage {
  UnexpectedMessage* next;
  int32_t source;
  char* memory;
  size_t bytes;
};
UnexpectedMessage* unexpected;
uint32_t unexpected_count;
SpinLock lock;

uint32_t names[6];

PrivateTag tag_of(const Key& key) {
  uint64_t mixed = (key.comm ^ key.sequence * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  mixed ^= mixed >> 29;
  return tags::kReduction[static_cast<uint32_t>(mixed % tags::kReduction.count)];
}

const Header& header_of(const char* message) { return *reinterpret_cast<const Header*>(message); }

void keep_unexpected(int32_t source, char* message, size_t bytes) {
  auto* entry = reinterpret_cast<UnexpectedMessage*>(allocate(sizeof(UnexpectedMessage)));
  SpinGuard guard(lock);
  *entry = {unexpected, source, message, bytes};
  unexpected = entry;
  __atomic_fetch_add(&unexpected_count, 1, __ATOMIC_RELEASE);
}

UnexpectedMessage* find_unexpected(int32_t source, const Key& key) {
  if (__atomic_load_n(&unexpected_count, __ATOMIC_ACQUIRE) == 0) [[likely]]
    return nullptr;
  SpinGuard guard(lock);
  for (UnexpectedMessage** place = &unexpected; *place != nullptr; place = &(*place)->next)
    if (UnexpectedMessage* entry = *place; entry->source == source && header_of(entry->memory).key == key) {
      *place = entry->next;
      __atomic_fetch_sub(&unexpected_count, 1, __ATOMIC_RELEASE);
      return entry;
    }
  return nullptr;
}

uint32_t name_of(Hop hop, bool sends) { return names[static_cast<unsigned>(hop) * 2 + sends]; }

}  // namespace

void wire_prepare() {
  const char* texts[] = {"reduction: wait for higher ranks",   "reduction: contribution to a lower rank",
                         "reduction: wait for the result",     "reduction: result to a higher rank",
                         "reduction: wait for the other part", "reduction: to the other part"};
  for (unsigned i = 0; i < 6; ++i) names[i] = flight::intern(texts[i]);
}

bool wire_send(Thread& thread, const Key& key, int32_t world_rank, char* payload, size_t bytes, Sending& sending) {
  flight::hop(thread, name_of(key.hop, true), world_rank, bytes);
  auto* message = payload - kHeadroom;
  const Header header = {key, bytes};
  memset(message, 0, kHeadroom);
  memcpy(message, &header, sizeof(header));
  if (sending.count == sizeof(sending.requests) / sizeof(uint64_t)) wire_wait(thread, sending);
  return mailbox::send(message, kHeadroom + bytes, world_rank, tag_of(key), &sending.requests[sending.count]) &&
         (++sending.count, true);
}

void wire_wait(Thread& thread, Sending& sending) {
  unsigned sent = 0;
  wait_until(thread, [&] {
    while (sent < sending.count && backend->test(&sending.requests[sent])) ++sent;
    return sent == sending.count;
  });
  sending.count = 0;
}

char* wire_receive(Thread& thread, const Key& key, int32_t world_rank, size_t bytes, Arena& arena) {
  flight::hop(thread, name_of(key.hop, false), world_rank, bytes);
  char* room = arena.allocate(kHeadroom + bytes);
  for (Wait wait(thread);;) {
    if (UnexpectedMessage* entry = find_unexpected(world_rank, key); entry != nullptr) [[unlikely]] {
      const bool fits = entry->bytes == kHeadroom + bytes;
      if (fits) memcpy(room, entry->memory, entry->bytes);
      release(entry->memory);
      release(entry);
      return fits ? room + kHeadroom : nullptr;
    }
    uint64_t message, size;
    if (!mailbox::probe(world_rank, tag_of(key), &message, &size)) {
      wait.pause();
      continue;
    }
    char* memory = size == kHeadroom + bytes ? room : allocate(size);
    if (!mailbox::take(message, memory, size)) return nullptr;
    if (size >= kHeadroom && header_of(memory).key == key) [[likely]] {
      if (memory == room) return room + kHeadroom;
      release(memory);
      return nullptr;
    }
    if (memory == room) {
      memory = allocate(size);
      memcpy(memory, room, size);
    }
    keep_unexpected(world_rank, memory, size);
  }
}

}  // namespace resil::reduction
