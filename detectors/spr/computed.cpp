// SPDX-License-Identifier: Apache-2.0
//
// resil_spr_computed(): results as they were when the kernel had finished them, kept until `end` compares. So a result
// that goes wrong in memory while the kernel still computes others is found on every particle, not only on those with a
// replica: what is sent in the next phase would be wrong on both ranks.

#include <cstring>

#include "detectors/spr/set.h"
#include "shim/base/own_stack.h"

namespace resil::spr {

namespace {

bool wanted(const Set& set, uint64_t results, uint32_t number) {
  return number < 64 && (results >> number & 1) != 0 && static_cast<int>(number) != set.id_field &&
         set.fields[number].data != nullptr;
}

/// Room for this phase, made by the first thread that comes.
bool has_room(Set& set, Field& field) {
  if (field.computed_phase.load(std::memory_order_acquire) == set.counters.phases) return true;
  SpinGuard guard(set.computed_lock);
  if (field.computed_phase.load(std::memory_order_relaxed) == set.counters.phases) return true;
  const auto particles = static_cast<size_t>(set.computed_room);
  if (!field.computed.reserve(field.bytes * particles) || !field.computed_marks.reserve_zeroed(particles)) return false;
  field.computed_phase.store(set.counters.phases, std::memory_order_release);
  return true;
}

}  // namespace

void computed(Set& set, uint64_t results, int64_t first, int64_t count) {
  if (!set.open || set.guarded || first < 0 || count < 0 || count > set.computed_room - first) {
    uncovered(set, set.open ? Why::kCounts : Why::kOrder);
    return;
  }
  const auto at = static_cast<size_t>(first), particles = static_cast<size_t>(count);
  for (uint32_t i = 0; i < set.field_count; ++i) {
    if (!wanted(set, results, i)) continue;
    Field& field = set.fields[i];
    if (!has_room(set, field)) {
      uncovered(set, Why::kMemory);
      continue;
    }
    char* const to = field.computed.data() + at * field.bytes;
    const char* const from = field.data + at * field.stride;
    if (field.stride == field.bytes) {
      memcpy(to, from, particles * field.bytes);
    } else {
      for (size_t k = 0; k < particles; ++k) memcpy(to + k * field.bytes, from + k * field.stride, field.bytes);
    }
    memset(field.computed_marks.data() + at, 1, particles);
  }
}

int64_t compare_computed(Set& set, uint64_t results) {
  int64_t most = 0;
  for (uint32_t i = 0; i < set.field_count; ++i) {
    Field& field = set.fields[i];
    if (!wanted(set, results, i) || field.computed_phase.load(std::memory_order_acquire) != set.counters.phases)
      continue;
    const Comparison exact = {comparison_of(field).element_bytes, 0};
    if (field.stride == field.bytes &&
        memcmp(field.data, field.computed.data(), static_cast<size_t>(set.computed_room) * field.bytes) == 0)
      continue;
    int64_t count = 0, seen = -1;
    int element = 0;
    for (int64_t k = 0; k < set.computed_room; ++k) {
      const auto at = static_cast<size_t>(k);
      const char *const own = field.data + at * field.stride, *const kept = field.computed.data() + at * field.bytes;
      if (memcmp(own, kept, field.bytes) == 0 || field.computed_marks[at] == 0) continue;
      if (count++ != 0) continue;
      seen = k;
      element = first_element(own, kept, field.bytes, exact);
    }
    if (count != 0 && most == 0)
      on_own_stack([&] { say_result_changed(set, field, seen, element < 0 ? 0 : element, count); });
    if (count > most) most = count;
  }
  return most;
}

}  // namespace resil::spr
