// SPDX-License-Identifier: Apache-2.0
//
// What the tables of the wait-for graph check in words.
#pragma once

#include "check.h"
#include "hang_states.h"

namespace hang_test {

using Ranks = std::vector<int32_t>;

inline bool says(const Verdict& verdict, const char* text) {
  const std::string message = message_of(verdict);
  INFO(message);
  CHECK(message.find(text) != std::string::npos);
  return true;
}

}  // namespace hang_test
