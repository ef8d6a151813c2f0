// SPDX-License-Identifier: Apache-2.0
//
// Memory of the overlay's frames: pages that are kept, and mappings of their own for what is longer. Bounded together.
// One thread. Not a memory::BlockPool: close() unmaps everything, since leaders come and go during a run, and one bound
// holds for pages, long frames and the overlay's own tables.
#pragma once

#include <cstdint>

namespace resil::hang::overlay {

struct Buffer {
  Buffer* next;
  uint32_t capacity;
  uint32_t begin, end;  ///< what is in it
  bool is_page;

  uint8_t* data() { return reinterpret_cast<uint8_t*>(this + 1); }
  uint32_t room() const { return capacity - end; }
  uint32_t used() const { return end - begin; }
};

class BufferPool {
 public:
  static constexpr uint32_t kPage = 4096, kPageRoom = kPage - sizeof(Buffer);

  void open(uint64_t most_bytes) { most_ = most_bytes; }
  /// Empty, for `bytes` at least; null: the bound is reached.
  Buffer* allocate(uint32_t bytes);
  void release(Buffer* buffer);
  void release_chain(Buffer* first);
  /// Address space that is no buffer but counts. Zeroed; null: the bound is reached.
  void* map(uint64_t bytes);
  void close();

  uint64_t most_used() const { return most_used_; }

 private:
  static constexpr uint32_t kPagesAtOnce = 16;
  struct Chunk {
    Chunk* next;
    void* memory;
    uint64_t bytes;
  };

  void* raw(uint64_t bytes);
  bool keep(void* memory, uint64_t bytes);

  Buffer* pages_;
  Chunk* chunks_;  ///< unmapped by close(); the records lie in `record_page_`
  uint8_t* record_page_;
  uint32_t records_left_;
  uint64_t most_, used_, most_used_;
};

}  // namespace resil::hang::overlay
