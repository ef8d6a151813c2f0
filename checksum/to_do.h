// SPDX-License-Identifier: Apache-2.0
//
// What a finding asks its reader to do, where several parts of mode checksum ask the same.
#pragma once

#include <cstring>

#include "checksum/messages.h"
#include "shim/report/finding.h"

namespace resil {

/// The fault lies between or in these two nodes, which may be one.
inline void exclude_nodes(Finding& finding, const char* one, const char* other) {
  if (strcmp(one, other) == 0) finding.to_do(messages::checksum::to_do_exclude_one, one, one);
  else finding.to_do(messages::checksum::to_do_exclude_both, one, other);
}

}  // namespace resil
