// SPDX-License-Identifier: Apache-2.0
//
// The word beside a request that the two modules which carry calls out another way share (Module::cookie). Reductions
// keep a pointer there. Staging, when it has something to do for the same request, puts one of its own in its place,
// marked, to memory whose first word keeps what reductions had.
#pragma once

#include <cstdint>

namespace resil::pipeline {

constexpr unsigned kCookie = 2;
constexpr uint64_t kStaged = 1;

inline bool is_staged(uint64_t word) { return (word & kStaged) != 0; }

/// Where reductions' own word is; it may be 0 in a request that has the other.
inline uint64_t* reductions_word(uint64_t* word) {
  return is_staged(*word) ? reinterpret_cast<uint64_t*>(*word & ~kStaged) : word;
}

}  // namespace resil::pipeline
