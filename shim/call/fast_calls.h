// SPDX-License-Identifier: Apache-2.0
//
// Which calls may go the fast path (fast_path.h), by what they are alone.
#pragma once

#include "shim/model/calls.h"

namespace resil::fast {

constexpr bool is_message(CallId id) {
  const CallInfo& info = call_info(id);
  return (info.call_class == CallClass::kSend || info.call_class == CallClass::kReceive) &&
         info.initiation != Initiation::kPersistent;
}
/// MPI_Sendrecv and MPI_Sendrecv_replace.
constexpr bool is_exchange(CallId id) {
  const CallInfo& info = call_info(id);
  return (info.call_class == CallClass::kSendReceive || info.call_class == CallClass::kSendReceiveReplace) &&
         info.initiation == Initiation::kBlocking;
}
constexpr bool is_wait(CallId id) {
  const CallInfo& info = call_info(id);
  return info.call_class == CallClass::kCompletion && info.has(kCallBlocking) &&
         (info.completion == Completion::kOne || info.completion == Completion::kAll);
}
/// Those whose signature follows from counts, types, root, operator and communicator.
constexpr bool has_plain_signature(const CallInfo& info) {
  return info.call_class == CallClass::kCollective && (!has_bytes(info) || info.has(kCallHasData | kCallHasBlocks)) &&
         !is_neighborhood(info.collective);
}
constexpr bool is_collective(CallId id) {
  return has_plain_signature(call_info(id)) && call_info(id).initiation == Initiation::kBlocking;
}
/// Likewise, with a request.
constexpr bool starts_collective(CallId id) {
  return has_plain_signature(call_info(id)) && call_info(id).initiation == Initiation::kNonblocking;
}
/// Those that a module may carry out in place of the library, also here: reductions with one amount.
constexpr bool is_own_reduction(CallId id) {
  return (is_collective(id) || starts_collective(id)) && is_reduction(call_info(id).collective);
}
constexpr unsigned reductions_before(unsigned end) {
  unsigned count = 0;
  for (unsigned id = 0; id < end; ++id) count += is_own_reduction(static_cast<CallId>(id));
  return count;
}
constexpr unsigned kOwnReductions = reductions_before(kCallCount);
/// MPI_Test and MPI_Iprobe.
constexpr bool is_poll(CallId id) {
  const CallInfo& info = call_info(id);
  return info.has(kCallPoll) && ((info.call_class == CallClass::kCompletion && info.completion == Completion::kOne) ||
                                 info.call_class == CallClass::kProbe);
}
/// Kinds of calls that modules let go this way or not (Module::fast_kinds), and that are tried once one of them is
/// open: nonblocking reductions by themselves.
constexpr uint8_t kCollectives = 1, kOthers = 2, kStartedReductions = 4,
                  kAllKinds = kCollectives | kOthers | kStartedReductions;
constexpr uint8_t kind_of(CallId id) {
  return is_collective(id)                                                 ? kCollectives
         : starts_collective(id) && is_reduction(call_info(id).collective) ? kStartedReductions
                                                                           : kOthers;
}
/// 0: none of them.
constexpr auto kMayBeFast = [] {
  struct {
    uint8_t of[kCallCount];
  } made = {};
  for (unsigned number = 0; number < kCallCount; ++number) {
    const auto id = static_cast<CallId>(number);
    if (is_message(id) || is_wait(id) || is_collective(id) || starts_collective(id) || is_poll(id))
      made.of[number] = kind_of(id);
  }
  return made;
}();

/// Those that may go it with MPI_THREAD_MULTIPLE, too: of what they write threads share the counters of messages alone.
constexpr bool is_threaded(CallId id) {
  return (is_message(id) && !call_info(id).has(kCallStarts)) || is_exchange(id) || is_collective(id);
}

}  // namespace resil::fast
