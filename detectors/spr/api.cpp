// SPDX-License-Identifier: Apache-2.0
//
// The exported half of resil.h that replicates particles. Any thread of the program, outside MPI; one thread at a time
// in one set. With a handle of -1, after MPI_Finalize, or from within MPI they do nothing.

#include "detectors/spr/set.h"
#include "shim/call/attach.h"
#include "shim/call/thread.h"

namespace {

using resil::spr::Set;

/// The set, held for this call; null: there is nothing to do.
class Held {
 public:
  explicit Held(int handle) : set_(resil::spr::set_find(handle)), thread_(resil::current_thread) {
    if (set_ == nullptr || thread_ == nullptr || thread_->disabled || thread_->depth != 0 ||
        !resil::runtime_has_world()) {
      set_ = nullptr;
      return;
    }
    if (!set_->busy.exchange(true, std::memory_order_acquire)) return;
    __atomic_fetch_add(&set_->counters.uncovered[static_cast<size_t>(resil::spr::Why::kThreads)], 1, __ATOMIC_RELAXED);
    set_ = nullptr;
  }
  ~Held() {
    if (set_ != nullptr) set_->busy.store(false, std::memory_order_release);
  }
  Held(const Held&) = delete;
  explicit operator bool() const { return set_ != nullptr; }
  Set& set() const { return *set_; }
  resil::Thread& thread() const { return *thread_; }

 private:
  Set* set_;
  resil::Thread* thread_;
};

bool usable() {
  const resil::Thread* thread = resil::current_thread;
  return thread != nullptr && !thread->disabled && thread->depth == 0 && resil::runtime_has_world();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int resil_spr_create(const char* name, const int* members, int count) {
  return usable() ? resil::spr::set_create(name, members, count) : -1;
}

void resil_spr_destroy(int set) {
  Held held(set);
  if (held) resil::spr::set_destroy(held.set());
}

int resil_spr_field(int set, const char* name, void* data, size_t bytes, size_t stride, int flags) {
  Held held(set);
  return held ? resil::spr::set_field(held.set(), name, data, bytes, stride, flags) : -1;
}

int resil_spr_select(int set, int64_t local, int64_t total, const int64_t* offset, const int* count,
                     const int* neighbour, int base, const int* owner) {
  Held held(set);
  return held ? resil::spr::set_select(held.thread(), held.set(), {local, total, offset, count, neighbour, base}, owner)
              : 0;
}

void resil_spr_begin(int set, int64_t step, int64_t local, int64_t total, uint64_t fields) {
  Held held(set);
  if (held) resil::spr::phase_begin(held.thread(), held.set(), step, local, total, fields);
}

int64_t resil_spr_end(int set, uint64_t results, resil::spr::Kernel kernel, void* argument, int policy) {
  Held held(set);
  return held ? resil::spr::phase_end(held.thread(), held.set(), results, kernel, argument, policy) : 0;
}

void resil_spr_computed(int set, uint64_t results, int64_t first, int64_t count) {
  Set* const of =
      resil::spr::settings.inputs ? resil::spr::set_find(set) : nullptr;  // any thread: the set is held by none of them
  if (of != nullptr) resil::spr::computed(*of, results, first, count);
}

void resil_spr_rollback(int set, resil::spr::Rollback hook, void* argument) {
  Held held(set);
  if (!held) return;
  held.set().rollback = hook;
  held.set().rollback_argument = argument;
}

int resil_spr_keep(int set, int64_t step, int64_t local, uint64_t fields) {
  Held held(set);
  return held && resil::spr::keep(held.thread(), held.set(), step, local, fields) ? 0 : 1;
}

int64_t resil_spr_kept(int set, int64_t step, int of, resil_spr_replicas* copy) {
  Set* const kept = resil::spr::set_find(set);  // also within the rollback hook, while `end` holds the set
  return kept != nullptr ? resil::spr::kept(*kept, step, of != 0, copy) : -1;
}

int resil_spr_copy(int set, resil_spr_replicas* copy) {
  Held held(set);
  return held && resil::spr::set_copy(held.set(), copy) ? 0 : 1;
}

}  // extern "C"
#pragma GCC visibility pop
