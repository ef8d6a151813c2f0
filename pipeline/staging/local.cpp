// SPDX-License-Identifier: Apache-2.0
//
// MPI_Pack, MPI_Unpack, their external forms and MPI_Reduce_local with device buffers: what the call reads is copied
// down before it, what it has written is copied up after it. Either side may be on a device. Of a packed buffer only
// the part is copied that the elements of this call take.

#include "pipeline/staging/buffer_arguments.h"
#include "pipeline/staging/operation.h"
#include "shim/abi/backend.h"
#include "shim/call/thread.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/type_maps.h"

namespace resil::staging {

namespace {

struct Local {
  Packet in, out;  ///< host null: that side is not on a device
  bool refused;
};

bool on_device(const Packet& packet) { return packet.host != nullptr; }

void close(Local* local) {
  packet_close(&local->in);
  packet_close(&local->out);
  memory::blocks.release(local);
}

Refusal open_typed(Thread& thread, const LocalArgument& argument, Packet* packet) {
  const Refusal refusal =
      packet_open(packet, argument.buffer, argument.count, type_map(thread, argument.type), Layout::kShadow);
  if (refusal != Refusal::kNone) *packet = {};
  return refusal;
}

/// Of what there is, as much as these elements take.
Refusal open_packed(Thread& thread, const LocalData& data, const LocalArgument& argument, Packet* packet) {
  if (argument.count == 0 || gpu::is_host(gpu::classify(argument.buffer, 1).memory)) return Refusal::kHostBuffer;
  const int64_t most = data.packed_size(data);
  if (most < 0) return Refusal::kDatatype;
  LocalArgument part = argument;
  part.count = most < argument.count ? most : argument.count;
  part.type = backend->staging->byte_type();
  return open_typed(thread, part, packet);
}

Refusal open_argument(Thread& thread, const LocalData& data, const LocalArgument& argument, Packet* packet) {
  return argument.type != 0 ? open_typed(thread, argument, packet) : open_packed(thread, data, argument, packet);
}

bool fails(Refusal refusal) { return refusal != Refusal::kNone && refusal != Refusal::kHostBuffer; }

/// What the call reads is on the host. MPI_Reduce_local reads both.
bool copied_down(const LocalData& data, Local* local) {
  const bool both = data.packed_size == nullptr && on_device(local->out);
  if (on_device(local->in)) packet_down(&local->in);
  if (both) packet_down(&local->out);
  const bool in_good = !on_device(local->in) || packet_wait(&local->in) != PacketState::kFailed;
  const bool out_good = !both || packet_wait(&local->out) != PacketState::kFailed;
  return in_good && out_good;
}

}  // namespace

LocalWay local_begin(Thread& thread, LocalData& data) {
  if (!active() || (host_memory_known(data.in.buffer, 1) && host_memory_known(data.out.buffer, 1)))
    return LocalWay::kAsItIs;
  Local room = {};
  Refusal refusal = open_argument(thread, data, data.in, &room.in);
  if (!fails(refusal)) {
    const Refusal second = open_argument(thread, data, data.out, &room.out);
    refusal = fails(second) || refusal == Refusal::kHostBuffer ? second : refusal;
  }
  if (refusal == Refusal::kHostBuffer) return LocalWay::kAsItIs;
  auto* local = fails(refusal) ? nullptr : static_cast<Local*>(memory::blocks.allocate(sizeof(Local)));
  if (local == nullptr) {
    packet_close(&room.in);
    packet_close(&room.out);
    count_refused(fails(refusal) ? refusal : Refusal::kPinnedMemory, 0);
    return LocalWay::kAsItIs;
  }
  *local = room;
  data.held = local;
  if (!copied_down(data, local)) {
    local->refused = true;
    say_refused(data.id, "from");
    return LocalWay::kRefused;
  }
  if (on_device(local->in)) data.in.given = packet_given(local->in);
  if (on_device(local->out)) data.out.given = packet_given(local->out);
  count_staged(Path::kLocal, local->in.bytes + local->out.bytes);
  return LocalWay::kGiven;
}

int local_end(Thread&, LocalData& data, int result, int64_t packed) {
  auto* local = static_cast<Local*>(data.held);
  bool failed = local->refused;
  if (!failed && result == 0 && on_device(local->out)) {
    packet_up(&local->out, data.out.type != 0 ? ~uint64_t{0} : static_cast<uint64_t>(packed));
    failed = packet_wait(&local->out) == PacketState::kFailed;
    if (failed) say_refused(data.id, "to");
  }
  close(local);
  return failed ? raise_error(data.comm) : result;
}

}  // namespace resil::staging
