// SPDX-License-Identifier: Apache-2.0
//
// Trees as they travel and as the root keeps them: a frame is a header and blocks, one a communicator, by ascending id.
// Little-endian, fixed-size, no pointers. A frame may come from anywhere: block_valid before anything else.
#pragma once

#include <cstdint>

#include "detectors/hang/mismatch/tree.h"

namespace resil::hang {

constexpr uint32_t kNodeClaims = 96;  ///< of one communicator in an answer
constexpr uint32_t kFrameMagic = 0x4d4d4852;  // "RHMM"

struct FrameHeader {
  uint32_t magic;
  uint32_t bytes;  ///< of the frame, header included
  uint32_t blocks;
  uint32_t round;  ///< of the node with most; turns over what is left out when there is no room for all
  uint32_t world;
  uint32_t reserved;
};
static_assert(sizeof(FrameHeader) == 24);

/// World ranks first, first + stride, ...: `count` of them.
struct RankRun {
  int32_t first;
  uint32_t count;
  uint32_t stride;
};

struct BlockClaim {
  uint64_t n, rolling, signature, site;
  int32_t site_rank;
  uint16_t parent;  ///< index in this block, below its own; kNoClaim
  uint16_t reserved;
  uint32_t runs;  ///< of ranks that stand here; they follow the claims in their order
  uint32_t type, other_type;  ///< see Claim
  int32_t type_rank, other_rank;
  uint32_t reserved32;
};
static_assert(sizeof(BlockClaim) == 64);

/// Followed by BlockClaim[claims], ascending by n, and RankRun[runs].
struct Block {
  uint64_t comm;
  uint32_t bytes;  ///< header included, a multiple of 8
  uint32_t members;
  uint32_t flags;  ///< TreeFlag
  uint32_t claims, runs;
  // The root's own, 0 elsewhere.
  uint32_t touched;  ///< round of the last news
  uint32_t waited;  ///< rounds since there is a disagreement
  uint32_t said[2];  ///< 2 * odd ranks found so far + whether they were named: by what is called, by bytes
  uint32_t said_types;  ///< not 0: different types were told
};
static_assert(sizeof(Block) == 48);

/// World size of what looks like a frame, 0: it does not.
uint32_t frame_world(const void* frame, uint32_t bytes);

/// Goes through the blocks of a frame; ends at the first that is not valid.
struct FrameReader {
  const char* frame;
  uint32_t bytes, used, world;
  const Block* block;  ///< null: no more
};
void frame_read(FrameReader& reader, const void* frame, uint32_t bytes, uint32_t world);
void frame_next(FrameReader& reader);

/// Is this, with at most `room` bytes behind its start, a block of a world of that size?
bool block_valid(const Block* block, uint64_t room, uint32_t world);

/// Adds what the block says to the tree.
void block_load(Tree& tree, const Block& block);
/// Writes the tree with the most important `claims` claims; 0: does not fit. Thins the tree.
uint32_t block_store(Tree& tree, uint32_t claims, void* room, uint64_t room_bytes);

/// Makes a frame of blocks as they come, which must be by ascending id.
struct FrameWriter {
  char* frame;
  uint32_t room, used, blocks;
};
void frame_begin(FrameWriter& writer, void* frame, uint32_t room);
/// Where the next block goes, and how much room there is.
inline char* frame_place(const FrameWriter& writer) { return writer.frame + writer.used; }
inline uint32_t frame_room(const FrameWriter& writer) { return writer.room - writer.used; }
inline void frame_took(FrameWriter& writer, uint32_t bytes) {
  writer.used += bytes;
  ++writer.blocks;
}
/// The tree, in less detail where the room is short; false: no room even so.
bool frame_tree(FrameWriter& writer, Tree& tree);
/// A copy; false: no room.
bool frame_append(FrameWriter& writer, const Block& block);
/// Bytes of the whole frame, 0 when it has no block.
uint32_t frame_end(const FrameWriter& writer, uint32_t round, uint32_t world);

}  // namespace resil::hang
