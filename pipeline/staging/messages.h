// SPDX-License-Identifier: Apache-2.0
//
// What the staging of device buffers says. See shim/report/message.h.
#pragma once

#include <cinttypes>

#include "shim/report/message.h"

namespace resil::messages::staging {

RESIL_MESSAGE(copy_refused, log, "staging: %s: data could not be copied %s the device: %s",
              "The runtime refused a copy between device and host memory.",
              "Look at the runtime's error; the call ended with MPI_ERR_OTHER.");
RESIL_MESSAGE(copy_refused_note, note,
              "staging: data could not be copied %s the device: %s; the calls ended with MPI_ERR_OTHER",
              "As staging.copy_refused, in the report.", "As there.");
RESIL_MESSAGE(
    too_many_requests, log,
    "staging: more requests are pending than the tables can follow, and a persistent one with a device buffer "
    "would never be copied: the job ends",
    "The request table is full.", "Complete requests before starting more, or set RESIL_STAGE=off.");
RESIL_MESSAGE(no_memory_statuses, log, "no memory for the statuses of a completion call: the job ends",
              "The call's statuses could not be allocated.", "Look at the memory limit of the job.");
RESIL_MESSAGE(no_memory_handles, log, "no memory for the handles of a completion call: the job ends",
              "The call's handles could not be allocated.", "Look at the memory limit of the job.");
RESIL_MESSAGE(passed_through, note, "staging: some calls with device buffers were passed to MPI unchanged, reason %s",
              "These buffers were not staged; the MPI library must take device memory.",
              "Look up the reason in docs/STAGING.md.");
RESIL_MESSAGE(
    pinned_short, note,
    "staging: pinned memory ran out (RESIL_STAGE_MEMORY=%llu MiB, or what the runtime gave): some copies used ordinary "
    "memory, which is slower",
    "All pinned memory was in use, or the runtime refused to pin more.",
    "Raise RESIL_STAGE_MEMORY, or the limit of locked memory (ulimit -l).");
RESIL_MESSAGE(
    copies_unchecked, note, "staging: copies of some messages between device and host were not checked, reason %s",
    "A copy is checked by a digest of the device's memory, which could not be had. docs/STAGING.md lists the reasons.",
    "Nothing, or remove the reason.");
RESIL_MESSAGE(no_device_digests, log,
              "staging: copies between device and host are not checked%s: no digests of device memory (%s: %s%s%s)",
              "The kernels that read device memory cannot run.", "Look at the runtime's error.");
RESIL_PHRASE(for_now, " as long as that is so");
RESIL_MESSAGE(event_early, note,
              "staging: a device's runtime reported an event complete before the kernel ahead of it was",
              "The runtime's events cannot be trusted; copies are looked at again.",
              "Send this report to the runtime's vendor.");

RESIL_FINDING(
    copy_failed,
    "rank %d: a copy %s of %llu bytes between device %d (%s) and %s memory failed: %s. The call that completes "
    "the message returns MPI_ERR_OTHER.",
    "The runtime refused a copy, or its context is gone.",
    "look at the runtime's error and at the device (nvidia-smi, rocm-smi); if it comes back, exclude %s.");
RESIL_FINDING(
    copy_changed,
    "rank %d: %" PRIu64
    " bytes changed on the way from %s: the copy %s of device %d (%s) was wrong, source and target did not change "
    "before or after it",
    "The two digests, of the source and of the target, differ and stay different.",
    "run again without node %s (srun --exclude=%s). Send this report directory, with the output of nvidia-smi -q "
    "or rocm-smi, to the facility.");
RESIL_FINDING(copy_early,
              "rank %d: the runtime of device %d (%s) said that a copy of %" PRIu64
              " bytes from %s was complete before the data was there; resil waited for it, and it is right now",
              "Without resil the program would have seen old data.",
              "send this report, with the versions of driver and runtime, to the facility or the runtime's vendor.");
RESIL_FINDING(
    buffer_modified,
    "rank %d: a buffer of %" PRIu64
    " bytes on device %d (%s) changed while a send from it was under way: by the program, or by a kernel that was "
    "not complete when the buffer was given to MPI",
    "MPI forbids writing to the buffer of a pending send.",
    "synchronise the stream that writes the buffer before the MPI call, and write to it after the send is "
    "complete.");
RESIL_FINDING(
    buffer_or_copy,
    "rank %d: the copy of a buffer of %" PRIu64
    " bytes from device %d (%s) is not what the buffer holds: a kernel or a copy of the program was still writing the "
    "buffer when it was given to MPI, or this copy went wrong. The data was copied again and checked",
    "The digest of the buffer and that of its copy differ; which of them came first is not known. From now on the "
    "digest "
    "comes before the copy, so that a second such finding tells the two causes apart.",
    "synchronise the stream that writes the buffer before the MPI call. If device_copy_corrupted follows, it is the "
    "copy: "
    "run without node %s.");
RESIL_FINDING(
    pinned_changed,
    "rank %d: %" PRIu64
    " bytes in pinned host memory changed while they were copied to device %d (%s), after the MPI library had "
    "said that they had arrived",
    "The MPI library completed a receive before its data was there.",
    "send this report directory to the maintainers of the MPI library (%s), or to the facility that installed it.");

}  // namespace resil::messages::staging

/// Why calls with device buffers were not staged (`staging.uncovered`), and why copies were not checked.
namespace resil::messages::staging::uncovered {

RESIL_REASON(foreign_runtime, "Memory of a runtime that resil does not know.", "Nothing.");
RESIL_REASON(datatype, "The datatype cannot be flattened.", "Nothing.");
RESIL_REASON(pinned_memory, "No host memory for a copy.", "Set RESIL_STAGE_MEMORY higher.");
RESIL_REASON(device, "The device could not be used.", "Look at the runtime's error.");
RESIL_REASON(one_sided, "One-sided operations.", "Nothing.");
RESIL_REASON(reduction, "A reduction that MPI carries out itself.", "Set RESIL_REDUCE=order.");
RESIL_REASON(other, "Files, partitioned messages, or memory of several allocations in one buffer.", "Nothing.");
RESIL_REASON(no_kernel, "Copies unchecked: the kernels cannot run on the device.", "Nothing.");
RESIL_REASON(layout, "Copies unchecked: the buffer's layout has too many pieces.", "Nothing.");
RESIL_REASON(memory, "Copies unchecked: no device memory for the digests.", "Nothing.");
RESIL_REASON(failed, "Copies unchecked: the runtime refused a launch.", "Nothing.");
RESIL_REASON(request_freed, "Copies unchecked: the request was freed before its end.", "Complete the request.");

}  // namespace resil::messages::staging::uncovered
