// SPDX-License-Identifier: Apache-2.0
//
// What particle replication says. See shim/report/message.h.
#pragma once

#include <cinttypes>

#include "shim/report/message.h"

namespace resil::messages::spr {

RESIL_FINDING(replica_differs,
              "particle %" PRId64 " (%s) on rank %d differs from its replica on rank %d after step %" PRId64
              " of \"%s\"; so do %" PRId64 " of %" PRId64 " replicas of this rank",
              "The same kernel computed the same particle from a copy of the same data on two ranks, and the results "
              "differ: an error "
              "in one of the two, or in the data of a neighbour, has spread.",
              "go back to a checkpoint from before this step. If it is always one of these ranks' nodes (%s here), "
              "keep jobs off it "
              "and send this report directory to the facility; if the same particle differs in each step, make sure "
              "that the kernel "
              "depends on nothing but its fields and the order of its lists.");
RESIL_FINDING(particle_changed,
              "particle %" PRId64 " (%s) on rank %d is no longer what it was when step %" PRId64
              " of \"%s\" began; so are %" PRId64 " of %" PRId64 " particles of this rank",
              "A field that the program had declared as read by the kernel has other bytes than the copy of it that "
              "was sent to the "
              "next rank when the step began.",
              "go back to a checkpoint from before this step. If the finding comes back on %s, keep jobs off it and "
              "send this report "
              "directory to the facility; if it comes in each step, the program changes the field itself: name it "
              "among the results "
              "of resil_spr_end, or declare it with RESIL_SPR_MAY_CHANGE.");

RESIL_FINDING(result_changed,
              "particle %" PRId64 " (%s) on rank %d is no longer what was computed in step %" PRId64
              " of \"%s\"; so are %" PRId64 " of %" PRId64 " particles of this rank",
              "The program had said by resil_spr_computed that this result was finished; when the kernel ended, it had "
              "other bytes.",
              "go back to a checkpoint from before this step. If the finding comes back on %s, keep jobs off it and "
              "send this report directory to the facility; if it comes in each step, the program changes results after "
              "it has named them: call resil_spr_computed later.");

RESIL_MESSAGE(no_private_communicator, note,
              "spr: no replicas: some rank is not preloaded, or MPI is not in use on this thread",
              "Replicas are computed on other ranks.", "Preload libresil.so into every rank.");
RESIL_MESSAGE(too_many_sets, note, "spr: no replicas for \"%s\": 4 sets are in use", "The table of sets has 4 places.",
              "Destroy sets that are no longer used.");
RESIL_MESSAGE(not_a_member, note, "spr: no replicas for \"%s\": this rank is not among the members that it names",
              "resil_spr_create was called with a list of ranks that lacks the caller.",
              "Call it on the ranks of the list, with the same list.");
RESIL_MESSAGE(bad_lists, note,
              "spr: set \"%s\": no replicas until the next selection: particle %" PRId64 " has %s %" PRId64,
              "Counts, offsets and indices of the neighbour lists are looked at before they are used.",
              "Give resil_spr_select the lists of all local particles, with indices below `total`.");
RESIL_PHRASE(bad_counts, "after it, in all,");
RESIL_PHRASE(bad_offset, "a list of the length");
RESIL_PHRASE(bad_neighbour, "the neighbour");
RESIL_MESSAGE(twice, note,
              "spr: set \"%s\": no replicas until the next selection: two local particles have the id %" PRId64,
              "RESIL_SPR=hashed knows particles by their ids.", "Give every particle an id of its own.");
RESIL_MESSAGE(
    one_sided, note,
    "spr: set \"%s\": neighbour lists are one-sided: particle %" PRId64 " has %" PRId64
    " in its list, and not the other way round; %" PRId64 " of %" PRId64 " pairs looked at",
    "Half lists, or smoothing lengths that differ. Each local particle still stands in the list of a replica; "
    "RESIL_SPR=hashed may select otherwise on other numbers of ranks.",
    "Nothing, or give full lists.");
RESIL_MESSAGE(
    hashed_alone, note,
    "spr: set \"%s\": selected by RESIL_SPR=cover: hashed needs ids, owners, and at most 1,024 neighbour ranks",
    "A selection that is the same on any number of ranks needs to know whose the copied particles are.",
    "Declare a field with RESIL_SPR_ID and give resil_spr_select the owners.");
RESIL_MESSAGE(
    not_compared, note, "spr: set \"%s\" on rank %d, step %" PRId64 ": not compared: %s",
    "Something of this step, or of all that follow, could not be compared; the job goes on. The report counts "
    "how often, by the same names.",
    "As the name says: docs/SPR.md, \"What is not compared\".");
RESIL_MESSAGE(kernel_failed, note,
              "spr: set \"%s\": the kernel for the replicas of rank %d returned %d on rank %d; they are not compared",
              "The program's callback said that it could not compute them.", "Look at what it returns.");
RESIL_MESSAGE(
    gave_up, log_note,
    "spr: set \"%s\": rank %d did not come to the same call within RESIL_SPR_TIMEOUT (%.0f s): no replicas any more",
    "Ranks call select, begin and end together; one of them did not, or is very late.",
    "Make all members of the set call them in the same order, or raise RESIL_SPR_TIMEOUT.");
RESIL_MESSAGE(rolled_back, log_note, "spr: set \"%s\": all ranks go back, for the %u. time in a row (step %" PRId64 ")",
              "A replica differed on some rank, and the program's hook restores a checkpoint.", "Nothing.");
RESIL_MESSAGE(no_rollback, note,
              "spr: RESIL_ON_MISMATCH=retry without a hook (resil_spr_rollback): the job ends instead",
              "Only the program can restore a checkpoint.", "Give resil_spr_rollback a hook, or use log.");
RESIL_MESSAGE(rollback_in_vain, log_note,
              "spr: set \"%s\": the hook could not restore a checkpoint, or six in a row were in vain: the job ends",
              "What differs comes back after each restore, or there is nothing to restore.",
              "Exclude the node that the findings name.");

RESIL_REASON(no_selection, "Nothing was selected since the start, a rollback, or since particles moved.",
             "Call resil_spr_select after each change of the neighbour lists.");
RESIL_REASON(neighbour_lists, "The neighbour lists could not be used; a note says which particle.", "Correct them.");
RESIL_REASON(no_memory, "There was no memory for copies or lists.", "Use fewer ranks a node.");
RESIL_REASON(device_memory, "A field lies, or may lie, in device memory.", "Give a copy in host memory.");
RESIL_REASON(wrong_count, "resil_spr_begin names other numbers of particles than resil_spr_select did.",
             "Select again after particles were added or removed.");
RESIL_REASON(particle_moved, "The ids of replicas are others than when they were selected.",
             "Select again after particles have changed places or ranks; declare arrays again that have moved.");
RESIL_REASON(call_order, "resil_spr_begin within a phase, or resil_spr_end without one.", "Call them in turn.");
RESIL_REASON(fields_disagree, "Two ranks declared different fields, or named different ones in a phase.",
             "Declare and name the same fields, in the same order, on all ranks.");
RESIL_REASON(steps_disagree, "Two ranks were in different steps when they should have compared.",
             "Call begin and end in each step on all ranks, with the same step.");
RESIL_REASON(kernel, "The program's callback returned an error.", "Look at what it returns.");
RESIL_REASON(partner, "The rank at the other end could not take part; its own report says why.", "Look there.");
RESIL_REASON(partner_silent, "The rank at the other end did not come within RESIL_SPR_TIMEOUT.",
             "Make all ranks call select, begin and end in the same order.");
RESIL_REASON(partner_dead, "MPI reported an error of a message: the rank at the other end has died.",
             "Make a new set of the ranks that live (resil_spr_create).");
RESIL_REASON(two_threads, "Two threads used the set at the same time; the second call did nothing.",
             "One thread at a time.");

}  // namespace resil::messages::spr
