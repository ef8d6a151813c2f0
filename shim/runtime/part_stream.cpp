// SPDX-License-Identifier: Apache-2.0
//
// See part_stream.h.

#include "shim/runtime/part_stream.h"

#include <cstring>

#include "shim/call/parts.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/progress.h"

namespace resil {

namespace {

std::atomic<uint32_t> streams_unsafe;  // how many hold what not all have taken

}  // namespace

bool part_streams_are_safe() { return streams_unsafe.load(std::memory_order_relaxed) == 0; }

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::begin(PrivateTag tag) {
  tag_ = tag;
  leads_ = part_place.part == 0;
  if (leads_ || (part_place.parts > 2 && !part_place.fed)) messages_ = memory::map_array<Message>(kMessages);
  if (leads_) {
    if (messages_ != nullptr) begin_message();
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
void PartStreamOf<kPayload, kMessages>::begin_message() {
  messages_[filling_ % kMessages].bytes = 0;
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
void PartStreamOf<kPayload, kMessages>::close_message(Last last) {
  Message& message = messages_[filling_ % kMessages];
  message.number = filling_;
  message.all_have = first_;
  message.last = last;
  message.part = part_place.part;
  message.begins = begins_;
  begins_ = false;
  ++filling_;
  begin_message();
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::put(const void* from, size_t bytes) {
  if (!unsafe_) unsafe_ = true, streams_unsafe.fetch_add(1, std::memory_order_relaxed);
  const auto* at = static_cast<const unsigned char*>(from);
  while (bytes != 0) {
    Message* message = &messages_[filling_ % kMessages];
    if (message->bytes == kPayload) {
      close_message(kMore);
      message = &messages_[filling_ % kMessages];
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

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::is_sent(int part) const {
  return leads_ ? part != part_place.part && is_live(part) : handing_ && part == lead_;
}

/// Takes back what has been taken, and sends what is full or closed.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::push() {
  if (leads_) look_for_dropped();
  const uint32_t until = leads_ ? filling_ : hand_until_;
  uint32_t first = until;
  for (int part = 0; part < part_place.parts; ++part) {
    if (!is_sent(part)) continue;
    uint32_t& taken = taken_[part];
    uint32_t& sent = sent_[part];
    uint64_t* requests = requests_[part];
    for (; taken != sent; ++taken) {
      uint64_t& request = requests[taken % kUnderWay];
      bool failed = false;
      if (request != 0 && !mailbox::is_over(&request, &failed)) break;
      request = 0;
    }
    for (; sent != until && sent - taken < kUnderWay; ++sent) {
      const Message& message = messages_[sent % kMessages];
      uint64_t& request = requests[sent % kUnderWay];
      if (!mailbox::send_until_taken(&message, offsetof(Message, payload) + message.bytes, part_place.partner(part),
                                     tag_, &request))
        request = 0;
    }
    if (taken - first_ < first - first_) first = taken;
  }
  if (!leads_) return;
  first_ = first;
  if (unsafe_ && first_ == filling_ && !has_news()) unsafe_ = false, streams_unsafe.fetch_sub(1);
}

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::is_empty() const {
  bool all = !has_news() && (!unsafe_ || !part_streams_are_awaited.load(std::memory_order_relaxed));
  for (int part = 0; part < part_place.parts; ++part) all = all && (!is_sent(part) || sent_[part] == filling_);
  return all;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::send() {
  push();
  Message& message = messages_[filling_ % kMessages];
  if (message.bytes == 0 || !has_room(0)) return;
  // What nobody would be sent yet stays as it is: more of it fits into one message.
  bool anybody = false, nobody = true;
  for (int part = 0; part < part_place.parts; ++part) {
    if (!is_sent(part)) continue;
    nobody = false;
    anybody = anybody || (sent_[part] == filling_ && filling_ - taken_[part] < kUnderWay);
  }
  if (!anybody && !nobody) return;
  close_message(kMore);
  push();
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::end(Thread& thread) {
  if (messages_ == nullptr || !leads_) return;
  if (!ended_) {  // else the part that led before has said so
    wait_until(
        thread, [this] { return push(), parts_waiting(), has_room(1); }, kForOthers);
    close_message(kLast);
  }
  wait_until(
      thread, [this] { return push(), parts_waiting(), first_ == filling_; }, kForOthers);
}

// --- A follower ----------------------------------------------------------------------------------------------------

/// True: there are more bytes than before.
template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::take_message(const Message& message) {
  if (message.last == kHandedOver) {
    if (message.part >= 0 && message.part < kMostParts) handed_[message.part] = message.number + 1;
    return false;
  }
  // What a part says that has been dropped since, and what has come before from another one.
  if (leads_ || message.part < lead_ || message.number != filling_) return false;
  if (message.begins != 0) byte_count_ = 0;
  if (!memory::grow_array(&bytes_, &byte_room_, byte_count_ + message.bytes, 65536u)) ended_ = true;
  const bool kept = !ended_;
  if (kept) memcpy(bytes_ + byte_count_, message.payload, message.bytes), byte_count_ += message.bytes;
  if (messages_ != nullptr) {
    Message& copy = messages_[filling_ % kMessages];
    memcpy(&copy, &message, offsetof(Message, payload) + message.bytes);
    copy.part = part_place.part;
  }
  if (message.all_have - first_ <= filling_ - first_) first_ = message.all_have;
  ++filling_;
  if (message.last == kLast) ended_ = true;
  return kept;
}

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::receive() {
  bool failed = false;
  while (inbox_.is_open() && inbox_.has_come(&failed)) {
    if (failed) {
      ended_ = true;
      inbox_.close();
      return false;
    }
    const bool more = take_message(inbox_.message());
    inbox_.again();
    if (more) return true;
  }
  return false;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::keep_from(uint32_t at) {
  memmove(bytes_, bytes_ + at, byte_count_ - at);
  byte_count_ -= at;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::close() {
  if (inbox_.is_open()) inbox_.close();
}

// --- Another part leads --------------------------------------------------------------------------------------------

/// Sends what that part may not have, in the order of numbers, and that it was all.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::hand_over(int to) {
  for (uint64_t& request : requests_[to]) request = 0;
  taken_[to] = sent_[to] = first_;
  hand_until_ = filling_;
  hand_end_.number = filling_;
  hand_end_.last = kHandedOver;
  hand_end_.part = part_place.part;
  handing_ = true;
}

/// Once all others have handed over what they have.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::come_to_lead() {
  if (messages_ == nullptr) messages_ = memory::map_array<Message>(kMessages);
  if (messages_ == nullptr) {
    ended_ = true;
    return;
  }
  const uint32_t dropped = parts_dropped.load(std::memory_order_relaxed);
  // Where the one that led before has ended the row, nobody needs it any more, or is still sent it.
  for (int part = 0; part < part_place.parts && !ended_; ++part)
    if (part != part_place.part && (dropped & 1u << part) == 0 && handed_[part] == 0) return;
  dropped_ = dropped;
  leads_ = true;
  for (int part = 0; part < part_place.parts; ++part) {
    for (uint64_t& request : requests_[part]) request = 0;
    const uint32_t has = handed_[part] != 0 ? handed_[part] - 1 : filling_;
    taken_[part] = sent_[part] = has;
    if (is_sent(part) && has - first_ < filling_ - first_) continue;
    taken_[part] = sent_[part] = filling_;
  }
  byte_count_ = 0;
  begins_ = true;
  begin_message();
  push();
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::look() {
  const int lead = part_that_leads();
  if (!has_to_look()) [[likely]]
    return;
  if (tag_.value() == tags::kNobody[0].value()) return;
  if (lead != lead_) {
    lead_ = lead;
    handing_ = false;
    if (lead < part_place.part && messages_ != nullptr && inbox_.is_open()) hand_over(lead);
  }
  if (lead == part_place.part && !leads_) come_to_lead();
  if (!handing_) return;
  push();
  if (taken_[lead_] != hand_until_) return;
  handing_ = false;
  if (!mailbox::send(&hand_end_, offsetof(Message, payload), part_place.partner(lead_), tag_, &hand_request_))
    ended_ = true;
}

template class PartStreamOf<2000, 8192>;
template class PartStreamOf<16000, 1024>;

}  // namespace resil
