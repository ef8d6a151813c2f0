#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's mpi4py, which loads Open MPI at run time: point-to-point, collectives, one-sided, files, spawn, threads."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's mpi4py
PROGRAMS = os.path.join(jobs.ROOT, "tests", "mpi4py")
# What rank 0 must have counted, and cannot be hidden in polls.
CALLS = {
    "p2p": {"MPI_Isend": 1, "MPI_Sendrecv": 1, "MPI_Startall": 3, "MPI_Send_init": 1, "MPI_Finalize": 1},
    "collectives": {"MPI_Op_create": 1, "MPI_Allgatherv": 2, "MPI_Ibcast": 1, "MPI_Comm_split": 1},
    "rma_io": {"MPI_Win_create": 1, "MPI_Win_fence": 2, "MPI_Put": 1, "MPI_Accumulate": 1, "MPI_File_open": 1},
    "spawn": {"MPI_Comm_spawn": 1, "MPI_Comm_disconnect": 1},
    "threads": {"MPI_Init_thread": 1, "MPI_Barrier": 1},
}
# All messages, or what is not checked and why. A parent and what it spawns are in two worlds.
COVERAGE = {
    "p2p": {}, "threads": {},
    "collectives": {"least": 90, "reasons": ("user_operator",)},
    "rma_io": {"least": 20, "reasons": ("accumulate", "file")},
    "spawn": {"least": 0, "reasons": ("other_world",)},
}
MODES = {"p2p": ("watch", "checksum", "strict")}


def check(name):
    if name == "threads" and jobs.openmpi_version() >= (6,):
        raise LeftOut("Open MPI 6.0.0rc2 hangs in it natively in many runs: docs/PLATFORMS.md")
    if name == "rma_io" and jobs.openmpi_version() < (4, 1, 1):
        raise LeftOut("Open MPI 4.1.0 makes no window under MPI_THREAD_MULTIPLE natively: docs/PLATFORMS.md")
    options = ["--oversubscribe"] if name == "spawn" else []
    command = [PYTHON, os.path.join(PROGRAMS, name + ".py")]
    if name == "rma_io":
        command.append(os.path.join(jobs.scratch(), "file"))
    _, preloaded, ranks = transparent.run_both("openmpi", 2, command, options=options, coverage=COVERAGE[name],
                                               modes=MODES.get(name, ("watch", "checksum")),
                                               env={"PYTHONDONTWRITEBYTECODE": "1"}, spawns=name == "spawn")
    counts = reports.counts(ranks[0])
    for call, number in CALLS[name].items():
        counted = counts.get(call, 0) + counts.get(call + "_c", 0)  # mpi4py 4 calls the large-count twin where MPI has it
        assert counted == number, f"{call}: {counted} counted, {number} made"
    if name == "spawn":
        assert sorted(reports.worlds(preloaded.directory)) == [0, 1], "no reports of the spawned world"


if __name__ == "__main__":
    jobs.require("mpirun.openmpi", PYTHON)
    if subprocess.run([PYTHON, "-c", "import mpi4py"], check=False, capture_output=True).returncode:
        jobs.skip("python3-mpi4py is not installed")
    sys.exit(run_checks([(f"mpi4py {name}", lambda name=name: check(name)) for name in CALLS]))
