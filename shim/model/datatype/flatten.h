// SPDX-License-Identifier: Apache-2.0
//
// From a datatype handle to its runs, by asking how the type was made.
#pragma once

#include "shim/model/datatype/constructors.h"
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

/// Any thread. False: cannot be flattened.
bool flatten(uint64_t type, const TypeQueries& queries, Flattened& out);

}  // namespace resil
