// SPDX-License-Identifier: Apache-2.0
//
// The stream from a leader to its copies, and what both know of a call. See feed.h.

#include "detectors/replicas/feed.h"

#include <time.h>

#include "detectors/replicas/times.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/runtime/part_stream.h"
#include "shim/runtime/progress.h"
#include "shim/tables/tables.h"

namespace resil::replicas {

bool feeding;

namespace {

constexpr size_t kPiece = 15000;  ///< of data, at a time
constexpr uint64_t kForEver = UINT64_MAX / 4;  ///< a copy that takes nothing is dropped, which makes room
constinit FeedStream stream = {};
uint64_t fed_bytes;
bool begun;

}  // namespace

void feed_begin() { feeding = begun = stream.begin(tags::kFeed[0], "feed"); }

uint32_t feed_name_of(const Event& e) {
  const bool has_comm = e.comm_handle != 0 && e.comm != nullptr;
  const bool counts_requests = (e.attributes & (kCallCompletes | kCallActivates)) != 0;
  uint64_t name =
      hash_combine(static_cast<uint64_t>(call_info(e.id).plain),
                   static_cast<uint64_t>(static_cast<uint32_t>(e.peer)) << 32 | static_cast<uint32_t>(e.tag));
  name = hash_combine(name,
                      has_comm ? static_cast<uint64_t>(e.comm->size) << 32 | static_cast<uint32_t>(e.comm->rank) : 0);
  name = hash_combine(name, counts_requests ? static_cast<uint64_t>(e.request_count) : 0);
  return static_cast<uint32_t>(name ^ name >> 32);
}

bool feed_found_nothing(const Event& e) {
  if (!(e.attributes & kCallPoll) || e.result != 0) return false;
  return e.flag != nullptr ? *e.flag == 0 : e.outcount != nullptr && *e.outcount == 0;
}

bool feed_completed(const Event& e, int64_t i, Completed* completed) {
  if (e.result != 0 || (e.flag != nullptr && *e.flag == 0)) return false;
  if (e.index != nullptr) {
    *completed = {*e.index, 0};
    return i == 0 && *e.index >= 0 && *e.index < e.request_count;
  }
  if (e.outcount != nullptr) {
    if (*e.outcount < 0 || i >= *e.outcount) return false;
    *completed = {e.indices[i], i};
    return true;
  }
  *completed = {i, i};
  return i < e.request_count;
}

bool feed_blocks(Event& e, const FlatTransfer& flat, uint64_t* bytes) {
  *bytes = 0;
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (i == flat.own) continue;
    const View view = block_view(*e.thread, flat, i);
    if (view.reason != Reason::kNone) return false;
    *bytes += view.bytes;
  }
  return true;
}

// --- The leader ----------------------------------------------------------------------------------------------------

void feed_put(Thread& thread, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  fed_bytes += bytes;
  while (bytes != 0 && feeding) {
    const size_t piece = bytes < kPiece ? bytes : kPiece;
    if (!stream.make_room(thread, piece, kForEver)) return;
    stream.put(at, piece);
    at += piece;
    bytes -= piece;
  }
}

void feed_put_view(Thread& thread, const View& view, uint64_t bytes, uint64_t first) {
  if (bytes == 0) return;
  if (view.type->contiguous) return feed_put(thread, static_cast<const char*>(view.buffer) + first, bytes);
  unsigned char room[2048];
  for (const uint64_t end = first + bytes; first < end;) {
    const uint64_t piece = end - first < sizeof(room) ? end - first : sizeof(room);
    type_pack(*view.type, view.buffer, view.count, first, piece, room);
    feed_put(thread, room, piece);
    first += piece;
  }
}

void feed_put_blocks(Event& e, const FlatTransfer& flat) {
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (i == flat.own) continue;
    const View view = block_view(*e.thread, flat, i);
    feed_put_view(*e.thread, view, view.bytes);
  }
}

bool feed_has_news() { return begun && !stream.is_empty(); }

void feed_send() {
  if (begun) stream.send();
}

void feed_stream_end(Thread& thread) {
  if (begun) stream.end(thread);
  feeding = begun = false;
}

// --- A copy --------------------------------------------------------------------------------------------------------

bool feed_get(Thread& thread, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  size_t got = stream.read(at, bytes);
  fed_bytes += bytes;
  if (got == bytes) return true;
  wait_until(
      thread,
      [&] {
        parts_waiting();
        got += stream.read(at + got, bytes - got);
        return got == bytes || stream.has_ended();
      },
      kForOthers);
  return got == bytes;
}

bool feed_get_view(Thread& thread, const View& view, uint64_t bytes, uint64_t first) {
  if (bytes == 0) return true;
  if (first > view.bytes || bytes > view.bytes - first || view.reason != Reason::kNone) return false;
  auto* buffer = static_cast<char*>(const_cast<void*>(view.buffer));
  if (view.type->contiguous) return feed_get(thread, buffer + first, bytes);
  unsigned char room[2048];
  for (const uint64_t end = first + bytes; first < end;) {
    const uint64_t piece = end - first < sizeof(room) ? end - first : sizeof(room);
    if (!feed_get(thread, room, piece)) return false;
    type_unpack(*view.type, buffer, view.count, first, piece, room);
    first += piece;
  }
  return true;
}

bool feed_get_blocks(Event& e, const FlatTransfer& flat) {
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (i == flat.own) continue;
    const View view = block_view(*e.thread, flat, i);
    if (!feed_get_view(*e.thread, view, view.bytes)) return false;
  }
  return true;
}

void feed_pass_over(Thread& thread) {
  unsigned char room[512];
  const timespec pause = {0, 500000};
  wait_until(
      thread,
      [&] {
        parts_waiting();
        times_pass_over();
        if (stream.read(room, sizeof(room)) == 0 && !stream.has_ended()) nanosleep(&pause, nullptr);
        while (stream.read(room, sizeof(room)) != 0) {}
        return stream.has_ended();
      },
      kForOthers);
  stream.close();
}

void feed_report(JsonWriter& json) { json.integer("fed_bytes", static_cast<int64_t>(fed_bytes)); }

}  // namespace resil::replicas
