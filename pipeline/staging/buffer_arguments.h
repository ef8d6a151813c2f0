// SPDX-License-Identifier: Apache-2.0
//
// One data argument of a call, from its transfer to the shadow of what lies on a device.
#pragma once

#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"
#include "shim/tables/flat_transfer.h"

namespace resil::staging {

/// What the call writes on this side: `blocks` of them, which are the first of the packet's, `bytes` in all.
struct Written {
  uint32_t blocks;
  uint64_t bytes;
};

/// Opens a shadow for what the transfer describes. `sources`: of neighbourhood collectives, the ranks that the blocks
/// come from; a negative one sends nothing. Null: all send. kHostBuffer: no data, or none on a device. On any refusal
/// nothing is held.
Refusal argument_open(Thread& thread, const FlatTransfer& flat, const int* sources, Packet* packet, Written* written);

}  // namespace resil::staging
