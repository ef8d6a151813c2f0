// SPDX-License-Identifier: Apache-2.0
//
// Which communicators are not known whole, though somebody waits on them: a member has not come to them yet, or has
// freed them. States tell of what was freed only when they are asked, since most of it concerns nobody.

#include "detectors/hang/graph.h"
#include "detectors/hang/graph/arena.h"
#include "detectors/hang/reader/records.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

struct Waited {
  uint64_t id;  // 0: free
  uint64_t members, seen;
};

bool waits(const RankState* state) {
  return state != nullptr && (state->activity == RankActivity::kBlocked || state->activity == RankActivity::kPolling);
}

Waited& place_of(Waited* table, size_t mask, uint64_t id) {
  for (size_t i = mix64(id);; ++i)
    if (Waited& place = table[i & mask]; place.id == 0 || place.id == id) return place;
}

}  // namespace

uint32_t graph_wanted(const GraphInput& input, uint64_t* ids, uint32_t room) {
  size_t parts = 0;
  for (uint32_t rank = 0; rank < input.count; ++rank)
    if (waits(input.states[rank])) parts += input.states[rank]->part_count;
  graph::Arena arena;
  const size_t entries = graph::power_of_two_above(parts);
  auto* table = arena.allocate<Waited>(entries);
  if (parts == 0 || arena.failed()) return 0;
  const size_t mask = entries - 1;
  for (uint32_t rank = 0; rank < input.count; ++rank)
    for (uint32_t i = 0; waits(input.states[rank]) && i < input.states[rank]->part_count; ++i)
      if (const uint64_t id = parts_of(*input.states[rank])[i].comm; id != 0) place_of(table, mask, id).id = id;
  for (uint32_t rank = 0; rank < input.count; ++rank) {
    const RankState* state = input.states[rank];
    const Membership* memberships =
        state != nullptr ? reinterpret_cast<const Membership*>(parts_of(*state) + state->part_count) : nullptr;
    for (uint32_t i = 0; state != nullptr && i < state->comm_count; ++i) {
      const Membership& membership = memberships[i];
      Waited& place = place_of(table, mask, membership.comm);
      if (place.id == 0) continue;
      ++place.seen;
      place.members = static_cast<uint64_t>(membership.size > 0 ? membership.size : 0) +
                      static_cast<uint64_t>(membership.remote_size > 0 ? membership.remote_size : 0);
    }
  }
  uint32_t count = 0;
  for (size_t i = 0; i < entries && count < room; ++i)
    if (table[i].id != 0 && (table[i].members == 0 || table[i].seen < table[i].members)) ids[count++] = table[i].id;
  return count;
}

}  // namespace resil::hang
