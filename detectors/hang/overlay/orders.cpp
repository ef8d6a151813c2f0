// SPDX-License-Identifier: Apache-2.0
//
// What goes one way: orders of the root to everybody, and calls for the root's attention. An order may reach a node by
// two ways while the tree changes; it is obeyed once.
#include <cstring>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

constexpr double kOrderLasts = 10;  ///< seconds in which newcomers are told

bool seen(Overlay& o, uint64_t number) {
  for (const uint64_t known : o.orders)
    if (known == number) return true;
  o.orders[o.order_next++ % kOrdersRemembered] = number;
  return false;
}

void obey(Overlay& o, uint16_t kind, const OrderFrame& frame, const void* payload, uint32_t bytes) {
  const Piece pieces[] = {{&frame, sizeof(frame)}, {payload, bytes}};
  for (uint32_t i = 0; i < o.high; ++i)
    if (o.connections[i].stage == Stage::kChild) send_frame(o, i, FrameType::kOrder, kind, pieces, 2);
  if (o.last_order == nullptr)
    o.last_order = static_cast<uint8_t*>(o.buffers.map(sizeof(frame) + o.options.most_request));
  if (o.last_order != nullptr) {
    memcpy(o.last_order, &frame, sizeof(frame));
    if (bytes > 0) memcpy(o.last_order + sizeof(frame), payload, bytes);
    o.last_order_bytes = static_cast<uint32_t>(sizeof(frame)) + bytes;
    o.last_order_kind = kind, o.last_order_time = o.now;
  }
  if (o.handler.order != nullptr) o.handler.order(o.handler.self, kind, payload, bytes);
}

}  // namespace

bool take_order(Overlay& o, uint16_t kind, const uint8_t* data, uint32_t bytes) {
  OrderFrame frame;
  if (bytes < sizeof(frame)) return false;
  memcpy(&frame, data, sizeof(frame));
  if (!seen(o, frame.number)) obey(o, kind, frame, data + sizeof(frame), bytes - static_cast<uint32_t>(sizeof(frame)));
  return true;
}

void order_newcomer(Overlay& o, uint32_t slot) {
  const Piece piece = {o.last_order, o.last_order_bytes};
  if (o.last_order != nullptr && o.now < o.last_order_time + kOrderLasts)
    send_frame(o, slot, FrameType::kOrder, o.last_order_kind, &piece, 1);
}

bool take_raise(Overlay& o, uint16_t kind, const uint8_t* data, uint32_t bytes) {
  RaiseFrame frame;
  if (bytes < sizeof(frame)) return false;
  memcpy(&frame, data, sizeof(frame));
  if (frame.from <= o.own || frame.from >= o.count) return false;
  if (!leads(o)) {
    const Piece piece = {data, bytes};
    if (o.parent != kNoNode && send_frame(o, o.parent, FrameType::kRaise, kind, &piece, 1))
      ping_parent(o, kAskedTimeout, true);
  } else if (o.handler.raised != nullptr) {
    o.handler.raised(o.handler.self, frame.from, kind, data + sizeof(frame),
                     bytes - static_cast<uint32_t>(sizeof(frame)));
  }
  return true;
}

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

bool overlay_order(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes) {
  Overlay& o = *overlay;
  if (!leads(o) || bytes > o.options.most_request) return false;
  const OrderFrame frame = {own_series(o) | ++o.order_count};
  seen(o, frame.number);
  obey(o, kind, frame, payload, bytes);
  return true;
}

bool overlay_raise(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes) {
  Overlay& o = *overlay;
  if (bytes > o.options.most_request) return false;
  if (leads(o)) {
    if (o.handler.raised != nullptr) o.handler.raised(o.handler.self, o.own, kind, payload, bytes);
    return true;
  }
  const RaiseFrame frame = {o.own, 0};
  const Piece pieces[] = {{&frame, sizeof(frame)}, {payload, bytes}};
  if (o.parent == kNoNode || o.root == kNoNode || !send_frame(o, o.parent, FrameType::kRaise, kind, pieces, 2))
    return false;
  ping_parent(o, kAskedTimeout, true);
  return true;
}

}  // namespace resil::hang
