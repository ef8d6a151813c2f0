// SPDX-License-Identifier: Apache-2.0
//
// Messages of one reduction on the private communicator. A message says which reduction and hop it belongs to, because
// several threads may have reductions under way whose tags are equal: what is another thread's is put aside for it.
#pragma once

#include <cstdint>

#include "pipeline/reduction/scratch.h"

namespace resil {
struct Thread;
}

namespace resil::reduction {

constexpr size_t kHeadroom = 64;  ///< before every payload, for the header

enum class Hop : uint32_t { kUp, kDown, kAcross };

struct Key {
  uint64_t comm, sequence;
  uint32_t part;  ///< of a long vector
  Hop hop;
  bool operator==(const Key&) const = default;
};

/// What is being sent; its payloads stay as they are until wait() has returned.
struct Sending {
  uint64_t requests[72];
  unsigned count;
};

void wire_prepare();
/// `payload` has kHeadroom bytes before it. False: MPI would not.
bool wire_send(Thread& thread, const Key& key, int32_t world_rank, char* payload, size_t bytes, Sending& sending);
void wire_wait(Thread& thread, Sending& sending);
/// The payload of that message, with headroom before it, in the arena; null: MPI would not, or its size is another one
/// (the program's counts differ between ranks).
char* wire_receive(Thread& thread, const Key& key, int32_t world_rank, size_t bytes, Arena& arena);

}  // namespace resil::reduction
