// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: the blocks that collectives have brought here lately, right or wrong. Where two blocks of one call
// have changed places, the sender of the one knows nothing of the other's content; its sender does.

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

constexpr uint32_t kBlocks = 8192;

struct Block {
  uint64_t comm, digest, bytes;
  Peer* from;
  uint32_t tag;
};

SpinLock lock;
Block* blocks;
uint64_t noted;

}  // namespace

bool slots_create() {
  noted = 0;
  blocks = mode.full ? memory::map_array<Block>(kBlocks) : nullptr;
  return !mode.full || blocks != nullptr;
}

void block_received(Peer& from, const Record& record) {
  if (blocks == nullptr || (record.flags & ledger::kUnchecked) != 0) return;
  Guard guard(lock);
  blocks[noted++ % kBlocks] = {record.comm, record.digest, record.bytes, &from, record.tag};
}

Peer* slot_with(const Peer& from, const Record& sent, const Record& received) {
  if (blocks == nullptr || received.space != static_cast<uint8_t>(ledger::Space::kBlock)) return nullptr;
  Guard guard(lock);
  for (uint64_t i = noted, last = noted > kBlocks ? noted - kBlocks : 0; i-- > last;) {
    const Block& block = blocks[i % kBlocks];
    if (block.comm == received.comm && block.tag == received.tag && block.from != &from &&
        block.bytes == received.bytes && (block.digest == sent.digest || block.digest == received.digest))
      return block.from;
  }
  return nullptr;
}

}  // namespace resil::blame
