// SPDX-License-Identifier: Apache-2.0
//
// See run_list.h.

#include "shim/model/datatype/run_list.h"

#include <cstring>

#include "shim/runtime/block_pool.h"

namespace resil {

namespace {

constexpr uint32_t kMaxSteps = 1 << 22;

/// Whether `run` goes on where `last` ends; then `last` covers both.
bool merge(Run& last, const Run& run) {
  if (last.count == 1 && run.count == 1 && last.offset + last.bytes == run.offset) {
    last.bytes += run.bytes;
    return true;
  }
  if (last.bytes != run.bytes) return false;
  const int64_t distance = run.offset - last.offset;
  if (last.count == 1 && (run.count == 1 || distance == run.stride)) {
    last.stride = distance;
  } else if (distance != last.count * last.stride || (run.count > 1 && run.stride != last.stride)) {
    return false;
  }
  last.count += run.count;
  return true;
}

}  // namespace

RunList::~RunList() { memory::blocks.release(runs_); }

void RunList::swap(RunList& other) {
  Run* runs = runs_;
  runs_ = other.runs_;
  other.runs_ = runs;
  uint32_t count = count_, capacity = capacity_, steps = steps_;
  count_ = other.count_;
  capacity_ = other.capacity_;
  steps_ = other.steps_;
  other.count_ = count;
  other.capacity_ = capacity;
  other.steps_ = steps;
  bool failed = failed_;
  failed_ = other.failed_;
  other.failed_ = failed;
}

bool RunList::grow() {
  const uint32_t wanted = capacity_ == 0 ? 7 : 2 * capacity_;
  void* memory = count_ < kMaxRuns ? memory::blocks.allocate(wanted * sizeof(Run)) : nullptr;
  if (memory == nullptr) {
    failed_ = true;
    return false;
  }
  if (count_ != 0) memcpy(memory, runs_, count_ * sizeof(Run));
  memory::blocks.release(runs_);
  runs_ = static_cast<Run*>(memory);
  capacity_ = static_cast<uint32_t>(memory::blocks.capacity(memory) / sizeof(Run));
  return true;
}

void RunList::add(Run run) {
  if (run.bytes <= 0 || run.count <= 0 || failed_) return;
  if (++steps_ > kMaxSteps) {
    failed_ = true;
    return;
  }
  if (run.count > 1 && run.stride == run.bytes) {
    run.bytes *= run.count;
    run.count = 1;
  }
  if (run.count == 1) run.stride = run.bytes;
  if (count_ != 0 && merge(runs_[count_ - 1], run)) {
    Run& last = runs_[count_ - 1];
    if (last.count > 1 && last.stride == last.bytes) {
      last.bytes *= last.count;
      last.count = 1;
    }
    if (last.count == 1) last.stride = last.bytes;
    return;
  }
  if (count_ == capacity_ && !grow()) return;
  runs_[count_++] = run;
}

void RunList::add_copies(const Run* runs, uint32_t run_count, int64_t count, int64_t step, int64_t base) {
  if (count <= 0 || run_count == 0) return;
  const Run& only = runs[0];
  if (run_count == 1 && only.count == 1) return add({base + only.offset, only.bytes, count, step});
  if (run_count == 1 && only.count * only.stride == step)
    return add({base + only.offset, only.bytes, only.count * count, only.stride});
  for (int64_t i = 0; i < count && !failed_; ++i)
    for (uint32_t r = 0; r < run_count && !failed_; ++r)
      add({base + i * step + runs[r].offset, runs[r].bytes, runs[r].count, runs[r].stride});
}

}  // namespace resil
