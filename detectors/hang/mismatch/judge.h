// SPDX-License-Identifier: Apache-2.0
//
// From a tree that holds a disagreement to what is said about it. Shared by the parts of this folder only.
#pragma once

#include "detectors/hang/mismatch/state.h"

namespace resil::hang {

/// What is compared: the upper half of the rolling hash, or the lower one.
enum class SignaturePart : uint8_t { kWhat, kBytes };

constexpr uint32_t kMaxSides = 32;

/// Ranks whose histories agree up to the call by which they are told apart.
struct DataArgument {
  uint32_t key;  ///< hash there
  uint32_t ranks;
};

/// Who disagrees. `at`: the call after which most ranks are known to stand on one side or another.
struct Parting {
  SignaturePart signature_part;
  uint64_t at;
  uint32_t argument_count;  ///< may exceed what is kept
  DataArgument sides[kMaxSides];  ///< most ranks first
  uint32_t known;  ///< ranks on any side
  bool majority;  ///< more than half of `known` on sides[0]
};

/// Where two sides part.
struct Difference {
  uint64_t agreed;  ///< calls 1..agreed are the same
  uint64_t differs;  ///< calls 1..differs are not
  uint64_t shown;  ///< the first call of which both signatures are known and differ; 0: none
  uint64_t usual, odd;  ///< those signatures
  bool at_end;  ///< one side has called MPI_Finalize there
  bool exact;  ///< `shown`, or `differs`, is the very first call that is not the same
  int32_t shift;  ///< -1: the odd side has left out call `shown` of the others; 1: it has one more; 0: cannot be told
  uint64_t usual_site, odd_site;  ///< of call `shown`
  int32_t usual_site_rank, odd_site_rank;
};

inline uint32_t key_of(const Claim& claim, SignaturePart signature_part) {
  return signature_part == SignaturePart::kWhat ? static_cast<uint32_t>(claim.rolling >> 32)
                                                : static_cast<uint32_t>(claim.rolling);
}

/// The parting that most ranks show in this part below call `below`. False: there is none. Needs `order` and counts.
bool find_parting(const Tree& tree, const uint32_t* counts, SignaturePart signature_part, uint64_t below,
                  Parting* parting);
/// Marks the claims that ranks of that side have passed. `marks`: kMaxClaims places.
void mark_side(const Tree& tree, const Parting& parting, uint32_t side, bool* marks);
Difference find_difference(const Tree& tree, const Parting& parting, const bool* usual, const bool* odd);
/// Fills the verdict on sides[odd] against sides[0]; without a majority on all sides.
/// Two ranks have different basic types in the call of that claim.
void explain_types(const Tree& tree, const Claim& claim, Verdict& verdict);
void explain_parting(const Tree& tree, const Parting& parting, uint32_t odd, Verdict& verdict);

}  // namespace resil::hang
