// SPDX-License-Identifier: Apache-2.0
//
// What modes record and verify say. See shim/report/message.h. The parts of sentences about a recording's file stand
// with the code that reads and writes it (blocks, claim, reader, writer).
#pragma once

#include <cinttypes>

#include "shim/report/message.h"

namespace resil::messages::record {

RESIL_MESSAGE(unusable, log, "RESIL_RECORD: %s",
              "The recording cannot be written or read, for the reason that is named.",
              "Name another directory in RESIL_RECORD, or record again.");
RESIL_MESSAGE(both_modes, log, "RESIL_MODE has both record and verify; choose one",
              "A run either records or is verified.", "Set RESIL_MODE to one of them.");
RESIL_MESSAGE(recording_failed, log_note, "%s; the job goes on",
              "Writing the recording failed: what came before can be verified.", "Make room, and record again.");
RESIL_MESSAGE(native_order, log_note,
              "RESIL_REDUCE=native: MPI may sum in another order in each run, so results of reductions may differ",
              "The recording holds results that MPI may give otherwise in the next run.",
              "Leave RESIL_REDUCE unset: modes record and verify then use order.");
RESIL_MESSAGE(recorded_elsewhere, note, "verify: %s",
              "What differs between the recorded run and this one (program, thread level), or how the recording ends.",
              "Nothing, unless verify finds a divergence.");
RESIL_MESSAGE(threads_unordered, note,
              "MPI_THREAD_MULTIPLE: each thread's calls are recorded, the order between threads is not",
              "Threads that share work may take it in another order.", "Nothing.");
RESIL_MESSAGE(thread_ends_early, note, "verify: thread %u ends after call %llu, in the recording it goes on",
              "The thread made fewer calls than in the recorded run.", "See the rank's finding.");
RESIL_MESSAGE(no_stream, note, "verify: %s", "A thread could not be matched with a recorded one.", "Nothing.");
RESIL_MESSAGE(not_ignored, log_note,
              "RESIL_VERIFY_IGNORE: %s is in an MPI library or a language binding and is not ignored: every call goes "
              "through it",
              "To ignore that place would leave the calls of the whole program unverified.",
              "Name the program's own call site, as a finding prints it.");
RESIL_MESSAGE(thread_given_up, note, "verify: the calls of thread %u are not compared from call %" PRIu64 " on: %s",
              "What the thread does from there on is not verified.", "Nothing.");
RESIL_PHRASE(threads_alike,
             "other threads begin with the same call from the same place, so it is not known whose recording this is");
RESIL_PHRASE(thread_went_elsewhere, "it went another way, as threads may whose order is not recorded");
RESIL_MESSAGE(stream_ends, note,
              "verify: the recording of stream %u ends after call %" PRIu64 "; what came after it is not verified (%s)",
              "The recorded run ended there, or its file is cut off.", "Record again, to the end.");
RESIL_MESSAGE(others_ended, note,
              "verify: stream %u differs after call %" PRIu64
              ", where the recording of another rank has ended; from there on it is not verified",
              "The recorded run ended, or was killed, and one rank's file reaches further than another's: what a rank "
              "does past its end others may receive.",
              "Record again, to the end.");
RESIL_MESSAGE(damaged, log_note, "verify: %s; nothing after it is verified", "A block of the recording is damaged.",
              "Record again; look at the file system.");

RESIL_MESSAGE(to_ignore, log,
              "verify: differences of rank %d whose cause is only suspected: %" PRIu64
              ". If these data may differ: RESIL_VERIFY_IGNORE=%s",
              "The run went on past differences whose cause may be something that no recording holds. The value names "
              "every call site, or caller of one, that would have to be ignored, and those that are ignored already.",
              "Look at the sources in the findings. If these data may differ, set the variable as it stands there.");
RESIL_MESSAGE(
    may_not_be_ignored, log_note,
    "verify: call sites at which data differ and that must not be ignored: %u. RESIL_VERIFY_IGNORE would "
    "hide more there "
    "than these differences (member sites of the report)",
    "The site is not in the program's own code, or most of what is compared there agrees, for each of its callers, "
    "too.",
    "Take the source away (fix the seed, switch timing output off).");
RESIL_MESSAGE(
    too_many_to_ignore, log_note,
    "verify: more than one value in ten differs, for a cause that is only suspected (%s). Nothing is advised for "
    "RESIL_VERIFY_IGNORE: too little would be compared",
    "The whole run depends on something that no recording holds, most often the seed of random numbers.",
    "Fix the seed, or record and verify with RESIL_RECORD_TIME=all if it comes from a clock.");
RESIL_PHRASE(site_not_own,
             "the call site is not in the program's own code, so that every call of the program would be ignored");
RESIL_PHRASE(site_mostly_agrees,
             "most values compared at this call site agree, and none of them would be compared any more");
RESIL_PHRASE(place_proved, "proved: the runs part here, in this rank");
RESIL_PHRASE(
    input_proved,
    "proved: no rank has gone on past a difference, so that the data changed on the way or in this rank's memory");
RESIL_PHRASE(goes_on,
             "the cause is only suspected; a single number is taken from the recording, an array stays as it is");
RESIL_PHRASE(goes_on_unlike, "the cause is only suspected; this thread is not compared any further");

// --- findings ---
RESIL_FINDING(
    output_differs,
    "Rank %d on %s sends other data than recorded in %s (call %" PRIu64
    " at %s), although everything it received so far agrees. The two runs diverge in this rank, after %s.",
    "The rank computed another value from the same inputs. Proved: no source is open that verify knows of. Suspected: "
    "one "
    "is, the evidence names it, and the job goes on.",
    "look at what the rank computes between these two calls. If that may differ from run to run (times, random "
    "seeds), set if_it_may_differ; if it may not, run again: the same rank on another node tells the program "
    "from the hardware.");
RESIL_FINDING(logged_differs,
              "Rank %d on %s logged another value than recorded after call %" PRIu64
              ", although everything it received so far agrees. The two runs diverge in this rank, after %s.",
              "As record.output_differs, for a value given to resil_norm, resil_count or resil_checksum.",
              "look at what the rank computes between these two calls; run again with the rank on another node.");
RESIL_FINDING(input_differs,
              "Rank %d on %s received other data than recorded from %s in %s (call %" PRIu64
              " at %s), although everything it sent so far agrees. The sender compared it before: if no other rank "
              "diverges first, "
              "the data changed on the way, or in this rank's memory after it had arrived.",
              "Senders compare before they send: data that is wrong only at the receiver changed on the way.",
              "run again with RESIL_MODE=checksum RESIL_BLAME=full, which tells MPI, network and memory apart.");
RESIL_FINDING(
    stuck,
    "Rank %d on %s: %s (call %" PRIu64
    " at %s) has waited %.0f s for what it received in the recorded run: %s. This run took another way, or is "
    "slower than RESIL_VERIFY_SECONDS allows.",
    "The recorded message does not come, so the choice of the recorded run cannot be repeated.",
    "see the findings of the rank it waits for; if the run is slow, raise RESIL_VERIFY_SECONDS.");
RESIL_FINDING(call_differs,
              "Rank %d on %s: %s at %s is not what the rank did in the recorded run after %s, although everything it "
              "received so far agrees",
              "The rank makes another call, or another choice, than in the recorded run.",
              "look at the decision the rank takes between these two calls (input, environment, time).");

RESIL_PHRASE(choices_end, "choices of MPI's that the leading part has not made in time");
RESIL_PHRASE(choices_differ, "calls in which MPI chooses, and which the leading part has not made");
RESIL_PHRASE(choices_stuck, "messages that came in the leading part, and do not come here");
RESIL_MESSAGE(
    choices_lost, note, "replicas: from here on MPI chooses in this rank by itself: %s",
    "This part of the job has diverged from the leading one in what it asks MPI for, or waits too long for it.",
    "See the finding of the job, if there is one. RESIL_REPLICAS_SECONDS is how long a part waits.");

}  // namespace resil::messages::record
