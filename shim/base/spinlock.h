// SPDX-License-Identifier: Apache-2.0
//
// A lock for a few instructions. Never held across an MPI call, an allocation or a system call, so that yielding to
// its holder is all that a waiter ever needs. Not for signal handlers.
#pragma once

#include <sched.h>

#include <atomic>

namespace resil {

class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_;
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

/// The same, or nothing: where no other thread can be there, a locked instruction costs as much as the work it guards.
class OptionalGuard {
 public:
  OptionalGuard(SpinLock& lock, bool needed) : lock_(needed ? &lock : nullptr) {
    if (lock_ != nullptr) lock_->lock();
  }
  ~OptionalGuard() {
    if (lock_ != nullptr) lock_->unlock();
  }
  OptionalGuard(const OptionalGuard&) = delete;

 private:
  SpinLock* lock_;
};

}  // namespace resil
