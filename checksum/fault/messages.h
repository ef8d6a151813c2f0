// SPDX-License-Identifier: Apache-2.0
//
// What fault injection says. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::fault {

RESIL_MESSAGE(
    injecting, note,
    "RESIL_FAULT is set: data of this job is damaged on purpose; its findings are no evidence of anything else",
    "Somebody tests the detectors with this job.", "Unset RESIL_FAULT for production.");
RESIL_MESSAGE(list_unwritable, note, "the list of injected faults could not be written",
              "faults.jsonl could not be opened in the report directory.", "Look at the directory's permissions.");
RESIL_MESSAGE(list_incomplete, note, "the list of injected faults is not complete",
              "A line of faults.jsonl could not be written.", "Make room on the file system.");

}  // namespace resil::messages::fault
