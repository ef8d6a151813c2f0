// SPDX-License-Identifier: Apache-2.0
//
// What the tables of the wait-for graph check in words.
#pragma once

#include <catch2/catch.hpp>

#include "hang_states.h"

namespace hang_test {

using Ranks = std::vector<int32_t>;

inline bool says(const Verdict& verdict, const char* text) {
  INFO(verdict.message);
  CHECK(std::string(verdict.message).find(text) != std::string::npos);
  return true;
}

}  // namespace hang_test
