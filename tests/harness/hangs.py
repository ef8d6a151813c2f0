# SPDX-License-Identifier: Apache-2.0
"""One hang in one real program, and what was said of it when.

Used by scripts/campaign hangs. The truth comes from tests/faults/hang_inject.c: who hung, how and at which instant.
What was said comes from RESIL_DIR/hang-N.json (findings) and hang.log (suspicions).
"""
import json
import os
import re
import subprocess
import sys
import time

from . import mpi as jobs, report as reports
from .findings import HangLog

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import ring  # noqa: E402

SOURCE = os.path.join(jobs.ROOT, "tests", "faults", "hang_inject.c")
# The rank computes, or seems to, and never comes back.
OF_RANK = ("sleep", "spin", "stop", "lock", "io")
# The rank is gone and its launcher leaves the others alone.
GONE = ("exit", "kill")
# The rank calls what nobody else does.
OF_CALLS = ("skip", "reorder", "tag")
# The rank stays inside of the MPI library.
INSIDE = ("inside",)
CLASSES = OF_RANK + GONE + OF_CALLS + INSIDE
# Launchers that must not end the job because a rank is gone. Told to recover, Open MPI's ends with 0 whatever its ranks do.
LEAVE_ALONE = {("openmpi", "exit"): ["--mca", "orte_allowed_exit_without_sync", "1"],
               ("openmpi", "kill"): ["--enable-recovery"],
               ("mpich", "exit"): ["-disable-auto-cleanup"], ("mpich", "kill"): ["-disable-auto-cleanup"]}
SETTLE = 3  # seconds after the first finding, for what else is said
END = 15  # seconds that RESIL_HANG=abort may take; 10 are promised


def injector(mpi):
    output = os.path.join(jobs.scratch(), f"hang_inject.{mpi}.so")
    subprocess.run([f"mpicc.{mpi}", "-std=gnu11", "-O1", "-g", "-w", "-shared", "-fPIC", "-o", output, SOURCE, "-ldl",
                    "-lrt"], check=True)
    return output


def injection(kind, rank, after):
    if kind == "inside":
        return f"sleep,rank={rank},after={after:.3f},where=mpi"
    return f"{kind},rank={rank},after={after:.3f}"


class Outcome:
    """What became of one run. Delays in seconds from the injection; None: did not happen."""

    def __init__(self, workload, kind, rank, action, nodes):
        self.program, self.mpi, self.ranks = workload.name, workload.mpi, workload.ranks
        self.kind, self.rank, self.action, self.nodes = kind, rank, action, nodes
        self.injected = self.hung = False
        self.noticed = self.suspected = self.found = self.ended = None
        self.finding_class = self.confidence = self.status = self.message = None
        self.culprits = []
        self.false_alarms = self.early_suspicions = 0
        self.where = ""

    @property
    def right(self):
        """Whether the rank is named, and nobody else. A message whose tag is not the expected one has two ends: nobody
        can tell which of them is wrong."""
        both_ends = self.kind == "tag" and len(self.culprits) == 2 and self.rank in self.culprits
        return self.culprits == [self.rank] or both_ends

    @property
    def alone(self):
        """Whether nobody is left on the rank's (simulated) node who could tell what became of it."""
        return self.nodes == 1 and self.kind in ("stop", *GONE)

    @property
    def wrong(self):
        """Whether somebody else is named. Of two ranks that disagree on a collective, nobody can be."""
        return self.found is not None and bool(self.culprits) and not self.right

    def failed(self):
        """Missed, somebody wrongly accused, or not ended as promised."""
        if self.false_alarms or (self.hung and self.found is None):
            return True
        return self.found is not None and (self.wrong or not self.ended_well())

    def ended_well(self):
        """Whether RESIL_HANG=abort did what it promises, as far as the launcher tells."""
        if self.action != "abort" or (self.mpi, self.kind) == ("openmpi", "kill"):
            return self.action != "abort" or self.ended is not None
        return self.status == 92

    def row(self):
        return {**self.__dict__, "right": self.right}

    def text(self):
        found = (f"{self.confidence} {self.finding_class}, culprits {self.culprits}, {self.found:.1f} s"
                 if self.found is not None else "not found" if self.hung else "did not hang")
        suspected = f", suspected {self.suspected:.1f} s" if self.suspected is not None else ""
        suspected += f", noticed {self.noticed:.1f} s" if self.noticed is not None else ""
        false = f", {self.false_alarms} FALSE ALARMS" if self.false_alarms else ""
        return (f"{self.program} {self.mpi}×{self.ranks} {self.kind} rank {self.rank} ({self.where or 'not injected'}): "
                f"{found}{suspected}, status {self.status}{false}")


def _read_log(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def progress(directory):
    """{rank: calls so far} from the live flight recorders; tests and probes are no progress."""
    counted = {}
    for path in reports.rings(directory):
        try:
            with ring.Ring(path) as file:
                counted[path] = sum(count for name, (count, _, _) in file.calls().items()
                                    if "robe" not in name and "Test" not in name)
        except ring.RingError:
            pass
    return counted


def went_on(directory):
    """Whether every rank made calls within some seconds: the injection did not hang this program."""
    before = progress(directory)
    time.sleep(SETTLE)
    after = progress(directory)
    return bool(before) and all(after.get(path, 0) > count for path, count in before.items())


def run(workload, library, kind, rank, after, action="report", nodes=0, limit=120, keep=None):
    """One run, killed at its end; an Outcome. `limit`: seconds after the injection until it counts as missed."""
    outcome = Outcome(workload, kind, rank, action, nodes)
    folder = jobs.scratch()
    directory, log = os.path.join(folder, "report"), os.path.join(folder, "injected.json")
    env = {"RESIL_HANG": action, "RESIL_LOG": "quiet", "HANG_INJECT": injection(kind, rank, after),
           "HANG_INJECT_LOG": log, **({"RESIL_NODE_RANKS": str(nodes)} if nodes else {})}
    env = jobs.rank_environment(True, directory, env, tools_before=[library])
    options = LEAVE_ALONE.get((workload.mpi, kind), ())
    line = jobs.launcher(workload.mpi, workload.ranks, env, options) + workload.command
    job = jobs.Running(line, directory, cwd=workload.directory)
    said = HangLog(directory)
    injected, over, settling = None, time.monotonic() + after + 3 * limit, False
    try:
        while time.monotonic() < over and job.poll() is None:
            time.sleep(0.05)
            if injected is None and (injected := _read_log(log)):
                outcome.injected, outcome.hung, outcome.where = True, True, injected["where"]
                over = time.monotonic() + limit
            said.look()
            if injected and not settling and said.findings and said.findings[-1]["time_ns"] >= injected["time_ns"]:
                settling, over = True, time.monotonic() + (END if action == "abort" else SETTLE)
        injected = injected or _read_log(log)
        said.look()
        if injected and not settling and job.poll() is None:
            outcome.hung = not went_on(directory)
    finally:
        result = job.end()
        jobs.remove_rings(directory)
    judge(outcome, injected, said, result, job.ended_ns)
    if outcome.failed():
        said.keep(keep, f"{workload.name}-{kind}-{os.path.basename(folder)}")
    jobs.discard(folder, workload.directory)
    return outcome


def judge(outcome, injected, said, result, ended_ns):
    """Fills in what was found, from what was said before and after the injection."""
    outcome.status = result.returncode
    if injected:
        outcome.injected, outcome.where = True, injected["where"]
    instant = injected["time_ns"] if injected else float("inf")
    before = [finding for finding in said.findings if finding["time_ns"] < instant]
    later = [finding for finding in said.findings if finding["time_ns"] >= instant]
    outcome.false_alarms = len(before)
    outcome.early_suspicions = sum(when < instant for when in said.times("suspected"))
    about = re.compile(rf"rank {outcome.rank}\b")
    notices = [when for when, what, text in said.lines if what == "notice" and when >= instant and about.search(text)]
    if notices:
        outcome.noticed = (notices[0] - instant) * 1e-9
    suspicions = [when for when in said.times("suspected", "verified", "proved") if when >= instant]
    if suspicions:
        outcome.suspected = (suspicions[0] - instant) * 1e-9
    if later:
        first = later[0]
        outcome.found = (first["time_ns"] - instant) * 1e-9
        outcome.finding_class, outcome.confidence = first["class"], first["confidence"]
        outcome.message = first.get("message")
        outcome.culprits = sorted(first["culprit_ranks"])
        outcome.suspected = min(outcome.suspected, outcome.found) if outcome.suspected is not None else outcome.found
        if result.returncode is not None and outcome.action == "abort":
            outcome.ended = (ended_ns - first["time_ns"]) * 1e-9
    elif result.returncode is not None:
        outcome.hung = False  # it ended: MPI or the launcher noticed
