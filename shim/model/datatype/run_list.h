// SPDX-License-Identifier: Apache-2.0
//
// Builds the runs of a flattened datatype in the order of its type map. Neighbouring pieces are merged, equally spaced
// ones become one run.
#pragma once

#include "shim/model/datatype/type_map.h"

namespace resil {

/// Used by one thread. After failed() the contents mean nothing.
class RunList {
 public:
  /// More runs than this are not kept: such a type is not flattened.
  static constexpr uint32_t kMaxRuns = 1 << 20;

  RunList() = default;
  ~RunList();
  RunList(const RunList&) = delete;
  RunList& operator=(const RunList&) = delete;

  void clear() { count_ = 0; }
  void swap(RunList& other);

  /// Appends; data of no bytes is none.
  void add(Run run);
  /// Appends `count` copies of all runs of `element`, the first moved by `base`, each next one by `step` more.
  void add_copies(const RunList& element, int64_t count, int64_t step, int64_t base) {
    add_copies(element.runs_, element.count_, count, step, base);
  }
  void add_copies(const Run* runs, uint32_t run_count, int64_t count, int64_t step, int64_t base);

  const Run* runs() const { return runs_; }
  uint32_t count() const { return count_; }
  bool failed() const { return failed_; }
  void fail() { failed_ = true; }

 private:
  bool grow();

  Run* runs_ = nullptr;
  uint32_t count_ = 0, capacity_ = 0;
  uint32_t steps_ = 0;  ///< appended so far: merging may keep the list short, but not the work
  bool failed_ = false;
};

}  // namespace resil
