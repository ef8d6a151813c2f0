// SPDX-License-Identifier: Apache-2.0
//
// Point-to-point messages: what is sent is announced, what is received is expected in posting order. Called by
// checksum.cpp; thread context as in ledger.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "checksum/ledger/peer.h"
#include "shim/model/event.h"
#include "shim/model/view.h"

namespace resil {
struct Event;
struct CommInfo;
struct Thread;
struct StagedView;
class JsonWriter;
}

namespace resil::p2p {

struct Receive;

/// What is known of the message that a call sends.
enum class SendState : uint8_t { kUnread, kDigested, kAnnounced };

/// Of a call of point-to-point communication, between its hooks.
struct CallState {
  SendState sent;
  union {
    uint64_t digest;  ///< kDigested: of the data that is sent
    uint64_t packet;  ///< kAnnounced: blame's handle of it
  };
  const TypeMap* held_type;  ///< of the data that is sent, with MPI_THREAD_MULTIPLE; null: none is held
  Receive* receive;  ///< its entry, if it was made before the call
  uint64_t posted;  ///< full blame: the receive buffer as it was
};
inline CallState& state_of(Event& e) { return e.state<CallState>(); }
inline const CallState& state_of(const Event& e) { return e.state<CallState>(); }

bool prepare();  ///< before_init: maps memory

// --- sends.cpp ---------------------------------------------------------------------------------------------------
void send_enter_slow(Event& event);  ///< digests what will be overwritten, or must be known before (full blame)
/// Announces a blocking send before its call has returned; not under MPI_THREAD_MULTIPLE, where that is no order.
void send_announce(Event& event, const View& view);
void send_early(Event& event);  ///< the same, of a call that sends and receives
void send_leave(Event& event);
void send_init_leave(Event& event);  ///< MPI_Send_init and the like, MPI_Psend_init
void send_started(Event& event, uint64_t cookie);
void send_completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
// MPI_Request_get_status has said that an operation is complete: its buffer is the program's.
void receive_told_complete(uint64_t cookie);
void send_told_complete(uint64_t cookie);
bool send_is_over();  ///< nothing is to be done at the end of one that is not followed
void cancel_enter(Event& event);  ///< MPI_Cancel: from now on ends of sends are looked at

extern std::atomic<bool> order_lost;  ///< set when a send went unrecorded: message order is unknown afterwards

// --- fast_path.cpp: the same for the usual case, while ledger::is_plain. False: nothing was done --------------------
bool fast_path_sent(Event& event);
bool fast_path_received(Event& event);
bool fast_path_posted(Event& event);
bool fast_path_completed(Event& event, int64_t place, uint64_t cookie);
/// From the fast path of the call path (shim/call/fast_path.h), where there is no Event: after_init, once collectives
/// have done so; and whether the next call that is the same may go it.
void fast_path_connect();
bool fast_path_prepare(Event& event);

// --- receives.cpp ------------------------------------------------------------------------------------------------
void receive_enter_slow(Event& event);
void receive_leave(Event& event);  ///< blocking: complete
void receive_posted(Event& event);  ///< MPI_Irecv, Imrecv, Recv_init, Precv_init after the real call
void receive_starting(const Event& event, uint64_t* cookie);  ///< full blame: before the real MPI_Start
void receive_started(Event& event, uint64_t* cookie);
void receive_completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
void message_enter(Event& event);  ///< MPI_Mrecv, Imrecv: notes the message handle
void matched_probe(Event& event);  ///< MPI_Mprobe, MPI_Improbe after the real call

// --- StagedChecks (shim/runtime/staged.h), in sends.cpp and receives.cpp --------------------------------------------
void receive_posting(Event& event, const View& copy);
void send_announcing(Event& event, const StagedView& copy);
void send_posted(Thread& thread, void* word, const StagedView& copy);
void send_dropped(void* word);

// --- order.cpp ---------------------------------------------------------------------------------------------------
bool match_queue_is_shared_slow(uint64_t comm_id, int32_t peer, int32_t tag, bool sending, bool ask_only);
/// Under MPI_THREAD_MULTIPLE: has more than one thread used this matching queue so far? Notes the calling one unless it
/// only asks.
inline bool match_queue_is_shared(uint64_t comm_id, int32_t peer, int32_t tag, bool sending, bool ask_only = false) {
  return ledger::is_concurrent && match_queue_is_shared_slow(comm_id, peer, tag, sending, ask_only);
}
/// How many partitioned requests of that kind have been initialised before this one: they match in that order. -1: too
/// many different ones to tell.
int64_t partitioned_ordinal(uint64_t comm_id, int32_t peer, int32_t tag, bool sending);

/// On the way in. `replaces`: the send buffer is overwritten by the receive.
inline void send_enter(Event& e, bool replaces) {
  state_of(e).sent = SendState::kUnread;
  if (replaces || ledger::is_concurrent || ledger::is_full || ledger::is_strict) [[unlikely]]
    send_enter_slow(e);
}

inline void receive_enter(Event& e) {
  state_of(e).receive = nullptr;
  state_of(e).posted = 0;
  if (ledger::is_concurrent || ledger::is_full) [[unlikely]]
    receive_enter_slow(e);
}

}  // namespace resil::p2p
