// SPDX-License-Identifier: Apache-2.0
//
// What was read is cut into frames and proved before anybody looks at it.
#include <cstring>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

/// The longest payload of a frame from this side; 0: this side may not send such a frame.
uint64_t longest(const Overlay& o, const Connection& c, FrameType type) {
  const bool child = c.stage == Stage::kChild;
  switch (type) {
    case FrameType::kAlive: return sizeof(AliveFrame);
    case FrameType::kBye: return sizeof(ByeFrame);
    case FrameType::kAsk: return child ? 0 : sizeof(AskFrame) + o.options.most_request;
    case FrameType::kOrder: return child ? 0 : sizeof(OrderFrame) + o.options.most_request;
    case FrameType::kAnswer: return child ? sizeof(AnswerFrame) + bitmap_bytes(o) + o.options.most_answer : 0;
    case FrameType::kRaise: return child ? sizeof(RaiseFrame) + o.options.most_request : 0;
    case FrameType::kNotice: return child ? sizeof(NoticeFrame) : 0;
    case FrameType::kPing: return child ? sizeof(PingFrame) : 0;
    case FrameType::kPong: return child ? 0 : sizeof(PingFrame);
  }
  return 0;
}

bool take_alive(Overlay& o, uint32_t slot, const uint8_t* data, uint32_t bytes) {
  AliveFrame alive;
  if (bytes != sizeof(alive)) return false;
  memcpy(&alive, data, sizeof(alive));
  Connection& c = o.connections[slot];
  if (c.stage == Stage::kChild) {
    if (alive.below == 0 || alive.below > o.count) return false;
    c.below = alive.below;
    return true;
  }
  // A parent follows somebody no higher than itself.
  if (alive.root != kNoNode && alive.root > c.node) return false;
  if (slot == o.parent) set_root(o, alive.root);
  return true;
}

/// False: malformed. May close the connection.
bool take_frame(Overlay& o, uint32_t slot, const FrameHeader& header, const uint8_t* data) {
  Connection& c = o.connections[slot];
  if (c.stage == Stage::kAwaitWelcome) {
    const uint32_t generation = c.generation;
    attempt_succeeded(o, slot);
    if (c.generation != generation || c.stage != Stage::kParent) return true;
  }
  switch (header.type) {
    case FrameType::kAlive: return take_alive(o, slot, data, header.bytes);
    case FrameType::kAsk: return take_ask(o, slot, header.kind, data, header.bytes);
    case FrameType::kAnswer: return take_answer(o, slot, data, header.bytes);
    case FrameType::kOrder: return take_order(o, header.kind, data, header.bytes);
    case FrameType::kRaise: return take_raise(o, header.kind, data, header.bytes);
    case FrameType::kNotice: return take_notice(o, data, header.bytes);
    case FrameType::kPing: {
      const Piece piece = {data, header.bytes};
      if (header.bytes != sizeof(PingFrame)) return false;
      send_frame(o, slot, FrameType::kPong, 0, &piece, 1);
      return true;
    }
    case FrameType::kPong: {
      PingFrame pong;
      if (header.bytes != sizeof(pong)) return false;
      memcpy(&pong, data, sizeof(pong));
      if (slot == o.parent) take_pong(o, pong.number);
      return true;
    }
    case FrameType::kBye: {
      ByeFrame bye = {};
      if (header.bytes == sizeof(bye)) memcpy(&bye, data, sizeof(bye));
      end_connection(o, slot, bye.moved != 0 ? End::kMoved : End::kLeft);
      return true;
    }
  }
  return false;
}

}  // namespace

Taken take_next(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  Buffer* in = c.in;
  const uint8_t* data = in->data() + in->begin;
  if (!proved(c)) {
    const uint32_t generation = c.generation;
    const uint32_t taken = take_greeting(o, slot, data, in->used());
    if (c.generation != generation) return Taken::kClosed;
    in->begin += taken;
    return taken > 0 ? Taken::kSome : Taken::kNeedsMore;
  }
  FrameHeader header;
  if (in->used() < sizeof(header)) return Taken::kNeedsMore;
  memcpy(&header, data, sizeof(header));
  // The length is not proved yet, so it is believed up to what such a frame may need, and no further.
  if (header.bytes > longest(o, c, header.type) || header.sequence != c.in_sequence + 1) {
    end_connection(o, slot, End::kBadFrame);
    return Taken::kClosed;
  }
  const uint64_t whole = sizeof(header) + uint64_t{header.bytes} + kMacBytes;
  if (in->used() < whole) {
    if (whole > in->capacity) {
      Buffer* longer = o.buffers.allocate(static_cast<uint32_t>(whole));
      if (longer == nullptr) {  // read past it: a long answer must not cost the connection
        c.skip = whole - in->used();
        in->begin = in->end = 0;
        ++c.in_sequence;
        ++o.counters.overflows;
        return Taken::kNeedsMore;
      }
      memcpy(longer->data(), data, in->used());
      longer->end = in->used();
      o.buffers.release(in);
      c.in = longer;
    }
    return Taken::kNeedsMore;
  }
  const uint32_t signed_bytes = static_cast<uint32_t>(whole - kMacBytes);
  if (!c.in_key.verify(data, signed_bytes, nullptr, 0, data + signed_bytes)) {
    end_connection(o, slot, End::kBadFrame);
    return Taken::kClosed;
  }
  ++c.in_sequence;
  ++o.counters.frames_in;
  c.late = false;
  const uint32_t generation = c.generation;
  // Held while it is looked at: whoever closes the connection meanwhile gives `in` back only afterwards.
  c.in = nullptr;
  const bool good = take_frame(o, slot, header, data + sizeof(header));
  if (c.generation != generation) {
    o.buffers.release(in);
    return Taken::kClosed;
  }
  c.in = in;
  if (!good) {
    end_connection(o, slot, End::kBadFrame);
    return Taken::kClosed;
  }
  in->begin += static_cast<uint32_t>(whole);
  return Taken::kSome;
}

}  // namespace resil::hang::overlay
