// SPDX-License-Identifier: Apache-2.0
//
// The canonical tree (fold.h), walked in blocks that stay in the first-level cache.
#pragma once

#include "pipeline/reduction/kernel.h"

namespace resil::reduction {

/// `scratch`: kFoldScratch bytes.
/// result[i] = T(contributions)[i] for `units` units of `kernel`. `result` may be one of the contributions.
void fold_tree(const Kernel& kernel, const char* const* contributions, size_t ranks, char* result, size_t units,
               char* scratch);

/// results[r][i] = T(0, r + 1)[i]: O(ranks * log(ranks)) steps. results[r] may be contributions[r].
void fold_tree_prefixes(const Kernel& kernel, const char* const* contributions, size_t ranks, char* const* results,
                        size_t units, char* scratch);

}  // namespace resil::reduction
