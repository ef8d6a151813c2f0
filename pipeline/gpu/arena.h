// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a slab of memory in constant time, told apart outside the slab: free blocks in lists by size (eight for
// each power of two), neighbours merged as soon as they are free. A long run ends up with the whole slab in one piece
// whenever nothing is in use, and a block is at most an eighth larger than it would have to be to be found at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::gpu {

/// No lock of its own. Sizes and places in granules.
class Arena {
 public:
  static constexpr size_t kGranule = 256;  ///< bytes
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kMost = 1u << 31;  ///< granules that an arena can have

  /// Bytes of bookkeeping for `granules`; zeroed memory of that size is handed to open().
  static size_t bookkeeping(uint32_t granules) { return size_t{granules} * sizeof(Node); }
  void open(void* nodes, uint32_t granules);

  /// `size` > 0. The first granule; kNone: no block is large enough.
  uint32_t acquire(uint32_t size);
  /// Returns the block's size; 0: no block in use begins there, and nothing was done.
  uint32_t release(uint32_t first);
  uint32_t largest() const;  ///< lower bound of the largest free block

 private:
  struct Node {  ///< of a block's first granule; `first` of its last
    uint32_t size;  ///< 0: no block begins here
    uint32_t first;
    uint32_t next, prev;  ///< free blocks of one list, kNone at its ends; kUsed in `prev`: not free
  };
  static constexpr uint32_t kUsed = UINT32_MAX - 1;
  static constexpr unsigned kLists = 240;

  static unsigned list_of(uint32_t size);
  void put(uint32_t first, uint32_t size);
  void take(uint32_t first);
  uint32_t find(uint32_t size) const;

  Node* nodes_;
  uint32_t granules_;
  uint32_t heads_[kLists];
  uint64_t filled_[(kLists + 63) / 64];  ///< lists that hold something
};

}  // namespace resil::gpu
