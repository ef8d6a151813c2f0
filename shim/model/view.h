// SPDX-License-Identifier: Apache-2.0
//
// A buffer argument as it can be read: address, count and flattened datatype, or the reason why it must not be touched.
#pragma once

#include <cstdint>

#include "shim/base/digest/digest.h"
#include "shim/model/datatype/type_map.h"
#include "shim/model/reason.h"

namespace resil {

struct View {
  const void* buffer;
  int64_t count;
  const TypeMap* type;  ///< null when `reason` says so
  uint64_t bytes;  ///< size of the packed stream
  Reason reason;  ///< kNone: may be read
};

/// D of the first `bytes` (at most view.bytes) of the packed stream.
inline uint64_t view_digest(const View& view, uint64_t bytes) {
  if (view.type->contiguous) [[likely]]
    return digest(view.buffer, bytes);
  return type_digest(*view.type, view.buffer, view.count, bytes);
}

}  // namespace resil
