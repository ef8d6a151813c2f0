// SPDX-License-Identifier: Apache-2.0
//
// See part_stream.h.

#include "shim/runtime/part_stream.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/progress.h"

namespace resil {

namespace {

constexpr int kMostStreams = 4;

std::atomic<uint32_t> streams_unsafe;  // how many hold what not all have taken
constinit std::atomic<PartStream*> streams[kMostStreams] = {};  // that this rank may have to hand over

/// Before the messages in a file, by number.
struct Handed {
  uint32_t first, until, last_is_open;
};

void path_of(char (&path)[1200], const char* name, int world_rank) {
  snprintf(path, sizeof(path), "%s/replicas-hands-%s-%d", runtime.directory, name, world_rank);
}

bool write_all(int file, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes != 0) {
    const ssize_t written = write(file, at, bytes);
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

bool part_streams_are_safe() { return streams_unsafe.load(std::memory_order_relaxed) == 0; }

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::begin(PrivateTag tag, const char* name) {
  tag_ = tag;
  name_ = name;
  leads_ = part_place.part == 0;
  if (leads_ || (part_place.parts > 2 && !part_place.fed)) messages_ = memory::map_array<Message>(kMessages);
  if constexpr (std::is_same_v<PartStreamOf, PartStream>) {  // copies of some ranks are fed by the leading part alone
    PartStream* none = nullptr;
    for (int i = 0; i < kMostStreams && !streams[i].compare_exchange_strong(none, this); ++i) none = nullptr;
  }
  if (leads_) {
    if (messages_ != nullptr) begin_message(0);
    return messages_ != nullptr;
  }
  posted_ = memory::map_array<Message>(kPosted);
  return posted_ != nullptr && inbox_.open(tag, posted_, posted_requests_, kPosted);
}

// --- The leader ----------------------------------------------------------------------------------------------------

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::has_room(size_t bytes) const {
  const auto more = static_cast<uint32_t>(bytes / kPayload + 2);
  return more < kMessages && filling_ + more - first_ < kMessages - kPosted - 2;  // who comes to lead may go back
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
void PartStreamOf<kPayload, kMessages>::begin_message(uint32_t number) {
  Message& message = messages_[number % kMessages];
  message.begins = begins_;
  begins_ = false;
  __atomic_store_n(&message.bytes, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&filling_, number, __ATOMIC_RELEASE);  // the helper thread's, as `bytes`
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
  begin_message(filling_ + 1);
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
    __atomic_store_n(&message->bytes, message->bytes + static_cast<uint32_t>(piece), __ATOMIC_RELEASE);
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
  __atomic_store_n(&messages_, fresh, __ATOMIC_RELEASE);
  dropped_ = dropped;
}

template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::is_sent(int part) const {
  return leads_ && part != part_place.part && is_live(part);
}

/// Takes back what has been taken, and sends what is full or closed.
template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::push() {
  if (!leads_) return;
  look_for_dropped();
  const uint32_t until = filling_;
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
  __atomic_store_n(&first_, first, __ATOMIC_RELAXED);
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
  // Either the helper thread sees that one is being taken, or this one that none may be.
  taking_.store(true);
  // What a part says that has been dropped since; what has come before, from another one or by a file.
  const bool is_open = message.last == kOpen;
  const bool refused = leads_ || message.part < refused_below_.load() || message.number != filling_ ||
                       message.bytes < partial_ + (is_open ? 1 : 0);
  if (refused) return taking_.store(false, std::memory_order_release), false;
  if (message.begins != 0 && partial_ == 0) byte_count_ = 0;
  const uint32_t more = message.bytes - partial_;
  if (!memory::grow_array(&bytes_, &byte_room_, byte_count_ + more, 65536u)) ended_ = true;
  const bool kept = !ended_;
  if (kept) memcpy(bytes_ + byte_count_, message.payload + partial_, more), byte_count_ += more;
  if (messages_ != nullptr) {
    Message& copy = messages_[filling_ % kMessages];
    memcpy(&copy, &message, offsetof(Message, payload) + message.bytes);
    copy.part = part_place.part;
  }
  if (message.all_have - first_ <= filling_ - first_) first_ = message.all_have;
  partial_ = is_open ? message.bytes : 0;
  if (!is_open) ++filling_;
  if (message.last == kLast) ended_ = true;
  taking_.store(false, std::memory_order_release);
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

/// Messages by number, and a last one that is not whole. A helper thread.
template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::write_down(uint32_t first, uint32_t until, const Message* last) {
  const Message* messages = __atomic_load_n(&messages_, __ATOMIC_ACQUIRE);
  char path[1200], begun[1240];
  path_of(path, name_, runtime.rank);
  snprintf(begun, sizeof(begun), "%s.tmp", path);
  const int file = openat(AT_FDCWD, begun, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const Handed head = {first, until, last != nullptr};
  bool whole = write_all(file, &head, sizeof(head));
  for (uint32_t number = first; whole && number != until; ++number)
    whole = write_all(file, &messages[number % kMessages], sizeof(Message));
  if (last != nullptr) whole = whole && write_all(file, last, sizeof(Message));
  whole = ::close(file) == 0 && whole;
  // The thread of the program may have gone on, and round.
  whole = whole && __atomic_load_n(&filling_, __ATOMIC_ACQUIRE) - first < kMessages - 1;
  if (whole && renameat(AT_FDCWD, begun, AT_FDCWD, path) == 0) return true;
  unlinkat(AT_FDCWD, begun, 0);
  return false;
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::hand_over(int lead, bool awaited) {
  static Message open;
  if (lead == part_place.part) {
    const Message* messages = __atomic_load_n(&messages_, __ATOMIC_ACQUIRE);
    if (!awaited || messages == nullptr) return;
    const uint32_t number = __atomic_load_n(&filling_, __ATOMIC_ACQUIRE);
    const uint32_t bytes = __atomic_load_n(&messages[number % kMessages].bytes, __ATOMIC_ACQUIRE);
    const uint32_t first = __atomic_load_n(&first_, __ATOMIC_RELAXED);
    const bool rests = seen_[0] == number && seen_[1] == bytes, shown = shown_[0] == number && shown_[1] == bytes;
    seen_[0] = number;
    seen_[1] = bytes;
    // Partners go on taking until the very last one has come, so that nothing waits for them that is on its way.
    if (number != first && messages[(number - 1) % kMessages].last == kLast) return;
    if (!rests || shown || (first == number && bytes == 0)) return;
    memcpy(open.payload, messages[number % kMessages].payload, bytes);
    open.bytes = bytes;
    open.number = number;
    open.all_have = first;
    open.last = kOpen;
    open.part = part_place.part;
    open.begins = messages[number % kMessages].begins;
    if (!write_down(first, number, bytes != 0 ? &open : nullptr)) return;
    shown_[0] = number;
    shown_[1] = bytes;
    return;
  }
  if (lead == handed_to_ || lead > part_place.part || messages_ == nullptr) return;
  refused_below_.store(lead);
  while (taking_.load()) sched_yield();
  // From here on nothing is taken until `lead` has read this, and sent more.
  if (write_down(first_, filling_, partial_ != 0 ? &messages_[filling_ % kMessages] : nullptr)) handed_to_ = lead;
}

/// True: what that rank has written down, this one has, too.
template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::is_handed(int by) {
  char path[1200];
  path_of(path, name_, part_place.partner(by));
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  static Message message;
  Handed head;
  bool whole = ::read(file, &head, sizeof(head)) == sizeof(head);
  const uint32_t behind = filling_ - head.first;
  whole = whole && static_cast<int32_t>(behind) >= 0;  // else those between are on their way
  const uint32_t until = head.until + head.last_is_open;
  if (whole && behind < until - head.first)
    whole = lseek(file, static_cast<off_t>(behind) * static_cast<off_t>(sizeof(message)), SEEK_CUR) >= 0;
  for (uint32_t number = filling_; whole && static_cast<int32_t>(until - number) > 0; ++number) {
    whole = ::read(file, &message, sizeof(message)) == sizeof(message);
    if (whole && take_message(message)) fresh_ = true;
  }
  ::close(file);
  if (whole) handed_[by] = head.until + 1;
  return whole;
}

/// There are bytes that have come so.
template <uint32_t kPayload, uint32_t kMessages>
bool PartStreamOf<kPayload, kMessages>::has_been_handed() {
  const bool fresh = fresh_;
  fresh_ = false;
  return fresh;
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
  for (int part = part_place.part + 1; part < part_place.parts && !ended_; ++part)
    if ((dropped & 1u << part) == 0 && handed_[part] == 0 && !is_handed(part)) return;
  if (fresh_) return;  // they are taken out first
  dropped_ = dropped;
  if (partial_ != 0) {  // what the one that led before would have added is not known
    Message& message = messages_[filling_ % kMessages];
    message.last = kMore;
    partial_ = 0;
    ++filling_;
  }
  leads_ = true;
  for (int part = 0; part < part_place.parts; ++part) {
    for (uint64_t& request : requests_[part]) request = 0;
    const uint32_t has = handed_[part] != 0 ? handed_[part] - 1 : filling_;
    taken_[part] = sent_[part] = is_sent(part) ? has : filling_;
    if (is_sent(part) && static_cast<int32_t>(has - first_) < 0) first_ = has;  // it has not looked at all that it got
  }
  byte_count_ = 0;
  begins_ = true;
  begin_message(filling_);
  push();
}

template <uint32_t kPayload, uint32_t kMessages>
void PartStreamOf<kPayload, kMessages>::look() {
  const int lead = part_that_leads();
  if (!has_to_look() && !part_streams_are_short.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (leads_ || tag_.value() == tags::kNobody[0].value()) return;
  if (lead != lead_) {
    lead_ = lead;
    next_look_ = 0;
    if (lead < part_place.part) refused_below_.store(lead);
  }
  const uint64_t now = ticks();
  if (now < next_look_) return;
  next_look_ = now + static_cast<uint64_t>(runtime.header->ticks_per_second) / 50;
  if (lead == part_place.part) come_to_lead();
  else if (part_streams_are_short.load(std::memory_order_relaxed)) is_handed(lead);
}

template class PartStreamOf<2000, 8192>;
template class PartStreamOf<16000, 1024>;

void part_streams_hand_over(bool awaited) {
  const int lead = part_that_leads();
  for (auto& place : streams)
    if (PartStream* stream = place.load(); stream != nullptr) stream->hand_over(lead, awaited);
}

void part_streams_forget(int world_rank) {
  char path[1200];
  constexpr const char* kNames[] = {"choices", "clocks"};
  for (const char* name : kNames) {
    path_of(path, name, world_rank);
    unlinkat(AT_FDCWD, path, 0);
  }
}

}  // namespace resil
