// SPDX-License-Identifier: Apache-2.0
//
// What replicas say. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::replicas {

RESIL_PHRASE(does_not_divide,
             "RESIL_REPLICAS=%d needs a number of ranks that it divides, and this job has %d; start %d or %d ranks");
RESIL_PHRASE(not_everywhere,
             "RESIL_REPLICAS=%d needs resil in all %d ranks, before MPI_Init, and some rank is without it");
RESIL_PHRASE(
    other_program,
    "RESIL_REPLICAS=%d runs the same program in each part of the job, and rank %d runs another one, or with other "
    "arguments, than rank %d");
RESIL_PHRASE(
    list_does_not_fit,
    "RESIL_REPLICAS_RANKS=%.100s names rank %d, and with RESIL_REPLICAS=%d this job of %d ranks has %lld for the "
    "program, besides %lld copies; start %lld ranks or more");
RESIL_PHRASE(list_alone, "RESIL_REPLICAS_RANKS names ranks to be replicated, and needs RESIL_REPLICAS=2 or 3");
RESIL_PHRASE(other_list, "RESIL_REPLICAS_RANKS differs between rank 0 and rank %d");
RESIL_PHRASE(list_and_threads,
             "RESIL_REPLICAS_RANKS cannot follow calls of several threads, and MPI was initialised with "
             "MPI_THREAD_MULTIPLE");
RESIL_PHRASE(list_and_mode, "RESIL_REPLICAS_RANKS goes with RESIL_MODE=watch and checksum, not with %.60s");
RESIL_PHRASE(sessions_only, "RESIL_REPLICAS needs a program that calls MPI_Init, and this one uses sessions");
RESIL_PHRASE(no_directory,
             "RESIL_REPLICAS needs the report directory for the files of replicas, and it cannot be written");
RESIL_PHRASE(no_split, "RESIL_REPLICAS could not split MPI_COMM_WORLD: MPI returned an error");

RESIL_MESSAGE(
    refused_call, log_note,
    "replicas: the program calls %s, which cannot be done once in each part of a job. Stopping with exit status "
    "93.",
    "RESIL_REPLICAS is set, and the call starts processes, meets another job, or uses sessions.",
    "Run this program without RESIL_REPLICAS, or, where it starts processes, with RESIL_REPLICAS_RANKS.");
RESIL_MESSAGE(
    share_node, log_note,
    "replicas: rank %d and its partner rank %d are both on %s, though the job has %d nodes: what goes wrong with "
    "the node goes wrong in both. Place ranks in the order of nodes (mpirun --map-by core, srun -m block)",
    "Partners are the ranks of the same number in each part of the job; parts are blocks of ranks.",
    "Let the launcher fill node after node, with as many nodes for each part.");
RESIL_MESSAGE(one_node, note, "replicas: all parts of this job are on one node",
              "What goes wrong with the node's own parts may go wrong in all replicas.", "Nothing, or use more nodes.");
RESIL_MESSAGE(
    not_kept, note,
    "replicas: %llu files of more than 64 MiB were changed in place, and not kept for parts that may not have read "
    "them yet",
    "Part 0 had a file open for writing that was there before. Another part that reads it later reads what "
    "part 0 has written.",
    "If replicas disagree after such a file was read, let the program write its results elsewhere.");

RESIL_MESSAGE(
    given_up, log_note,
    "replicas: rank %d has no copies any more: %s cannot be handed to them (%s). The program goes on",
    "Copies of some ranks only are told what their leaders' calls have brought, and this call brings what they cannot "
    "be "
    "told.",
    "Run with RESIL_REPLICAS alone, which replicates all ranks, or leave this rank out of RESIL_REPLICAS_RANKS.");

RESIL_MESSAGE(copy_left, note, "replicas: this copy has left the program in %s: %s",
              "A copy of some ranks only has taken another way than its leader, and can be told nothing any more.",
              "See the finding: the two have diverged.");

RESIL_MESSAGE(something_differs, log,
              "replicas: what ranks %s give MPI differs in %s. What follows is compared before it is told whether "
              "anything depends on it",
              "Replicas have given different data. That may be a flipped bit, or memory that the program has sent "
              "without having initialised it: then nothing that it gives later differs.",
              "Wait for the finding: it comes as soon as that is known, at the end of the job at the latest.");
RESIL_FINDING(no_consequence,
              "what ranks %s give MPI differs in %s, and nothing that they have given or got since then depends on it: "
              "the program has sent memory that it has not initialised, or a flip was overwritten. Parts are compared "
              "as before",
              "Bytes differ, and all words of other kinds agree after it. Words of this kind are not told any more; "
              "`without_consequence` in the report counts them.",
              "nothing, if the finding comes in each run: the program sends bytes that nobody reads. If it comes once, "
              "a bit "
              "has flipped where it did no harm.");
RESIL_FINDING(parts_differ,
              "ranks %s run the same program on the same data and have diverged: what each %s differs first in %s",
              "The parts of the job computed different data. With two parts nobody can tell which of them is right.",
              "run again: if the finding comes back at the same call, the program's result differs from run to run "
              "(uninitialised memory, the order of threads, a clock, reductions: set RESIL_REDUCE=order); if not, a "
              "rank has computed "
              "wrongly once: RESIL_REPLICAS=3 tells which one.");
RESIL_FINDING(
    one_differs,
    "rank %d on %.60s has diverged from its partners: what it %s differs first in %s; of ranks %s the others agree",
    "Two parts of the job computed the same, one something else.",
    "keep jobs off %.60s if the finding comes back there, and send this report directory to the facility; if it comes "
    "back "
    "elsewhere at the same call, the program's result differs from run to run.");
RESIL_FINDING(
    one_got_other,
    "rank %d on %.60s has diverged from its partners: what it has got from MPI differs first in %s; of ranks %s the "
    "others agree, and so does all that any rank of its part has given to MPI",
    "Data changed after the rank that gave it had been looked at: in that rank's memory, on the way, or in the memory "
    "of "
    "the rank that got it.",
    "run again with RESIL_MODE=checksum, which tells the sender's memory from the way; the part of the job is known, "
    "the rank is not.");
RESIL_FINDING(
    part_dropped,
    "part %d of the job has been dropped: rank %d%s on %.60s has not answered for %.0f s. The others go on without it, "
    "and end by MPI_Abort, with the program's own exit status: MPI_Finalize would wait for that rank",
    "A rank of that part has stopped, or its part waits for such a rank; the leading part did not wait any longer.",
    "look at rank %d: resil why, or the stacks that hang detection writes, say where it is. A part that is only slow "
    "is waited for with a larger RESIL_REPLICAS_SECONDS.");
RESIL_FINDING(part_died,
              "part %d of the job has been dropped: rank %d on %.60s has died. The other parts go on without it",
              "The MPI library goes on after the death of a rank; the other ranks of that part have been ended.",
              "see why rank %d died: its last words, or the kernel's, on that node.");
RESIL_MESSAGE(
    not_replaced, log_note,
    "replicas: part %d of the job leads and is stuck at rank %d, and no other part can take its place: %s",
    "A rank of the leading part has stopped. Another part goes on in its place only where it is known to do the same.",
    "See resil why for the rank that has stopped. RESIL_REPLICAS_FOLLOW=all, and a program that asks for nothing that "
    "differs from part to part, let another part take its place.");
RESIL_MESSAGE(
    output_lost, log_note,
    "replicas: this rank's part was to lead in the place of another one, and %s: the job ends with exit status 90",
    "What the part that led before has written to standard output does not show what was still to be written.",
    "Run the job again. What this part has written lies in part-N/ in the report directory.");
RESIL_MESSAGE(
    not_in_place, log_note,
    "replicas: the files that the program has written lie in part-%d/ in the report directory, and not all could be "
    "put where the program wrote them",
    "Another part came to lead, and its files were to replace those of the part that led before.",
    "Copy them from there: each has its whole path below that folder; REPLICAS.md says how files are marked that the "
    "program has removed.");
RESIL_MESSAGE(threads_not_compared, note, "replicas: with MPI_THREAD_MULTIPLE parts are not compared",
              "The calls of several threads have no order of their own.", "Nothing; or use MPI_THREAD_SERIALIZED.");

RESIL_MESSAGE(
    windows, log_note,
    "replicas: the program makes a window (%s), and parts share a node: Open MPI 4.1 and MPICH 4.0 mix up windows of "
    "communicators that were made by a split. Put each part on nodes of its own",
    "Parts are communicators made by a split. These libraries name a window's shared memory alike in each.",
    "Give each part nodes of its own, or use a newer MPI.");

}  // namespace resil::messages::replicas
