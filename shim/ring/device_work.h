// SPDX-License-Identifier: Apache-2.0
//
// What a rank waits for from its accelerator, for whoever looks from outside: waits in the runtime, and copies of
// staged messages that are late. Entries lie in the ring file, beside the state slots of hang detection; each is
// written by one thread at a time, by plain stores between two steps of `version`, and read at any instant. Times are
// CLOCK_MONOTONIC: who reads is on the same host. Nothing here enters the kernel but reading that clock.
#pragma once

#include <time.h>

#include <cstdint>

#include "shim/base/clock.h"

namespace resil {

enum class DeviceWorkKind : uint8_t { kNone, kWait, kCopyDown, kCopyUp };
/// Of a wait: is the device done, by a word that it writes?
enum class DeviceDone : uint8_t { kNotKnown, kNo, kYes, kReturnedEarly };

struct DeviceWork {
  uint64_t version;  ///< odd: being written
  uint64_t since_ns;
  uint64_t bytes;  ///< of a copy
  int32_t peer, tag;  ///< of its message: world rank, -1 when there is none; the same of the tag
  uint32_t taken;  ///< of copies: 1 while the entry is somebody's
  DeviceWorkKind kind;  ///< kNone: free
  DeviceDone done;
  uint16_t reserved;
  char call[32];  ///< of a wait: "cudaStreamSynchronize"
};
static_assert(sizeof(DeviceWork) == 72);

constexpr uint32_t kDeviceWaits = 8, kDeviceCopies = 8;  ///< threads by their number; copies at a time

/// kDeviceWaits + kDeviceCopies entries. Those of the ring file once there are any (state slots of hang detection);
/// before, and with RESIL_HANG=off, the process's own, which dumps of this process read.
inline constinit DeviceWork device_work_of_process[kDeviceWaits + kDeviceCopies] = {};
inline constinit DeviceWork* device_work = device_work_of_process;

inline void device_work_open(DeviceWork& work) {
  __atomic_store_n(&work.version, work.version + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
inline void device_work_close(DeviceWork& work) { __atomic_store_n(&work.version, work.version + 1, __ATOMIC_RELEASE); }

/// The thread with that number waits in `call` from now on (`since_ns`). Its own thread.
inline void device_wait_begins(uint32_t thread, const char* call, DeviceDone done, uint64_t since_ns) {
  if (thread >= kDeviceWaits) return;
  DeviceWork& work = device_work[thread];
  device_work_open(work);
  work.since_ns = since_ns;
  work.peer = work.tag = -1;
  work.done = done;
  uint32_t length = 0;
  for (; call[length] != 0 && length + 1 < sizeof(work.call); ++length) work.call[length] = call[length];
  work.call[length] = 0;
  work.kind = DeviceWorkKind::kWait;
  device_work_close(work);
}
inline void device_work_free(DeviceWork& work) {
  DeviceWorkKind none = DeviceWorkKind::kNone;
  __atomic_store(&work.kind, &none, __ATOMIC_RELEASE);
}
inline void device_wait_ends(uint32_t thread) {
  if (thread < kDeviceWaits) device_work_free(device_work[thread]);
}
/// What the device's word says meanwhile; any thread.
inline void device_wait_done(uint32_t thread, DeviceDone done) {
  if (thread < kDeviceWaits) __atomic_store(&device_work[thread].done, &done, __ATOMIC_RELAXED);
}

/// A copy is late. Returns its entry for device_copy_ends, -1: there is none left.
inline int32_t device_copy_late(bool up, uint64_t bytes, int32_t peer, int32_t tag, uint64_t since_ns) {
  for (uint32_t i = kDeviceWaits; i < kDeviceWaits + kDeviceCopies; ++i) {
    DeviceWork& work = device_work[i];
    if (__atomic_exchange_n(&work.taken, 1, __ATOMIC_ACQUIRE) != 0) continue;
    device_work_open(work);
    work.since_ns = since_ns;
    work.bytes = bytes;
    work.peer = peer;
    work.tag = tag;
    work.done = DeviceDone::kNotKnown;
    work.kind = up ? DeviceWorkKind::kCopyUp : DeviceWorkKind::kCopyDown;
    device_work_close(work);
    return static_cast<int32_t>(i);
  }
  return -1;
}
inline void device_copy_ends(int32_t entry) {
  if (entry < 0) return;
  device_work_free(device_work[entry]);
  __atomic_store_n(&device_work[entry].taken, 0, __ATOMIC_RELEASE);
}

/// Whoever waits for a copy looks at it again and again: after a second of that others are told, since a copy takes
/// milliseconds. All zero: no look has found it under way.
struct DeviceCopyWatch {
  uint64_t since_ns;  ///< of the first look; 0: not yet
  uint32_t looks;
  int32_t late;  ///< 1 + its entry, 0: none
};
/// A look has found it under way: nothing but a counter, most of the time.
inline void device_copy_pending(DeviceCopyWatch& watch, bool up, uint64_t bytes, int32_t peer, int32_t tag) {
  constexpr uint32_t kLooks = 256;  // between two readings of the clock
  constexpr uint64_t kLate = 1000000000;  // ns
  if (++watch.looks % kLooks != 1 || watch.late != 0) return;
  const uint64_t now = monotonic_ns();
  if (watch.since_ns == 0) watch.since_ns = now;
  else if (now - watch.since_ns >= kLate) watch.late = 1 + device_copy_late(up, bytes, peer, tag, watch.since_ns);
}
inline void device_copy_over(DeviceCopyWatch& watch) {
  if (watch.late > 0) device_copy_ends(watch.late - 1);
  watch = {};
}

/// A consistent copy; false: free, or being written.
inline bool device_work_read(const DeviceWork& work, DeviceWork* copy) {
  const uint64_t version = __atomic_load_n(&work.version, __ATOMIC_ACQUIRE);
  __builtin_memcpy(static_cast<void*>(copy), &work, sizeof(*copy));
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  copy->call[sizeof(copy->call) - 1] = 0;
  return version % 2 == 0 && __atomic_load_n(&work.version, __ATOMIC_RELAXED) == version &&
         copy->kind != DeviceWorkKind::kNone;
}

}  // namespace resil
