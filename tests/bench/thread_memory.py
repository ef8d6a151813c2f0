# SPDX-License-Identifier: Apache-2.0
"""scripts/bench threads: private memory that mode watch takes of a rank, by how many of its threads call MPI."""
import os
import re
import subprocess
import sys

from bench import turns
from harness import mpi as jobs

THREADS = (1, 2, 8, 9, 16, 17, 32, 33, 34, 48)
SETTINGS = {"native": None, "watch": {"RESIL_MODE": "watch", "RESIL_LOG": "quiet"}}


def one(mpi, program, threads, settings):
    """{"private_dirty": KiB, "round": ns} of one run."""
    result = jobs.run(mpi, 1, [program, str(threads), "1500"], env=settings or {}, preload=settings is not None, timeout=600,
                      cwd=jobs.scratch())
    found = dict(re.findall(r"(?m)^(private_dirty|round) (\d+) (?:KiB|ns)$", result.stdout.decode()))
    if result.returncode != 0 or len(found) != 2:
        sys.exit(f"bench: failed\n{result.text()}")
    return {name: int(value) for name, value in found.items()}


def threads(options):
    program = os.path.join(jobs.scratch(), "thread_memory")
    subprocess.run([f"mpicc.{options.mpi}", "-O2", "-pthread", "-o", program, os.path.join(turns.SOURCES, "thread_memory.c")], check=True)
    lines = [f"{options.mpi}, MPI_THREAD_MULTIPLE; {turns.machine()}", "",
             "Private dirty pages beyond the native run's, the least of each; what each further thread takes since the row before.", "",
             "| threads | KiB | each further one, KiB | native, ns a round and thread | watch |", "|---:|---:|---:|---:|---:|"]
    before = None
    for count in options.threads or THREADS:
        runs = {name: [one(options.mpi, program, count, settings) for _ in range(options.runs)] for name, settings in SETTINGS.items()}
        least = {name: {what: min(run[what] for run in found) for what in found[0]} for name, found in runs.items()}
        more = least["watch"]["private_dirty"] - least["native"]["private_dirty"]
        step = f"{(more - before[1]) / (count - before[0]):.0f}" if before else "–"
        lines.append(f"| {count} | {more:,} | {step} | {least['native']['round']} | {least['watch']['round']} |")
        print(lines[-1], file=sys.stderr, flush=True)
        before = (count, more)
    return lines


def add(commands):
    command = commands.add_parser("threads")
    command.set_defaults(function=threads)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--runs", type=int, default=3, help="of each, of which the least counts (default 3)")
    command.add_argument("--threads", type=int, action="append", help="only so many, 1 to 64; may be repeated")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
