// SPDX-License-Identifier: Apache-2.0
//
// Pages in chunks, long buffers one by one, one bound for all.
#include "detectors/hang/overlay/buffers.h"

#include "shim/runtime/memory.h"

namespace resil::hang::overlay {

namespace {

constexpr uint64_t in_pages(uint64_t bytes) {
  return (bytes + BufferPool::kPage - 1) / BufferPool::kPage * BufferPool::kPage;
}

}  // namespace

void* BufferPool::raw(uint64_t bytes) {
  if (bytes > most_ || used_ > most_ - bytes) return nullptr;
  void* memory = memory::map(bytes);
  if (memory == nullptr) return nullptr;
  used_ += bytes;
  most_used_ = used_ > most_used_ ? used_ : most_used_;
  return memory;
}

/// Remembers for close() what lives until then.
bool BufferPool::keep(void* memory, uint64_t bytes) {
  if (records_left_ == 0) {
    record_page_ = static_cast<uint8_t*>(raw(kPage));
    if (record_page_ == nullptr) return false;
    auto* own = reinterpret_cast<Chunk*>(record_page_);
    *own = {chunks_, record_page_, kPage};
    chunks_ = own;
    record_page_ += sizeof(Chunk);
    records_left_ = kPage / sizeof(Chunk) - 1;
  }
  auto* chunk = reinterpret_cast<Chunk*>(record_page_);
  *chunk = {chunks_, memory, bytes};
  chunks_ = chunk;
  record_page_ += sizeof(Chunk);
  --records_left_;
  return true;
}

void* BufferPool::map(uint64_t bytes) {
  bytes = in_pages(bytes);
  void* memory = raw(bytes);
  if (memory == nullptr || keep(memory, bytes)) return memory;
  memory::unmap(memory, bytes);
  used_ -= bytes;
  return nullptr;
}

Buffer* BufferPool::allocate(uint32_t bytes) {
  if (bytes > kPageRoom) {
    const uint64_t whole = in_pages(uint64_t{bytes} + sizeof(Buffer));
    auto* buffer = static_cast<Buffer*>(raw(whole));
    if (buffer != nullptr) *buffer = {nullptr, static_cast<uint32_t>(whole - sizeof(Buffer)), 0, 0, false};
    return buffer;
  }
  if (pages_ == nullptr) {
    auto* memory = static_cast<uint8_t*>(map(uint64_t{kPagesAtOnce} * kPage));
    if (memory == nullptr) return nullptr;
    for (uint32_t i = kPagesAtOnce; i-- > 0;) {
      auto* page = reinterpret_cast<Buffer*>(memory + uint64_t{i} * kPage);
      *page = {pages_, kPageRoom, 0, 0, true};
      pages_ = page;
    }
  }
  Buffer* page = pages_;
  pages_ = page->next;
  *page = {nullptr, kPageRoom, 0, 0, true};
  return page;
}

void BufferPool::release(Buffer* buffer) {
  if (buffer == nullptr) return;
  if (buffer->is_page) {
    buffer->next = pages_;
    pages_ = buffer;
    return;
  }
  const uint64_t whole = uint64_t{buffer->capacity} + sizeof(Buffer);
  memory::unmap(buffer, whole);
  used_ -= whole;
}

void BufferPool::release_chain(Buffer* first) {
  while (first != nullptr) {
    Buffer* next = first->next;
    release(first);
    first = next;
  }
}

void BufferPool::close() {
  // A record page is the first record in itself and so comes last of its records.
  for (Chunk* chunk = chunks_; chunk != nullptr;) {
    const Chunk taken = *chunk;
    chunk = taken.next;
    memory::unmap(taken.memory, taken.bytes);
  }
  *this = {};
}

}  // namespace resil::hang::overlay
