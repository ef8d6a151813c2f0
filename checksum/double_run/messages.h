// SPDX-License-Identifier: Apache-2.0
//
// What steps run twice say. See shim/report/message.h.
#pragma once

#include <cinttypes>

#include "shim/report/message.h"

namespace resil::messages::double_run {

RESIL_MESSAGE(array_left_out, note, "resil_fingerprint: an array that is not, or may not be, host memory was left out",
              "Device memory cannot be read by the host.", "Give resil_fingerprint a copy in host memory.");
RESIL_MESSAGE(never_agreed, note, "double run: no two of six runs of a step agree",
              "The step depends on something that is not protected, or the node computes differently each time.",
              "Protect all that the step reads (random numbers, time, files); else exclude the node.");
RESIL_MESSAGE(no_memory, note, "double run: the step ran once: no memory to save the state on some rank",
              "The protected arrays are saved before the step runs twice.",
              "Protect fewer arrays, or use fewer ranks a node.");
RESIL_FINDING(step_differs, "step \"%s\" gave different results in two runs from the same state, on %u of %d ranks%s%s",
              "A step of the program ran twice from the same state, and its results differ.",
              "exclude random numbers, time and files from the step or protect them. If the finding comes back on the "
              "same node, keep jobs off %s and send this report directory to the facility.");
RESIL_PHRASE(in_messages, " (what one rank computes wrongly goes to others in messages)");
RESIL_PHRASE(
    native_reductions,
    "; MPI may sum in another order in each run (RESIL_REDUCE=native), so last bits may differ without a fault");
RESIL_FINDING(
    systemic,
    "%" PRIu64 " of %" PRIu64
    " steps gave different results in two runs on rank %d (%s) or its partners, more than one in a thousand: a "
    "systemic fault of the hardware, not a stray bit",
    "At least three steps, and one in a thousand, differed.",
    "first make sure that the step depends on nothing that is not protected (random numbers, time, files). Then "
    "stop the production run and send this report directory to the facility.");

}  // namespace resil::messages::double_run
