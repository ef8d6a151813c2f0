// SPDX-License-Identifier: Apache-2.0
//
// RESIL_REPLICAS_RANKS: which ranks of the program have copies. Pure functions of their arguments.
#pragma once

#include <cstdint>

#include "shim/config/config_value.h"

namespace resil::replicas {

/// "0,3-5": ranges, in the order in which they are named.
struct RankList {
  static constexpr int kMost = 256;
  struct Range {
    int32_t first, last;
  } ranges[kMost];
  int count;

  /// False: it is none; `problem` is filled.
  bool parse(Slice text, ValueProblem* problem);
  int64_t ranks() const;
  int32_t highest() const;
  /// The rank of that number, from 0, and the number of a rank; -1: it is not one of them.
  int32_t rank_at(int number) const;
  int number_of(int32_t rank) const;
};

}  // namespace resil::replicas
