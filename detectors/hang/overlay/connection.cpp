// SPDX-License-Identifier: Apache-2.0
//
// One socket: its slot in the table, its buffers, its bounded queue. Nothing here blocks or raises SIGPIPE.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr uint32_t kReadsATurn = 16;  ///< then others have their turn
constexpr uint32_t kQueueSlack = 256 << 10;

/// Makes room behind what is there; a long buffer that is empty goes back.
bool make_room(Overlay& o, Connection& c) {
  Buffer* in = c.in;
  if (in != nullptr && in->used() <= BufferPool::kPageRoom && !in->is_page) {
    // Fits a page again, unless it is the beginning of another long frame, which has seen to its buffer itself.
    if (in->used() == 0) {
      o.buffers.release(in);
      c.in = in = nullptr;
    }
  }
  if (in == nullptr) {
    c.in = o.buffers.allocate(1);
    return c.in != nullptr;
  }
  if (in->begin > 0) {
    memmove(in->data(), in->data() + in->begin, in->used());
    in->end -= in->begin;
    in->begin = 0;
  }
  return in->room() > 0;
}

/// The program closed our socket, and what has its number now is the program's.
void disown_if_foreign(Connection& c) {
  if (errno == EBADF || errno == ENOTSOCK) c.fd = -1;
}

/// Room for `bytes` in one piece at the end of the queue; null: none.
uint8_t* queue(Overlay& o, Connection& c, uint32_t bytes) {
  if (c.queued + bytes > uint64_t{o.options.most_answer} + bitmap_bytes(o) + o.options.most_request + kQueueSlack)
    return nullptr;
  if (c.out_last == nullptr || c.out_last->room() < bytes) {
    Buffer* more = o.buffers.allocate(bytes);
    if (more == nullptr) return nullptr;
    (c.out_last == nullptr ? c.out : c.out_last->next) = more;
    c.out_last = more;
  }
  uint8_t* room = c.out_last->data() + c.out_last->end;
  c.out_last->end += bytes;
  c.queued += bytes;
  return room;
}

}  // namespace

uint32_t add_connection(Overlay& o, int fd, Stage stage) {
  uint32_t slot = 0;
  while (slot < o.high && o.connections[slot].stage != Stage::kFree) ++slot;
  epoll_event event = {};
  const bool connecting = stage == Stage::kConnecting || stage == Stage::kProbing;
  event.events = EPOLLIN | (connecting ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = uint64_t{++o.generation} << 32 | slot;
  if (slot == o.capacity || epoll_ctl(o.epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    close(fd);
    return kNoNode;
  }
  o.high = slot == o.high ? slot + 1 : o.high;
  Connection& c = o.connections[slot];
  c = {};
  c.fd = fd, c.stage = stage, c.generation = o.generation;
  c.writes = connecting;
  c.node = kNoNode;
  c.began = c.heard = c.spoke = o.now;
  o.strangers += is_stranger(c) ? 1 : 0;
  o.attempts += is_attempt(c) ? 1 : 0;
  return slot;
}

void end_connection(Overlay& o, uint32_t slot, End why) {
  Connection& c = o.connections[slot];
  if (c.stage == Stage::kFree) return;
  if (is_probe(c)) probe_ended(o, slot, c.stage == Stage::kProbing ? Reach::kNothing : Reach::kHost);
  const Connection was = c;
  if (c.fd >= 0) close(c.fd);  // epoll forgets it: no descriptor of ours is ever duplicated
  o.buffers.release(c.in);
  o.buffers.release_chain(c.out);
  c = {};
  o.counters.bad_frames += why == End::kBadFrame ? 1 : 0;
  o.counters.silences += why == End::kSilent ? 1 : 0;
  if (is_stranger(was)) {
    --o.strangers;
  } else if (was.stage == Stage::kChild) {
    --o.children;
    child_gone(o, was, why);
  } else if (is_attempt(was)) {
    --o.attempts;
    o.counters.connect_errors += why != End::kQuiet ? 1 : 0;
    attempt_ended(o);
  } else if (slot == o.parent) {
    o.silent = why == End::kSilent ? was.node : kNoNode;
    if (why == End::kSilent) o.lost = was.node, o.lost_heard = was.heard;
    parent_gone(o, was.node, why == End::kLeft);
  }
}

void read_connection(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  const uint32_t generation = c.generation;
  for (uint32_t i = 0; i < kReadsATurn; ++i) {
    if (!make_room(o, c)) return end_connection(o, slot, End::kLost);
    const ssize_t got = recv(c.fd, c.in->data() + c.in->end, c.in->room(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) disown_if_foreign(c);
    if (got <= 0) return end_connection(o, slot, End::kLost);
    const bool full = static_cast<uint32_t>(got) == c.in->room();
    o.counters.bytes_in += static_cast<uint64_t>(got);
    c.heard = proved(c) ? o.now : c.heard;
    c.in->end += static_cast<uint32_t>(got);
    if (c.skip > 0) {
      const uint32_t skipped = c.skip < c.in->used() ? static_cast<uint32_t>(c.skip) : c.in->used();
      c.skip -= skipped;
      c.in->begin += skipped;
    }
    Taken taken = Taken::kSome;
    while (taken == Taken::kSome && c.in->used() > 0) taken = take_next(o, slot);
    if (taken == Taken::kClosed || c.generation != generation) return;
    if (!full) break;
  }
  if (c.in != nullptr && c.in->used() == 0) {  // idle connections hold no memory
    o.buffers.release(c.in);
    c.in = nullptr;
  }
}

void write_connection(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  while (c.out != nullptr) {
    const ssize_t sent = send(c.fd, c.out->data() + c.out->begin, c.out->used(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) break;
    if (sent < 0) {
      disown_if_foreign(c);
      return end_connection(o, slot, End::kLost);
    }
    o.counters.bytes_out += static_cast<uint64_t>(sent);
    c.queued -= static_cast<uint64_t>(sent);
    c.out->begin += static_cast<uint32_t>(sent);
    if (c.out->used() > 0) break;
    Buffer* done = c.out;
    c.out = done->next;
    c.out_last = c.out == nullptr ? nullptr : c.out_last;
    o.buffers.release(done);
  }
  watch(o, slot, c.out != nullptr);
}

void send_plain(Overlay& o, uint32_t slot, const void* data, uint32_t bytes) {
  uint8_t* room = queue(o, o.connections[slot], bytes);
  if (room == nullptr) return end_connection(o, slot, End::kLost);
  memcpy(room, data, bytes);
  write_connection(o, slot);
}

bool send_frame(Overlay& o, uint32_t slot, FrameType type, uint16_t kind, const Piece* pieces, uint32_t count) {
  Connection& c = o.connections[slot];
  FrameHeader header = {0, type, 0, kind, c.out_sequence + 1};
  for (uint32_t i = 0; i < count; ++i) header.bytes += pieces[i].bytes;
  uint8_t* room = queue(o, c, static_cast<uint32_t>(sizeof(header)) + header.bytes + kMacBytes);
  if (room == nullptr) {
    ++o.counters.overflows;
    return false;
  }
  ++c.out_sequence;
  ++o.counters.frames_out;
  c.spoke = o.now;
  uint8_t* at = room;
  memcpy(at, &header, sizeof(header));
  at += sizeof(header);
  for (uint32_t i = 0; i < count; at += pieces[i].bytes, ++i)
    if (pieces[i].bytes > 0) memcpy(at, pieces[i].data, pieces[i].bytes);
  c.out_key.sign(room, static_cast<size_t>(at - room), nullptr, 0, at);
  write_connection(o, slot);
  return true;
}

}  // namespace resil::hang::overlay
