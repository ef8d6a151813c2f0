// SPDX-License-Identifier: Apache-2.0
//
// Looks after the messages under way: sends in their send queues, messages that the library has, copies up.

#include <bit>

#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked_peer.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/late.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/messages.h"
#include "pipeline/staging/p2p.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/report/finding.h"

namespace resil::staging {

namespace {

constexpr unsigned kSendQueues = 64;
constexpr unsigned kPeeks = 16;  // of messages in one round: each costs the library's own progress
constexpr unsigned kPendingCopies = 2;  // events of one device are complete in the order of their copies

struct List {
  Message *first, *last;

  /// Others look at `first` without the lock, to see that there is nothing.
  void set_first(Message* op) { __atomic_store_n(&first, op, __ATOMIC_RELAXED); }
};

/// Sends wait in the order of their calls. Send queues (communicator, destination) that fall into one list wait for
/// each other's copies, which does no harm. With several threads one at a time posts what waits in a send queue.
constinit List send_queues[kSendQueues] = {};
constinit std::atomic<uint64_t> busy_send_queues, taken_send_queues;
constinit thread_local uint64_t own_send_queues __attribute__((tls_model("initial-exec")));
constinit List arriving = {}, leaving = {}, rising = {};
constinit std::atomic<uint32_t> in_lists;
constinit SpinLock lock;
constinit thread_local bool posting __attribute__((tls_model("initial-exec")));  // inside post()
constinit bool
    starting;  ///< the program may be about to start more; one thread alone has messages for which it matters

void append(List& list, Message* op) {
  op->next = nullptr;
  if (list.first == nullptr) list.set_first(op);
  else list.last->next = op;
  list.last = op;
}

void put(List& list, Message* op) {
  OptionalGuard guard(lock, several_threads());
  append(list, op);
  in_lists.fetch_add(1, std::memory_order_relaxed);
}

void put_first(List& list, Message* op) {
  OptionalGuard guard(lock, several_threads());
  op->next = list.first;
  if (list.first == nullptr) list.last = op;
  list.set_first(op);
  in_lists.fetch_add(1, std::memory_order_relaxed);
}

Message* take(List& list) {
  if (__atomic_load_n(&list.first, __ATOMIC_RELAXED) == nullptr) return nullptr;
  OptionalGuard guard(lock, several_threads());
  Message* op = list.first;
  if (op == nullptr) return nullptr;
  list.set_first(op->next);
  in_lists.fetch_sub(1, std::memory_order_relaxed);
  return op;
}

/// Takes the first one that is meant out of the list; null: none is.
template <class Meant>
Message* claim(List& list, Meant meant) {
  OptionalGuard guard(lock, several_threads());
  Message* before = nullptr;
  for (Message* op = list.first; op != nullptr; before = op, op = op->next) {
    if (!meant(*op)) continue;
    if (before == nullptr) list.set_first(op->next);
    else before->next = op->next;
    if (list.last == op) list.last = before;
    in_lists.fetch_sub(1, std::memory_order_relaxed);
    return op;
  }
  return nullptr;
}

/// Its data is in host memory: the library's.
void post(Thread& thread, Message* op, PacketState state) {
  if (state == PacketState::kFailed) copy_failed(*op, "down");
  if (op->chunked != nullptr && !op->failed) chunked_announce(*op);
  if (!op->failed) wire_departs(*op);
  if (!op->failed && backend->staging->start(&op->handle) != 0)  // the error handler has been called
    op->failed = true;
  if (op->chunked != nullptr) chunked_head_started(thread, op);
  posting = true;
  tell_posted(thread, op);
  posting = false;
  if (op->failed) finish(thread, op);
  else put(leaving, op);
}

/// The next of that send queue; null: it is not busy any more.
Message* take_from_send_queue(unsigned number) {
  if (Message* op = take(send_queues[number]); op != nullptr) return op;
  OptionalGuard guard(lock, several_threads());
  if (send_queues[number].first == nullptr)
    busy_send_queues.fetch_and(~(uint64_t{1} << number), std::memory_order_relaxed);
  return nullptr;
}

/// Posts what is down, in order. `wait`: all of it.
void post_in_order(Thread& thread, unsigned number, bool wait) {
  while ((busy_send_queues.load(std::memory_order_relaxed) >> number & 1) != 0) {
    Message* op = take_from_send_queue(number);
    if (op == nullptr) continue;
    const PacketState state = op->chunked != nullptr ? chunked_head(*op, wait)
                              : wait                 ? packet_wait(&op->packet)
                                                     : packet_poll(&op->packet);
    if (state == PacketState::kCopying) {
      put_first(send_queues[number], op);
      return;
    }
    post(thread, op, state);
  }
}

/// The same by one thread at a time, or messages would overtake. Whoever has to wait for another does so while that one
/// waits for copies or is in MPI_Start, for no other rank.
void work_send_queue(Thread& thread, unsigned number, bool wait) {
  if (!several_threads()) return post_in_order(thread, number, wait);
  const uint64_t bit = uint64_t{1} << number;
  if ((own_send_queues & bit) != 0) return;  // called by an error handler of MPI_Start's
  while ((taken_send_queues.fetch_or(bit, std::memory_order_acquire) & bit) != 0) {
    if (!wait) return;
    sched_yield();
  }
  own_send_queues |= bit;
  post_in_order(thread, number, wait);
  own_send_queues &= ~bit;
  taken_send_queues.fetch_and(~bit, std::memory_order_release);
}

/// By the program: nobody else will complete its request.
bool is_freed(const Message& op) {
  const Message& told = op.owner != nullptr ? *op.owner : op;
  return (told.marks.load(std::memory_order_relaxed) & kDetached) != 0;
}

/// Asks the library for messages in turn, a few in a round.
bool work_wire(Thread& thread, List& list, unsigned peeks) {
  bool asked = false;
  Message* first = nullptr;
  for (unsigned i = 0; i < peeks; ++i) {
    Message* op = take(list);
    if (op == nullptr) break;
    if (op == first) {
      put_first(list, op);
      break;
    }
    StatusInfo status = {ring::kNoPeer, 0, 0, false, 0};
    const Peeked is = backend->staging->peek(op->handle, op->comm, is_freed(*op), &status);
    asked = asked || is != Peeked::kNotAsked;
    if (is != Peeked::kComplete) {
      first = first != nullptr ? first : op;
      put(list, op);
    } else {
      if (op->persistent || op->keeps) remember(*op, status);
      wire_done(thread, op, status);
    }
  }
  return asked;
}

void work_copies_up(Thread& thread) {
  Message* pending[kPendingCopies];
  unsigned count = 0;
  while (count < kPendingCopies) {
    Message* op = take(rising);
    if (op == nullptr) break;
    const PacketState state = packet_poll(&op->packet);
    if (state == PacketState::kCopying) {
      pending[count++] = op;
      continue;
    }
    if (state == PacketState::kFailed) copy_failed(*op, "up");
    finish(thread, op);
  }
  while (count > 0) put_first(rising, pending[--count]);
}

}  // namespace

void finish(Thread& thread, Message* op) {
  if (op->pieces > 1) {
    --op->pieces;
    return;
  }
  if (op->chunked != nullptr) chunked_release(op);
  if (op->staged && !checking) {  // its pinned memory is free for the next one
    packet_close(&op->packet);
    op->staged = false;
  }
  if (Message* owner = op->owner; owner != nullptr) {
    if (op->failed) owner->failed = true;
    if (!op->closed) backend->staging->free(&op->handle);
    message_retire(thread, op);
    op = owner;
  }
  if (op->parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (op->marks.fetch_or(kFinished, std::memory_order_acq_rel) & kDetached) {
    backend->staging->free(&op->handle);
    message_retire(thread, op);
  }
}

void whole_arrived(Thread& thread, Message* op, uint64_t bytes) {
  op->bytes = bytes < op->packet.bytes ? bytes : op->packet.bytes;  // truncated: as far as there is room
  if (!op->staged || op->bytes == 0) return finish(thread, op);
  const bool may_look = rises(*op);
  wire_arrived(*op, op->bytes);
  if (packet_up(&op->packet, op->bytes) == PacketState::kFailed) {
    copy_failed(*op, "up");
    return finish(thread, op);
  }
  if (checking && !may_look) check_never(&op->packet);
  put(rising, op);
}

void rising_append(Message* op) { put(rising, op); }

bool may_ask(const Message& op) { return is_freed(op) || backend->staging->askable(op.comm); }

bool wire_claim(Message* op) {
  return claim(op->sends ? leaving : arriving, [op](const Message& at) { return &at == op; }) != nullptr;
}

Message* wire_claim_owned(const Message* receive) {
  return claim(leaving, [receive](const Message& at) { return at.owner == receive; });
}

void wire_done(Thread& thread, Message* op, const StatusInfo& status) {
  if (op->sends) return finish(thread, op);
  op->peer = status.source;
  op->tag = status.tag;
  if (!chunked_arrived(thread, op, status.bytes, status.source)) whole_arrived(thread, op, status.bytes);
}

void work_begins() { in_lists.fetch_add(1, std::memory_order_relaxed); }

void work_ends() { in_lists.fetch_sub(1, std::memory_order_relaxed); }

bool under_way() { return in_lists.load(std::memory_order_relaxed) != 0; }

uint8_t send_queue_of(const MessageEnvelope& to) {
  return static_cast<uint8_t>((to.comm ^ uint64_t{static_cast<uint32_t>(to.peer)} << 32) * 0x9e3779b97f4a7c15 >> 58);
}

void send_queue_append(Thread& thread, Message* op) {
  const unsigned number = op->send_queue;
  {
    OptionalGuard guard(lock, several_threads());
    append(send_queues[number], op);
    in_lists.fetch_add(1, std::memory_order_relaxed);
    busy_send_queues.fetch_or(uint64_t{1} << number, std::memory_order_seq_cst);
  }
  if (several_threads() && somebody_blocks()) work_send_queue(thread, number, true);
}

bool send_queue_busy(const MessageEnvelope& to) {
  return (busy_send_queues.load(std::memory_order_relaxed) >> send_queue_of(to) & 1) != 0;
}

void send_queue_flush(Thread& thread, const MessageEnvelope& to) { work_send_queue(thread, send_queue_of(to), true); }

void wire_append(Message* op) { put(op->sends ? leaving : arriving, op); }

bool advance(Thread& thread) {
  if (!under_way()) return false;
  for (uint64_t left = busy_send_queues.load(std::memory_order_relaxed); left != 0; left &= left - 1)
    work_send_queue(thread, static_cast<unsigned>(std::countr_zero(left)), false);
  const bool asked = work_wire(thread, arriving, kPeeks);
  const bool asked_too = work_wire(thread, leaving, kPeeks / 4);
  if (!starting) chunked_peers_begin();
  const bool chunks_sent = chunked_sends_advance(thread, false);
  const bool chunks_received = chunked_receives_advance(thread);
  chunked_notes(thread);
  work_copies_up(thread);
  return asked || asked_too || chunks_sent || chunks_received;
}

void progress_besides(Thread& thread) {
  if (!posting) advance(thread);
}

void progress(Thread& thread, bool more_to_come) {
  if (more_to_come && chunked_held != 0) {
    starting = true;
    advance(thread);
    starting = false;
  } else {
    advance(thread);
  }
}

void flush(Thread& thread) {
  for (uint64_t left = busy_send_queues.load(std::memory_order_seq_cst); left != 0; left &= left - 1)
    work_send_queue(thread, static_cast<unsigned>(std::countr_zero(left)), true);
  chunked_sends_advance(thread, true);
}

static void say_copy_failed(Message& op, const char* direction) {
  op.failed = true;
  Finding finding;
  finding.start("device_copy_failed", Confidence::kProved);
  finding.culprit(runtime.header->rank);
  finding.say(messages::staging::copy_failed, runtime.header->rank, direction,
              static_cast<unsigned long long>(op.packet.bytes), gpu::ordinal_of(*op.packet.device),
              gpu::api_name(gpu::api_of(*op.packet.device)), direction[0] == 'a' ? "another process's device" : "host",
              gpu::last_error());
  finding.to_do(messages::staging::copy_failed_to_do, runtime.host);
  finding.add("buffer", "%p", static_cast<void*>(op.packet.buffer));
  finding_publish(finding);
}

void copy_failed(Message& op, const char* direction) {
  on_own_stack([&] { say_copy_failed(op, direction); });
}

}  // namespace resil::staging
