// SPDX-License-Identifier: Apache-2.0
//
// Makes the view (shim/model/view.h) of a buffer argument: whose memory it is, by what datatype.
#pragma once

#include "shim/model/view.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/type_maps.h"

namespace resil {

/// Never touches the data. No ownership: see type_map_hold for operations that outlive the call.
inline View make_view(const TypeMap* type, const void* buffer, int64_t count) {
  View view = {buffer, count, type, 0, Reason::kNone};
  if (view.type == nullptr) [[unlikely]] {
    view.reason = Reason::kDatatype;
    return view;
  }
  view.bytes = count > 0 ? static_cast<uint64_t>(count) * view.type->size : 0;
  if (view.bytes == 0) return view;
  int64_t low = 0, high = static_cast<int64_t>(view.bytes);
  if (!view.type->contiguous) type_span(*view.type, count, &low, &high);
  if (!host_memory(static_cast<const char*>(buffer) + low, static_cast<size_t>(high - low))) [[unlikely]]
    view.reason = Reason::kDeviceBuffer;
  return view;
}

inline View make_view(Thread& thread, const void* buffer, int64_t count, uint64_t type) {
  return make_view(type_map(thread, type), buffer, count);
}

}  // namespace resil
