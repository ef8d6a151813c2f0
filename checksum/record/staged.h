// SPDX-License-Identifier: Apache-2.0
//
// Verify beside staging (pipeline/staging/): the calls that it carries out decide as in the recorded run, too. Neither
// knows the other; both register here.
#pragma once

#include <cstdint>

namespace resil {
struct Event;
struct Thread;
}

namespace resil::record {

/// Whose message a receive with wildcards gets.
enum class Recorded : uint8_t {
  kFree,  ///< as MPI likes
  kFrom,  ///< that of source and tag
  kNobody  ///< it never got one: the receive is left to this module
};

struct StagedReplay {
  /// Carries out a call that completes or tests requests as it ended then. False: nothing is to be decided.
  bool (*completion)(Event& event);
  /// For a receive that is about to be posted, once; source and tag are changed with kFrom only.
  Recorded (*receive)(Event& event, int32_t* source, int32_t* tag);
  /// In each round of waiting for it: what does not come within RESIL_VERIFY_SECONDS ends the job. `began`: 0 at first.
  void (*waits)(Event& event, int32_t source, uint32_t round, uint64_t* began);
};
/// Null: this run does not verify. Set before MPI_Init returns.
inline constinit const StagedReplay* staged_replay = nullptr;

struct StagedRequests {
  bool (*any)();
  /// MPI_Test (MPI_Request_get_status, if the event is one) of request `index` of the event, MPI's code in `result`.
  /// False: it is not a staged one.
  bool (*test)(Event& event, int64_t index, int* flag, void* status, int* result);
};
/// Set before MPI_Init.
inline constinit const StagedRequests* staged_requests = nullptr;

}  // namespace resil::record
