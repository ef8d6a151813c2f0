// SPDX-License-Identifier: Apache-2.0
//
// See sides.h. The blocks of a shadow: those that the call writes first, so that they are the beginning of its stream;
// then a block that stays where it is (MPI_IN_PLACE), and those of neighbours that are MPI_PROC_NULL.

#include "pipeline/staging/sides.h"

#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/block_pool.h"

namespace resil::staging {

namespace {

struct Pieces {
  Block* blocks;  ///< room for all
  uint32_t count;
  bool unknown;  ///< a datatype that cannot be flattened
  bool surely_host;
};

void append(Pieces& p, const fault::Packet& packet, const char* buffer, bool may_join) {
  const int64_t offset = packet.buffer - buffer;
  Block* last = may_join && p.count != 0 ? &p.blocks[p.count - 1] : nullptr;
  if (last != nullptr && last->type == packet.type && last->offset + last->count * packet.type->extent == offset)
    last->count += packet.count;  // equal counts: one piece
  else p.blocks[p.count++] = {offset, packet.count, packet.type};
  int64_t low, high;
  type_span(*packet.type, packet.count, &low, &high);
  p.surely_host = p.surely_host && host_memory_known(packet.buffer + low, static_cast<size_t>(high - low));
}

void collect(Thread& thread, const fault::Layout& layout, const int* sources, Pieces& p, Written* written) {
  auto stays = [&](int64_t i) { return i == layout.own || (sources != nullptr && sources[i] < 0); };
  fault::Packet packet;
  for (int64_t i = 0; i < layout.blocks; ++i) {
    if (fault::block_of(thread, layout, i, &packet)) {
      if (!stays(i)) {
        append(p, packet, layout.buffer, true);
        written->bytes += packet.bytes;
      }
    } else if (packet.count > 0 && packet.type == nullptr) {
      p.unknown = true;
    }
  }
  written->blocks = p.count;
  for (int64_t i = 0; i < layout.blocks; ++i)
    if (stays(i) && fault::block_of(thread, layout, i, &packet)) append(p, packet, layout.buffer, false);
}

bool is_host(gpu::Memory memory) { return memory == gpu::Memory::kHost || memory == gpu::Memory::kPinned; }

}  // namespace

Refusal side_open(Thread& thread, const fault::Layout& layout, const int* sources, Packet* packet, Written* written) {
  *packet = {};
  *written = {0, 0};
  if (layout.blocks <= 0) return Refusal::kHostBuffer;
  Block few[8];
  Pieces pieces = {few, 0, false, true};
  if (layout.blocks > 8)
    pieces.blocks = static_cast<Block*>(memory::blocks.allocate(static_cast<size_t>(layout.blocks) * sizeof(Block)));
  if (pieces.blocks == nullptr) return Refusal::kPinnedMemory;
  collect(thread, layout, sources, pieces, written);
  Refusal refusal = Refusal::kHostBuffer;
  if (pieces.unknown)
    refusal = is_host(gpu::classify(layout.buffer, 1).memory) ? Refusal::kHostBuffer : Refusal::kDatatype;
  else if (pieces.count != 0 && !pieces.surely_host)
    refusal = packet_open_blocks(packet, thread, layout.buffer, pieces.blocks, pieces.count);
  if (refusal != Refusal::kNone) *packet = {};
  if (pieces.blocks != few) memory::blocks.release(pieces.blocks);
  return refusal;
}

Uncovered reason_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kForeign: return Uncovered::kForeign;
    case Refusal::kDatatype: return Uncovered::kDatatype;
    case Refusal::kPinnedMemory: return Uncovered::kPinnedMemory;
    case Refusal::kDevice: return Uncovered::kDevice;
    default: return Uncovered::kOther;
  }
}

}  // namespace resil::staging
