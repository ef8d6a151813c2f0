// SPDX-License-Identifier: Apache-2.0
//
// A staged message under way. The program holds a request of the library's own for it: of the receive into pinned
// memory, or of a persistent send that is started when the data is down. So matching, statuses, errors and MPI_Cancel
// are the library's; staging only says when the program may be told: after the copy up. Until then completion calls do
// not show the request to the library (wait.cpp).
//
// A message stands in one list at a time (copies down: its send queue). Whoever looks after it takes it out, acts, and
// puts it into the next one: with MPI_THREAD_MULTIPLE no two threads meet at one message, and no lock is held across a
// call.
#pragma once

#include <atomic>
#include <cstdint>

#include "pipeline/staging/packet.h"
#include "shim/abi/backend.h"
#include "shim/runtime/progress.h"

namespace resil {
struct Event;
struct Thread;
}

namespace resil::staging {

struct Sending;
struct Target;

struct Message {
  uint64_t handle;  ///< the library's request
  uint64_t comm;  ///< for errors; MPI_COMM_WORLD where the call has none
  Message* next;  ///< in its list; of free ones
  Message* in_bucket;  ///< next of those with equal hash
  Message* owner;  ///< MPI_Isendrecv: the receive whose request stands for this send too; null: its own
  Packet packet;
  uint64_t bytes;  ///< of data, sent or received
  Sending* chunked;  ///< a send that is cut (chunked.h), until its last chunk is sent
  Target* target;  ///< a receive into host memory that may get a head; null otherwise
  void* scratch;  ///< the data of a send of its own (MPI_Sendrecv_replace from host memory); null: none
  uint64_t came;  ///< what the status is to say; 0: as the library has it
  int error;  ///< what it ends with, if `failed`; 0: MPI_ERR_OTHER
  int16_t matched;  ///< MPI_Mrecv: 1 + number of its entry; -1: it is no head; 0: to be seen from its size
  uint8_t pieces;  ///< that the library has to be done with: 2 when it is cut
  CallId call;  ///< that sent or posted it
  int32_t peer, tag;  ///< as in the call; once received: of the message
  void* word;  ///< the ledger's, of a send in its send queue (shim/runtime/staged.h)
  std::atomic<uint8_t> parts;  ///< that are not done: 1, with a send that it owns 2
  std::atomic<uint8_t> marks;  ///< kFinished, kDetached, kClosing, kLeaving
  bool staged;  ///< has a packet (else: MPI_Isendrecv's receive into host memory)
  bool sends;
  std::atomic<bool> rising;  ///< its copy up is under way
  bool in_send_queue;  ///< a send that the library does not have yet
  uint8_t send_queue;  ///< which
  bool persistent;  ///< the handle outlives its completion, and has to be freed
  bool claimed;  ///< in no list: a call of the program's is about to complete its request (wait.cpp)
  bool closed;  ///< the library has completed the request: the handle is not the message's any more
  bool keeps;  ///< the handle is the program's persistent one: it stays when it is complete
  bool cancelled;  ///< and `told`: it was
  bool told;  ///< and `keeps`: the library has been asked, and has said all that it will: came, peer, tag
  std::atomic<bool> failed;  ///< a copy was refused by the runtime, or the library refused the message after its post
};

/// Nothing is left to do but to tell the program.
constexpr uint8_t kFinished = 1;
/// The program has freed its request: nobody will ask.
constexpr uint8_t kDetached = 2;
/// Several threads: the library may complete the request just now, so that its handle may be another operation's
/// already.
constexpr uint8_t kClosing = 4;
/// The program is about to free its request: see leaves().
constexpr uint8_t kLeaving = 8;

inline bool finished(const Message& op) { return (op.marks.load(std::memory_order_acquire) & kFinished) != 0; }

// A program that has freed its request may look at the buffer for the data, and write there when it has seen it: a
// check must not look there then. Who starts the copy up says so and looks whether the program leaves; who frees the
// request says so and looks whether the copy up has begun, and then waits for its end. All four in the one order of
// sequentially consistent operations: so one of them sees the other.

/// The copy up begins. False: the program's memory is not to be looked at after it.
inline bool rises(Message& op) {
  op.rising.store(true, std::memory_order_seq_cst);
  return (op.marks.load(std::memory_order_seq_cst) & (kDetached | kLeaving)) == 0;
}

/// The program frees its request. True: only when it is finished.
inline bool leaves(Message& op) {
  op.marks.fetch_or(kLeaving, std::memory_order_seq_cst);
  return op.rising.load(std::memory_order_seq_cst);
}

/// MPI's code for a message that has failed.
inline int error_of(const Message& op) { return op.error != 0 ? op.error : backend->staging->error_other; }

// --- message.cpp ----------------------------------------------------------------------------------------------------

/// With everything cleared; null: no memory. Any thread.
Message* message_take();
/// Gives back message and packet, at the end of the program's call if modules still want to see the packet
/// (release_retired). Its handle is no longer the program's.
void message_retire(Thread& thread, Message* op);
/// At the end of each call, when the other modules have seen it.
void release_retired(Thread& thread);
/// The one with that buffer that the call completed or carried out, until release_retired; null: none.
Message* message_retired(Thread& thread, const void* buffer, bool sends);
/// The send that this call has started. At the call's end, when the other modules have seen it as it is,
/// release_retired puts it into its send queue or among those that the library has: from then on any thread may look
/// after it.
void message_note_started(Message* op);
Message* message_started(Thread& thread);

/// From the handle to the message, for requests that the program holds. Lookups cost one load while there are none.
void message_enter(Message* op);
void message_remove(Message* op);
Message* message_find(uint64_t handle);
bool messages_known();

/// May several threads be inside MPI at a time? Then lists and table are locked.
bool several_threads();

// --- progress.cpp: lists
// ----------------------------------------------------------------------------------------------

/// The copy down has been started: to be posted in its turn.
void send_queue_append(Thread& thread, Message* op);
uint8_t send_queue_of(const MessageEnvelope& to);
/// Are sends waiting there that a later one must not overtake?
bool send_queue_busy(const MessageEnvelope& to);
/// Waits for the copies down of that send queue and posts its sends.
void send_queue_flush(Thread& thread, const MessageEnvelope& to);
/// The library has it: receive or send.
void wire_append(Message* op);
/// May the library be asked about the message? Else it is completed by the program's own call: see wait.cpp.
bool may_ask(const Message& op);
/// Takes a message that the library has out of the lists: it is the caller's then, who gives it back by wire_append or
/// goes on with wire_done. False: it is not there; it waits in its send queue, its copies are under way, or a thread is
/// just asking about it.
bool wire_claim(Message* op);
/// The same for the send that this receive owns; null.
Message* wire_claim_owned(const Message* receive);
/// The library has said that it is complete, with that status: what is left to do begins.
void wire_done(Thread& thread, Message* op, const StatusInfo& status);
/// Counts work that stands in no list, for under_way().
void work_begins();
void work_ends();
/// One part of the message is done; with the last one, it may be the program's at once, and gone.
void finish(Thread& thread, Message* op);
/// All of a receive's data is in host memory: it goes up from there.
void whole_arrived(Thread& thread, Message* op, uint64_t bytes);
/// Its copy up is under way.
void rising_append(Message* op);
/// One round over everything under way; true: the library was given a chance to move messages.
bool advance(Thread& thread);
/// The copy is complete, or has failed: says why in a finding (once per message).
void copy_failed(Message& op, const char* direction);

// --- p2p_checks.cpp
// ---------------------------------------------------------------------------------------------------

/// One request of a completion call as verify tests it (shim/runtime/staged.h).
bool test_one(Event& event, int64_t index, int* flag, void* status, int* result);

/// Before MPI_Init returns: the ledger is to look at pinned copies, verify to know of staged requests.
void connect_checks();
/// A send has left its queue: the library has it, or never will (`failed`).
void tell_posted(Thread& thread, Message* op);

/// Repeats `test()` until it is true, with messages under way advanced in every round.
template <class Test>
void wait_while_working(Thread& thread, Test test) {
  wait_until(thread, [&] { return test() || (advance(thread), false); });
}

}  // namespace resil::staging
