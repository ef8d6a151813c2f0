// SPDX-License-Identifier: Apache-2.0
//
// The file of one rank as its reader sees it: a head, an end, a chain of blocks. Internal to checksum/record/.
#pragma once

#include <cstdint>

#include "checksum/record/layout.h"
#include "checksum/record/reader.h"

namespace resil::record {

class BlockChain {
 public:
  /// Opens the file and reads head and state. Says nothing about whose it is. False: `problem`.
  bool open(const char* path, Problem* problem);
  void close();

  const FileHead& head() const { return head_; }
  FileEnd end() const { return end_; }
  const char* end_text() const { return end_text_; }
  const char* path() const { return path_; }

  static constexpr Place first() { return {kHeadBytes, 0}; }
  /// Head of the block at `place`, or kEnd, kCut, kDamaged (problem()). Any thread.
  Reading look(const Place& place, BlockHead* block) const;
  /// The head's payload into `to` (kMaxPayload bytes): kItem or kDamaged.
  Reading payload(const Place& place, const BlockHead& block, unsigned char* to, char* problem, size_t bytes) const;
  static Place after(const Place& place, const BlockHead& block) {
    return {place.offset + sizeof(BlockHead) + block.payload_bytes, place.sequence + 1};
  }
  /// One line about a block.
  void describe(const Place& place, const char* what, char* line, size_t bytes) const;

 private:
  bool zeros_from(uint64_t offset) const;

  int descriptor_;
  uint64_t bytes_;
  FileHead head_;
  FileState state_;
  FileEnd end_;
  char path_[1100];
  char end_text_[400];
};

}  // namespace resil::record
