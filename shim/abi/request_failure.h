// SPDX-License-Identifier: Apache-2.0
//
// What a completing call that returned an error says of its requests, for the request table alone.
#pragma once

#include "shim/abi/backend.h"
#include "shim/model/event.h"

namespace resil {

inline ErrorKind error_kind(int code) {
  return backend->messages != nullptr ? backend->messages->error_kind(code) : ErrorKind::kOther;
}

/// Did the operation at `place` of the completing call succeed, as far as the call tells? Where it does not tell, no:
/// what the operation was to write may then be whatever was in the program's memory before.
inline bool succeeded(const Event& e, int64_t place) {
  if (e.result == 0) return true;
  if (error_kind(e.result) != ErrorKind::kInStatus || backend->messages->status_ignored(e.given_statuses)) return false;
  StatusInfo status;
  backend->messages->status_read(e.given_statuses, place, &status);
  return status.error == 0;
}

}  // namespace resil
