// SPDX-License-Identifier: Apache-2.0
//
// See flat_transfer.h.

#include "shim/tables/flat_transfer.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

bool is_known(const Event& e) { return e.comm != nullptr && e.comm->size > 0; }

Members members_of_event(Event& e, Collective operation) {
  return is_neighborhood(operation) ? neighbors_of(*e.comm) : members_of(*e.comm);
}

[[gnu::always_inline]] inline Transfer sent_of(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.call_class != CallClass::kCollective) return single_sent(e, info);
  if (!is_known(e) && (e.comm == nullptr || !is_reduction(info.collective))) return transfers_detail::nothing();
  return transfers_detail::collective_sent(e, members_of_event(e, info.collective), info.collective,
                                           backend->is_in_place);
}

[[gnu::always_inline]] inline Transfer received_of(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.call_class != CallClass::kCollective) return single_received(e, info);
  if (!is_known(e)) return transfers_detail::nothing();
  return transfers_detail::collective_received(e, members_of_event(e, info.collective), info.collective,
                                               backend->is_in_place);
}

/// Of what `flat` already describes.
[[gnu::always_inline]] inline bool flatten(Event& e, FlatTransfer* flat) {
  flat->map = nullptr;
  flat->copies = nullptr;
  flat->comm = e.comm_handle != 0 ? e.comm : nullptr;
  if (!flat->any()) return false;
  if (flat->types != nullptr || (flat->counts == nullptr && flat->count <= 0)) return true;  // each by itself, or none
  flat->map = type_map(*e.thread, flat->type);
  return flat->map != nullptr;
}

}  // namespace

bool flat_sent(Event& e, FlatTransfer* flat) {
  static_cast<Transfer&>(*flat) = sent_of(e);
  return flatten(e, flat);
}

bool flat_received(Event& e, FlatTransfer* flat) {
  static_cast<Transfer&>(*flat) = received_of(e);
  return flatten(e, flat);
}

FlatTransfer flat_nothing() { return {transfers_detail::nothing(), nullptr, nullptr, nullptr}; }

bool flat_keep(FlatTransfer* flat) {
  const size_t count_bytes = flat->wide_counts ? 8 : 4, place_bytes = flat->wide_displacements ? 8 : 4;
  const auto blocks = static_cast<size_t>(flat->end);
  const size_t counts = flat->counts != nullptr ? blocks * count_bytes : 0;
  const size_t places = flat->displacements != nullptr ? blocks * place_bytes : 0;
  if (counts + places != 0) {
    const size_t first = (counts + 7) / 8 * 8;
    char* copies = static_cast<char*>(memory::blocks.allocate(first + places));
    if (copies == nullptr) return false;
    if (counts != 0) flat->counts = memcpy(copies, flat->counts, counts);
    if (places != 0) flat->displacements = memcpy(copies + first, flat->displacements, places);
    flat->copies = copies;
  }
  if (flat->map != nullptr) type_map_hold(flat->map);
  return true;
}

void flat_drop(FlatTransfer* flat) {
  if (flat->map != nullptr) type_map_release(flat->map);
  memory::blocks.release(flat->copies);
  flat->copies = nullptr;
}

View block_of(Thread& thread, const FlatTransfer& flat, int64_t index) {
  const int64_t count = flat.count_of(index);
  if (count <= 0) return {nullptr, 0, nullptr, 0, Reason::kNone};
  const TypeMap* map = flat.map != nullptr ? flat.map : type_map(thread, flat.type_of(index));
  if (map == nullptr) return {nullptr, count, nullptr, 0, Reason::kDatatype};
  return {static_cast<const char*>(flat.buffer) + flat.offset_of(index, map->extent), count, map,
          type_bytes(*map, count), Reason::kNone};
}

View block_view(Thread& thread, const FlatTransfer& flat, int64_t index) {
  const View view = block_of(thread, flat, index);
  return view.bytes != 0 ? make_view(view.type, view.buffer, view.count) : view;
}

int32_t block_partner(const FlatTransfer& flat, int64_t index) {
  const int32_t rank = flat.rank_of(index);
  if (rank < 0) return -1;
  return flat.comm != nullptr ? comm_world_rank(*flat.comm, rank) : rank;
}

}  // namespace resil
