# SPDX-License-Identifier: Apache-2.0
"""scripts/bench start: processor time that the library adds to MPI_Init and MPI_Finalize of a rank. A tool behind the library tells what
of it is the MPI's own, which differs from run to run by more than the library adds. Touches scratch directories and the jobs that it
starts."""
import os
import re
import statistics
import subprocess
import sys

from bench.turns import SOURCES, compiled
from harness import mpi as jobs

VARIANTS = {"off": {"RESIL_MODE": "off"}, "watch": {}, "watch, RESIL_HANG=off": {"RESIL_HANG": "off"}, "checksum": {"RESIL_MODE": "checksum"}}


def tool(mpi):
    output = os.path.join(jobs.scratch(), "start_tool.so")
    subprocess.run([f"mpicc.{mpi}", "-O2", "-shared", "-fPIC", "-o", output, os.path.join(SOURCES, "start_tool.c")], check=True)
    return output


def one(mpi, ranks, program, behind, settings, library):
    """[the six numbers of start.c of each rank]"""
    os.environ["RESIL_TEST_LIBRARY"] = library
    result = jobs.run(mpi, ranks, [program], env={"RESIL_FILES": "node", "RESIL_LOG": "quiet", **settings}, tools_after=[behind],
                      directory=os.path.join(jobs.scratch(), "report"), cwd=jobs.scratch())
    found = [[float(value) for value in line.split()[1:]] for line in re.findall(r"(?m)^start [\d. -]+$", result.stdout.decode())]
    if result.returncode != 0 or len(found) != ranks:
        sys.exit(f"bench: failed\n{result.text()}")
    return found


def start(options):
    program, behind, own = compiled(options.mpi, "start"), tool(options.mpi), jobs.library()
    variants = [(name, settings, own) for name, settings in VARIANTS.items()]
    if options.base:
        variants.append(("watch, the other library", {}, os.path.abspath(options.base)))
    found = {name: [] for name, _, _ in variants}
    for _ in range(options.runs):
        for name, settings, library in variants:
            ranks = one(options.mpi, options.ranks, program, behind, settings, library)
            found[name].append([statistics.mean(column) for column in zip(*ranks)])
    lines = [f"{options.mpi}, {options.ranks} ranks, {options.runs} turns: processor time of a rank in ms, least, median", "",
             "| | of the library, in `MPI_Init` | in `MPI_Finalize` | both, of the calling thread alone | the MPI's own `MPI_Init` | `MPI_Finalize` |",
             "|---|---:|---:|---:|---:|---:|"]
    for name, runs in found.items():
        columns = list(zip(*runs))
        shown = [columns[0], columns[3], [a + b for a, b in zip(columns[1], columns[4])], columns[2], columns[5]]
        lines.append(f"| {name} | " + " | ".join(f"{min(column):.2f}, {statistics.median(column):.2f}" for column in shown) + " |")
    return lines


def add(commands):
    command = commands.add_parser("start")
    command.set_defaults(function=start)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--ranks", type=int, default=2)
    command.add_argument("--runs", type=int, default=15, help="turns (default 15)")
    command.add_argument("--base", metavar="LIBRARY", help="another libresil.so, in the same turns")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
