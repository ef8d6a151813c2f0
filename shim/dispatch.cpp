// SPDX-License-Identifier: Apache-2.0
//
// The call path. Every MPI call that the application makes passes through enter() and leave() once; nothing here may
// allocate, lock or enter the kernel in steady state.

#include "shim/dispatch.h"

#include "shim/attach.h"
#include "shim/registry.h"
#include "shim/runtime.h"
#include "shim/tables.h"

namespace resil {

Thread* admit(CallId id, uint64_t return_address, uint64_t frame) {
  Thread* thread = current_thread;
  if (thread == nullptr) {
    if (!runtime_attached()) {
      // Before MPI_Init, or initialised out of sight (a static or hidden binding).
      bool may_ask = !(call_info(id).attributes & (kCallTool | kCallLifecycle)) && id != CallId::kMPI_Initialized &&
                     id != CallId::kMPI_Finalized;
      if (!may_ask || !backend->initialized() || backend->finalized() || !attach_late())
        return nullptr;
    }
    return thread_register();
  }
  if (thread->disabled)
    return nullptr;
  // Inside MPI already. A frame above the open call's means that the open call was left by an exception or longjmp.
  if (frame >= thread->outer_frame) {
    thread->depth = 0;
    if (thread->lane != nullptr)
      thread->lane->current = 0;
    return thread;
  }
  // Application code called back by MPI is application again; MPI calling itself is not.
  return site_lookup(*thread, return_address, frame).kind == SiteClass::kApplication ? thread : nullptr;
}

bool enter(Event& e) {
  Thread& thread = *e.thread;
  const SiteEntry& site = site_lookup(thread, e.return_address, e.frame);
  if (site.kind == SiteClass::kInternal) [[unlikely]]
    return false;
  const CallInfo& info = call_info(e.id);
  e.site = site_address(site, e.frame);
  e.nested = thread.depth != 0;
  e.outer_frame = thread.outer_frame;
  thread.outer_frame = e.frame;
  e.outer_depth = thread.depth++;
  e.time = info.attributes & kCallPoll ? 0 : ticks();
  e.comm = e.comm_handle != 0 ? comm_lookup(thread, e.comm_handle) : nullptr;
  e.bytes = info.shape == Shape::kNone ? 0 : compute_bytes(e);
  constexpr uint32_t kRare = kCallCompletes | kCallCollective | kCallCreatesComm;
  if (info.attributes & kRare) {
    if (info.attributes & kCallCompletes)
      request_remember(e);
    if (info.attributes & kCallCreatesComm)
      e.derived_id = comm_derive_id(e);
    if ((info.attributes & kCallCollective) && e.comm != nullptr) {
      e.sequence = ++e.comm->ring->collectives;
      e.comm->ring->last_collective = static_cast<uint16_t>(e.id);
    }
  }
  for (auto* hook = hooks.enter; *hook != nullptr; ++hook)
    (*hook)(e);
  return true;
}

void leave(Event& e) {
  Thread& thread = *e.thread;
  const uint32_t attributes = call_info(e.id).attributes;
  constexpr uint32_t kTables = kCallStarts | kCallActivates | kCallCompletes | kCallCreatesComm;
  if (attributes & kTables) {
    if (attributes & kCallStarts) {
      if (e.result == 0)
        request_started(e);
    } else if (attributes & kCallCompletes) {
      request_completed(e);
    } else if (attributes & kCallActivates) {
      if (e.result == 0)
        request_activated(e);
    } else if (e.result == 0) {
      comm_register_new(thread, request_handle(e.new_comm, 0), e.derived_id, e.comm, e.id);
    }
  }
  for (auto* hook = hooks.leave; *hook != nullptr; ++hook)
    (*hook)(e);
  thread.depth = e.outer_depth;
  thread.outer_frame = e.outer_frame;
}

void count_local(Thread* thread, CallId id, uint64_t return_address, uint64_t frame) {
  const SiteEntry& site = site_lookup(*thread, return_address, frame);
  if (site.kind == SiteClass::kInternal) [[unlikely]]
    return;
  const uint64_t address = site_address(site, frame);
  for (auto* hook = hooks.local; *hook != nullptr; ++hook)
    (*hook)(*thread, static_cast<uint16_t>(id), address);
}

bool replaced(Event& e) {
  for (auto* hook = hooks.replace; *hook != nullptr; ++hook)
    if ((*hook)(e))
      return true;
  return false;
}

void forget_types() { type_generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace resil
