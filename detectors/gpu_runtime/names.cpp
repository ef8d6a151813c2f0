// SPDX-License-Identifier: Apache-2.0
//
// See names.h.

#include "detectors/gpu_runtime/names.h"

#include "shim/call/attach.h"

namespace resil::gpu_runtime {

namespace {

class Inside {
 public:
  Inside() { ++inside; }
  ~Inside() { --inside; }
  Inside(const Inside&) = delete;
};

void start(Call& call, const Entry& entry, Kind kind, void* handle, const void* function) {
  call.kind = kind, call.api = entry.api, call.name = entry.name, call.handle = handle;
  call.site = reinterpret_cast<uint64_t>(entry.return_address);
  call.function = function, call.alters = true;
}

/// `real` does the runtime's own wait.
template <class Real>
int wait(Call& call, Real real) {
  Inside guard;
  int result = kSuccess;
  call_begin(call);
  if (settings.sync == Sync::kPoll && call_poll(call, &result)) return call_end(call, result);
  result = real();
  if (settings.sync == Sync::kDouble && result == kSuccess) result = real();
  return call_end(call, result);
}

template <class Real>
int query(Call& call, int (*again)(void*), Real real) {
  Inside guard;
  query_begin(call);
  return query_end(call, real(), again);
}

}  // namespace

int wait_stream(const Entry& entry, void* stream, void* given) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (passive()) return real(given);
  Call call;
  start(call, entry, Kind::kStreamWait, stream, reinterpret_cast<const void*>(real));
  return wait(call, [=] { return real(given); });
}

int wait_event(const Entry& entry, void* event) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (passive()) return real(event);
  Call call;
  start(call, entry, Kind::kEventWait, event, reinterpret_cast<const void*>(real));
  return wait(call, [=] { return real(event); });
}

int wait_device(const Entry& entry) {
  const auto real = next_of<>(entry);
  if (real == nullptr) return entry.absent;
  if (passive()) return real();
  Call call;
  start(call, entry, Kind::kDeviceWait, nullptr, reinterpret_cast<const void*>(real));
  return wait(call, [=] { return real(); });
}

int query_stream(const Entry& entry, void* stream, void* given) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (passive() || !settings.check) return real(given);
  Call call;
  start(call, entry, Kind::kStreamQuery, stream, reinterpret_cast<const void*>(real));
  return query(call, given == stream ? real : nullptr, [=] { return real(given); });
}

int query_event(const Entry& entry, void* event) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (passive() || !settings.check) return real(event);
  Call call;
  start(call, entry, Kind::kEventQuery, event, reinterpret_cast<const void*>(real));
  return query(call, real, [=] { return real(event); });
}

int record_event(const Entry& entry, void* event, void* stream, void* given, const unsigned* flags) {
  const auto plain = next_of<void*, void*>(entry);
  const auto flagged = next_of<void*, void*, unsigned>(entry);
  if (plain == nullptr) return entry.absent;
  const auto real = [&] { return flags != nullptr ? flagged(event, given, *flags) : plain(event, given); };
  if (passive() || !settings.check) return real();
  Inside guard;
  const Driver* d = driver(entry.api, reinterpret_cast<const void*>(plain));
  if (flags != nullptr && *flags != 0) events_in_graphs();  // recorded by a graph when that is launched
  if (d == nullptr) return real();
  event_recording(*d, event, stream);
  const int result = real();
  event_recorded(*d, event, stream, result == kSuccess);
  return result;
}

int destroy_event(const Entry& entry, void* event) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (inside == 0) event_forget(entry.api, event, false);
  return real(event);
}

int export_event(const Entry& entry, void* handle, void* event) {
  const auto real = next_of<void*, void*>(entry);
  if (real == nullptr) return entry.absent;
  if (!passive() && settings.check) event_forget(entry.api, event, true);
  return real(handle, event);
}

void made_stream(Api api, const void* function, int result, void** stream, unsigned flags) {
  // Also before MPI_Init: streams are to be known whenever checks begin.
  if (result != kSuccess || inside != 0 || stream == nullptr || *stream == nullptr || !mode_is_on()) return;
  Inside guard;
  const Driver* d = driver(api, function);
  if (d != nullptr) stream_made(api, current_context(*d), *stream, flags);
}

int destroy_stream(const Entry& entry, void* stream) {
  const auto real = next_of<void*>(entry);
  if (real == nullptr) return entry.absent;
  if (inside == 0) stream_gone(entry.api, stream);
  return real(stream);
}

}  // namespace resil::gpu_runtime
