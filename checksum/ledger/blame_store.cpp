// SPDX-License-Identifier: Apache-2.0
//
// Kept contents: the first bytes of packets and the digests of their leaves, in rings of bytes.

#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

/// Padding of x86 long doubles is no data: it counts as zeros in the digest, so it does in the copy.
void clear_padding(char* stream, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i)
    if (i % 16 >= 10) stream[i] = 0;
}

}  // namespace

void capture(const View& view, uint64_t bytes, Content* content) {
  const uint64_t start = bytes < kKeptBytes ? bytes : kKeptBytes;
  content->bytes = static_cast<uint32_t>(type_pack(*view.type, view.buffer, view.count, 0, start, content->data));
  content->leaves = 0;
  if (view.type->padded) [[unlikely]]
    clear_padding(content->data, content->bytes);
  if (bytes <= kLeafBytes) return;
  Work<WorkLeaf> room;
  char* const packed = room->bytes;
  for (uint64_t at = 0; at < bytes && content->leaves < kKeptLeaves; at += kLeafBytes) {
    const uint64_t piece = bytes - at < kLeafBytes ? bytes - at : kLeafBytes;
    const char* data = static_cast<const char*>(view.buffer) + view.type->low + at;
    if (!view.type->contiguous) {
      type_pack(*view.type, view.buffer, view.count, at, piece, packed);
      if (view.type->padded) [[unlikely]]
        clear_padding(packed, piece);
      data = packed;
    }
    content->leaf[content->leaves] = digest_leaf(data, piece, content->leaves);
    ++content->leaves;
  }
}

bool Store::create() {
  memory_ = memory::map_array<char>(kStoreBytes);
  head_ = 0;
  return memory_ != nullptr;
}

Kept Store::put(const Content& content) {
  const uint64_t leaf_bytes = content.leaves * sizeof(uint64_t), bytes = leaf_bytes + content.bytes;
  if (bytes == 0) return {};
  if (head_ % kStoreBytes + bytes > kStoreBytes)  // an entry lies in one piece
    head_ += kStoreBytes - head_ % kStoreBytes;
  const Kept kept = {head_, static_cast<uint16_t>(content.bytes), static_cast<uint16_t>(content.leaves)};
  char* place = memory_ + head_ % kStoreBytes;
  memcpy(place, content.leaf, leaf_bytes);
  memcpy(place + leaf_bytes, content.data, content.bytes);
  head_ += (bytes + 7) / 8 * 8;
  return kept;
}

bool Store::get(const Kept& kept, Content* content) const {
  content->bytes = content->leaves = 0;
  if ((kept.bytes == 0 && kept.leaves == 0) || head_ - kept.at > kStoreBytes) return false;
  const char* place = memory_ + kept.at % kStoreBytes;
  memcpy(content->leaf, place, kept.leaves * sizeof(uint64_t));
  memcpy(content->data, place + kept.leaves * sizeof(uint64_t), kept.bytes);
  content->bytes = kept.bytes;
  content->leaves = kept.leaves;
  return true;
}

}  // namespace resil::blame
