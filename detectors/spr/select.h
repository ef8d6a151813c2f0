// SPDX-License-Identifier: Apache-2.0
//
// Which particles have a replica: a maximal independent set of the neighbour lists, chosen by one rank from its own
// particles. Each of these is in the set or in the list of a particle of the set, so that an error in any of them goes
// into what some replica is compared with. hashed.h has the way that needs other ranks. No MPI, no state.
#pragma once

#include <cstdint>

#include "detectors/spr/buffer.h"
#include "detectors/spr/lists.h"

namespace resil::spr {

/// Words of RESIL_SPR, in its order.
enum class Method : uint8_t { kOff, kCover, kHashed, kGreedy };

/// What a selection needs besides its result; kept from one selection to the next.
struct Scratch {
  Buffer<uint8_t> covered;
  Buffer<int> head, next;
};

/// `selected` gets local indices, ascending; `*count` how many. False: no memory. O(local + lists of the selected).
/// In the order of the indices, as the paper's Algorithm 1 does.
bool select_greedy(const Lists& lists, Scratch& scratch, Buffer<int>& selected, int64_t* count);
/// Whoever covers most comes first, of those that are not covered yet. O(all lists).
bool select_cover(const Lists& lists, Scratch& scratch, Buffer<int>& selected, int64_t* count);

}  // namespace resil::spr
