// SPDX-License-Identifier: Apache-2.0
//
// A buffer argument as it can be read: address, count and flattened datatype, or the reason why it must not be touched.
#pragma once

#include <cstdint>

#include "shim/base/digest/digest.h"
#include "shim/model/datatype/type_map.h"
#include "shim/model/reason.h"
#include "shim/runtime/accelerators/host_memory.h"

namespace resil {

struct View {
  const void* buffer;
  int64_t count;
  const TypeMap* type;  ///< null when `reason` says so
  uint64_t bytes;  ///< size of the packed stream
  Reason reason;  ///< kNone: may be read
};

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

/// D of the first `bytes` (at most view.bytes) of the packed stream.
inline uint64_t view_digest(const View& view, uint64_t bytes) {
  if (view.type->contiguous) [[likely]]
    return digest(view.buffer, bytes);
  return type_digest(*view.type, view.buffer, view.count, bytes);
}

}  // namespace resil
