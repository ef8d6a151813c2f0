// SPDX-License-Identifier: Apache-2.0
//
// One data argument of a call, from fault::Layout to the shadow of what lies on a device.
#pragma once

#include "checksum/fault/layout.h"
#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"

namespace resil::staging {

/// A side without data.
constexpr fault::Layout kNothing = {nullptr, 0,     nullptr, nullptr, nullptr, nullptr, 0,      -1,
                                    -1,      false, false,   false,   false,   nullptr, nullptr};

/// What the call writes on this side: `blocks` of them, which are the first of the packet's, `bytes` in all.
struct Written {
  uint32_t blocks;
  uint64_t bytes;
};

/// Opens a shadow for what the layout describes. `sources`: of neighbourhood collectives, the ranks that the blocks
/// come from; a negative one sends nothing. Null: all send. kHostBuffer: no data, or none on a device. On any refusal
/// nothing is held.
Refusal side_open(Thread& thread, const fault::Layout& layout, const int* sources, Packet* packet, Written* written);

Uncovered reason_of(Refusal refusal);

}  // namespace resil::staging
