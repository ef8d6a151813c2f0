// SPDX-License-Identifier: Apache-2.0
//
// What can be said about the result of a reduction: that it is the same everywhere (canonical digest), that an integer
// sum is the sum of its contributions (linear digest), that a minimum is no larger than the own contribution (bound).
//
// Canonical: what correct libraries may do differently on two ranks becomes equal. NaNs are one NaN; for MIN, MAX and
// their LOC forms zeros and denormal numbers of either sign are one zero (programs may run with denormals-are-zero);
// padding inside long double and pairs is left out.
#pragma once

#include <cstdint>

#include "checksum/collective/linear.h"
#include "shim/abi/backend_types.h"
#include "shim/model/calls.h"
#include "shim/model/view.h"

namespace resil::collective {

struct Reduction {
  OpKind op;
  BasicType basic;
  LinearMode linear;  ///< kNone: the arithmetic is not checked
  bool comparable;  ///< equal results may be demanded of all ranks
  bool orders;  ///< MIN, MAX and their LOC forms of floating values: a NaN makes the result arbitrary
  bool nan_seen;  ///< in this rank's contribution
  bool has_input;  ///< `input` was read (and `contribution` taken)
  Reason why;  ///< why the arithmetic is not checked: kReduction, kUserOperator
  View input, output;  ///< output.type null: this rank gets no result
  int64_t first, total;  ///< the output's place among all elements, number of elements of a contribution
  Linear contribution;
};

/// What operator and datatype allow; sets all but the views, places and contribution.
void reduction_classify(Reduction& reduction, uint64_t op, const TypeMap* type);

/// Digest of a result such that it cannot differ between ranks of a correct library. Needs `comparable`.
uint64_t canonical_digest(const Reduction& reduction, const View& view);

/// Reads the contribution: linear digest, NaNs. The view may be read (reason kNone).
void reduction_read_input(Reduction& reduction);
/// L(result) in its place.
Linear reduction_result(const Reduction& reduction);

/// Number of the first element of the result that the own contribution contradicts; -1: none. Both views may be read.
int64_t bound_violated(const Reduction& reduction);

}  // namespace resil::collective
