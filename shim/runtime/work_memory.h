// SPDX-License-Identifier: Apache-2.0
//
// Room for what is too large for a small stack. A thread of the program may have 16 KiB (PTHREAD_STACK_MIN), of which
// the MPI needs 6 to 10: nothing on the way of a call has a leaf of 4 KiB, a message or a copy of a packet on the
// stack.
#pragma once

#include <sched.h>

#include <cstddef>

#include "shim/base/spinlock.h"
#include "shim/runtime/pool.h"

namespace resil {

namespace work_detail {

struct alignas(64) Page {
  char bytes[4800];  // what is known of a packet, with a copy of it (checksum/ledger/blame_internal.h), is the largest
  Page* next;
};

inline SpinLock lock;
inline memory::Pool<Page, &Page::next, 8, 1u << 14> pages;
inline Page last_ones[8];  // when the system refuses memory
inline bool last_taken[8];

inline Page* allocate() {
  for (;;) {
    {
      SpinGuard guard(lock);
      if (Page* page = pages.allocate(); page != nullptr) [[likely]]
        return page;
      for (unsigned i = 0; i < 8; ++i)
        if (!last_taken[i]) {
          last_taken[i] = true;
          return &last_ones[i];
        }
    }
    sched_yield();  // another thread releases one soon: none waits for anything while it has one
  }
}

inline void release(Page* page) {
  SpinGuard guard(lock);
  if (page >= last_ones && page < last_ones + 8) last_taken[page - last_ones] = false;
  else pages.release(page);
}

}  // namespace work_detail

/// One T, not initialised, for the length of a scope. Any thread; no system call but when more are in use than ever
/// before.
template <class T>
class Work {
 public:
  static_assert(sizeof(T) <= sizeof(work_detail::Page::bytes) && alignof(T) <= 64);
  Work() : page_(work_detail::allocate()) {}
  ~Work() { work_detail::release(page_); }
  Work(const Work&) = delete;
  T& operator*() const { return *reinterpret_cast<T*>(page_->bytes); }
  T* operator->() const { return reinterpret_cast<T*>(page_->bytes); }
  T* get() const { return reinterpret_cast<T*>(page_->bytes); }

 private:
  work_detail::Page* page_;
};

/// A leaf of a digest, 64-byte aligned.
struct WorkLeaf {
  alignas(64) char bytes[4096];
};

}  // namespace resil
