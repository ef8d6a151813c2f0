// SPDX-License-Identifier: Apache-2.0
//
// What the accelerators' part says. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::gpu {

RESIL_MESSAGE(pinned_refused, log,
              "device buffers: the runtime gives no more pinned memory than %llu MiB (%s for %llu MiB more); further "
              "copies use pageable memory (slower)",
              "The system limits pinned memory.", "ulimit -l; fewer ranks a node.");
RESIL_MESSAGE(
    pinned_full, log,
    "device buffers: no room for %zu bytes in %llu MiB of pinned memory, of at most %llu MiB; further copies use "
    "pageable memory (slower). Set RESIL_STAGE_MEMORY higher.",
    "The limit of RESIL_STAGE_MEMORY is reached.", "Set RESIL_STAGE_MEMORY higher.");

}  // namespace resil::messages::gpu
