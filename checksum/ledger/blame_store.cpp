// SPDX-License-Identifier: Apache-2.0
//
// Kept contents: the first bytes of packets and the digests of their pieces, in rings of bytes.

#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

/// Padding of x86 long doubles is no data: it counts as zeros in the digest, so it does in the copy. `from`: where in
/// the packet these bytes begin.
void clear_padding(char* stream, uint64_t bytes, uint64_t from) {
  for (uint64_t i = 0; i < bytes; ++i)
    if ((from + i) % 16 >= 10) stream[i] = 0;
}

}  // namespace

uint64_t copy_of(const View& view, uint64_t from, uint64_t bytes, char* to) {
  const uint64_t packed = type_pack(*view.type, view.buffer, view.count, from, bytes, to);
  if (view.type->padded) [[unlikely]]
    clear_padding(to, packed, from);
  return packed;
}

void capture(const View& view, uint64_t bytes, Content* content) {
  const uint64_t start = bytes < kKeptBytes ? bytes : kKeptBytes;
  content->bytes = static_cast<uint32_t>(copy_of(view, 0, start, content->data));
  content->leaves = 0;
  if (bytes <= kLeafBytes) return;
  Work<WorkLeaf> room;
  char* const packed = room->bytes;
  const uint64_t piece = piece_bytes(bytes);
  for (uint64_t at = 0, leaf = 0; at < bytes; at += kLeafBytes, ++leaf) {
    const uint64_t length = bytes - at < kLeafBytes ? bytes - at : kLeafBytes;
    const char* data = static_cast<const char*>(view.buffer) + view.type->low + at;
    if (!view.type->contiguous) {
      copy_of(view, at, length, packed);
      data = packed;
    }
    if (at % piece == 0) content->leaf[content->leaves++] = 0;
    content->leaf[content->leaves - 1] += digest_leaf(data, length, leaf);
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
