# SPDX-License-Identifier: Apache-2.0
"""The self-test of `resil doctor`: compiles doctor.c (and doctor.f90), starts it with two ranks by `resil run`, and looks into the
reports. What is damaged on purpose must be found. Touches one folder of its own and the jobs that it starts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from . import launchers, report, smoke, summary
from .job import Usage
from .text import clean

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.path.dirname(HERE), "resil")
COMPILERS = {"openmpi": ("mpicc.openmpi", "mpicc"), "mpich": ("mpicc.mpich", "mpicc")}
STEPS = 5  # rows of a run that finds nothing wrong
LIMIT = 60.0  # seconds a job may take; a hang is found within a few
ABORTED = 92


class Failed(Exception):
    """A job of the self-test did not do what it must: what, and what to do."""

    def __init__(self, text: str, to_do: str = ""):
        super().__init__(text)
        self.to_do = to_do


def run(launcher: str | None, command: list[str], mpicc: str | None):
    """Rows: name, state, text, to do; each as soon as it is known."""
    if launcher is None:
        yield "self-test", "left out", "there is no launcher", ""
        return
    try:
        mpi = launchers.identify(launcher).mpi
    except Usage as error:
        yield "self-test", "failed", str(error), ""
        return
    mpicc = mpicc or next((name for name in COMPILERS.get(mpi, ("mpicc",)) if shutil.which(name)), None)
    if mpicc is None:
        yield "self-test", "warning", "there is no mpicc: nothing was tried", "load the module of your MPI's compiler, or name it with --mpicc"
        return
    # Nodes mostly share the working directory; /tmp they do not.
    shared = os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or os.environ.get("LSB_JOBID")
    with tempfile.TemporaryDirectory(prefix="resil-doctor-", dir="." if shared else None) as folder:
        folder = os.path.abspath(folder)
        try:
            program = _compile(mpicc, "doctor.c", folder)
        except Usage as error:
            yield "self-test", "failed", str(error), ""
            return
        line = [launcher, *_placement(launcher), "-n", "2"]
        try:
            ranks, text = reach(line, program, folder)
        except Failed as error:
            yield "reach", "failed", str(error), error.to_do
            return
        yield "reach", "ok", text, ""
        yield signal_owner(ranks)
        for name, check in (("flip", flip), ("hang", hang)):
            try:
                yield name, "ok", check(line, program, folder), ""
            except Failed as error:
                yield name, "failed", str(error), error.to_do
        yield _fortran(line, mpicc, folder)


def _placement(launcher: str) -> list[str]:
    """One rank on each of two nodes, where there are two: the library must get across."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if os.path.basename(launcher) == "srun" and nodes.isdecimal() and int(nodes) > 1:
        return ["-N", "2"]
    return []


def _compile(mpicc: str, source: str, folder: str) -> str:
    program = os.path.join(folder, os.path.splitext(source)[0] + "-" + source.rsplit(".", 1)[1])
    done = subprocess.run(shlex.split(mpicc) + ["-O1", "-g", "-o", program, os.path.join(HERE, source), "-ldl"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False, cwd=folder)
    if done.returncode != 0:
        raise Usage("%s cannot compile %s: %s" % (clean(mpicc), source, clean(done.stdout.decode(errors="replace")[-400:].strip())))
    return program


def _job(name: str, line: list[str], command: list[str], folder: str, *options: str) -> tuple[smoke.Job, dict]:
    """(the ended job, the merged report). The user's own RESIL_ variables do not count here."""
    directory = os.path.join(folder, name)
    kept = {key: os.environ.pop(key) for key in list(os.environ) if key.startswith("RESIL_") and not key.startswith("RESIL_TOOL_")}
    try:
        words = [sys.executable, TOOL, "run", *options, "--dir", directory, *line]
        job = smoke.Job(shlex.join(words), 2, command, LIMIT).run()
    finally:
        os.environ.update(kept)
    if "--allow-run-as-root" in job.output and job.status != 0:
        raise Failed("Open MPI does not start jobs as root", "as another user, or with OMPI_ALLOW_RUN_AS_ROOT=1 and "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    if not os.path.isdir(directory):
        raise Failed("the job left no report: status %s; %s" % (job.status, clean(job.output[-500:]) or "it said nothing"),
                     "start the line without resil first: %s" % clean(shlex.join(line + command[:1])))
    try:
        merged = summary.merge(report.load(directory))
    except Usage as error:
        raise Failed(str(error)) from None
    return job, merged


def _said(job: smoke.Job) -> list[list[str]]:
    """[rank, size, host, owner of the signal] of each rank."""
    return sorted(found.split(None, 3) for found in re.findall(r"RESIL-DOCTOR (\d+ \d+ \S+ [^\n]*)", job.output))


def reach(line: list[str], program: str, folder: str) -> tuple[list, str]:
    job, merged = _job("reach", line, [program], folder)
    ranks = _said(job)
    sizes = sorted({rank[1] for rank in ranks})
    if sizes not in ([], ["2"]):
        raise Failed("%d ranks started, as jobs of %s ranks; status %s" % (len(ranks), ", ".join(sizes), job.status),
                     "launcher and program are of different MPIs, or Slurm needs --mpi=pmix or --mpi=pmi2")
    if job.status != 0 or len(ranks) != 2:
        raise Failed("a job of two ranks ended with status %s: %s" % (job.status, clean(job.output[-500:])),
                     "start it without resil: it is the launcher that fails, or a finding for resil's authors")
    if merged["ranks_reported"] != 2 or merged["verdict"] != "CLEAN":
        raise Failed("2 ranks ran, %d had the library: %s %s" % (merged["ranks_reported"], merged["verdict"], merged["reason"]),
                     "the library must lie under the same path on all nodes")
    return ranks, "the library is in both ranks, on %s" % ", ".join(sorted(merged["hosts"]))


def signal_owner(ranks: list) -> tuple:
    owners = sorted({rank[3].strip() for rank in ranks})
    if [os.path.basename(owner) for owner in owners] != ["libresil.so"]:
        return "signal", "warning", "SIGHUP belongs to %s" % ", ".join(owners), "choose another signal: RESIL_SIGNAL=USR1"
    return "signal", "ok", "SIGHUP, which asks for a dump, belongs to libresil.so in both ranks", ""


def flip(line: list[str], program: str, folder: str) -> str:
    job, merged = _job("flip", line, [program], folder, "--checksum", "--set", "ON_MISMATCH=log", "--set", "FAULT=flip,rank=0,nth=3")
    kinds = [group["kind"] for group in merged["findings"]]
    if job.status != 0 or kinds != ["message_corrupted"] or merged["faults_injected"] != {"flip": 1}:
        raise Failed("one flipped bit was made (%s), and found was: %s; status %s" % (
            merged["faults_injected"] or "no report of it", ", ".join(kinds) or "nothing", job.status),
            "do not trust CLEAN in mode checksum here; send this output to resil's authors")
    return "one bit of a message was flipped on purpose, and found"


def hang(line: list[str], program: str, folder: str) -> str:
    job, merged = _job("hang", line, [program, "hang"], folder, "--end-if-hung")
    hangs = [group for group in merged["findings"] if group["kind"].startswith("hang")]
    if job.status is None or not hangs:
        raise Failed("a hang was made on purpose, and not found within %.0f s" % job.seconds,
                     "see the report's notes: resil run --end-if-hung, then resil report")
    text = "a hang was made on purpose, found and ended after %.1f s" % job.seconds
    if job.status != ABORTED:  # launchers may give another status of their own
        text += " (the launcher's status is %d, not %d)" % (job.status, ABORTED)
    return text


def _fortran(line: list[str], mpicc: str, folder: str) -> tuple:
    word = shlex.split(mpicc)[0]
    compiler = re.sub(r"mpicc", "mpif90", os.path.basename(word))
    path = shutil.which(os.path.join(os.path.dirname(word), compiler) if os.path.dirname(word) else compiler)
    if not path:
        return "Fortran", "left out", "there is no %s" % compiler, ""
    try:
        program = _compile(path, "doctor.f90", folder)
    except Usage as error:
        return "Fortran", "left out", str(error), ""
    try:
        job, merged = _job("fortran", line, [program], folder)
    except Failed as error:
        return "Fortran", "failed", str(error), error.to_do
    seen = {call["name"]: call["count"] for call in merged["calls"]}
    if job.status != 0 or seen.get("MPI_Allreduce") != 2:
        return "Fortran", "failed", "of 2 calls of MPI_Allreduce from Fortran %d were seen; status %s" % (
            seen.get("MPI_Allreduce", 0), job.status), "the MPI's Fortran library is linked statically, or past libresil.so"
    return "Fortran", "ok", "the calls of a Fortran program (use mpi) are seen", ""
