// SPDX-License-Identifier: Apache-2.0
//
// Buffers between one thread that encodes and whoever writes the file. One side fills buffer after buffer and publishes
// what is complete; the other, under the file's lock, writes from the oldest one on. No lock between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "checksum/record/layout.h"

namespace resil::record {

constexpr size_t kSegmentBytes = kMaxPayload;
constexpr unsigned kBuffers = 4;

/// One segment of a stream while it is in memory.
struct Buffer {
  enum State : uint32_t { kFree = 0, kFilling = 1, kFull = 2 };
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> committed;  ///< bytes that are whole items
  uint32_t written;  ///< the writing side's
  uint32_t segment;
  uint64_t number, ordinal;  ///< as in BlockHead
  unsigned char data[kSegmentBytes];
};

class Channel {
 public:
  /// Empties it for a new stream. Neither side may be in it.
  void begin() {
    for (Buffer& buffer : buffers_) buffer.state.store(Buffer::kFree, std::memory_order_relaxed);
    filling_ = draining_ = 0;
    segments_ = 0;
    at_ = limit_ = nullptr;
  }

  // The filling side.

  /// Where the next item goes; null: begin a segment first.
  unsigned char* room() const { return at_ <= limit_ ? at_ : nullptr; }  // both null between buffers
  /// Everything up to `end` is complete.
  void commit(unsigned char* end) {
    at_ = end;
    Buffer& buffer = buffers_[filling_];
    buffer.committed.store(static_cast<uint32_t>(end - buffer.data), std::memory_order_release);
  }
  /// The buffer in use is full; goes on with the next one. False: none is free, try again later.
  bool begin_segment(uint64_t number, uint64_t ordinal) {
    if (at_ != nullptr && buffers_[filling_].state.load(std::memory_order_relaxed) == Buffer::kFilling) {
      buffers_[filling_].state.store(Buffer::kFull, std::memory_order_release);
      filling_ = (filling_ + 1) % kBuffers;
      at_ = limit_ = nullptr;
    }
    Buffer& buffer = buffers_[filling_];
    if (buffer.state.load(std::memory_order_acquire) != Buffer::kFree) return false;
    buffer.written = 0;
    buffer.segment = segments_++;
    buffer.number = number;
    buffer.ordinal = ordinal;
    buffer.committed.store(0, std::memory_order_relaxed);
    at_ = buffer.data;
    limit_ = buffer.data + kSegmentBytes - kItemRoom;
    buffer.state.store(Buffer::kFilling, std::memory_order_release);
    return true;
  }
  /// Buffers that the other side has still to write, the one in use included.
  unsigned in_use() const {
    unsigned count = 0;
    for (const Buffer& buffer : buffers_) count += buffer.state.load(std::memory_order_relaxed) != Buffer::kFree;
    return count;
  }

  // The writing side.

  /// The buffer to write from, or null. Only full ones unless `partial`.
  Buffer* oldest(bool partial, uint32_t* end, bool* full) {
    Buffer& buffer = buffers_[draining_];
    const uint32_t state = buffer.state.load(std::memory_order_acquire);
    if (state == Buffer::kFree || (state == Buffer::kFilling && !partial)) return nullptr;
    *full = state == Buffer::kFull;
    *end = buffer.committed.load(std::memory_order_acquire);
    return *full || *end > buffer.written ? &buffer : nullptr;
  }
  /// A full buffer has been written.
  void release(Buffer* buffer) {
    draining_ = (draining_ + 1) % kBuffers;
    buffer->state.store(Buffer::kFree, std::memory_order_release);
  }
  uint32_t segments() const { return segments_; }

 private:
  unsigned char *at_, *limit_;
  unsigned filling_, draining_;
  uint32_t segments_;
  Buffer buffers_[kBuffers];
};

}  // namespace resil::record
