// SPDX-License-Identifier: Apache-2.0
//
// See frame.h.

#include "detectors/hang/mismatch/frame.h"

#include <cstring>

namespace resil::hang {

namespace {

const BlockClaim* claims_of(const Block& block) { return reinterpret_cast<const BlockClaim*>(&block + 1); }
const RankRun* runs_of(const Block& block) { return reinterpret_cast<const RankRun*>(claims_of(block) + block.claims); }

/// Greedy runs of equal stride over the ranks that stand at `claim`. Returns how many; writes what fits.
uint32_t encode_runs(const Tree& tree, uint16_t claim, RankRun* runs, uint64_t room) {
  uint32_t count = 0;
  RankRun run = {0, 0, 1};
  for (int32_t rank = tree.low; rank <= tree.high; ++rank) {
    if (tree.position[rank] != claim) continue;
    const auto step = static_cast<uint32_t>(rank - run.first);
    if (run.count == 1) {
      run.stride = step;
      run.count = 2;
    } else if (run.count > 1 && step == run.stride * run.count) {
      ++run.count;
    } else {
      if (run.count != 0 && count++ < room) runs[count - 1] = run;
      run = {rank, 1, 1};
    }
  }
  if (run.count != 0 && count++ < room) runs[count - 1] = run;
  return count;
}

}  // namespace

bool block_valid(const Block* block, uint64_t room, uint32_t world) {
  if (room < sizeof(Block) || block->bytes < sizeof(Block) || block->bytes > room || block->bytes % 8 != 0 ||
      block->comm == 0)
    return false;
  if (block->claims == 0 || block->claims > kMaxClaims / 2 || block->runs > block->bytes / sizeof(RankRun))
    return false;
  const uint64_t wanted =
      sizeof(Block) + uint64_t{block->claims} * sizeof(BlockClaim) + uint64_t{block->runs} * sizeof(RankRun);
  if (block->bytes != ((wanted + 7) & ~uint64_t{7})) return false;
  const BlockClaim* claims = claims_of(*block);
  uint64_t runs = 0;
  for (uint32_t i = 0; i < block->claims; ++i) {
    if (claims[i].n == 0 || (i > 0 && claims[i].n < claims[i - 1].n) ||
        (claims[i].parent != kNoClaim && claims[i].parent >= i))
      return false;
    if (claims[i].parent != kNoClaim && claims[claims[i].parent].n >= claims[i].n) return false;
    runs += claims[i].runs;
  }
  if (runs != block->runs) return false;
  const RankRun* run = runs_of(*block);
  for (uint32_t i = 0; i < block->runs; ++i)
    if (run[i].first < 0 || run[i].count == 0 || run[i].stride == 0 || run[i].count > world ||
        static_cast<uint64_t>(run[i].first) + uint64_t{run[i].count - 1} * run[i].stride >= world)
      return false;
  return true;
}

uint32_t frame_world(const void* frame, uint32_t bytes) {
  const auto* header = static_cast<const FrameHeader*>(frame);
  return bytes >= sizeof(FrameHeader) && header->magic == kFrameMagic && header->bytes == bytes ? header->world : 0;
}

void frame_read(FrameReader& reader, const void* frame, uint32_t bytes, uint32_t world) {
  reader = {static_cast<const char*>(frame), bytes, sizeof(FrameHeader), world, nullptr};
  if (bytes == 0 || frame_world(frame, bytes) != world) return;
  const auto* first = reinterpret_cast<const Block*>(reader.frame + reader.used);
  reader.block = block_valid(first, bytes - reader.used, world) ? first : nullptr;
}

void frame_next(FrameReader& reader) {
  reader.used += reader.block->bytes;
  const auto* next = reinterpret_cast<const Block*>(reader.frame + reader.used);
  const bool more = reader.used < reader.bytes && block_valid(next, reader.bytes - reader.used, reader.world) &&
                    next->comm > reader.block->comm;
  reader.block = more ? next : nullptr;
}

void block_load(Tree& tree, const Block& block) {
  tree_make_room(tree, block.claims);
  tree.flags |= block.flags;
  uint16_t index[kMaxClaims / 2];
  const BlockClaim* claims = claims_of(block);
  const RankRun* run = runs_of(block);
  for (uint32_t i = 0; i < block.claims; ++i) {
    const BlockClaim& from = claims[i];
    index[i] = tree_claim(tree, from.n, from.rolling);
    Claim& claim = tree.claims[index[i]];
    if (claim.signature == 0) claim.signature = from.signature;
    tree_note_type(tree, index[i], from.type, from.type_rank);
    tree_note_type(tree, index[i], from.other_type, from.other_rank);
    if (claim.site == 0) {
      claim.site = from.site;
      claim.site_rank = from.site_rank;
    }
    if (from.parent != kNoClaim) tree_link(tree, index[from.parent], index[i]);
    for (uint32_t r = 0; r < from.runs; ++r, ++run)
      for (uint32_t k = 0; k < run->count; ++k)
        tree_place(tree, run->first + static_cast<int32_t>(k * run->stride), index[i]);
  }
}

uint32_t block_store(Tree& tree, uint32_t claims, void* room, uint64_t room_bytes) {
  tree_thin(tree, claims < kMaxClaims / 2 ? claims : kMaxClaims / 2);
  tree_sort(tree);
  const uint64_t fixed = sizeof(Block) + uint64_t{tree.count} * sizeof(BlockClaim);
  if (tree.count == 0 || room_bytes < fixed) return 0;
  auto* block = static_cast<Block*>(room);
  *block = {};
  block->comm = tree.comm;
  block->members = tree.members;
  block->flags = tree.flags;
  block->claims = tree.count;
  auto* out = reinterpret_cast<BlockClaim*>(block + 1);
  auto* runs = reinterpret_cast<RankRun*>(out + tree.count);
  const uint64_t run_room = (room_bytes - fixed) / sizeof(RankRun);
  uint64_t total = 0;
  for (uint32_t i = 0; i < tree.count; ++i) {
    const Claim& claim = tree.claims[tree.order[i]];
    const uint32_t used = encode_runs(tree, tree.order[i], runs + total, run_room - total);
    if (total + used > run_room) return 0;
    out[i] = {claim.n,
              claim.rolling,
              claim.signature,
              claim.site,
              claim.site_rank,
              claim.parent == kNoClaim ? kNoClaim : tree.claims[claim.parent].sorted,
              0,
              used,
              claim.type,
              claim.other_type,
              claim.type_rank,
              claim.other_rank,
              0};
    total += used;
  }
  block->runs = static_cast<uint32_t>(total);
  const uint64_t bytes = (fixed + total * sizeof(RankRun) + 7) & ~uint64_t{7};
  if (bytes > room_bytes || bytes > 0x7fffffff) return 0;
  memset(reinterpret_cast<char*>(room) + fixed + total * sizeof(RankRun), 0, bytes - fixed - total * sizeof(RankRun));
  block->bytes = static_cast<uint32_t>(bytes);
  return block->bytes;
}

void frame_begin(FrameWriter& writer, void* frame, uint32_t room) {
  writer = {static_cast<char*>(frame), room, room < sizeof(FrameHeader) ? room : uint32_t{sizeof(FrameHeader)}, 0};
}

bool frame_tree(FrameWriter& writer, Tree& tree) {
  for (uint32_t claims = kNodeClaims; claims >= 4; claims /= 2)
    if (const uint32_t bytes = block_store(tree, claims, frame_place(writer), frame_room(writer)); bytes != 0) {
      frame_took(writer, bytes);
      return true;
    }
  return false;
}

bool frame_append(FrameWriter& writer, const Block& block) {
  if (block.bytes > frame_room(writer)) return false;
  memcpy(frame_place(writer), &block, block.bytes);
  frame_took(writer, block.bytes);
  return true;
}

uint32_t frame_end(const FrameWriter& writer, uint32_t round, uint32_t world) {
  if (writer.blocks == 0) return 0;
  *reinterpret_cast<FrameHeader*>(writer.frame) = {kFrameMagic, writer.used, writer.blocks, round, world, 0};
  return writer.used;
}

}  // namespace resil::hang
