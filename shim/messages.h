// SPDX-License-Identifier: Apache-2.0
//
// What the core says. See shim/report/message.h.
#pragma once

#include "shim/report/message.h"

namespace resil::messages::core {

RESIL_MESSAGE(
    finished, log,
    "%s: %s on %d rank%s, %s; %s MPI call%s on rank 0, set-up and recorder %s %% of its time (estimate); %s%s; next: "
    "resil report %s",
    "The closing line of the job: verdict as far as rank 0 knows it, modes, ranks, MPI library, calls of rank 0 and "
    "what "
    "recording them and setting up took of its time, by estimate (docs/REPORT.md), how it ended, what was checked, and "
    "where the reports are.",
    "resil report DIR, which reads all ranks' reports.");
RESIL_MESSAGE(finished_without_reports, log, "%s on %d rank%s, %s; %s; NO reports: %s",
              "The closing line of a job whose reports could not be written; the reason is the system's.",
              "Set RESIL_DIR to a directory that you may write to.");
RESIL_MESSAGE(report_not_written, log,
              "rank %d on %s cannot write %s: %s. The program goes on; this rank's report is incomplete.",
              "A file of the report could not be written: a full or read-only file system, or a quota.",
              "Make room, or set RESIL_DIR to another file system.");
RESIL_MESSAGE(no_directory, log,
              "no reports from rank%s %s: %s. The job goes on without these files. To do: set RESIL_DIR to a directory "
              "that every node can write to.",
              "Before MPI_Init these ranks could not make or write the report directory.",
              "Set RESIL_DIR to a directory that every node can write to.");
RESIL_MESSAGE(directory_used, log, "%s holds the reports of another run. The reports of this run are in %s",
              "A directory never gets the reports of two launches.", "Nothing; or name a new directory in RESIL_DIR.");
RESIL_MESSAGE(directory_foreign, log, "%s belongs to another user (uid %u). The reports of this run are in %s",
              "resil writes only into directories of the user's own.", "Set RESIL_DIR to a directory of your own.");
RESIL_MESSAGE(directory_shared, log, "everybody may write to %s and so change the reports in it",
              "The directory's permissions let other users change or remove reports.", "chmod go-w DIR");
RESIL_MESSAGE(
    init_not_returned, log, "MPI_Init has not returned for %d s on %s. In it: rank%s %.80s%s%s",
    "The lowest rank of a node says which ranks are inside MPI_Init and which it cannot see.",
    "Look at the ranks that are missing: did they start, and on which node? If all are in it, the launcher or the "
    "network hangs.");
RESIL_MESSAGE(two_libraries, log,
              "two MPI libraries are loaded in this process; resil follows the one that made the first MPI call",
              "Usually the program and one of its libraries were built with different MPIs.",
              "ldd on the program and its libraries shows which one brings the second MPI; rebuild it.");
RESIL_MESSAGE(two_libraries_note, note,
              "two MPI libraries are loaded in this process; calls into the second one are not seen",
              "As core.two_libraries, in the report.", "As there.");
RESIL_MESSAGE(newer_mpi, log_note,
              "this is MPI %d.%d; resil knows MPI up to 5.0: calls of newer functions are not seen",
              "Newer functions go straight to MPI: they are neither recorded nor checked.",
              "Nothing; or update resil.");
RESIL_MESSAGE(
    unknown_abi, log,
    "resil is off and the program runs without it: %s has an unknown binary interface (neither Open MPI, nor the MPICH "
    "family, nor the standard ABI 1.x)",
    "resil cannot read this library's handles and statuses.", "docs/PLATFORMS.md lists the MPIs that were run.");
RESIL_MESSAGE(no_mpi, log, "an MPI function was called, but no MPI library can be found in this process",
              "The program would not have run without resil either; it ends with status 127.",
              "Link the program with MPI, or load the MPI library before the first call.");
RESIL_MESSAGE(no_recorder, log, "no memory for the flight recorder: this process runs without resil",
              "The process could not map the memory of its ring file.",
              "Look at the memory limit of the job (ulimit -v).");
RESIL_MESSAGE(
    recorder_anonymous, note,
    "the flight recorder is in private memory, because /dev/shm is full or missing: a killed process leaves no record",
    "The ring file could not be made in /dev/shm.", "df /dev/shm on that node; remove what dead jobs left there.");
RESIL_MESSAGE(
    srun_without_pmi, note,
    "srun started this process without a PMI: MPI_Init fails, or each process is alone. Use srun --mpi=pmix or "
    "--mpi=pmi2 (srun --mpi=list shows what there is).",
    "No process manager connects the ranks.", "Add --mpi= to the srun line.");
RESIL_MESSAGE(
    sessions_only, note, "sessions without MPI_COMM_WORLD: this rank is watched alone (no private communicator)",
    "Without MPI_COMM_WORLD resil has no communicator for its own messages, so nothing is compared between ranks.",
    "Nothing.");
RESIL_MESSAGE(initialised_unseen, note,
              "MPI was initialised before resil could see it (static or hidden MPI_Init): this rank is watched alone",
              "The call of MPI_Init did not go through the library's exported function.",
              "Link MPI dynamically; docs/LIMITS.md lists what cannot be seen.");
RESIL_MESSAGE(many_threads, note,
              "more than 32 threads call MPI at a time: calls of the others are counted approximately",
              "The other threads share one trace buffer.", "Nothing.");
RESIL_MESSAGE(many_requests, note, "requests shown as pending may be complete: no memory for their handles",
              "A completing call had more requests than could be followed.", "Nothing.");

RESIL_MESSAGE(
    not_published, log_note,
    "rank %d could not tell the other ranks that it is preloaded (%s). Nothing is compared between ranks; each "
    "rank is watched alone.",
    "The rank's entry did not reach the others by the carrier that is named.",
    "docs/ARCHITECTURE.md, Presence, names the carriers; set RESIL_DIR to a directory that all nodes share.");
RESIL_MESSAGE(
    ranks_missing, log_note,
    "resil: rank%s %s of %d run%s without resil%s. Nothing is compared between ranks; each of the others is watched "
    "alone.%s Preload every rank: %s.",
    "Some ranks are not preloaded. resil then sends no message, since these ranks would not answer.",
    "Give LD_PRELOAD to every rank by the launcher's own option, as the line shows.");
RESIL_PHRASE(or_elsewhere, ", or on nodes that do not share this report directory");
RESIL_PHRASE(
    share_directory,
    " Ranks find each other by files there under this launcher: set RESIL_DIR to a directory that all nodes share.");
RESIL_MESSAGE(
    ranks_disagree, log,
    "resil: the ranks of this job disagree:%s. Give all ranks the same library and the same variables. Stopping with "
    "exit status 93.",
    "Ranks were started with different versions of resil or different RESIL_ variables.",
    "Under Open MPI name every variable with -x for every part of the job.");
RESIL_MESSAGE(value_not_allowed, log, "resil: %s='%s%s': %s%s%s%s; allowed: %s%s%s%s. Stopping with exit status 93.",
              "A RESIL_ variable has a value that is not allowed. The job stops in MPI_Init.",
              "Take one of the allowed values, which docs/CONFIGURATION.md explains, or unset the variable.");
RESIL_MESSAGE(unknown_variable, log, "resil: %s is not a variable of resil and has no effect%s%.*s%s.",
              "A variable in the environment begins with RESIL_ and is none.", "Correct its name, or unset it.");
RESIL_MESSAGE(site_line, log, "resil: %s, line %zu: '%s': %s%s%s%s; the line is ignored.",
              "A line of the site's file of settings cannot be meant. Jobs run as if it were not there.",
              "Tell the administrator; docs/INSTALL.md has the form of the file.");
RESIL_MESSAGE(site_file, log, "resil: %s is not used: %s.",
              "The site's file of settings, or the one that RESIL_CONF names, is not believed or cannot be read.",
              "It must be a regular file of root's or of the user's, to which nobody else may write.");
RESIL_MESSAGE(more_unknown_variables, log, "resil: %zu more RESIL_ variables are not known; they have no effect.",
              "As core.unknown_variable, for more than sixteen.", "As there.");
RESIL_PHRASE(further_findings, "further findings of this rank go to its report only");

}  // namespace resil::messages::core
