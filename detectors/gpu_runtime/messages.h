// SPDX-License-Identifier: Apache-2.0
//
// What the checks of CUDA's and HIP's waits say. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::gpu_runtime {

RESIL_MESSAGE(no_thread, note, "gpu_runtime: lost completions are not noticed: the helper thread could not be started",
              "The limit of threads is reached.", "ulimit -u");
RESIL_MESSAGE(static_runtime, note, "gpu_runtime: waits of statically linked CUDA runtimes are not seen: %s",
              "A static runtime is seen through CUPTI only.",
              "Link with -cudart shared, or make libcupti available (CUDA_HOME).");
RESIL_FINDING(
    lost_completion,
    "%s on %s has been blocked for %.1f s although %s finished %.1f s ago (fence word written): lost completion in the "
    "runtime; called at %s",
    "The device has done the work that the call waits for, and the call does not return.",
    "end the job; the dump that was taken has the stack. Send it, with this report and the driver's version, to the "
    "facility or the runtime's vendor.");
RESIL_FINDING(premature,
              "%s on %s %s before %s was complete: the device wrote the fence word that stands %s %s%.3f ms later%s; "
              "called at %s",
              "The runtime said that work was done which was not: data may be read too early.",
              "send this report, with the versions of driver and runtime, to the facility or the runtime's vendor; "
              "results of this "
              "job may be wrong.");
RESIL_PHRASE(not_ready_told, "; the program was told \"not ready\"");
RESIL_PHRASE(waited, "; resil waited for it");

}  // namespace resil::messages::gpu_runtime

/// Why a wait was not checked: members of `uncovered`.
namespace resil::messages::gpu_runtime::uncovered {

RESIL_REASON(no_driver, "The driver's functions were not found.", "Nothing.");
RESIL_REASON(no_context, "The thread had no context.", "Nothing.");
RESIL_REASON(capture, "The stream was being captured.", "Nothing.");
RESIL_REASON(memory, "No memory for the fence words.", "Nothing.");
RESIL_REASON(refused, "The driver refused to write a fence word.", "Nothing.");
RESIL_REASON(too_many, "More waits at a time than there are fence words.", "Nothing.");
RESIL_REASON(unseen_work, "Work may be on the device that resil did not see being started.", "Nothing.");
RESIL_REASON(changed_while, "The set of streams changed during the wait.", "Nothing.");

}  // namespace resil::messages::gpu_runtime::uncovered
