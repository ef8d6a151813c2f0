# SPDX-License-Identifier: Apache-2.0
"""What hang detection's probes cost: the helper threads' own processor time (they say it in the reports), on two simulated nodes so that
they ask each other, as a share of the time of the job's cores, ranks times how long it ran, and of the processor time that the job
got. On a machine of its own a rank has its core, and both are one; on a crowded one the second is the job's bad luck: the helper threads work by
the clock. And what the state slots add to the instructions of calls, and of whole programs on several ranks (callgrind): of a step, the
instructions of libresil.so with RESIL_HANG on less those with it off, against the step's of the program without MPI, and with it."""
import collections
import glob
import json
import os
import re
import resource
import statistics
import sys
import time

from bench import instructions
from bench.turns import compiled, lammps, melt
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


def by_object(path):
    """Instructions of one thread, by object file."""
    names, counts, own, called = {}, collections.Counter(), "", False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("ob="):
                key, _, name = line[3:].strip().partition(" ")
                own = names.setdefault(key, os.path.basename(name))
            elif line.startswith("cob="):
                key, _, name = line[4:].strip().partition(" ")
                names.setdefault(key, os.path.basename(name))
            elif line.startswith("calls="):
                called = True  # the next line is what the callee took, which has lines of its own
            elif re.match(r"[+\-*\d]\S* \d+$", line):
                counts[own] += 0 if called else int(line.split()[1])
                called = False
    return counts


LIBRARY = re.compile(r"libresil")
MPI_OBJECTS = re.compile(r"lib(mpi|open-|uc[pstm]|pmi|fabric|psm|event|hwloc|hcoll)|mca_|ompi_")  # and what it brings


def of_steps(mpi, ranks, command, settings):
    """Instructions of all main threads together: (the library, MPI, the program)."""
    folder = jobs.scratch()
    given = [f"{name}={value}" for name, value in {**settings, "RESIL_LOG": "quiet", "RESIL_DIR": os.path.join(folder, "report"),
                                                   "LD_PRELOAD": jobs.library()}.items()]
    line = ["env", *given, "valgrind", "--tool=callgrind", "--separate-threads=yes", "-q", f"--callgrind-out-file={folder}/counts.%p", *command]
    result = jobs.run(mpi, ranks, line, preload=False, timeout=3000, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    library = of_mpi = program = 0
    for path in glob.glob(f"{folder}/counts.*-01"):
        for name, count in by_object(path).items():
            if LIBRARY.search(name):
                library += count
            elif MPI_OBJECTS.search(name):
                of_mpi += count
            else:
                program += count
    return library, of_mpi, program


def steps(mpi, name, ranks, make, short, long):
    """A row of the table: what a step takes, as the difference of two runs, so that starting and ending is left out."""
    found = {}
    for mode, settings in (("on", {}), ("off", {"RESIL_HANG": "off"})):
        few, many = (of_steps(mpi, ranks, make(number), settings) for number in (short, long))
        found[mode] = [(b - a) / (long - short) / ranks for a, b in zip(few, many)]
    added = found["on"][0] - found["off"][0]
    program, with_mpi = found["on"][2], found["on"][1] + found["on"][2]
    return "| %s, %s | %d | %.0f | %.0f | %.0f | %.3f %% | %.3f %% |" % (name, mpi, ranks, program, found["on"][1], added, 100 * added / program,
                                                                     100 * added / with_mpi)


def applications(options):
    """LAMMPS, which is built for Open MPI, the stencil and the worst case, a ping-pong of 8 bytes, which computes nothing."""
    mpi = options.mpi
    lines = ["", "| a step of | ranks | the program's instructions | MPI's, waiting included | added by RESIL_HANG | of the program's | of both |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    stencil, pong = compiled(mpi, "stencil"), compiled(mpi, "oversubscribed")
    if lammps(mpi):
        for ranks in (2, 4):
            lines.append(steps(mpi, "LAMMPS, melt", ranks, lambda number: ["lmp", "-in", melt(number), "-log", "none"], 20, 60))
    lines.append(steps(mpi, "stencil, Fortran", 2, lambda number: [stencil, str(number)], 20, 120))
    lines.append(steps(mpi, "ping-pong, 8 B", 2, lambda number: [pong, str(number)], 200, 1200))
    return lines


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
    return lines + (applications(options) if options.applications else [])


def add(commands):
    command = commands.add_parser("probes")
    command.set_defaults(function=probes)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--runs", type=int, default=5, help="of each program")
    command.add_argument("--instructions", action="store_true", help="what the state slots add to each kind of calls, too (valgrind)")
    command.add_argument("--applications", action="store_true", help="and to a step of whole programs on several ranks (valgrind)")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
