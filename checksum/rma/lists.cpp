// SPDX-License-Identifier: Apache-2.0
//
// Lists of operations on their way from the origin to the target: packing into messages, and the pages in which a
// target keeps what has come.

#include <algorithm>
#include <cstring>

#include "checksum/rma/wire.h"
#include "shim/call/thread.h"
#include "shim/runtime/pool.h"
#include "shim/runtime/progress.h"
#include "shim/runtime/work_memory.h"

namespace resil::rma {

namespace {

SpinLock pool_lock;
memory::Pool<Packet, &Packet::next, 64, 8192> pool;  // 32 MiB

bool post_until_sent(Thread& thread, ledger::Peer& peer, ledger::Kind kind, const void* payload, size_t bytes) {
  constexpr uint32_t kTries = 100000;
  for (Wait wait(thread, kByProgress); wait.rounds() < kTries; wait.pause())
    if (ledger::post(thread, peer, kind, payload, bytes)) return true;
  return false;
}

/// Room that an operation takes in a message; its runs are left out where there are too many for one.
uint32_t runs_of(const Operation& operation) {
  return operation.target_type == nullptr || operation.target_type->run_count > kMaxItemRuns
             ? 0
             : operation.target_type->run_count;
}

void fill(Item& item, const Operation& operation) {
  item = {};
  item.digest = operation.digest;
  item.bytes = operation.bytes;
  item.site = operation.site;
  item.displacement = operation.displacement;
  item.call = operation.call;
  item.what = operation.what;
  item.anywhere = operation.anywhere;
  item.before = operation.before;
  item.at_end = operation.at_end;
  item.has_before = operation.has_before;
  item.ended = operation.ended;
  item.count = 1;
  item.high = item.extent = static_cast<int64_t>(operation.bytes);
  if (operation.target_type == nullptr) return;
  const TypeMap& type = *operation.target_type;
  item.count = operation.target_count;
  item.extent = type.extent;
  item.low = type.low;
  item.high = type.high;
  item.run_count = runs_of(operation);
  if (type.padded) item.padded = type.basic;
  if (item.run_count != 0) memcpy(&item + 1, type.runs, item.run_count * sizeof(Run));
  else item.what = What::kTouch;  // as a whole, from the lowest to the highest byte
}

}  // namespace

Packet* packet_allocate() {
  Packet* packet = nullptr;
  {
    Guard guard(pool_lock);
    packet = pool.allocate();
  }
  if (packet != nullptr) {
    packet->next = nullptr;
    packet->read = packet->answered = false;
    packet->question = 0;
  }
  return packet;
}

void packet_release(Packet* packet) {
  Guard guard(pool_lock);
  pool.release(packet);
}

void deliver(Window& window, const void* payload, size_t bytes) {
  Packet* packet = packet_allocate();
  if (packet == nullptr) {
    window.off.store(true, std::memory_order_release);  // whoever waits tells the others
    return;
  }
  memcpy(packet->payload, payload, bytes);
  Guard guard(window.lock);
  if (window.last != nullptr) window.last->next = packet;
  else window.first = packet;
  window.last = packet;
}

bool send(Thread& thread, Window& window, int target, ledger::Kind kind, const Header& header, const char* text) {
  ledger::Peer* peer = ledger::peer_of(world_rank(window, target));
  if (peer == nullptr) return false;
  struct {
    Header header;
    char text[96];
  } message = {header, ""};
  if (text != nullptr) strncpy(message.text, text, sizeof(message.text) - 1);
  return post_until_sent(thread, *peer, kind, &message, text != nullptr ? sizeof(message) : sizeof(header));
}

uint32_t sorted_operations(const Window& window, Epoch epoch, uint32_t* order, uint32_t room) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < window.operation_count && found < room; ++i)
    if (!window.operations[i].done && window.operations[i].epoch == epoch) order[found++] = i;
  const Operation* operations = window.operations;
  std::sort(order, order + found, [operations](uint32_t a, uint32_t b) {
    return operations[a].target != operations[b].target ? operations[a].target < operations[b].target : a < b;
  });
  return found;
}

bool send_list(Thread& thread, Window& window, Epoch epoch, int target, uint32_t number, const uint32_t* indices,
               uint32_t count) {
  ledger::Peer* peer = target == window.rank ? nullptr : ledger::peer_of(world_rank(window, target));
  if (target != window.rank && peer == nullptr) return false;
  Work<WorkLeaf> room;
  char* const message = room->bytes;
  Header& header = *reinterpret_cast<Header*>(message);
  header = {
      window.id, number,          window.rank, epoch == Epoch::kFence ? Message::kFenceList : Message::kAccessList,
      false,     window.overflow, 0,           0,
      0};
  size_t used = sizeof(Header);
  auto go = [&]() {
    if (target == window.rank) {
      deliver(window, message, used);
      return true;
    }
    return post_until_sent(thread, *peer, ledger::Kind::kRma, message, used);
  };
  for (uint32_t i = 0; i < count; ++i) {
    const Operation& operation = window.operations[indices[i]];
    const size_t bytes = sizeof(Item) + runs_of(operation) * sizeof(Run);
    if (used + bytes > ledger::kMessageBytes) {
      if (!go()) return false;
      used = sizeof(Header);
      header.count = 0;
    }
    fill(*reinterpret_cast<Item*>(message + used), operation);
    used += bytes;
    header.count += 1;
  }
  header.last = true;
  return go();
}

}  // namespace resil::rma
