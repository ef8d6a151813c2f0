// SPDX-License-Identifier: Apache-2.0
//
// See message.h: messages from a pool, and the way from the program's handle to them.

#include "pipeline/staging/message.h"

#include "pipeline/staging/chunked.h"
#include "pipeline/staging/device_check.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/call/thread.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/pool.h"

namespace resil::staging {

namespace {

constexpr unsigned kBucketBits = 10;
constinit memory::Pool<Message, &Message::next, 64, 1u << 20> pool = {};
constinit Message* buckets[1u << kBucketBits];
constinit SpinLock lock;
constinit std::atomic<uint32_t> known;
constinit thread_local Message *retired __attribute__((tls_model("initial-exec"))),
    *started __attribute__((tls_model("initial-exec")));

Message*& bucket(uint64_t handle) { return buckets[handle * 0x9e3779b97f4a7c15 >> (64 - kBucketBits)]; }

void release(Message* op) {
  if (op->staged) packet_close(&op->packet);
  if (op->target != nullptr && op->target->request == 0) chunked_target_release(op->target);
  memory::blocks.release(op->scratch);
  OptionalGuard guard(lock, several_threads());
  pool.release(op);
}

}  // namespace

bool several_threads() {
  static constinit std::atomic<uint8_t> answer{0};  // MPI_Query_thread's does not change
  uint8_t said = answer.load(std::memory_order_relaxed);
  if (said == 0) [[unlikely]] {
    said = backend->thread_multiple() ? 2 : 1;
    answer.store(said, std::memory_order_relaxed);
  }
  return said == 2;
}

Message* message_take() {
  Message* op;
  {
    OptionalGuard guard(lock, several_threads());
    op = pool.allocate();
  }
  if (op == nullptr) return nullptr;
  op->handle = 0;
  op->next = op->in_bucket = op->owner = nullptr;
  op->bytes = op->came = 0;
  op->chunked = nullptr;
  op->target = nullptr;
  op->scratch = nullptr;
  op->error = 0;
  op->matched = 0;
  op->pieces = 1;
  op->word = nullptr;
  op->rising.store(false, std::memory_order_relaxed);
  op->parts.store(1, std::memory_order_relaxed);
  op->marks.store(0, std::memory_order_relaxed);
  op->send_queue = 0;
  op->staged = op->sends = op->in_send_queue = op->persistent = op->keeps = op->claimed = op->closed = op->cancelled =
      op->told = false;
  op->failed.store(false, std::memory_order_relaxed);
  return op;
}

void message_retire(Thread&, Message* op) {
  if (!checking || !op->staged) return release(op);
  op->next = retired;
  retired = op;
}

void release_retired(Thread& thread) {
  if (Message* op = started; op != nullptr) {
    started = nullptr;
    if (op->in_send_queue) send_queue_append(thread, op);
    else wire_append(op);
  }
  while (retired != nullptr) [[unlikely]] {
      Message* op = retired;
      retired = op->next;
      release(op);
    }
}

Message* message_retired(Thread&, const void* buffer, bool sends) {
  for (Message* op = retired; op != nullptr; op = op->next)
    if (op->packet.buffer == buffer && op->sends == sends) return op;
  return nullptr;
}

void message_note_started(Message* op) { started = op; }

Message* message_started(Thread&) { return started != nullptr && started->staged ? started : nullptr; }

bool messages_known() { return known.load(std::memory_order_relaxed) != 0; }

void message_enter(Message* op) {
  OptionalGuard guard(lock, several_threads());
  Message*& first = bucket(op->handle);
  op->in_bucket = first;
  first = op;
  known.fetch_add(1, std::memory_order_relaxed);
}

void message_remove(Message* op) {
  OptionalGuard guard(lock, several_threads());
  Message** place = &bucket(op->handle);
  while (*place != op) place = &(*place)->in_bucket;
  *place = op->in_bucket;
  known.fetch_sub(1, std::memory_order_relaxed);
}

Message* message_find(uint64_t handle) {
  if (!messages_known()) return nullptr;
  OptionalGuard guard(lock, several_threads());
  Message* op = bucket(handle);
  while (op != nullptr && (op->handle != handle || (op->marks.load(std::memory_order_relaxed) & kClosing) != 0))
    op = op->in_bucket;
  return op;
}

}  // namespace resil::staging
