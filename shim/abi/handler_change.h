// SPDX-License-Identifier: Apache-2.0
//
// Changes of error handlers by the program, and questions to MPICH whose errors would reach one (backend_staging.inc):
// a question that has found the handlers harmless is over before they change.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace resil {

inline constinit std::atomic<uint32_t> handler_questions{0}, handler_changes{0};
/// The program has set a handler of a communicator: an error need not end the job from then on.
inline constinit std::atomic<bool> handlers_were_set{false};

/// Around a question. Not `allowed`: a handler is just being changed.
class HandlerQuestion {
 public:
  HandlerQuestion() {
    handler_questions.fetch_add(1, std::memory_order_seq_cst);
    allowed = handler_changes.load(std::memory_order_seq_cst) == 0;
  }
  ~HandlerQuestion() { handler_questions.fetch_sub(1, std::memory_order_release); }
  HandlerQuestion(const HandlerQuestion&) = delete;

  bool allowed;
};

/// Around the program's call that sets one. It does not wait for ever: called by an error handler inside MPI, it may
/// hold a lock of MPI's that the question needs.
class HandlerChange {
 public:
  HandlerChange() {
    handlers_were_set.store(true, std::memory_order_relaxed);
    handler_changes.fetch_add(1, std::memory_order_seq_cst);
    for (int i = 0; i < 10000 && handler_questions.load(std::memory_order_seq_cst) != 0; ++i) sched_yield();
  }
  ~HandlerChange() { handler_changes.fetch_sub(1, std::memory_order_release); }
  HandlerChange(const HandlerChange&) = delete;
};

}  // namespace resil
