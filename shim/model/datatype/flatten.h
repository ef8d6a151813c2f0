// SPDX-License-Identifier: Apache-2.0
//
// From a datatype handle to its runs, by asking MPI how the type was made.
#pragma once

#include "shim/model/datatype/run_list.h"
#include "shim/model/datatype/signature.h"

namespace resil {

struct Flattened {
  RunList runs;
  BasicType basic = {};  ///< what all of it consists of
  bool has_basic = false;  ///< false: no data so far
  bool padded = false;  ///< some of it is x86 long doubles
  bool predefined = false;  ///< the handle cannot be freed
  TypeSequence sequence;
  SequenceStart start;  ///< of the sequence
};

/// Asks MPI (local calls); any thread. False: cannot be flattened.
bool flatten(uint64_t type, Flattened& out);

}  // namespace resil
