// SPDX-License-Identifier: Apache-2.0
//
// A packet: one buffer argument on a device and its copy in pinned host memory. What point-to-point and collective
// staging are both made of. Any of them may wait for its copies, none needs to: each has its own event.
//
// The copy in host memory is either *packed*: the data one after the other, as MPI_Pack would give (messages); or a
// *shadow*: with the very layout of the buffer, so that a call can be given `shadow - (its first byte's offset)` in
// place of the buffer, with the program's own counts, displacements and datatypes (collectives). Gaps of a layout are
// never written on the device: only data is copied up.
#pragma once

#include <cstdint>

#include "pipeline/gpu/gpu.h"
#include "pipeline/gpu/kernels/kernels.h"
#include "pipeline/staging/device_check.h"
#include "shim/model/datatype/type_map.h"
#include "shim/ring/device_work.h"

namespace resil {
struct Thread;
}

namespace resil::staging {

enum class Layout : uint8_t { kPacked, kShadow };

/// Where the data is in host memory. kIdle: nothing asked for yet.
enum class PacketState : uint8_t { kIdle, kCopying, kReady, kFailed };

/// A piece of a buffer: `count` elements at `offset` bytes from the buffer's address.
struct Block {
  int64_t offset, count;
  const TypeMap* type;
};

/// What a copy moves: the first `bytes` bytes of the data of the packet's blocks [first, last), or of its one datatype.
struct CopyRange {
  uint32_t first, last;
  uint64_t bytes;
  bool up;
};

struct Packet {
  gpu::Device* device;
  char* buffer;  ///< the program's address
  int64_t count;
  const TypeMap* type;  ///< held (type_map_hold) until packet_close; null when made of blocks
  Block* blocks;  ///< of a vector collective's side; null: count elements of `type`
  uint32_t block_count;
  uint64_t bytes;  ///< of data
  int64_t low, high;  ///< range touched, from the buffer's address
  char* host;  ///< pinned
  size_t host_bytes;
  char* scratch;  ///< pinned, while a copy is under way: the buffer as it lies, or its packed data
  void* table;  ///< likewise, pinned: the runs of `stream`
  gpu::KernelStream stream;  ///< see packet_stream()
  bool has_stream;
  bool to_pack;  ///< `scratch` is to be packed into `host` when the copy is complete
  gpu::EventHandle event;
  Layout layout;
  PacketState state;
  bool pageable;  ///< there was no pinned memory left: ordinary memory, whose copies the driver waits for
  CopyRange copy;  ///< the last one
  Check check;
  DeviceCopyWatch watch;
  bool of_message;  ///< `peer` (world rank, -1: not known) and `tag` hold
  int32_t peer, tag;
};

/// Why a buffer is not staged. kNone: it is.
enum class Refusal : uint8_t { kNone, kHostBuffer, kForeign, kDatatype, kPinnedMemory, kDevice, kBeyond };

/// Prepares a packet for `count` elements of `type` at `buffer` if that is device memory (classify; managed memory too:
/// the host's touch of it would wait for kernels). Takes pinned memory (at most mode.memory in all; then memory that is
/// not pinned), starts nothing. `kBeyond`: the range leaves its allocation; kHostBuffer also: there is no data. On any
/// refusal nothing is held. `type`: type_map() of the argument, null: kDatatype. Application's thread, inside the call
/// whose argument it is.
Refusal packet_open(Packet* packet, const void* buffer, int64_t count, const TypeMap* type, Layout layout);

/// The same for pieces (vector collectives); always a shadow. Blocks are copied; their types held.
Refusal packet_open_blocks(Packet* packet, const void* buffer, const Block* blocks, uint32_t count);

/// What a call is given in place of the buffer.
inline char* packet_given(const Packet& packet) {
  return packet.layout == Layout::kPacked ? packet.host : packet.host - packet.low;
}

/// Bytes of data in the blocks [first, last).
uint64_t packet_data(const Packet& packet, uint32_t first, uint32_t last);

/// Starts the copy of all data to the host; state becomes kCopying, kReady (nothing to copy) or kFailed.
PacketState packet_down(Packet* packet);
/// The same of whole blocks [first, last) only.
PacketState packet_down_blocks(Packet* packet, uint32_t first, uint32_t last);
/// Starts the copy of the first `bytes` bytes of the stream to the device.
PacketState packet_up(Packet* packet, uint64_t bytes);
/// As packet_down, on the kUp side: whole blocks [first, last) only (what a rank received in a vector collective).
PacketState packet_up_blocks(Packet* packet, uint32_t first, uint32_t last);
/// Looks; never blocks.
PacketState packet_poll(Packet* packet);
/// A look at one of its copies has found it under way: after a second of that others are told.
void packet_copying(Packet* packet);
/// What the copy moves, as kernels read it; theirs until the copy, and its check, are complete. kNone, kDatatype (more
/// runs than a table is made for) or kPinnedMemory.
Refusal packet_stream(Packet* packet);
/// Until the copy is complete (polls). kFailed: the runtime said so; its last error tells.
PacketState packet_wait(Packet* packet);
/// Gives everything back. A copy that is under way is waited for first.
void packet_close(Packet* packet);

}  // namespace resil::staging
