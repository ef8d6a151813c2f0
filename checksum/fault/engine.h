// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the fault injector share: the specs of this rank, the state of a thread, the list of what was
// done. Application's threads, inside MPI wrappers.
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/fault/inject_late.h"
#include "checksum/fault/layout.h"
#include "checksum/fault/spec.h"

namespace resil {
struct StagedMessage;
}

namespace resil::fault {

struct Operation;

/// One packet that has come to this rank.
struct Arrival {
  Packet packet;
  CallId id;  ///< the call that received or posted it
  int32_t peer, tag;  ///< world rank, -1: not known
  uint64_t comm, sequence;
  const char* kept;  ///< what the buffer held before, as a stream; null: not kept
  bool hit;
  char *fresh, *previous;  ///< duplicates: this packet and the one before it
};

constexpr unsigned kArrivals = 128;  ///< looked at together

/// What is under way in one thread between before_call and leave.
struct PerThread {
  bool receiving, departing;
  bool tracked;  ///< the send side of the request that the call has made is in the table of operations
  Layout layout;  ///< of the receive side
  char* kept;
  char* shadow;  ///< private copy that the library was given instead of the send buffer
  char* shadow_buffer;  ///< the address that it was given
  Layout send;
  bool changes;  ///< modify: the program's buffer is to show the change
  uint64_t change_at, change_bytes;
  Packet change_in;  ///< the packet of the program's buffer
  char* previous;  ///< one-sided: the packet before to the same target, of the same size
  Injection injection;  ///< noted once the call has returned
  LateWrite late_write;
  uint64_t blocks_chosen;
  unsigned found;  ///< arrivals of a completing call so far
  Arrival arrivals[kArrivals];
  Operation* ended[kArrivals];
};

struct Engine {
  Specs specs;
  int32_t rank;
  bool sends, receives;  ///< is there a spec for that side?
  bool keeps, remembers;  ///< old contents of receive buffers; earlier packets
  std::atomic<uint64_t> injected[kKinds];
};
extern Engine engine;

bool on_send_side(Kind kind);
bool on_receive_side(Kind kind);
/// After MPI_Init: drops the specs of other ranks.
void engine_start();
/// The calling thread's; null: no memory.
PerThread* per_thread(Thread& thread);
unsigned& per_thread_slot();

/// Counts it and appends a line to faults-RRRRR.jsonl.
void note(const Injection& injection);

/// Receiving side (inject_receive.cpp). `one_of`: the blocks of one collective count as one packet.
void inject_received(PerThread& mine, unsigned count, bool one_of);
char* keep(Thread& thread, const Layout& layout);
unsigned gather_arrivals(Thread& thread, PerThread& mine, const Layout& layout, CallId id, int32_t tag,
                         uint64_t sequence, const char* kept);

/// Sending side (inject_send.cpp).
void inject_send(Event& event, PerThread& mine);
void inject_sent(Event& event, PerThread& mine);
void restart(Operation& operation, PerThread& mine);
void land_change(Operation& operation);
void inject_send_staged(Thread& thread, const StagedMessage& message);

/// One-sided (onesided.cpp): operations that are pending until an epoch ends.
void retain_put(uint64_t window, PerThread& mine);
void retain_get(Event& event, PerThread& mine);
void epoch_ends(uint64_t window);  ///< before the real call
void epoch_ended(Event& event, PerThread& mine);  ///< after it

/// The packet of that key before this one, if it has arrived; the caller owns it. And what takes its place.
char* take_earlier(uint64_t key);
void put_earlier(uint64_t key, char* packed);

}  // namespace resil::fault
