// SPDX-License-Identifier: Apache-2.0
//
// See window_results.h.

#include "shim/tables/window_results.h"

#include "shim/base/hash.h"
#include "shim/model/event.h"
#include "shim/tables/type_maps.h"

namespace resil {

bool WindowResults::completes(const Event& e, const Result& result) {
  const WindowCall call = call_info(e.id).window;
  const bool of_one_target =
      call == WindowCall::kUnlock || call == WindowCall::kFlush || call == WindowCall::kFlushLocal;
  return result.window == e.object && (!of_one_target || result.target == e.peer);
}

bool WindowResults::add(Event& e) {
  if (e.result != 0 || e.peer < 0) return true;
  const View view = receive_view(e);
  if (view.bytes == 0) return true;
  SpinGuard guard(lock_);
  Result* result = pool_.allocate();
  if (result == nullptr) return false;
  if (view.type != nullptr) type_map_hold(view.type);
  *result = {view, e.object, e.peer, (data_flow_of(e.id) & kUnforced) != 0, nullptr};
  List& list = list_of(e.object);
  (list.last != nullptr ? list.last->next : list.first) = result;
  list.last = result;
  return true;
}

uint32_t WindowResults::completed_by(const Event& e, View* only, bool* decided) {
  SpinGuard guard(lock_);
  uint32_t count = 0;
  for (const Result* result = list_of(e.object).first; result != nullptr; result = result->next) {
    if (!completes(e, *result)) continue;
    ++count;
    *only = result->view;
    *decided = result->decided;
  }
  return count;
}

Value WindowResults::take(Event& e, bool decided) {
  Value all = {0, ValueType::kNone, false};
  SpinGuard guard(lock_);
  List& list = list_of(e.object);
  Result** place = &list.first;
  Result* last = nullptr;
  uint64_t count = 0;
  while (Result* result = *place) {
    if (!completes(e, *result)) {
      last = result;
      place = &result->next;
      continue;
    }
    const bool read = decided || !result->decided;
    const Value value = read ? read_view(result->view, result->view.bytes) : Value{0, ValueType::kNone, false};
    all.unread = all.unread || value.unread;
    if (value.type != ValueType::kNone) {
      const bool first = ++count == 1;
      all.bits = first ? value.bits : mix64(all.bits ^ mix64(value.bits + count));
      all.type = first ? value.type : ValueType::kDigest;
    }
    if (result->view.type != nullptr) type_map_release(result->view.type);
    *place = result->next;
    pool_.release(result);
  }
  list.last = last;
  return all;
}

}  // namespace resil
