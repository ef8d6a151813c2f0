// SPDX-License-Identifier: Apache-2.0
//
// The way out of the fast path (fast_path.h) where a module looks at messages: it is told of them (message_hooks.h).
#pragma once

#include "shim/call/fast_path.h"

namespace resil::fast {

/// Of a message that a module has been told of early.
void general_announced(Call call, CallId id, int result);

/// request_completed(), with the statuses of the call, where a module looks at messages.
void request_checked(Call call, CallId id, uint64_t key, void* statuses, int64_t place);

/// Of a blocking send, where a module looks at messages.
template <CallId id>
inline void message_sent(Call call, int result) {
  if (result == 0) [[likely]]
    messages->sent(call, id);
  message_done<id>(call, result);
}

/// Of a send that was carried out by tests and has been told of before they began.
template <CallId id>
inline void sent_by_tests(Call call, int result) {
  if (result != 0) [[unlikely]]
    return general_announced(call, id, result);
  leave<id>(call);
}

/// Of one that sends and receives, where a module looks at messages.
template <CallId id>
[[gnu::always_inline]] inline void exchange_begins(Call call) {
  if (messages->early(id)) messages->sent(call, id);
}

/// Of one that receives, where a module looks at messages; `status`: the program's, or in its place.
template <CallId id>
[[gnu::always_inline]] inline void message_checked(Call call, int result, void* status) {
  if (result != 0) [[unlikely]]
    return static_cast<void>(general(call, id, result, nullptr, nullptr, 0, status));
  if constexpr (is_exchange(id))
    if (!messages->early(id)) messages->sent(call, id);
  messages->received(call, id, is_exchange(id) ? call.thread->received : call.thread->message, status);
  leave<id>(call);
}

/// Of a wait; `statuses`: the program's, or in their place.
template <CallId id, class Handle>
inline void waited_checked(Call call, int result, Handle* requests, int64_t count, Handle* saved, void* statuses) {
  if (result != 0) [[unlikely]]
    return static_cast<void>(general(call, id, result, requests, saved, count, statuses));
  for (int64_t i = 0; i < count; ++i)
    if (const uint64_t key = key_of(saved[i]); !request_is_shared(key)) request_checked(call, id, key, statuses, i);
  if (messages->over != nullptr) [[unlikely]]
    messages->over(*call.thread);
  leave<id>(call);
}

}  // namespace resil::fast
