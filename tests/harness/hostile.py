# SPDX-License-Identifier: Apache-2.0
"""Hostile programs (tests/hostile), natively and preloaded: the same standard output, what each rank saw, files, exit
status; and no finding.

A job runs many cases of a program; when it differs, each case runs alone, so that the failure names it.
"""
import glob
import json
import os
import re
import subprocess

from . import mpi as jobs
from . import report as reports, transparent

MODES = {
    "watch": {"RESIL_MODE": "watch"},
    "abort": {"RESIL_HANG": "abort"},
    "lazy": {"RESIL_MODE": "checksum"},
    "strict": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict"},
    "full": {"RESIL_MODE": "checksum", "RESIL_BLAME": "full"},
    "order": {"RESIL_REDUCE": "order"},
    "exact": {"RESIL_REDUCE": "exact"},
    "tree": {"RESIL_REDUCE": "order", "RESIL_REDUCE_P2P": "1"},
    "stage": {"RESIL_STAGE": "on"},
    "record": {"RESIL_MODE": "record"},
    "verify": {"RESIL_MODE": "verify"},
    "most": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full", "RESIL_REDUCE": "exact",
             "RESIL_STAGE": "on", "RESIL_HANG": "abort"},
    "record-most": {"RESIL_MODE": "checksum,record", "RESIL_BLAME": "full", "RESIL_REDUCE": "order",
                    "RESIL_STAGE": "on", "RESIL_HANG": "abort"},
    "verify-most": {"RESIL_MODE": "checksum,verify", "RESIL_BLAME": "full", "RESIL_REDUCE": "order",
                    "RESIL_STAGE": "on", "RESIL_HANG": "abort"},
}
RECORDED = {"verify": "record", "verify-most": "record-most"}  # what a mode reads, and who writes it


class Outcome:
    """What a job let itself be seen to do."""

    def __init__(self, result, out, keep):
        self.result, self.status = result, result.returncode
        # MPICH's launcher says who died; UCX complains with the time, some number of times.
        self.stdout = re.sub(rb"PID \d+", b"PID", re.sub(rb"(?m)^\[\d+\.\d+\] .* UCX .*\n?", b"", result.stdout))
        if keep:
            self.stdout = keep(self.stdout)
        self.seen = {}
        for path in sorted(glob.glob(os.path.join(out, "*"))):
            with open(path, "rb") as file:
                self.seen[os.path.basename(path)] = file.read()

    def difference(self, other):
        """Words for the first difference; None: none."""
        if self.result.timed_out or other.result.timed_out:
            return None if self.result.timed_out == other.result.timed_out else "hangs"
        if self.status != other.status:
            return f"status {self.status} natively, {other.status} preloaded"
        for name in sorted({*self.seen, *other.seen}):
            words = _first_difference(self.seen.get(name, b""), other.seen.get(name, b""))
            if words:
                return f"{name}: {words}"
        return _first_difference(self.stdout, other.stdout)


def _first_difference(native, preloaded):
    if native == preloaded:
        return None
    one, two = native.splitlines(), preloaded.splitlines()
    for number in range(max(len(one), len(two))):
        left, right = (lines[number] if number < len(lines) else b"(nothing)" for lines in (one, two))
        if left != right:
            return f"line {number + 1}: {left[:300]!r} natively, {right[:300]!r} preloaded"
    return "line ends"


def findings(directory):
    """Words for all findings and hangs in a report directory and its sub-directories."""
    found = []
    for folder, _, _ in os.walk(directory or ""):
        for rank, report in reports.load(folder).items():
            found += [f"rank {rank}: {finding.get('kind')}: {finding.get('message')}" for finding in report["findings"]]
        for path in glob.glob(os.path.join(folder, "hang-*.json")):
            try:
                with open(path, encoding="utf-8") as file:
                    hang = json.load(file)
                found.append(f"hang: {hang['class']}: {hang['message']}")
            except (OSError, ValueError, KeyError):
                found.append(f"hang: {path}")
    return found


class Job:
    """A command of some MPI and how it is run. keep(bytes) -> bytes drops from standard output what differs in any two
    runs. What it writes in its directory is compared, too."""

    def __init__(self, mpi, command, ranks=2, env=None, options=(), timeout=240, keep=None, survivors=(),
                 spawns=False):
        self.spawns = spawns
        self.mpi, self.command, self.ranks, self.env = mpi, list(command), ranks, env or {}
        self.survivors = survivors  # ranks that leave a report whatever happens to the others
        self.options, self.timeout, self.keep = list(options), timeout, keep

    def run(self, mode=None, recording=None):
        """One run in a fresh directory; (Outcome, words for findings)."""
        folder = jobs.scratch("hostile-")
        out = os.path.join(folder, "out")
        os.mkdir(out)
        settings = {**MODES[mode], "RESIL_RECORD": recording or os.path.join(folder, "recording")} if mode else {}
        result = jobs.run(self.mpi, self.ranks, self.command, env={**self.env, **settings, "HOSTILE_OUT": out},
                          preload=mode is not None, timeout=self.timeout, options=self.options, cwd=out,
                          directory=os.path.join(folder, "report"), spawns=self.spawns)
        outcome = Outcome(result, out, self.keep)
        said = findings(result.directory) if mode else []
        if mode:
            said += [f"rank {rank} has no report" for rank in self.survivors if rank not in reports.load(result.directory)]
        if mode:
            jobs.remove_rings(result.directory)
        jobs.discard(folder)
        return outcome, said


# When a rank ends without MPI_Finalize, hydra kills the others, and gives either the status of that rank or the SIGKILL of the
# others as the job's: which one depends on whether it reaps that rank before it reads the end of its PMI socket. Natively 1 of
# 30 runs under strace on a busy machine, 0 of 300 without; preloaded 7 of 300. The native status must come in one of these runs.
HYDRA_RETRIES = 4
SIGKILL = 9


def check(job, modes, expect_status=None, allowed=()):
    """Runs natively and in each mode; a list of (mode, words) of what is wrong.

    allowed: patterns of findings that are right for this job."""
    native, _ = job.run()
    if native.result.timed_out or (expect_status is not None and native.status != expect_status):
        return [("native", f"status {native.status}: no fault of the library\n{native.result.text()}")]
    wrong, recordings = [], {}

    def compare(mode, recording=None):
        preloaded, said = job.run(mode, recording)
        for _ in range(2):
            if not preloaded.result.timed_out or job.mpi != "mpich":
                break
            # Debian's MPICH loses messages now and then, without the library too. Where it stood is in the test's output.
            print(f"{mode}: a run did not end; tried again\n{preloaded.result.text()}", flush=True)
            preloaded, said = job.run(mode, recording)
        for _ in range(HYDRA_RETRIES):
            if job.mpi != "mpich" or preloaded.status != SIGKILL or native.status in (0, SIGKILL):
                break
            preloaded, said = job.run(mode, recording)
        words = native.difference(preloaded)
        if words and any(not job.run()[0].difference(preloaded) for _ in range(transparent.NATIVE_RUNS)):
            words = None  # the program ends so by itself, too
        said = [one for one in said if not any(re.search(pattern, one) for pattern in allowed)]
        if words or said:
            text = preloaded.result.stderr.decode(errors="replace")
            own = [line for line in text.splitlines() if "resil" in line][:6]
            if preloaded.result.timed_out:
                last = [f"{name}: {data.splitlines()[-1][:200]!r}" for name, data in preloaded.seen.items() if data]
                own += [f"last line of {one}" for one in last] + preloaded.result.standing.splitlines()
            wrong.append((mode, "; ".join(filter(None, [words, *said[:3]])) + "".join("\n      " + line for line in own)))

    for mode in modes:
        recorded = mode if mode in RECORDED.values() else RECORDED.get(mode)
        if recorded and recorded not in recordings:
            # Looked at like any other run: what it did not record, no run can be verified against.
            recordings[recorded] = os.path.join(jobs.scratch("hostile-"), "recording")
            compare(recorded, recordings[recorded])
        if mode != recorded:
            compare(mode, recordings.get(recorded))
    for path in recordings.values():
        jobs.discard(os.path.dirname(path))
    return wrong


def same(job, modes, status=0):
    """A check for run_checks(): the job is the same natively and in the modes, and no finding."""
    wrong = check(job, modes, status)
    assert not wrong, "\n".join(f"  {mode}: {words}" for mode, words in wrong)
    return f"{len(modes)} modes"


def cases_of(program):
    """The names that a program lists when it is given none."""
    return subprocess.run([program], check=True, capture_output=True, timeout=60).stdout.decode().split()


def check_together(make_job, cases, modes, status=0, allowed=()):
    """Runs the cases in one job in each mode; the cases one by one in the modes that differ. Raises with what is wrong.

    make_job(cases) -> Job"""
    wrong = check(make_job(cases), modes, status, allowed)
    if not wrong:
        return f"{len(cases)} cases, {len(modes)} modes"
    bad = [mode for mode, _ in wrong]
    if bad == ["native"] or len(cases) == 1:
        raise AssertionError("\n".join(f"  {mode}: {words}" for mode, words in wrong))
    text = [f"  together, {mode}: {words}" for mode, words in wrong]
    for case in cases:
        print(f"  {case} …", flush=True)
        for mode, words in check(make_job([case]), bad, status, allowed):
            text.append(f"  {case}, {mode}: {words}")
    raise AssertionError("\n".join(text))


# (MPI or None, program, case): why it is not run there.
LEFT_OUT = {
    ("mpich", "process", "threads_on_one_tag"): "hangs natively",
    ("mpich", "process", "connects"): "Debian's build, on UCX, has no MPI_Comm_accept: it crashes natively",
    ("mpich", "ends", "main_is_gone"): "UCX fails natively when the main thread has ended",
    ("mpich", "ends", "exec_without_finalize"): "its launcher's status is 0 or 1 natively",
    ("mpich", "ends", "sig_term"): "its launcher's status is 9 or 15 natively (3 of 60 runs), 0 or 15 from 4.1 on",
    (None, "ends", "stderr_closed_before"): "what is file 2 in MPI_Init may be what the user redirected to",
    ("mpich", "mpi4", "persistent_collectives"): "MPICH 4.0.2 itself hangs in some runs, and delivers old data in others",
    ("openmpi", "requests", "buffered"): "hangs natively after the second MPI_Buffer_attach",
    ("openmpi", "ulfm", "exited"): "who exits without MPI_Finalize is no failure for Open MPI 5.0.7: the others wait for ever",
}
# The same for MPICH from a version on: {(program, case): (version, why)}.
LEFT_OUT_MPICH = {
    ("types", "nothing"): ((4, 1), "a message of a type without bytes divides by zero natively (4.2.1, 5.0.2)"),
    ("ends", "finalize_in_destructor"): ((4, 1), "the launcher may end the other rank natively before its last line"),
    ("ends", "exec_after_finalize"): ((4, 1), "the launcher may end the other rank natively before its last line"),
    ("ends", "abort_self"): ((4, 1), "its launcher's status is 0 or 12 natively"),
    ("arguments", "errors"): ((5,), "5.0.2 ends the job natively for an operator with a null datatype"),
    ("spawn", "multiple"): ((5,), "5.0.2 hangs or aborts natively in many runs"),
}
# And before one.
LEFT_OUT_OLD_MPICH = {
    ("requests", "truncation_others"): ((4,), "3.4.1 hangs natively: MPI_Sendrecv of a message that is too long, and already there, sends nothing"),
    ("arguments", "one_sided"): ((4,), "3.4.1 is ended by SIGSEGV natively"),
    ("arguments", "insignificant"): ((4,), "3.4.1 hangs natively where arguments are not significant"),
    ("arguments", "no_handles"): ((4,), "3.4.1 is ended by SIGSEGV natively in MPI_Cancel of no address"),
    ("types", "deep"): ((4,), "3.4.1 ends the job natively, in an assertion about the depth of a datatype"),
}
# And behind the standard ABI.
LEFT_OUT_ABI = {
    ("mpich", "files", "errors"): "5.0.2 crashes natively in MPI_File_get_size of MPI_FILE_NULL",
    (None, "arguments", "no_handles"): "5.0.2 and 6.0.0rc2 are ended by SIGSEGV natively in MPI_Waitall of two requests without an address",
}
# And for Open MPI: {(program, case): (from this version on, before that one, why)}.
LEFT_OUT_OPENMPI = {
    ("files", "errors"): ((4, 1), (4, 1, 1), "4.1.0 crashes natively in MPI_File_open of a file that is not there"),
    ("process", "connects"): ((5,), (6,), "5.0.7 hangs natively in most runs: docs/PLATFORMS.md"),
    ("process", "threads_on_one_tag"): ((6,), (7,), "6.0.0rc2 hangs natively in many runs: docs/PLATFORMS.md"),
    ("spawn", "multiple"): ((5,), (6,), "5.0.7 crashes natively when it is given two commands"),
}
_TIMING = "the number of its calls depends on time alone, which no recording can give back"
# Modes in which a case is not run, and why.
NOT_IN = {
    (None, "requests", "freed_active"): (("verify", "verify-most"), _TIMING),
    (None, "process", "connects"): (("verify", "verify-most"), "the name of a port, which the program sends, differs in every run"),
    (None, "requests", "cancelled_in_a_race"): (("verify", "verify-most"), _TIMING),
}


def left_out(table, mpi, name, case):
    return table.get((mpi, name, case)) or table.get((None, name, case))


def checks_of(program, name, options):
    """[(name, callable)] for run_checks(): the program's cases in one job, or one by one. options: mpi, modes, cases,
    single."""
    cases = [case for case in cases_of(program) if not options.cases or case in options.cases]
    cases = [case for case in cases if not left_out(LEFT_OUT, options.mpi, name, case)]
    for case in cases[:]:
        if options.mpi == "mpich":
            version, why = LEFT_OUT_MPICH.get((name, case), ((99,), ""))
            gone = jobs.mpich_version() >= version
            if not gone:
                version, why = LEFT_OUT_OLD_MPICH.get((name, case), ((0,), why))
                gone = jobs.mpich_version() < version
        else:
            first, beyond, why = LEFT_OUT_OPENMPI.get((name, case), ((99,), (99,), ""))
            gone = first <= jobs.openmpi_version() < beyond
        if not gone and jobs.standard_abi(options.mpi):
            why = left_out(LEFT_OUT_ABI, options.mpi, name, case)
            gone = why is not None
        if gone:
            print(f"left out {name} {case}: {why}", flush=True)
            cases.remove(case)
    if options.fast and name in ALONE:
        cases = [case for case in cases if case in FAST]
    apart = [case for case in cases if left_out(NOT_IN, options.mpi, name, case)]

    def make(some):
        return Job(options.mpi, [program, *some], ranks=RANKS.get(name, 2), timeout=options.timeout,
                   options=OPTIONS.get((options.mpi, name), ()), survivors=(0, 1) if name == "ulfm" else (), spawns=name == "spawn")

    def modes_of(group):
        out = left_out(NOT_IN, options.mpi, name, group[0])
        return [mode for mode in options.modes if not (out and mode in out[0])]

    if options.single or name in ALONE:
        groups = [[case] for case in cases]
    else:
        groups = [[case for case in cases if case not in apart], *([case] for case in apart)]
    status = None if name in ANY_END else 0
    return [(f"{name} ({options.mpi})" + (f" {group[0]}" if len(group) == 1 else ""),
             lambda group=group: check_together(make, group, modes_of(group), status, ALLOWED.get(name, ()))) for group in groups if group]


PROGRAMS = ("requests", "types", "arguments", "process", "churn", "mpi4", "mpi41", "spawn", "files", "loads", "ulfm", "ends")
# What the launcher is told for a program, and ranks of those that do not have two.
OPTIONS = {("openmpi", "spawn"): ("--oversubscribe",),
           ("openmpi", "ulfm"): ("--oversubscribe", "--with-ft", "ulfm", "--enable-recovery")}
RANKS = {"ulfm": 4}


def compiled(mpi, name):
    """The program, compiled for this MPI in a scratch directory; None where the MPI lacks what it is about."""
    source = os.path.join(jobs.ROOT, "tests", "hostile", name + ".c")
    syntax = [f"mpicc.{mpi}", "-fsyntax-only", "-Werror=implicit-function-declaration", source]
    if name in ("mpi4", "mpi41") and subprocess.run(syntax, capture_output=True, check=False).returncode != 0:
        return None
    program = os.path.join(jobs.scratch(), f"{name}.{mpi}")
    line = [f"mpicc.{mpi}", "-std=gnu11", "-O1", "-g", "-w", "-pthread", "-Wl,--as-needed", source, "-ldl"]
    subprocess.run([*line, "-o", program], check=True)
    if name == "loads":
        subprocess.run([*line, "-DPLUGIN", "-shared", "-fPIC", "-o", program + ".so"], check=True)
    return program


# Programs whose cases end the process, or cannot share a job: Open MPI 4.1.4 hangs natively after some ten spawned worlds.
ALONE = ("ends", "loads", "ulfm", "spawn")
ANY_END = ("ends", "loads")  # programs that end as their MPI wills
# Findings that are right: rank 0 waits for the rank that has ended (rank_0_waits in ends.c), and a launcher that a busy machine keeps
# from running has not ended it when that is proved.
ALLOWED = {"ends": (r"^hang: rank_gone: Rank 0 waits in MPI_Recv from rank 1, tag 555, ",)}
# Ways to end that have no other test, for the suite; the campaign runs all.
FAST = ("init_multiple", "init_twice", "finalize_twice", "main_is_gone", "finalize_in_destructor", "no_finalize_one",
        "exit_in_a_thread", "abort_256", "abort_self", "abort_in_a_thread", "sig_term", "stack_overflow",
        "exit_in_handler", "jump_from_handler", "exit_in_operator", "thread_in_mpi_at_exit", "exec_after_finalize",
        "callbacks_in_finalize", "abort_in_finalize", "data_at_stderr", "nobody_reads_stderr", "limits_files",
        "limits_descriptors", "limits_memory", "another_user", "environment_gone", "directory_gone", "stopped",
        "again_by_default", "plugin_local", "started_behind", "weak_references", "multiple", "freed_in_use",
        "killed", "two_killed", "acknowledged", "pending", "duplicates", "agreed_later", "sums_of_reals",
        "revoked_alone")
