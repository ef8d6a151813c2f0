// SPDX-License-Identifier: Apache-2.0
//
// Which call does what to a window, and the messages of other ranks.

#include "checksum/rma/rma.h"

#include <cstring>

#include "checksum/rma/wire.h"
#include "shim/abi/backend.h"
#include "shim/call/site_text.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/model/view.h"

namespace resil::rma {

namespace {

/// Context: inside ledger::progress(). May post, but not wait.
void arrived(Thread& thread, ledger::Peer& from, const void* payload, size_t bytes) {
  Header header;
  if (bytes < sizeof(header)) return;
  memcpy(&header, payload, sizeof(header));
  if (header.message == Message::kMisplaced) return placement_told(header.window, header.origin, header.value);
  Window* window = window_by_id(header.window);
  if (window == nullptr || header.origin < 0 || header.origin >= window->size)
    return;  // freed meanwhile: its checks have been given up
  Window& w = *window;
  switch (header.message) {
    case Message::kFenceList:
    case Message::kAccessList:
      if (!w.off.load(std::memory_order_acquire)) deliver(w, payload, bytes);
      return;
    case Message::kDigested: {
      Guard guard(w.lock);
      if (header.epoch == w.epoch && w.lists_unanswered != 0) w.lists_unanswered -= 1;
      return;
    }
    case Message::kBarrier: {
      Guard guard(w.lock);
      Window::Slot& slot = w.barrier[header.epoch & 1];
      if (slot.epoch != header.epoch) slot = {header.epoch, 0, false};
      slot.received |= uint64_t{1} << (header.count & 63);
      slot.incomplete |= header.incomplete;
      return;
    }
    case Message::kAsk: {
      if (w.off.load(std::memory_order_acquire)) return;
      struct {
        Header header;
        char text[96];
      } reply = {{w.id, header.epoch, w.rank, Message::kAnswer, false, false, 0, header.count, 0}, ""};
      if (header.last) site_text(static_cast<uint64_t>(header.value), reply.text, sizeof(reply.text));
      ledger::post(thread, from, ledger::Kind::kRmaReply, &reply, sizeof(reply));
      return;
    }
    case Message::kAnswer: {
      Guard guard(w.lock);
      if (header.count != w.confirm || w.confirm_missing == 0) return;
      w.confirm_missing -= 1;
      if (bytes == sizeof(Header) + sizeof(w.confirm_text) && static_cast<const char*>(payload)[sizeof(Header)] != 0)
        memcpy(w.confirm_text, static_cast<const char*>(payload) + sizeof(Header), sizeof(w.confirm_text) - 1);
      return;
    }
    case Message::kAbandon:
      w.off_told = true;  // by the one who gave up
      w.off.store(true, std::memory_order_release);
      return;
    case Message::kUnit: {
      if (!header.last) {
        const Header answer = {w.id, 0, w.rank, Message::kUnit, true, false, 0, 0, w.unit};
        ledger::post(thread, from, ledger::Kind::kRmaReply, &answer, sizeof(answer));
      } else if (Target* target = target_of(w, header.origin); target != nullptr) {
        __atomic_store_n(&target->unit, header.value, __ATOMIC_RELAXED);
      }
      return;
    }
    case Message::kMisplaced: return;
  }
}

/// Every rank that this one holds an exclusive lock on.
void verify_all_exclusive(Event& e, Window& w) {
  if (__atomic_load_n(&w.targets, __ATOMIC_ACQUIRE) == nullptr || w.operations_open == 0) return;
  for (int i = 0; i < w.size; ++i)
    if (w.targets[i].exclusive) verify_exclusive(e, w, i);
}

void locked(Event& e, Window& w) {
  Target* target = e.result == 0 && e.peer >= 0 && e.peer < w.size ? target_of(w, e.peer) : nullptr;
  if (target == nullptr) return;
  target->exclusive = backend->windows->exclusive(e.lock_type) && w.why == Reason::kNone;
  target->shared = !target->exclusive;
  if (target->exclusive) ask_unit(*e.thread, w, e.peer);
}

void unlocked(Event& e, Window& w) {
  Target* targets = __atomic_load_n(&w.targets, __ATOMIC_ACQUIRE);
  if (targets == nullptr || e.peer < 0 || e.peer >= w.size) return;
  give_up_operations(w, Epoch::kExclusive, e.peer, Reason::kPassiveTarget);  // none is left, but for errors
  targets[e.peer].exclusive = targets[e.peer].shared = false;
}

}  // namespace

bool prepare() { return windows_create(); }

void connect() {
  ledger::handle_kind(ledger::Kind::kRma, arrived);
  ledger::handle_kind(ledger::Kind::kRmaReply, arrived);
  ledger::handle_kind(ledger::Kind::kRmaBarrier, arrived);
}

void enter(Event& e) {
  Window* window = nullptr;
  switch (call_info(e.id).window) {
    case WindowCall::kNone:
      if (ledger::full_blame() && (e.attributes & kCallHasData)) before(e);
      return;
    case WindowCall::kCreate: return creating(e);
    case WindowCall::kFree: return freeing(e);
    case WindowCall::kUnlock:
    case WindowCall::kFlush:
      if (window = window_find(e.object); window != nullptr) verify_exclusive(e, *window, e.peer);
      return;
    case WindowCall::kFlushAll:
      if (window = window_find(e.object); window != nullptr) verify_all_exclusive(e, *window);
      return;
    case WindowCall::kPost:
      if (window = ledger::full_blame() ? window_find(e.object) : nullptr; window != nullptr)
        snapshot_take(*window, false);
      return;
    case WindowCall::kFence:
      if (window = ledger::full_blame() ? window_find(e.object) : nullptr; window != nullptr) {
        if (backend->windows->no_precede(e.assertion)) snapshot_take(*window, false);
        else snapshot_enter(*window);
      }
      return;
    case WindowCall::kWait:
      if (window = ledger::full_blame() ? window_find(e.object) : nullptr; window != nullptr) snapshot_enter(*window);
      return;
    case WindowCall::kStart:
    case WindowCall::kComplete:
    case WindowCall::kTest:
    case WindowCall::kLock:
    case WindowCall::kLockAll:
    case WindowCall::kUnlockAll:
    case WindowCall::kFlushLocal:
    case WindowCall::kFlushLocalAll:
    case WindowCall::kSync: return;
  }
}

void leave(Event& e) {
  const WindowCall call = call_info(e.id).window;
  switch (call) {
    case WindowCall::kNone: return note(e);
    case WindowCall::kCreate: return created(e);
    case WindowCall::kFree:
    case WindowCall::kFlush:
    case WindowCall::kFlushAll:
    case WindowCall::kFlushLocal:
    case WindowCall::kFlushLocalAll:
    case WindowCall::kSync: return;
    case WindowCall::kFence:
    case WindowCall::kPost:
    case WindowCall::kStart:
    case WindowCall::kComplete:
    case WindowCall::kWait:
    case WindowCall::kTest:
    case WindowCall::kLock:
    case WindowCall::kLockAll:
    case WindowCall::kUnlock:
    case WindowCall::kUnlockAll: break;
  }
  Window* window = window_find(e.object);
  if (window == nullptr) return;
  Window& w = *window;
  switch (call) {
    case WindowCall::kFence: return fence(e, w);
    case WindowCall::kPost: return posted(e, w);
    case WindowCall::kStart: return started(e, w);
    case WindowCall::kComplete: return completed_access(e, w);
    case WindowCall::kWait: return waited(e, w);
    case WindowCall::kTest:
      if (e.result != 0 || (e.flag != nullptr && *e.flag != 0)) waited(e, w);
      return;
    case WindowCall::kLock: return locked(e, w);
    case WindowCall::kUnlock: return unlocked(e, w);
    case WindowCall::kLockAll: w.lock_all = e.result == 0; return;
    case WindowCall::kUnlockAll: w.lock_all = false; return;
    default: return;
  }
}

void completed(Event&, int64_t, uint64_t* cookie, bool freed) { request_done(*cookie, freed); }

}  // namespace resil::rma
