// SPDX-License-Identifier: Apache-2.0
//
// What checksums see of a staged buffer. The stages of a message: device (D of the device's memory before the copy), down
// (D of the pinned copy), wire (D of what arrived in pinned memory), up (D of the device's memory after the copy). The
// ledger compares the two in the middle; each end compares its own two, here, before the program has the data or the
// message has left. A difference is a finding that names stage, device and rank.
#pragma once

#include <cstdint>

#include "pipeline/staging/packet.h"
#include "shim/event.h"

namespace resil::staging {

/// RESIL_MODE has checksum: packets are to be checked. Set before MPI_Init returns.
extern constinit bool checking;

/// To be called when a copy is about to be started, by the part that owns the packet: enqueues the digest of the device's
/// data in order with the copy (down: before it; up: after it), batched with those of other packets. Costs nothing but
/// one branch when not `checking`.
void check_down_begins(Packet* packet);
void check_up_begins(Packet* packet, uint64_t bytes);
/// The copy is complete (packet_poll said kReady): compares. `event` names the call for the finding; may be null.
void check_down_done(Packet* packet, const Event* event);
void check_up_done(Packet* packet, uint64_t bytes, const Event* event);

/// The pinned copy of the program's buffer while a call with it is under way, for the modules that verify data: an
/// address that the host may read, with the same data as the buffer (packed, or with its layout), or null: none, or not
/// valid yet.
struct HostCopy {
  const char* data;
  bool packed;
};
HostCopy host_copy(const Event& event, bool receive);

}  // namespace resil::staging
