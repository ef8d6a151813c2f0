// SPDX-License-Identifier: Apache-2.0
//
// The bytes of rank-NNNNN.rec, little-endian. docs/RECORD.md, "Format", says the same in words;
// scripts/resil_tool/recording.py mirrors it. Used by the writer and the reader only.
//
//   file    = head (kHeadBytes: FileHead, then FileState in its last bytes), blocks
//   block   = BlockHead, payload
//   segment = the payloads of one stream's blocks from one with kBlockFirst to the next: items whose tables and
//             predictions start from nothing, so that reading can begin at any segment
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checksum/record/format.h"
#include "shim/base/digest/compat.h"

namespace resil::record {

constexpr uint64_t kFileMagic = 0x4345524c49534552;  // the bytes "RESILREC"
constexpr uint32_t kStateMagic = 0x54415453;  // "STAT"
constexpr uint32_t kBlockMagic = 0x4b4c4252;  // "RBLK"
constexpr uint32_t kHeadBytes = 4096;
constexpr uint32_t kStateAt = kHeadBytes - 64;
constexpr uint32_t kMaxPayload = 64 << 10;

struct FileHead {
  uint64_t magic;
  uint32_t version;
  uint32_t head_bytes;
  uint32_t crc;  ///< of all bytes after it up to kStateAt
  uint32_t identity_bytes;
  Identity identity;
};
static_assert(sizeof(FileHead) <= kStateAt && sizeof(Identity) == 1464);

enum class FilePhase : uint32_t { kRunning = 1, kFinished = 2, kAborted = 3, kFailed = 4 };

/// The only bytes of a file that are ever written again.
struct FileState {
  uint32_t magic;
  uint32_t crc;  ///< of all bytes after it
  uint32_t phase;  ///< FilePhase
  int32_t error;  ///< errno with kFailed; 0: it was something else, e.g. timeout
  uint64_t file_bytes, blocks, calls;  ///< at the end; 0 while running
  uint64_t seconds;  ///< since 1970
  uint8_t reserved[16];
};
static_assert(sizeof(FileState) == 64);

constexpr uint32_t kMatchStream = 0;  ///< what receives with wildcards got, of all threads

enum BlockFlag : uint16_t {
  kBlockFirst = 1,  ///< begins a segment
  kBlockOpens = 2,  ///< begins the stream
  kBlockCloses = 4,  ///< ends the stream; may be empty
};

struct BlockHead {
  uint32_t magic;
  uint32_t crc;  ///< of the rest of this head
  uint32_t payload_crc;
  uint32_t payload_bytes;
  uint32_t stream;
  uint16_t flags;  ///< BlockFlag
  uint16_t reserved;
  uint32_t segment;  ///< number in its stream, from 0
  uint32_t offset;  ///< of the payload in its segment
  uint64_t sequence;  ///< number of the block in the file, from 0
  uint64_t number;  ///< calls of the stream before this segment
  uint64_t ordinal;  ///< requests started by the stream before this segment
  uint64_t time;  ///< CLOCK_REALTIME when it was written, nanoseconds
};
static_assert(sizeof(BlockHead) == 64);

/// Of the first kHeadBytes of a file.
inline uint32_t head_crc(const void* page) {
  constexpr size_t begin = offsetof(FileHead, identity_bytes);
  return compat_crc32(static_cast<const char*>(page) + begin, kStateAt - begin);
}
inline uint32_t state_crc(const FileState& state) {
  return compat_crc32(&state.phase, sizeof(state) - offsetof(FileState, phase));
}
inline uint32_t block_crc(const BlockHead& block) {
  return compat_crc32(&block.payload_crc, sizeof(block) - offsetof(BlockHead, payload_crc));
}

// Items. The first byte is a token; numbers are LEB128, signed ones zigzag. In the matches an item has no token.
constexpr uint8_t kDirectShapes = 0xc0;  // below: a call with this shape
enum Token : uint8_t {
  kTokenShape = 0xc0,  ///< a call: shape number - kDirectShapes
  kTokenNewShape = 0xc1,  ///< a call whose shape follows and is defined by it
  kTokenStep = 0xc2,  ///< step of the calls from here, as difference; a segment begins with 0
  kTokenCallName = 0xc3,  ///< defines the next call name
  kTokenObject = 0xc4,  ///< defines the next object file
  kTokenSite = 0xc5,  ///< defines the next call site: object + 1 (0: none), offset
  kTokenComm = 0xc6,  ///< defines the next communicator: 8 bytes
  kTokenName = 0xc7,  ///< defines the next name of a logged value
  kTokenStream = 0xc8,  ///< first item of a stream: object of its first call site, offset, how many were before
  kTokenOutcome = 0xc9,
  kTokenIndices = 0xca,
  kTokenLogged = 0xcb,
  kTokenText = 0xcc,
  kTokenTime = 0xcd,  ///< of MPI_Wtime: difference to the clock's last value in the segment, which begins with 0
  kTokenClock = 0xce,  ///< of another clock: its number, then as above
  kTokenCompletion = 0xd0,  ///< + ValueType: of the request after the last one completed
  kTokenCompletionExplicit = 0xd8,  ///< + ValueType
};
constexpr uint8_t kOutcomeTrue = 0x80;  // with OutcomePart bits
constexpr uint8_t kCompletionStream = 0x80;  // with CompletionFlag bits: the stream that started it follows

/// Fields of a shape that differ from the last shape of the same site.
enum ShapeField : uint8_t {
  kShapeCall = 1,
  kShapeFlags = 2,
  kShapeComm = 4,
  kShapePeer = 8,
  kShapeTag = 16,
  kShapeBytes = 32,
  kShapeTypes = 64,
  kShapeCounted = 128,  ///< the value itself: calls of this shape carry a count
};

// Tables of a segment. Entry number n lies at n modulo the size: later definitions replace the oldest.
constexpr uint32_t kShapes = 1024, kSites = 512, kComms = 256, kLoggedNames = 256;
// These are never replaced: there are fewer functions; sites in further object files have none.
constexpr uint32_t kCallNames = 1024, kObjects = 64;
constexpr uint32_t kMaxPath = 1024;  ///< with its zero
constexpr uint32_t kMaxText = 1024;  ///< with its zero
constexpr uint32_t kItemRoom = 2560;  ///< no item with all that it must define first needs more

constexpr uint64_t zigzag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1))); }

/// A shape: what calls in a loop have in common. Values of the process that writes or reads.
struct Shape {
  uint64_t comm, bytes, site;
  int32_t peer, tag;
  uint16_t call, flags;
  uint8_t in_type, out_type, counted;
  uint8_t none;  ///< 1: not a shape; what a call site has before its first one
};
static_assert(sizeof(Shape) == 40);

}  // namespace resil::record
