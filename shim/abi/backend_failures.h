// SPDX-License-Identifier: Apache-2.0
//
// Jobs that go on after the death of a rank (user level failure mitigation). Part of the Backend table; handles are
// bits.
#pragma once

#include <cstdint>

namespace resil {

/// Any thread, after MPI_Init. None of these raises an error of the program's.
struct FailureFunctions {
  /// Does this job go on when a rank dies? Open MPI from 5.0 on, when it was told so (`--with-ft ulfm`). Then nothing
  /// may wait on the private communicator without a limit: no program can revoke that.
  bool (*survives)();
  /// Like Backend::test, but a request whose operation failed is over, too: `failed`, and what it was to write is not
  /// known.
  bool (*is_over)(uint64_t* request, bool* failed);
  /// World ranks of the members of a communicator of resil's own that are known to be dead; -1: it cannot be told, or
  /// more than `capacity` are. From then on receives from any source go on there.
  int (*acknowledge_dead)(uint64_t comm, int capacity, int* world_ranks);
};

}  // namespace resil
