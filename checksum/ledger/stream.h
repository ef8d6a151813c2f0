// SPDX-License-Identifier: Apache-2.0
//
// Records from one rank to another through shared memory: slots in a circle, one writer, one reader. A slot is a cache
// line and says itself whether it can be read, so that a record costs one line between the two cores; how far the
// reader has come travels back now and then only.
//
// The writer's calls are serialised by its ledger's lock, the reader's by its token (transport.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "checksum/ledger/record.h"

namespace resil::ledger {

struct alignas(64) StreamSlot {
  Record record;
  uint64_t sum;  ///< over the records for matching queues so far, this one included
  uint64_t total;  ///< how many these are; top bit: `sum` covers all of them
  uint32_t ordinal;  ///< of the record, low half
  std::atomic<uint32_t> ready;  ///< 1 + slots written before, low half, when the slot can be read
};
static_assert(sizeof(StreamSlot) == 64 && sizeof(Record) == 40);
constexpr uint64_t kSumsHold = uint64_t{1} << 63;

/// Where the record with that position lies. Not side by side: processors fetch neighbours of a line, in pairs and in
/// rows, and so would take slots away from the core that is about to write them.
inline uint32_t stream_place(uint32_t position, uint32_t slots) { return position * 347 & (slots - 1); }

/// Slots on their way from the core that wrote them while a reader takes many: one by one each would be waited for.
constexpr uint32_t kStreamAhead = 8;

struct alignas(64) StreamControl {
  std::atomic<uint32_t> taken;  ///< slots read, low half; an eighth of all may be missing
};

/// The writing end. Zeroed: closed.
class StreamOut {
 public:
  /// `slots`: a power of two, at least 8, all of them as mapped (zero).
  void open(StreamControl* control, StreamSlot* slot, uint32_t slots) {
    control_ = control;
    slot_ = slot;
    slots_ = slots;
  }
  bool is_open() const { return slot_ != nullptr; }
  /// Records written so far.
  uint64_t count() const { return count_; }

  /// False: full.
  template <class AnyRecord>
  bool put(const AnyRecord& record, uint64_t ordinal, uint64_t total, uint64_t sum) {
    const auto position = static_cast<uint32_t>(count_);
    if (position - seen_ == slots_) [[unlikely]] {
      seen_ = control_->taken.load(std::memory_order_acquire);
      if (position - seen_ == slots_) return false;
    }
    StreamSlot& slot = slot_[stream_place(position, slots_)];
    record_store(slot.record, record);
    slot.sum = sum;
    slot.total = total;
    slot.ordinal = static_cast<uint32_t>(ordinal);
    slot.ready.store(position + 1, std::memory_order_release);
    ++count_;
    prefetch(&slot_[stream_place(position + kAhead, slots_)]);  // the reader has it: it will be back when it is needed
    return true;
  }

  /// Is at least half of it free?
  bool has_room() {
    seen_ = control_->taken.load(std::memory_order_acquire);
    return static_cast<uint32_t>(count_) - seen_ <= slots_ / 2;
  }

 private:
  static constexpr uint32_t kAhead = 2;

  static void prefetch(StreamSlot* slot) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*slot));  // without -mprfchw the builtin fetches it for reading
#else
    __builtin_prefetch(slot, 1);
#endif
  }

  StreamControl* control_;
  StreamSlot* slot_;
  uint64_t count_;
  uint32_t slots_, seen_;
};

/// The reading end. Zeroed: closed.
class StreamIn {
 public:
  void open(StreamControl* control, const StreamSlot* slot, uint32_t slots) {
    control_ = control;
    slot_ = slot;
    slots_ = slots;
  }
  bool is_open() const { return slot_ != nullptr; }

  /// The oldest record that has not been read, null: none. Valid until advance().
  const StreamSlot* next() const {
    const StreamSlot& slot = slot_[stream_place(position_, slots_)];
    return slot.ready.load(std::memory_order_acquire) == position_ + 1 ? &slot : nullptr;
  }
  /// Brings the next slot, or one further on, here: for a reader that will want it soon, and takes it to be written.
  void prefetch(uint32_t ahead = 0) const { __builtin_prefetch(&slot_[stream_place(position_ + ahead, slots_)]); }
  void advance() {
    if (++position_ - told_ >= slots_ / 8) [[unlikely]] {
      told_ = position_;
      control_->taken.store(position_, std::memory_order_release);
    }
  }

 private:
  StreamControl* control_;
  const StreamSlot* slot_;
  uint32_t slots_, position_, told_;
};

}  // namespace resil::ledger
