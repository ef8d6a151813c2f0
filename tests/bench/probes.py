# SPDX-License-Identifier: Apache-2.0
"""What hang detection's probes cost: the helper threads' own processor time (they say it in the reports), on two simulated nodes so that
they ask each other, as a share of the time of the job's cores, ranks times how long it ran, and of the processor time that the job
got. On a machine of its own a rank has its core, and both are one; on a crowded one the second is the job's bad luck: the helper threads work by
the clock. And what the state slots add to the instructions of calls (callgrind)."""
import glob
import json
import os
import resource
import statistics
import sys
import time

from bench import instructions
from bench.turns import compiled, lammps
from harness import mpi as jobs



def programs(mpi):
    return [("ping-pong, 8 B to 1 MiB", 2, [compiled(mpi, "latency")]), ("stencil, Fortran", 2, [compiled(mpi, "stencil"), "4000"])] + [
        ("LAMMPS, melt", ranks, command) for ranks, command, _ in lammps(mpi)]


def of_job(mpi, ranks, command):
    """(processor seconds of helper threads, of the job; seconds that it ran; rounds asked, ways probed)."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = jobs.run(mpi, ranks, command, env={"RESIL_LOG": "quiet", "RESIL_NODE_RANKS": "1"}, timeout=600, cwd=jobs.scratch())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    helper, probes, rounds = 0.0, 0, 0
    for path in glob.glob(os.path.join(result.directory, "rank-*.json")):
        with open(path, encoding="utf-8") as file:
            hang = json.load(file)["hang"]
        helper += hang["helper_cpu_seconds"]
        probes += hang.get("overlay", {}).get("probes", 0)
        rounds += hang.get("overlay", {}).get("rounds", 0)
    job = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return helper, job, time.monotonic() - began, rounds, probes


def probes(options):
    lines = [f"{options.mpi}, {options.runs} runs of each, ranks on a simulated node each", "",
             "| program | ran for, s | processor time of the job, s | helper threads, ms | share of its cores' time | share of its processor time | rounds asked | ways probed |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, ranks, command in programs(options.mpi):
        found = [of_job(options.mpi, ranks, command) for _ in range(options.runs)]
        median = [statistics.median(values) for values in zip(*found)]
        shares = (sorted(100 * helper / (ranks * ran) for helper, _, ran, _, _ in found), sorted(100 * helper / job for helper, job, *_ in found))
        words = ["%.3f %% [%.3f .. %.3f]" % (statistics.median(some), some[0], some[-1]) for some in shares]
        lines.append("| %s | %.0f | %.1f | %.1f | %s | %s | %.0f | %d |" % (name, median[2], median[1], 1e3 * median[0], *words, median[3], sum(one[4] for one in found)))
    if options.instructions:
        program = compiled(options.mpi, "instructions")
        instructions.MODES["no_hang"] = {"RESIL_HANG": "off"}
        watch, without = (instructions.of_library(options.mpi, program, jobs.library(), mode) for mode in ("watch", "no_hang"))
        lines += ["", "| calls | instructions a round, MPI's included | of these the state slots | share |", "|---|---:|---:|---:|"]
        lines += ["| %s | %.0f | %.0f | %.2f %% |" % (kind, count, count - without[kind], 100 * (count - without[kind]) / count)
                  for kind, count in watch.items() if kind in without]
    return lines


def add(commands):
    command = commands.add_parser("probes")
    command.set_defaults(function=probes)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--runs", type=int, default=5, help="of each program")
    command.add_argument("--instructions", action="store_true", help="what the state slots add to each kind of calls, too (valgrind)")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
