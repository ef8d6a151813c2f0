// SPDX-License-Identifier: Apache-2.0
//
// What checksums see of a staged buffer. The stages of a message: device (D of the device's memory before the copy),
// down (D of the pinned copy), wire (D of what arrived in pinned memory), up (D of the device's memory after the copy).
// The ledger compares the two in the middle; each end compares its own two, here, before the program has the data or
// the message has left. A difference is a finding that names stage, device and rank.
//
// Digests of device memory are computed there (pipeline/gpu/kernels/), those of many packets in one launch, on a stream
// of their own beside the copies. A packet becomes ready (packet_poll) when its digest is there, too: then nothing of
// resil's reads the buffer any more, and it has been compared. Nothing here is waited for but in packet_wait.
#pragma once

#include <cstdint>

#include "shim/model/event.h"

namespace resil {
class JsonWriter;
}

namespace resil::staging {

struct Packet;

/// RESIL_MODE has checksum: packets are to be checked. Set before MPI_Init returns.
extern constinit bool checking;

enum class CheckState : uint8_t {
  kNone,
  kQueued,  ///< to be digested with the next batch
  kLaunched,
  kDigested,  ///< D of the device is known
  kCompared,  ///< and the pinned copy's, and what follows from them has been done
  kUnchecked,  ///< no digest of the device's memory can be had; counted
};

/// What is known of a packet's current copy (Packet::copy). All zero: nothing.
struct Check {
  Packet* next;  ///< in the queue
  uint64_t device, host;  ///< digests
  uint8_t batch;
  CheckState state;
  bool copied;
  bool host_known;
  bool before;  ///< of a copy down: D of the device is from before the copy, in the order of the device itself
};

// --- Called by packet.cpp, where `checking`
// ---------------------------------------------------------------------------

/// The copy is about to be enqueued. After a first mismatch on a device, copies down go behind the digest on the device
/// from then on: only so does the one prove what the other read.
void check_before(Packet* packet);
/// It has been enqueued, or has failed.
void check_copy(Packet* packet);
/// What is left to do for it. kAgain: the copy down differs, and is to be made again.
enum class CheckResult : uint8_t { kPending, kSettled, kAgain };
/// `copied`: the copy is complete. Compares when both are; the pinned memory is valid when it is kSettled. May end the
/// job (RESIL_ON_MISMATCH).
CheckResult check_poll(Packet* packet, bool copied);
/// The packet goes, or its copy failed: waits for the device to be done with it.
void check_forget(Packet* packet);
/// The program may free or change the buffer at any time from now on: no digest of it; counted.
void check_never(Packet* packet);

// --- For the modules that verify data
// ---------------------------------------------------------------------------------

/// D of the pinned copy of the first `bytes` bytes of the packet's stream: known from the comparison, or computed now.
/// The copy is complete.
uint64_t host_digest(const Packet& packet, uint64_t bytes);
/// D of what the last copy moved, as it is in pinned memory now.
uint64_t copied_digest(const Packet& packet);

// --- device_finding.cpp
// -----------------------------------------------------------------------------------------------

/// The digests differ. Looks again at both, to tell which of them is to be trusted, and publishes what it finds. True:
/// that cannot be told, and a copy down is to be made again.
bool check_mismatch(Packet* packet);
/// From now on, digests of this packet's device come before copies down.
void digest_first(Packet* packet);
/// D of the device's memory now; false: not to be had. Waits for it.
bool digest_again(Packet* packet, uint64_t* digest);
/// A packet of the last few hundred that had this digest on the device; null: none.
struct Known {
  uint64_t digest, bytes;
  const void* buffer;
  bool up;
};
const Known* known_digest(uint64_t digest, uint64_t bytes, const void* not_this);
void check_report(JsonWriter& json);

}  // namespace resil::staging
