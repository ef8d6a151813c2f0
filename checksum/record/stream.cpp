// SPDX-License-Identifier: Apache-2.0
//
// The call path of recording: items into a thread's buffers.

#include <climits>
#include <initializer_list>

#include "checksum/record/writer_internal.h"
#include "shim/base/hash.h"
#include "shim/runtime/memory.h"

namespace resil::record {

namespace {

constexpr uint32_t kFirstSites = 4096;

/// How many streams have begun at a call site; under stream_lock.
struct FirstSite {
  uint64_t site;
  uint64_t count;
};
FirstSite first_sites[kFirstSites];

void add(std::atomic<uint64_t>* counter, uint64_t more) {
  counter->store(counter->load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

bool same_poll(const CallRecord& a, const CallRecord& b) {
  return a.site == b.site && a.call == b.call && a.comm == b.comm && a.peer == b.peer && a.tag == b.tag &&
         a.step == b.step && a.bytes == b.bytes;
}

/// Matches of all threads are one stream, in the order of completion, so that a reader finds them without the rest.
void record_match(uint32_t stream, uint64_t ordinal, const Match& match) {
  Channel* matches = writer.matches.load(std::memory_order_acquire);
  bool taken = false;
  while (writer.recording.load(std::memory_order_relaxed)) {
    {
      SpinGuard guard(writer.match_lock);
      unsigned char* at = matches->room();
      if (at == nullptr && matches->begin_segment(writer.match_count, 0)) {
        writer.last_match = 0;
        taken = true;
        at = matches->room();
      }
      if (at != nullptr) {
        matches->commit(encode_match(at, stream, ordinal, &writer.last_match, match));
        add(&writer.match_count, 1);
        break;
      }
    }
    if (!wait_for_space(matches, kMatchStream)) return;
  }
  if (taken) buffer_taken(*matches);
}

}  // namespace

Stream* Streams::idle() {
  const uint32_t count = writer.stream_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i)
    if (writer.streams[i]->state_.load(std::memory_order_acquire) == Stream::kIdle) return writer.streams[i];
  return nullptr;
}

Stream* Streams::open(uint64_t first_site) {
  SpinGuard guard(writer.stream_lock);
  FirstSite* entry = nullptr;
  for (uint32_t probe = 0; probe < kFirstSites; ++probe) {
    FirstSite& place = first_sites[(mix64(first_site) + probe) % kFirstSites];
    if (place.count == 0 || place.site == first_site) {
      entry = &place;
      break;
    }
  }
  Stream* stream = idle();
  const uint32_t count = writer.stream_count.load(std::memory_order_relaxed);
  if (entry == nullptr ||
      (stream == nullptr && (count == kMaxStreams || (stream = memory::map_array<Stream>()) == nullptr))) {
    ++writer.refused;
    return nullptr;
  }
  entry->site = first_site;
  stream->id_ = ++writer.next_id;
  stream->started_ = 0;
  stream->poll_count_ = 0;
  stream->poll_runs_ = 0;
  stream->times_.store(0, std::memory_order_relaxed);
  add(&stream->earlier_calls_, stream->calls_.load(std::memory_order_relaxed));
  stream->calls_.store(0, std::memory_order_relaxed);
  stream->channel_.begin();
  stream->channel_.begin_segment(0, 0);
  stream->encoder_.reset(0);
  SiteName name;
  if (!writer.names->site(first_site, &name)) name = {"", 0};
  stream->channel_.commit(stream->encoder_.opening(stream->channel_.room(), name, entry->count++));
  stream->state_.store(Stream::kLive, std::memory_order_release);
  bool listed = false;
  for (uint32_t i = 0; i < count && !listed; ++i) listed = writer.streams[i] == stream;
  if (!listed) {
    writer.streams[count] = stream;
    writer.stream_count.store(count + 1, std::memory_order_release);
  }
  return stream;
}

void Streams::close(Stream* stream) {
  if (writer.recording.load(std::memory_order_relaxed)) stream->end_polls();
  stream->state_.store(Stream::kClosing, std::memory_order_release);
}

/// For a new recording in the same process; no thread may be in a stream.
void Streams::forget() {
  const uint32_t count = writer.stream_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    Stream* stream = writer.streams[i];
    for (auto* counter : {&stream->earlier_calls_, &stream->calls_, &stream->completions_, &stream->polls_,
                          &stream->times_, &stream->times_left_out_})
      counter->store(0, std::memory_order_relaxed);
    stream->state_.store(Stream::kIdle, std::memory_order_relaxed);
  }
  for (FirstSite& site : first_sites) site.count = 0;
  writer.next_id = writer.refused = 0;
  writer.last_match = 0;
  writer.match_count.store(0, std::memory_order_relaxed);
  if (Channel* matches = writer.matches.load(std::memory_order_relaxed)) matches->begin();
}

void Streams::end_all_polls() {
  const uint32_t count = writer.stream_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i)
    if (writer.streams[i]->state_.load(std::memory_order_acquire) == Stream::kLive) writer.streams[i]->end_polls();
}

void Streams::count(WriterStatus* status) {
  const uint32_t count = writer.stream_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    status->calls += writer.streams[i]->earlier_calls_.load(std::memory_order_relaxed) +
                     writer.streams[i]->calls_.load(std::memory_order_relaxed);
    status->completions += writer.streams[i]->completions_.load(std::memory_order_relaxed);
    status->polls += writer.streams[i]->polls_.load(std::memory_order_relaxed);
    status->times += writer.streams[i]->times_.load(std::memory_order_relaxed);
    status->times_left_out += writer.streams[i]->times_left_out_.load(std::memory_order_relaxed);
  }
}

unsigned char* Stream::begin() {
  if (!writer.recording.load(std::memory_order_relaxed)) return nullptr;
  if (poll_count_ != 0) end_polls();
  unsigned char* at = channel_.room();
  return at != nullptr ? at : more_room();
}

unsigned char* Stream::more_room() {
  while (!channel_.begin_segment(calls_.load(std::memory_order_relaxed), started_))
    if (!wait_for_space(&channel_, id_)) return nullptr;
  encoder_.reset(started_);
  buffer_taken(channel_);
  return channel_.room();
}

uint64_t Stream::call(const CallRecord& record) {
  unsigned char* at = begin();
  if (at == nullptr) [[unlikely]]
    return 0;
  add(&calls_, 1);
  channel_.commit(encoder_.call(at, record, *writer.names));
  if ((record.flags & kCallStarted) == 0) return 0;
  const uint64_t first = started_ + 1;
  started_ += record.count;
  return first;
}

void Stream::poll(const CallRecord& record) {
  if (poll_count_ != 0 && poll_count_ != UINT32_MAX && same_poll(record, poll_)) [[likely]] {
    ++poll_count_;
    return;
  }
  if (!writer.recording.load(std::memory_order_relaxed)) return;
  end_polls();
  poll_ = record;
  poll_.flags = static_cast<uint16_t>((record.flags & ~kCallStarted) | kCallPolls);
  poll_.in_type = poll_.out_type = ValueType::kNone;
  poll_count_ = 1;
}

void Stream::end_polls() {
  if (poll_count_ == 0) return;
  poll_.count = poll_count_;
  poll_count_ = 0;
  add(&polls_, poll_.count);
  ++poll_runs_;
  call(poll_);
}

void Stream::completion(const Completion& completion) {
  const uint32_t origin = completion.stream == 0 ? id_ : completion.stream;
  if ((completion.flags & kCompletionMatch) != 0)
    record_match(origin, completion.ordinal, {completion.source, completion.tag, completion.flags});
  unsigned char* at = begin();
  if (at == nullptr) [[unlikely]]
    return;
  add(&completions_, 1);
  channel_.commit(encoder_.completion(at, completion, id_));
}

void Stream::outcome(const Outcome& outcome) {
  if (unsigned char* at = begin()) channel_.commit(encoder_.outcome(at, outcome));
}

void Stream::indices(const int32_t* list, uint32_t count) {
  for (;;) {  // also for none: a piece that is not full ends the list
    const uint32_t piece = count < kMaxIndices ? count : kMaxIndices;
    unsigned char* at = begin();
    if (at == nullptr) return;
    channel_.commit(encoder_.indices(at, list, piece));
    if (piece < kMaxIndices) return;
    list += piece;
    count -= piece;
  }
}

void Stream::logged(LoggedKind kind, const char* name, ValueType type, uint64_t bits) {
  if (unsigned char* at = begin()) channel_.commit(encoder_.logged(at, kind, name, type, bits));
}

void Stream::text(const char* text) {
  if (unsigned char* at = begin()) channel_.commit(encoder_.text(at, text));
}

bool Stream::time(uint8_t clock, uint64_t bits) {
  const uint64_t most = kFreeTimes + kTimesPerCall * (calls_.load(std::memory_order_relaxed) - poll_runs_);
  if (times_.load(std::memory_order_relaxed) >= most) {
    add(&times_left_out_, 1);
    return false;
  }
  unsigned char* at = begin();
  if (at == nullptr) return false;
  add(&times_, 1);
  channel_.commit(encoder_.time(at, clock, bits));
  return true;
}

}  // namespace resil::record
