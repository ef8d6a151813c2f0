// SPDX-License-Identifier: Apache-2.0
//
// See packet.h.

#include "checksum/fault/packet.h"

#include <cstring>

#include "checksum/fault/spec.h"

namespace resil::fault {

namespace {

constexpr uint64_t kChunk = 512;  // on the stack, which may be small
constexpr int kTries = 64;

uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

}  // namespace

bool equal(const Packet& packet, uint64_t first, uint64_t length, const void* packed) {
  char chunk[kChunk];
  for (uint64_t at = 0; at < length; at += kChunk) {
    const uint64_t part = least(kChunk, length - at);
    packet.read(first + at, part, chunk);
    if (memcmp(chunk, static_cast<const char*>(packed) + at, part) != 0) return false;
  }
  return true;
}

bool equal(const Packet& left, const Packet& right) {
  char chunk[kChunk];
  for (uint64_t at = 0; at < left.bytes; at += kChunk) {
    const uint64_t part = least(kChunk, left.bytes - at);
    left.read(at, part, chunk);
    if (!equal(right, at, part, chunk)) return false;
  }
  return true;
}

void exchange(const Packet& left, const Packet& right) {
  char chunk[2][kChunk];
  for (uint64_t at = 0; at < left.bytes; at += kChunk) {
    const uint64_t part = least(kChunk, left.bytes - at);
    left.read(at, part, chunk[0]);
    right.read(at, part, chunk[1]);
    left.write(at, part, chunk[1]);
    right.write(at, part, chunk[0]);
  }
}

void copy(const Packet& from, char* to_buffer) {
  char chunk[kChunk];
  const Packet to = {to_buffer, from.count, from.type, from.bytes};
  for (uint64_t at = 0; at < from.bytes; at += kChunk) {
    const uint64_t part = least(kChunk, from.bytes - at);
    from.read(at, part, chunk);
    to.write(at, part, chunk);
  }
}

bool flip(const Packet& packet, bool sends, Draw& draw, uint64_t* position) {
  unsigned char byte;
  *position = draw.below(packet.bytes);
  packet.read(*position, 1, &byte);
  byte ^= static_cast<unsigned char>(1u << (2 * draw.below(4) + sends));
  packet.write(*position, 1, &byte);
  return true;
}

bool swap(const Packet& packet, bool sends, Draw& draw, uint64_t* position) {
  uint64_t word = 8;
  while (word > 1 && packet.bytes < 2 * word) word /= 2;
  if (!sends && (word /= 2) == 0) return false;
  const uint64_t words = packet.bytes / word;
  for (int i = 0; words > 1 && i < kTries; ++i) {
    uint64_t first = draw.below(words), second = draw.below(words);
    char left[8], right[8];
    packet.read(first * word, word, left);
    packet.read(second * word, word, right);
    if (memcmp(left, right, word) == 0) continue;
    packet.write(first * word, word, right);
    packet.write(second * word, word, left);
    *position = least(first, second) * word;
    return true;
  }
  return false;
}

bool zero(const Packet& packet, Draw& draw, uint64_t* position) {
  constexpr uint64_t kLine = 64;
  constexpr char kZeros[kLine] = {};
  const uint64_t lines = (packet.bytes + kLine - 1) / kLine;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t first = draw.below(lines) * kLine, length = least(kLine, packet.bytes - first);
    if (equal(packet, first, length, kZeros)) continue;
    packet.write(first, length, kZeros);
    *position = first;
    return true;
  }
  return false;
}

bool invert(const Packet& packet, Draw& draw, uint64_t* position, uint64_t* length) {
  unsigned char bytes[32];
  *position = draw.below(packet.bytes);
  *length = 1 + draw.below(least(sizeof(bytes), packet.bytes - *position));
  packet.read(*position, *length, bytes);
  for (uint64_t i = 0; i < *length; ++i) bytes[i] = static_cast<unsigned char>(~bytes[i]);
  packet.write(*position, *length, bytes);
  return true;
}

}  // namespace resil::fault
