// SPDX-License-Identifier: Apache-2.0
//
// See layout.h.

#include "checksum/fault/layout.h"

#include "shim/model/event.h"

namespace resil::fault {

namespace {

bool is_followed(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kCollective:
    case CallClass::kSend:
    case CallClass::kReceive:
    case CallClass::kMatchedReceive:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: return true;
    default: return is_put(info) || is_get(info);
  }
}

}  // namespace

bool receive_layout(Event& e, Layout* layout) { return is_followed(call_info(e.id)) && flat_received(e, layout); }

bool send_layout(Event& e, Layout* layout) {
  const CallInfo& info = call_info(e.id);
  // Calls that receive into the buffer that they send from get no copy of it. Calls that compute are left out: whether
  // a changed contribution shows in the result depends on the operation.
  if (!is_followed(info) || info.call_class == CallClass::kSendReceiveReplace || is_reduction(info.collective))
    return false;
  return flat_sent(e, layout) && !layout->in_place;
}

bool block_at(Thread& thread, const Layout& layout, int64_t index, Packet* packet) {
  const View view = index == layout.own ? View{} : block_view(thread, layout, index);
  *packet = {static_cast<char*>(const_cast<void*>(view.buffer)), view.count, view.type, view.bytes};
  return view.reason == Reason::kNone && view.bytes != 0;
}

uint64_t total_bytes(Thread& thread, const Layout& layout) {
  uint64_t sum = 0;
  Packet packet;
  for (int64_t i = layout.first; i < layout.end; ++i) sum += block_at(thread, layout, i, &packet) ? packet.bytes : 0;
  return sum;
}

}  // namespace resil::fault
