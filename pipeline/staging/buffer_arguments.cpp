// SPDX-License-Identifier: Apache-2.0
//
// See buffer_arguments.h. The blocks of a shadow: those that the call writes first, so that they are the beginning of
// its stream; then a block that stays where it is (MPI_IN_PLACE), and those of neighbours that are MPI_PROC_NULL.

#include "pipeline/staging/buffer_arguments.h"

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

void append(Pieces& p, const View& view, const void* buffer, bool may_join) {
  const auto* at = static_cast<const char*>(view.buffer);
  const int64_t offset = at - static_cast<const char*>(buffer);
  Block* last = may_join && p.count != 0 ? &p.blocks[p.count - 1] : nullptr;
  if (last != nullptr && last->type == view.type && last->offset + last->count * view.type->extent == offset)
    last->count += view.count;  // equal counts: one piece
  else p.blocks[p.count++] = {offset, view.count, view.type};
  int64_t low, high;
  type_span(*view.type, view.count, &low, &high);
  p.surely_host = p.surely_host && host_memory_known(at + low, static_cast<size_t>(high - low));
}

void collect(Thread& thread, const FlatTransfer& flat, const int* sources, Pieces& p, Written* written) {
  auto stays = [&](int64_t i) { return i == flat.own || (sources != nullptr && sources[i] < 0); };
  for (int64_t i = flat.first; i < flat.end; ++i) {
    const View view = block_of(thread, flat, i);
    p.unknown = p.unknown || view.reason != Reason::kNone;
    if (view.bytes == 0 || stays(i)) continue;
    append(p, view, flat.buffer, true);
    written->bytes += view.bytes;
  }
  written->blocks = p.count;
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (!stays(i)) continue;
    if (const View view = block_of(thread, flat, i); view.bytes != 0) append(p, view, flat.buffer, false);
  }
}

}  // namespace

Refusal argument_open(Thread& thread, const FlatTransfer& flat, const int* sources, Packet* packet, Written* written) {
  *packet = {};
  *written = {0, 0};
  if (!flat.any()) return Refusal::kHostBuffer;
  const int64_t count = flat.end - flat.first;
  Block few[8];
  Pieces pieces = {few, 0, false, true};
  if (count > 8)
    pieces.blocks = static_cast<Block*>(memory::blocks.allocate(static_cast<size_t>(count) * sizeof(Block)));
  if (pieces.blocks == nullptr) return Refusal::kPinnedMemory;
  collect(thread, flat, sources, pieces, written);
  Refusal refusal = Refusal::kHostBuffer;
  if (pieces.unknown)
    refusal = gpu::is_host(gpu::classify(flat.buffer, 1).memory) ? Refusal::kHostBuffer : Refusal::kDatatype;
  else if (pieces.count != 0 && !pieces.surely_host)
    refusal = packet_open_blocks(packet, flat.buffer, pieces.blocks, pieces.count);
  if (refusal != Refusal::kNone) *packet = {};
  if (pieces.blocks != few) memory::blocks.release(pieces.blocks);
  return refusal;
}

}  // namespace resil::staging
