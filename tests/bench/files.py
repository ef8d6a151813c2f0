# SPDX-License-Identifier: Apache-2.0
"""scripts/bench files: what RESIL_FILES costs a rank, in system calls on the job's reports and flight recorders and in bytes written,
before MPI_Init has returned and from MPI_Finalize on. Counted by strace, so that it is the same at any load. Touches scratch directories
and the jobs that it starts."""
import glob
import os
import re
import statistics
import sys

from harness import mpi as jobs
from bench.turns import compiled

SETTINGS = ("node", "rings", "all")
_CALL = re.compile(r"^\d+ +(?:[\d.]+ )?(?P<name>\w+)\((?P<rest>.*)$")
_WRITTEN = re.compile(r"\) += (\d+)$")
TRACER = 'exec strace -f -y -o "$0.$$" "$@"'  # a log a rank


def one_rank(path, directory):
    """{phase: (calls, bytes written)} of a rank, on files of the report directory and on recorders."""
    counts, phase = {"MPI_Init": [0, 0], "run": [0, 0], "MPI_Finalize": [0, 0]}, "MPI_Init"
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            match = _CALL.match(line)
            if not match:
                continue
            if "/mark-of-resil/" in line:
                phase = "run" if "/mark-of-resil/run" in line else "MPI_Finalize"
            elif directory in match["rest"] or re.search(r"/dev/shm/resil-|\"resil-[\w.-]*\.ring|rank-\d{5}\.|node-[\w.-]+\.jsonl|run\.conf|launch\.json|\.taken|\.found",
                                                         match["rest"]):
                counts[phase][0] += 1
                written = _WRITTEN.search(line)
                if match["name"] in ("write", "pwrite64", "writev") and written:
                    counts[phase][1] += int(written[1])
    assert phase == "MPI_Finalize", path
    return counts


def measure(mpi, ranks, files, run):
    """Of all ranks of one job: [{phase: (calls, bytes)}]; and what is left: (files, bytes)."""
    place = jobs.scratch()
    directory, log = os.path.join(place, "report"), os.path.join(place, "strace")
    environment = jobs.rank_environment(True, directory, {"RESIL_FILES": files, "RESIL_LOG": "quiet"})
    passed = [f"-E{name}={value}" for name, value in environment.items()]
    result = jobs.run(mpi, ranks, ["sh", "-c", TRACER, log, *passed, run], preload=False, timeout=600)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    left = [os.path.join(directory, name) for name in os.listdir(directory)]
    return [one_rank(path, directory) for path in glob.glob(log + ".*")], (len(left), sum(os.path.getsize(path) for path in left))


def files(options):
    run = compiled(options.mpi, "files")
    lines = [f"{options.mpi}, {options.ranks} ranks on one node: system calls on reports and recorders, and bytes written; of a rank, the "
             "middle and the most", "",
             "| `RESIL_FILES` | before `MPI_Init` has returned | from `MPI_Finalize` on | written from there on | left: files | bytes |",
             "|---|---:|---:|---:|---:|---:|"]
    for setting in SETTINGS:
        found, left = measure(options.mpi, options.ranks, setting, run)
        cells = []
        for phase, which in (("MPI_Init", 0), ("MPI_Finalize", 0), ("MPI_Finalize", 1)):
            values = [rank[phase][which] for rank in found]
            cells.append(f"{statistics.median(values):,.0f}, {max(values):,}")
        lines.append(f"| {setting} | " + " | ".join(cells) + f" | {left[0]:,} | {left[1]:,} |")
    return lines


def add(commands):
    command = commands.add_parser("files")
    command.set_defaults(function=files)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--ranks", type=int, default=2)
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
