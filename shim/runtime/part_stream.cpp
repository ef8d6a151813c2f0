// SPDX-License-Identifier: Apache-2.0
//
// See part_stream.h.

#include "shim/runtime/part_stream.h"

#include <cstring>

#include "shim/call/parts.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/progress.h"

namespace resil {

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::begin(PrivateTag tag) {
  tag_ = tag;
  if (part_place.part == 0) {
    messages_ = memory::map_array<Message>(kMessages);
    return messages_ != nullptr;
  }
  posted_ = memory::map_array<Message>(kPosted);
  return posted_ != nullptr && inbox_.open(tag, posted_, posted_requests_, kPosted);
}

// --- The leader ----------------------------------------------------------------------------------------------------

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::has_room(size_t bytes) const {
  const auto more = static_cast<uint32_t>(bytes / kPayload + 2);
  return more < kMessages && filling_ + more - first_ < kMessages - 1;
}

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::make_room(Thread& thread, size_t bytes, uint64_t patience) {
  if (has_room(bytes)) return true;
  const uint64_t limit = ticks() + patience;
  wait_until(
      thread, [&] { return push(), parts_waiting(), has_room(bytes) || ticks() > limit; }, kForOthers);
  return has_room(bytes);
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::put(const void* from, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(from);
  while (bytes != 0) {
    Message* message = &messages_[filling_ % kMessages];
    if (message->bytes == kPayload) {
      message = &messages_[++filling_ % kMessages];
      message->bytes = 0;
    }
    const size_t piece = bytes < kPayload - message->bytes ? bytes : kPayload - message->bytes;
    memcpy(message->payload + message->bytes, at, piece);
    message->bytes += static_cast<uint32_t>(piece);
    at += piece;
    bytes -= piece;
  }
}

/// What is under way to a part that has been dropped stays MPI's, and may be read by it whenever that part goes on
/// after all: the rest goes by other memory.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::look_for_dropped() {
  const uint32_t dropped = parts_dropped.load(std::memory_order_relaxed);
  if (dropped == dropped_) [[likely]]
    return;
  auto* fresh = memory::map_array<Message>(kMessages);
  if (fresh == nullptr) return;
  for (uint32_t number = first_; number <= filling_; ++number)
    memcpy(&fresh[number % kMessages], &messages_[number % kMessages], sizeof(Message));
  messages_ = fresh;
  dropped_ = dropped;
}

/// Takes back what has been taken, and sends what is full or closed.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::push() {
  look_for_dropped();
  uint32_t first = filling_;
  for (int part = 1; part < part_place.parts; ++part) {
    if (!is_live(part)) continue;
    uint32_t& taken = taken_[part];
    uint32_t& sent = sent_[part];
    uint64_t* requests = requests_[part];
    for (; taken != sent; ++taken) {
      uint64_t& request = requests[taken % kUnderWay];
      bool failed = false;
      if (request != 0 && !mailbox::is_over(&request, &failed)) break;
      request = 0;
    }
    for (; sent != filling_ && sent - taken < kUnderWay; ++sent) {
      const Message& message = messages_[sent % kMessages];
      uint64_t& request = requests[sent % kUnderWay];
      if (!mailbox::send_until_taken(&message, offsetof(Message, payload) + message.bytes, part_place.partner(part),
                                     tag_, &request))
        request = 0;
    }
    if (taken - first_ < first - first_) first = taken;
  }
  first_ = first;
}

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::is_empty() const {
  bool all = !has_news();
  for (int part = 1; part < part_place.parts; ++part) all = all && (!is_live(part) || sent_[part] == filling_);
  return all;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::send() {
  push();
  Message& message = messages_[filling_ % kMessages];
  if (message.bytes == 0 || !has_room(0)) return;
  // What nobody would be sent yet stays as it is: more of it fits into one message.
  bool anybody = false;
  for (int part = 1; part < part_place.parts; ++part)
    anybody = anybody || (is_live(part) && sent_[part] == filling_ && filling_ - taken_[part] < kUnderWay);
  if (!anybody) return;
  message.last = 0;
  messages_[++filling_ % kMessages].bytes = 0;
  push();
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::end(Thread& thread) {
  if (messages_ == nullptr) return;
  wait_until(
      thread, [this] { return push(), parts_waiting(), has_room(1); }, kForOthers);
  messages_[filling_ % kMessages].last = 1;
  messages_[++filling_ % kMessages].bytes = 0;
  wait_until(
      thread, [this] { return push(), parts_waiting(), first_ == filling_; }, kForOthers);
}

// --- A follower ----------------------------------------------------------------------------------------------------

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::receive() {
  bool failed = false;
  while (inbox_.is_open() && inbox_.has_come(&failed)) {
    if (failed) {
      ended_ = true;
      inbox_.close();
      return false;
    }
    const Message& message = inbox_.message();
    if (!memory::grow_array(&bytes_, &byte_room_, byte_count_ + message.bytes, 65536u)) ended_ = true;
    const bool kept = !ended_;
    if (kept) memcpy(bytes_ + byte_count_, message.payload, message.bytes), byte_count_ += message.bytes;
    if (message.last != 0) ended_ = true;
    inbox_.again();
    if (kept) return true;
  }
  return false;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::keep_from(uint32_t at) {
  memmove(bytes_, bytes_ + at, byte_count_ - at);
  byte_count_ -= at;
}

template <uint32_t kPayload, uint32_t kMessages>
size_t PartStreamOf<kPayload, kMessages>::read(void* to, size_t bytes) {
  auto* at = static_cast<unsigned char*>(to);
  size_t got = 0;
  while (got < bytes) {
    if (read_ == byte_count_) {
      read_ = byte_count_ = 0;
      if (ended_ || !receive()) break;
    }
    const size_t piece = bytes - got < byte_count_ - read_ ? bytes - got : byte_count_ - read_;
    memcpy(at + got, bytes_ + read_, piece);
    read_ += static_cast<uint32_t>(piece);
    got += piece;
  }
  return got;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::close() {
  if (inbox_.is_open()) inbox_.close();
}

template class PartStreamOf<2000, 8192>;
template class PartStreamOf<16000, 1024>;

}  // namespace resil
