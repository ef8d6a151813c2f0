// SPDX-License-Identifier: Apache-2.0
//
// What mode checksum says: messages, collectives and one-sided transfers. See shim/report/message.h.
#pragma once

#include <cinttypes>

#include "shim/report/message.h"

namespace resil::messages::checksum {

RESIL_MESSAGE(no_memory, log, "no memory for checksums: this process checks nothing",
              "The tables of mode checksum could not be mapped.", "Look at the memory limit of the job (ulimit -v).");
RESIL_MESSAGE(not_connected, note, "checksum: no message of this rank is checked: there is no private communicator",
              "Some rank is not preloaded, or the program uses MPI sessions only.", "Preload every rank.");
RESIL_MESSAGE(
    no_shared_memory, note,
    "checksum: no shared memory for records (/dev/shm is missing, full or beyond the limit of file sizes). They travel "
    "as messages, which is slower.",
    "Records of ranks on one node normally travel in a file in /dev/shm.", "df /dev/shm; ulimit -f");
RESIL_MESSAGE(
    overlapped_receives, note,
    "checksum: operations that were pending at the same time received into the same memory, which MPI forbids. That "
    "data is not checked (reason overlapped).",
    "Two pending receives, or a receive and a collective, share a buffer: what it holds depends on their order.",
    "Give each pending operation a buffer of its own.");
RESIL_MESSAGE(not_verified, note, "%llu received messages were not verified at %s: no records from %u rank%s (%s%s)",
              "The senders' records did not come within RESIL_DRAIN_SECONDS.",
              "See how these ranks ended; raise RESIL_DRAIN_SECONDS if they were busy.");
RESIL_MESSAGE(window_given_up, note, "one-sided: window %016llx is no longer checked: %s",
              "From this call on operations on the window are counted as uncovered.",
              "Nothing, or mend the call that failed.");
RESIL_PHRASE(fence_failed, "MPI_Win_fence returned an error");
RESIL_PHRASE(fence_abandoned, "another rank gave up waiting in a fence, or memory ran out");
RESIL_PHRASE(fence_unanswered, "a fence's lists were not answered in time");
RESIL_PHRASE(post_group_unread, "the group of MPI_Win_post could not be read");
RESIL_PHRASE(start_group_unread, "the group of MPI_Win_start could not be read");
RESIL_PHRASE(complete_failed, "MPI_Win_complete returned an error");
RESIL_PHRASE(complete_unsent, "the lists of MPI_Win_complete could not be sent");
RESIL_PHRASE(wait_failed, "MPI_Win_wait returned an error");
RESIL_PHRASE(wait_unanswered, "the lists that MPI_Win_wait awaits did not come in time");
RESIL_MESSAGE(window_unknown, note, "one-sided: the window of %s is not checked: its attributes are not known",
              "MPI did not say where the window's memory is.", "Nothing.");
RESIL_MESSAGE(many_windows, note,
              "one-sided: more than 4096 windows at a time: operations on the others are not checked",
              "The table of windows is full.", "Free windows that are no longer needed.");
RESIL_MESSAGE(base_differs, note,
              "one-sided: MPI_WIN_BASE is %" PRId64
              " bytes off the window's memory, but a trial operation landed where it should",
              "MPI names another address than the program's; operations land right all the same.", "Nothing.");
RESIL_MESSAGE(
    request_early, note,
    "one-sided: %s at %s completed before its %" PRIu64
    " bytes were in the buffer. This MPI completes such requests before the data is there (docs/LIMITS.md): what the "
    "program reads before the next flush or unlock may be old.",
    "MPI requires the data to be there when the request of MPI_Rget is complete.",
    "Read the data after MPI_Win_flush or MPI_Win_unlock.");

// --- what to do, for the findings below ---
RESIL_PHRASE(to_do_full_blame,
             "run again with RESIL_BLAME=full, which tells the program, the MPI library and the network apart.");
RESIL_PHRASE(to_do_exclude_both,
             "run again with %s and %s excluded in turn (srun --exclude=NODE). If the finding stays with one node, "
             "keep jobs off "
             "it and send this report directory to the facility.");
RESIL_PHRASE(to_do_exclude_one,
             "run again with %s excluded (srun --exclude=%s). If the finding is gone, keep jobs off that node and send "
             "this report "
             "directory to the facility.");
RESIL_PHRASE(
    to_do_report_mpi,
    "send this report directory to the maintainers of the MPI library (%s), or to the facility that installed it.");
RESIL_PHRASE(to_do_send_buffer,
             "see %s in rank %d: a send buffer may not be written before the send is complete (MPI_Wait).");
RESIL_PHRASE(
    to_do_contribution,
    "see the call in rank %d: a buffer that is given to a pending operation may not be written before MPI_Wait.");

// --- point-to-point messages, and blocks of collectives ---
RESIL_FINDING(
    message_differs,
    "Rank %d on %s received different data (%s) than rank %d on %s sent (%s): %s, %s, message %" PRIu64
    " from rank %d to rank %d. %s: %s.",
    "The digest of a received message is not the one of the message that was sent. The part behind the figures is the "
    "verdict and how it was reached (docs/CHECKSUM.md).",
    "It depends on the verdict: run again with RESIL_BLAME=full, exclude the two nodes in turn, look at the send "
    "buffer's use, or send the report to the maintainers of the MPI library.");
RESIL_PHRASE(sender_timeout, "the sender did not answer in time");
RESIL_PHRASE(sender_forgot, "the sender no longer knows the message");
RESIL_PHRASE(too_many_cases, "too many messages were wrong at a time to ask the sender about this one");
RESIL_PHRASE(cheap_zeros, "nothing but zeros arrived; RESIL_BLAME=cheap reads each buffer once");
RESIL_PHRASE(cheap, "RESIL_BLAME=cheap reads each buffer once");
RESIL_PHRASE(send_pending, "the send was still pending when the time for an answer was over");
RESIL_PHRASE(send_not_reread, "the send buffer was not read again at completion");
RESIL_PHRASE(before_unknown, "what the receive buffer held before is not known");
RESIL_PHRASE(nothing_kept,
             "nothing was kept of the receive (all evidence slots were taken, or this kind of call keeps none)");
RESIL_PHRASE(also_like, "; what arrived has the digest of ");
RESIL_PHRASE(other_block, "what rank %d gave for its own block of this call");
RESIL_PHRASE(other_message_here, "its message number %llu to the same rank (tag %d)");
RESIL_PHRASE(other_message, "its message number %llu to rank %d (tag %d)");
RESIL_PHRASE(later_message, "what arrived is %s, which was announced later, and no other message has this content");
RESIL_PHRASE(zeros_ambiguous,
             "neither buffer changed when it was read again; zeros arrived, and %u other messages of the sender are "
             "zero too, so "
             "either may be the cause");
RESIL_PHRASE(
    too_many_alike,
    "neither buffer changed when it was read again; %u other messages of the sender have the content that arrived, too "
    "many to say which one it is, or whether it is one");
RESIL_PHRASE(
    few_bits,
    "neither buffer changed when it was read again; what arrived equals %s, but %u flipped bit%s explain%s it as well");
RESIL_PHRASE(other_slot,
             "neither buffer changed when it was read again, the receive wrote its buffer, and what arrived is %s%s");
RESIL_PHRASE(
    transit,
    "neither buffer changed during the transfer and %s matches: the fault is in MPI, the network or staging%s");
RESIL_PHRASE(transit_or_store,
             "the send buffer did not change, the receive buffer changed before the receive was complete and not "
             "later, and %s of "
             "the sender has this content; what the program itself stored there while the receive was pending would "
             "look the same%s");
RESIL_PHRASE(
    receive_modified,
    "the right data was in the receive buffer when a call of MPI returned, and another when the next one began: the "
    "program (or its memory) changed it while the receive was pending");
RESIL_FINDING(receive_touched,
              "Rank %d on %s wrote into the buffer of a pending receive (%s at %s): %llu bytes or more, from byte %llu "
              "on, after the call at %s and "
              "before the one at %s. %s",
              "Proved: the bytes held neither what was there when MPI returned nor what the message brought. The "
              "message is right, and the "
              "status of the job stays; in another run the store may overwrite the message instead.",
              "complete the receive at %s (MPI_Wait) before its buffer is written, or use another buffer.");
RESIL_PHRASE(touched_lost, "The message that came has overwritten them.");
RESIL_PHRASE(touched_behind, "They are behind the end of the message that came.");
RESIL_FINDING(
    send_touched,
    "Rank %d on %s wrote into the buffer of a pending send (%s at %s, %llu bytes): it differed when the send was "
    "complete. Which content the receiver has is decided by the library.",
    "Proved: MPI writes into no send buffer. The status of the job stays, unless a wrong message arrives.",
    "complete the send at %s (MPI_Wait) before its buffer is written, or use another buffer.");
RESIL_FINDING(one_sided_race,
              "Conflicting accesses within one epoch: %s and %s, in the window of rank %d, bytes %lld to %lld. %s",
              "Proved: MPI leaves open what such memory holds (MPI 4.0, section 12.7), and the effect was seen. The "
              "status of the "
              "job stays.",
              "put a synchronisation of the window between the two, or let them use different memory.");
RESIL_PHRASE(race_read, "The memory changed while it was read.");
RESIL_PHRASE(race_lost, "What one of them wrote is lost.");
RESIL_PHRASE(
    send_modified,
    "the send buffer was different when the send was complete%s: the program (or its memory) changed it while the send "
    "was pending");
RESIL_PHRASE(came_late,
             "the right data was in the receive buffer %.0f microseconds after the receive had completed without it");
RESIL_PHRASE(still_written,
             "the send buffer did not change; the receive buffer was still being written after the receive had "
             "completed, by the "
             "transport or by something else in the process");
RESIL_PHRASE(not_delivered, "the send buffer did not change, and the receive left its buffer as it was before%s%s%s%s");

RESIL_FINDING(
    systemic,
    "%" PRIu64 " of the %" PRIu64
    " messages that rank %d on %s has compared%s were wrong, more than one in a thousand: a systemic fault of the "
    "hardware or the communication software, not a stray bit.%s",
    "At least three messages and one in a thousand of those compared were wrong.",
    "stop the production run. Send this report directory, with the paths path_1, path_2, ... below, to the facility.");
RESIL_PHRASE(systemic_unexplained,
             " The program may also write into buffers of pending messages: RESIL_BLAME=full tells.");

// --- collectives ---
RESIL_FINDING(scan_differs,
              "%s: rank %d's result (on %s) is not rank %d's result (on %s) combined with its own contribution",
              "MPI_Scan and MPI_Exscan are checked from neighbour to neighbour.", "As checksum.results_differ.");
RESIL_FINDING(results_differ,
              "%s: rank %d on %s and rank %d on %s have different results; which one is right is not known",
              "The results of a collective that must be equal are not.",
              "run again with RESIL_BLAME=full; then exclude the two nodes in turn.");
RESIL_FINDING(both_wrong,
              "%s: rank %d on %s and rank %d on %s have different results, and both are wrong: %u ranks were asked",
              "Neither result is the one that most ranks have.", "As checksum.results_differ.");
RESIL_FINDING(sum_wrong_at, "%s: rank %d's result (on %s) is not the reduction of all ranks' contributions%s%s",
              "The linear digests of contributions and result do not agree.",
              "exclude that rank's node and run again.");
RESIL_FINDING(singled_out, "%s: rank %d's result (on %s) differs from the other rank's. %s",
              "Of two different results this one came in a way that results do not come in.",
              "exclude that rank's node and run again.");
RESIL_FINDING(differs_from_root, "%s: rank %d's data (on %s) differs from the root's",
              "The root's data is the right one.", "exclude that rank's node and run again.");
RESIL_FINDING(differs_from_most, "%s: rank %d's result (on %s) differs from that of %u of the %u ranks that were asked",
              "Most ranks have one result, this rank has another.", "exclude that rank's node and run again.");
RESIL_FINDING(sum_wrong, "%s: the result is not the reduction of all ranks' contributions (%s)%s%s",
              "The linear digests of contributions and results do not add up to zero.",
              "run again with RESIL_BLAME=full, or exclude nodes in turn.");
RESIL_PHRASE(sum_nobody, "which rank went wrong is not known");
RESIL_PHRASE(sum_changed, "rank %d changed its contribution while the operation was pending");
RESIL_PHRASE(sum_all, "all %u ranks that were asked have the same");
RESIL_PHRASE(sum_rank, "rank %d has the wrong one");
RESIL_FINDING(own_part_wrong, "%s: rank %d on %s has %s%s%s",
              "A rank's result contradicts the rank's own contribution.", "exclude that rank's node and run again.");
RESIL_PHRASE(own_block_differs, "a block of its own in the result that is not what it contributed");
RESIL_PHRASE(first_differs, "a result that is not its own contribution, though it is the first rank");
RESIL_PHRASE(element_contradicts, "an element of the result that contradicts what it contributed");
RESIL_PHRASE(result_not_kept, "nothing was kept of the result's buffer");
RESIL_PHRASE(result_late, "The right result was there some time after the call had completed without it");
RESIL_PHRASE(result_still_written, "The result's buffer was still being written when the call was complete");
RESIL_PHRASE(result_untouched, "The call left the result's buffer as it was before");
RESIL_PHRASE(result_earlier, "The buffer holds the result of an earlier call");
RESIL_PHRASE(
    result_transit,
    "The call wrote the buffer, which did not change any more and holds no earlier result: transit, staging, or the "
    "library's arithmetic");
RESIL_PHRASE(result_undecided, "which of the two is right is not known");
RESIL_PHRASE(result_both, "both are wrong, each in its own way");
RESIL_PHRASE(part_undecided, "which rank's part is wrong is not known");
RESIL_PHRASE(contribution_changed, "A contribution was not the same when the operation was complete");
RESIL_PHRASE(
    all_alike,
    "all ranks have the same wrong result: a contribution was damaged on its way, or the library adds wrongly");

// --- calls that do not belong together ---
RESIL_FINDING(
    calls_differ, "Calls do not match (%s): rank %d calls %s%s%s; rank %d calls %s%s%s; %s. %s",
    "Two ranks' calls that MPI joins differ in what they must agree on: the function, root, operator, amount or basic "
    "types. It is a mistake of the program; data that came out differently because of it is no corruption. Evidence "
    "has both call sites.",
    "Compare the calls at both call sites.");
RESIL_FINDING(
    calls_absent, "Calls do not match: rank %d calls %s, %s; rank %d has ended and told of no call that belongs to it",
    "The other rank has announced all that it sent or contributed, and nothing for this call: it made another call in "
    "its place, or none, or the same with a type or operator for which nothing is announced.",
    "Compare the calls of both ranks on that communicator; RESIL_HANG=report names the one that differs.");
RESIL_PHRASE(other_function, "other function");
RESIL_PHRASE(other_operator, "other operator");
RESIL_PHRASE(other_root, "other root");
RESIL_PHRASE(other_history, "an earlier call on this communicator differs in function, operator or root");
RESIL_PHRASE(other_root_or_operator, "this call, or an earlier one on this communicator, differs in operator or root");
RESIL_PHRASE(other_amount, "other amount");
RESIL_PHRASE(other_types, "other types");
RESIL_PHRASE(comm_freed, "a communicator freed since");
RESIL_PHRASE(not_corrupted, "This is no corruption of data.");
RESIL_PHRASE(types_only, "The bytes arrived as they were sent.");
RESIL_PHRASE(to_do_compare_calls,
             "compare the calls at both call sites: function, root, operator, count and datatype.");
RESIL_PHRASE(to_do_compare_types, "compare the datatypes at both call sites.");
RESIL_PHRASE(record_damaged,
             "the record of this message was damaged on its way: the sender's own record of it says otherwise");
RESIL_MESSAGE(not_verified_yet, note,
              "%llu received messages were not verified at %s: results that differ are still being looked into",
              "Other ranks were asked who is right, and had not answered when the time was over.",
              "See how these ranks ended; raise RESIL_DRAIN_SECONDS if they were busy.");

// --- one-sided ---
RESIL_FINDING(transfer_differs,
              "%s from rank %d (%s) to rank %d (%s) at %s: %" PRIu64 " bytes at displacement %" PRId64
              " of rank %d's window are not the ones %s",
              "At the end of an epoch the target's memory and the origin's buffer have different digests.",
              "It depends on the verdict, as for checksum.message_differs.");
RESIL_PHRASE(that_arrived, "that arrived at the origin");
RESIL_PHRASE(that_were_sent, "that the origin gave");
RESIL_PHRASE(origin_modified,
             "the origin's buffer was not the same when the epoch was over as when the operation was issued");
RESIL_PHRASE(target_late, "the right data was there when it was looked at once more");
RESIL_PHRASE(target_still_written, "the data still changed when the epoch was over");
RESIL_PHRASE(target_changed, "the target's memory changed after the epoch");
RESIL_PHRASE(target_before_unknown, "what was there before is not known");
RESIL_PHRASE(origin_not_reread, "the origin's data was not read again");
RESIL_PHRASE(put_not_delivered,
             "the target's memory is what it was when the epoch began, and the origin's buffer did not change");
RESIL_PHRASE(get_not_delivered,
             "the origin's buffer is what it was before the call, and the target's memory did not change");
RESIL_PHRASE(by_chance, "what arrived is the data of another operation, but one byte may be so by chance");
RESIL_PHRASE(one_sided_transit,
             "neither side changed, something was written, and no other operation on this window has this content");
RESIL_PHRASE(other_operation,
             "neither side changed, and what arrived is the data of %s from rank %d at displacement %lld");
RESIL_FINDING(window_misplaced,
              "%s at %s: rank %d's window memory is at %p, but MPI says %p: one-sided operations on it land %" PRId64
              " bytes %s their target",
              "MPI_WIN_BASE is not the address that the program gave, and a trial operation landed as far off.",
              "take the window's memory from MPI_Win_allocate or MPI_Alloc_mem, or use another version of this MPI "
              "(docs/NWCHEM-MPICH.md).");
RESIL_FINDING(operation_misplaced,
              "%s from rank %d to rank %d at %s: %" PRIu64 " bytes at displacement %" PRId64 " went to %" PRId64
              " bytes %s that place, because MPI has the wrong address of that window's memory",
              "As checksum.window_misplaced, for an operation that reached such a window.",
              "take the window's memory from MPI_Win_allocate or MPI_Alloc_mem, or use another version of this MPI "
              "(docs/NWCHEM-MPICH.md).");

}  // namespace resil::messages::checksum

/// Why a message, or a share of the traffic, was not checked: members of `messages_uncovered`.
namespace resil::messages::checksum::uncovered {

RESIL_REASON(device_buffer, "The buffer is, or may be, device memory.",
             "Let resil stage device buffers (RESIL_STAGE=on), then it checks them.");
RESIL_REASON(datatype, "The datatype cannot be flattened.", "Nothing.");
RESIL_REASON(error, "The call returned an error, or the receive truncated the message.", "Mend the call.");
RESIL_REASON(not_connected, "There is no private communicator: some rank is not preloaded, or sessions only.",
             "Preload every rank.");
RESIL_REASON(other_world, "The partner is in another MPI_COMM_WORLD (spawn, connect).", "Nothing.");
RESIL_REASON(unknown_communicator, "The communicator was made where resil could not see it.", "docs/LIMITS.md");
RESIL_REASON(order_lost, "A receive of that communicator, peer and tag could not be followed.", "Nothing.");
RESIL_REASON(memory, "resil's memory for records was full, and sums could not decide.", "Nothing.");
RESIL_REASON(reduction, "MPI does the arithmetic of this reduction (floating point, products).", "Nothing.");
RESIL_REASON(user_operator, "The program's own operator does the arithmetic.", "Nothing.");
RESIL_REASON(passive_target, "One-sided, under a shared lock or lock_all.", "Nothing.");
RESIL_REASON(accumulate, "One-sided accumulation: the target's old value is not known.", "Nothing.");
RESIL_REASON(overlapped, "Another operation that was pending, or of the same epoch, touched the same memory.",
             "Give each pending operation memory of its own.");
RESIL_REASON(shared_window, "A window in shared memory: loads and stores are not seen.", "Nothing.");
RESIL_REASON(one_sided, "Other one-sided traffic that has no check.", "Nothing.");
RESIL_REASON(file, "MPI_File reads and writes.", "Nothing.");
RESIL_REASON(collective, "A form of a collective that has no check.", "Nothing.");
RESIL_REASON(request_freed, "The receive's request was freed: its end is not seen.", "Complete the request.");
RESIL_REASON(no_status, "MPI does not say what the receive took (MPICH 4.0: MPI_Isendrecv).", "Nothing.");
RESIL_REASON(
    given_back,
    "A query of the status told the program that the receive was complete, so that its buffer may have changed since.",
    "Nothing.");
RESIL_REASON(calls_differ, "The calls on both sides do not belong together (finding call_mismatch).",
             "Compare the calls that the finding names.");
RESIL_REASON(early, "One-sided: MPI completed the request before the data was there, or may have.",
             "Read the data after a flush or unlock.");

}  // namespace resil::messages::checksum::uncovered
