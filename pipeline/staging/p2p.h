// SPDX-License-Identifier: Apache-2.0
//
// What the parts of point-to-point staging share.
#pragma once

#include "pipeline/staging/message.h"
#include "shim/model/event.h"

namespace resil::staging {

/// One direction of a call.
struct Half {
  const void* buffer;
  int64_t count;
  uint64_t type;
  MessageEnvelope envelope;
  CallId call = {};
  CommInfo* comm = nullptr;  ///< null: the call has none (MPI_Mrecv)
};

/// A message with a packet for that buffer, and what the library is to be given. Null: the call goes to the library
/// as it is (host memory, no data, MPI_PROC_NULL, or a reason that has been counted).
Message* open_message(Thread& thread, const Half& half, bool sends, MessagePart* part);

/// The same for a receive, also into host memory if a head may come (chunked.h).
Message* open_receive(Thread& thread, const Half& half, MessagePart* part);
/// A send's data elsewhere, since a receive into the same buffer is to be posted; false: no memory.
bool copy_of(Thread& thread, Message& op, MessagePart* part);
/// Of the message with device memory that was opened last; null: none.
gpu::Device* last_device();

/// Verify: a receive with wildcards gets the message that it got in the recorded run. False: none, and verify is to
/// carry it out. `decided`: whether the envelope is another one now.
bool decide(Event& event, Half* receive, bool* decided);

/// Starts the copy down; false: it failed, and the finding has been made.
bool begin_down(Message& op);
/// Until the data is in host memory; likewise.
bool wait_down(Message& op);
/// Copies `bytes` bytes up and waits for that; likewise.
bool copy_up(Thread& thread, Message& op, uint64_t bytes);

/// The pinned copy of a receive is about to be posted: the ledger may want to know what it holds before
/// (p2p_checks.cpp).
void tell_posting(Event& event, Message* op);
/// The send of a blocking exchange is down, and about to be given to the library.
void tell_sending(Event& event, Message* op);

// --- p2p_faults.cpp
// ---------------------------------------------------------------------------------------------------
/// A send that may be damaged on its way: the library gets a copy, filled by wire_departs() when the data is down.
void wire_prepare(Message& op, MessagePart* part);
void wire_departs(Message& op);
/// Before anybody has looked at what came from `op.peer` with `op.tag`.
void wire_arrived(Message& op, uint64_t bytes);

Half send_half(const Event& event);
Half receive_half(const Event& event);

// --- p2p_blocking.cpp
// -------------------------------------------------------------------------------------------------
bool blocking_send(Event& event, SendMode mode);
bool blocking_receive(Event& event);
bool blocking_exchange(Event& event, bool in_place);

/// A send whose request is its own: posted now, or as soon as its data is down. MPI's code.
int start_send(Thread& thread, Message* op, SendMode mode, MessagePart part, const MessageEnvelope& to);

}  // namespace resil::staging
