// SPDX-License-Identifier: Apache-2.0
//
// One-sided operations bring data that is there only when their epoch ends or they are flushed: until then it is noted
// where it will lie. Calls that complete operations on one target read what came from there, all others everything.
// Each module that compares such data has one of these, zero-initialised. Any thread, inside a call.
#pragma once

#include <cstdint>

#include "shim/base/spinlock.h"
#include "shim/runtime/pool.h"
#include "shim/tables/call_data.h"

namespace resil {

class WindowResults {
 public:
  /// After MPI_Get and the like. False: no room, it is not followed.
  bool add(Event& event);
  /// How many operations the call completes; `only`: where the last of them puts its data; `decided`: what comes there
  /// depends on the order in which processes came (MPI_Fetch_and_op and the like).
  uint32_t completed_by(const Event& event, View* only, bool* decided);
  /// What they have brought, as one value; then they are forgotten. `decided` false: without those that are.
  Value take(Event& event, bool decided);

 private:
  struct Result {
    View view;
    uint64_t window;
    int32_t target;
    bool decided;
    Result* next;
  };
  struct List {
    Result *first, *last;
  };
  static constexpr unsigned kBuckets = 64;
  List& list_of(uint64_t window) { return lists_[window * 0x9e3779b97f4a7c15 >> 58]; }
  static bool completes(const Event& event, const Result& result);

  List lists_[kBuckets] = {};  // by window, in the order of issue
  memory::Pool<Result, &Result::next, 256, 1u << 18> pool_ = {};
  SpinLock lock_ = {};
};

}  // namespace resil
