// SPDX-License-Identifier: Apache-2.0
//
// See chunked_peer.h.

#include "pipeline/staging/chunked_peer.h"

#include <sched.h>

#include "pipeline/gpu/pinned.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/ring/node_file.h"
#include "shim/runtime/block_pool.h"

namespace resil::staging {

constinit uint64_t chunked_peer_memory;

namespace {

/// Handles open whole blocks of the drivers' (gpu.h).
constexpr uint64_t kBlock = uint64_t{2} << 20;
/// One part in so many of a device's memory is left alone: the program may want it.
constexpr uint64_t kLeft = 8;

constinit uint64_t taken;
/// Senders that cannot open: 1 + world rank, by its last bits.
constinit int32_t cannot[64];
constinit Sending *deferred, **deferred_end = &deferred;

uint64_t rounded(const Cut& cut) { return (cut.size(0) + kBlock - 1) / kBlock * kBlock; }

int own_rank() { return runtime.header->rank; }

/// The running system's own: not its name, which others may have too. 0: not known.
uint64_t system_id() {
  char boot[kBootText];
  boot_identity(boot);
  return boot[0] != 0 ? hash_text(boot) : 0;
}

void begin(Sending& sending) {
  sending.deferred = false;
  const Packet& packet = sending.message->packet;
  const Grant& grant = *sending.grant;
  const uint64_t head = grant.cut.in_head();
  const gpu::EventHandle downs = gpu::event_acquire(*packet.device);
  sending.across = gpu::event_acquire(*grant.on);
  // A wait holds what the event is now: it can be used again at once.
  sending.refused =
      downs == 0 || sending.across == 0 || !gpu::event_record(*packet.device, gpu::StreamRole::kDown, downs) ||
      !gpu::stream_wait(*grant.on, gpu::StreamRole::kPeer, downs) ||
      !gpu::copy_peer(*grant.on, grant.far, *packet.device, packet.buffer + packet.low + head, packet.bytes - head) ||
      !gpu::event_record(*grant.on, gpu::StreamRole::kPeer, sending.across);
  gpu::event_release(*packet.device, downs);
}

/// Entry's memory to the program's buffer, all on devices. The head is in the packet's host memory.
bool empty_straight(Entry& entry, Packet& packet, uint64_t bytes) {
  char* const to = packet.buffer + packet.low;
  const uint64_t head = bytes < entry.cut.in_head() ? bytes : entry.cut.in_head();
  entry.emptied_by = packet.device;
  const bool good =
      gpu::copy_up(*packet.device, to, packet.host, head) &&
      gpu::copy_peer(*packet.device, to + head, *entry.device, entry.far, bytes - head, gpu::StreamRole::kUp);
  return gpu::event_record(*packet.device, gpu::StreamRole::kUp, entry.emptied) && good;
}

/// To the host, from where it is delivered like chunks.
bool empty_down(Entry& entry) {
  entry.emptied_by = entry.device;
  if (entry.memory == nullptr) {
    entry.memory = static_cast<char*>(gpu::pinned_acquire(*entry.device, entry.cut.bytes));
    entry.room = entry.memory != nullptr ? entry.cut.bytes : 0;
  }
  if (entry.memory == nullptr)
    entry.memory = static_cast<char*>(memory::blocks.allocate(entry.cut.bytes));  // room 0: not pinned
  return entry.memory != nullptr &&
         gpu::copy_down(*entry.device, entry.memory + entry.cut.in_head(), entry.far, entry.cut.size(0)) &&
         gpu::event_record(*entry.device, gpu::StreamRole::kDown, entry.emptied);
}

}  // namespace

uint64_t chunked_node() {
  static constinit uint64_t node = 0;
  static constinit bool asked = false;
  if (!asked) {
    asked = true;
    node = system_id();
    if (const int64_t ranks = config_integer("RESIL_NODE_RANKS"); node != 0 && ranks > 0)
      node += static_cast<uint64_t>(own_rank() / ranks);
  }
  return node;
}

// --- Receiver ---

bool chunked_peer_wanted(int32_t from, uint64_t node, uint64_t bytes, gpu::Device& device) {
  size_t unused = 0, all = 0;
  const uint64_t wanted = bytes + kBlock;
  return chunked_peer_memory > taken && wanted <= chunked_peer_memory - taken && node != 0 && node == chunked_node() &&
         cannot[from & 63] != from + 1 && gpu::device_room(device, &unused, &all) && unused > wanted &&
         unused - wanted >= all / kLeft;
}

bool chunked_peer_take(Entry& entry, gpu::IpcHandle* handle) {
  *handle = {};
  const uint64_t bytes = rounded(entry.cut);
  entry.far = static_cast<char*>(gpu::device_allocate(*entry.device, bytes));
  if (entry.far == nullptr) return false;
  if (entry.from == own_rank() || gpu::ipc_export(*entry.device, entry.far, handle)) {
    taken += bytes;
    return true;
  }
  gpu::device_free(*entry.device, entry.far);
  entry.far = nullptr;
  return false;
}

void chunked_peer_give(Entry& entry, bool shared) {
  if (entry.far != nullptr && (!shared || entry.lost)) {
    gpu::device_free(*entry.device, entry.far);  // of a context that is gone: nothing
    taken -= rounded(entry.cut);
  }
  entry.far = nullptr;
}

void chunked_peer_refused(int32_t from) { cannot[from & 63] = from + 1; }

bool chunked_peer_empty(Entry& entry, Message& op) {
  Packet& packet = op.packet;
  gpu::Device& device = entry.straight ? *packet.device : *entry.device;
  entry.emptied = gpu::event_acquire(device);
  const uint64_t bytes = entry.cut.bytes < packet.bytes ? entry.cut.bytes : packet.bytes;
  if (entry.emptied != 0 && (entry.straight ? empty_straight(entry, packet, bytes) : empty_down(entry))) return true;
  entry.refused = true;
  copy_failed(op, "up");
  chunked_devices_changed();
  return false;
}

gpu::State chunked_peer_emptied(Entry& entry) {
  const gpu::State state =
      entry.emptied != 0 ? gpu::event_query(*entry.emptied_by, entry.emptied) : gpu::State::kFailed;
  if (state != gpu::State::kPending && entry.emptied != 0) {
    gpu::event_release(*entry.emptied_by, entry.emptied);
    entry.emptied = 0;
  }
  return state;
}

void chunked_peer_clear(Entry& entry) {
  if (entry.cut.peer == 0 || entry.memory == nullptr) return;
  if (entry.room != 0) gpu::pinned_release(entry.memory);
  else memory::blocks.release(entry.memory);
  entry.memory = nullptr;
  entry.room = 0;
}

// --- Sender ---

bool chunked_peer_open(Grant& grant, gpu::Device& device) {
  // What was opened in a context that is gone can be opened anew.
  if (grant.opened && (grant.on == &device || gpu::alive(*grant.on))) [[likely]]
    return true;
  grant.opened = false;
  void* memory = nullptr;
  if (grant.to == own_rank()) {
    const Entry& entry = *chunked_entry_numbered(grant.number);
    if (!gpu::alive(*entry.device)) return false;
    grant.on = entry.device;
    memory = entry.far;
  } else {
    grant.on = &device;
    if (!gpu::ipc_open(device, grant.handle, &memory)) return false;
  }
  grant.far = static_cast<char*>(memory);
  return grant.opened = grant.shared = true;
}

void chunked_peer_defer(Sending& sending) {
  sending.deferred = true;
  *deferred_end = &sending;
  deferred_end = &sending.next_deferred;
}

void chunked_peers_begin() {
  while (deferred != nullptr) {
    Sending& sending = *deferred;
    deferred = sending.next_deferred;
    sending.next_deferred = nullptr;
    begin(sending);
  }
  deferred_end = &deferred;
}

gpu::State chunked_peer_state(Sending& sending, bool wait) {
  if (sending.deferred && !wait) return gpu::State::kPending;
  if (sending.deferred) chunked_peers_begin();
  if (sending.refused) return gpu::State::kFailed;
  gpu::State state;
  while ((state = gpu::event_query(*sending.grant->on, sending.across)) == gpu::State::kPending && wait) sched_yield();
  return state;
}

void chunked_peer_leave(Sending& sending) {
  if (sending.deferred) {
    Sending** place = &deferred;
    while (*place != &sending) place = &(*place)->next_deferred;
    *place = sending.next_deferred;
    for (deferred_end = &deferred; *deferred_end != nullptr;) deferred_end = &(*deferred_end)->next_deferred;
    sending.deferred = false;
  }
  if (sending.across == 0) return;
  while (gpu::event_query(*sending.grant->on, sending.across) == gpu::State::kPending) sched_yield();
  gpu::event_release(*sending.grant->on, sending.across);
  sending.across = 0;
}

void chunked_peer_close(Grant& grant) {
  if (grant.opened && grant.to != own_rank()) gpu::ipc_close(*grant.on, grant.handle, grant.far);
  grant.opened = false;
}

}  // namespace resil::staging
