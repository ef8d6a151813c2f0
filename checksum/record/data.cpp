// SPDX-License-Identifier: Apache-2.0
//
// See data.h.

#include "checksum/record/data.h"

#include <cstring>

#include "shim/model/event.h"
#include "shim/tables/buffer_view.h"

namespace resil::record {

bool write_value(const View& view, ValueType type, uint64_t bits) {
  if (type == ValueType::kNone || type == ValueType::kDigest || view.reason != Reason::kNone || view.bytes == 0 ||
      view.bytes > sizeof(bits) || !view.type->contiguous)
    return false;
  memcpy(const_cast<void*>(view.buffer), &bits, view.bytes);
  return true;
}

View only_block(Event& e, const FlatTransfer& flat) {
  View only = {};
  only.reason = Reason::kDatatype;
  unsigned blocks = 0;
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (i == flat.own) continue;
    const View view = block_view(*e.thread, flat, i);
    if (view.reason == Reason::kNone && view.bytes == 0) continue;
    only = view;
    if (++blocks > 1) only.reason = Reason::kDatatype;
  }
  return only;
}

bool give_recorded(Event& e, ValueType type, uint64_t bits, uint64_t* room) {
  const uint16_t is = data_flow_of(e.id);
  if ((e.attributes & (kCallStarts | kCallActivates | kCallPersistent)) || (is & (kSwaps | kFile))) return false;
  View view;
  if (is & kCollects) {
    FlatTransfer flat;
    if (collective_of(e.id) == Collective::kBcast || !flat_sent(e, &flat)) return false;
    if (flat.in_place) flat.own = -1;
    view = only_block(e, flat);
    // In the buffer of the result, which is about to be overwritten.
    if (flat.in_place && is_reduction(collective_of(e.id))) return write_value(view, type, bits);
  } else if ((is & kGives) && (e.attributes & kCallP2P)) {
    const Transfer transfer = single_sent(e, call_info(e.id));
    if (!transfer.any()) return false;
    view = make_view(*e.thread, transfer.buffer, transfer.count, transfer.type);
  } else {
    return false;
  }
  if (view.buffer != e.given_send) return false;  // not in one piece from the start, or a copy of staging's
  View copy = view;
  copy.buffer = room;
  if (!write_value(copy, type, bits)) return false;
  e.given_send = room;
  return true;
}

bool take_recorded(Event& e, ValueType type, uint64_t bits) {
  const uint16_t is = data_flow_of(e.id);
  if (e.attributes & (kCallStarts | kCallActivates)) return false;
  if (is & kCollects) {
    FlatTransfer flat;
    return flat_received(e, &flat) && write_value(only_block(e, flat), type, bits);
  }
  if (!(is & kTakes) || (is & (kWindow | kFile))) return false;
  return write_value(receive_view(e), type, bits);
}

}  // namespace resil::record
