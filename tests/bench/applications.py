# SPDX-License-Identifier: Apache-2.0
"""scripts/bench applications: what the library costs whole programs, from MPI_Init to the end.

Two measures. Instructions: the library's own on the ranks' main threads, as a share of those that the program takes outside the
MPI (callgrind; a rank that waits polls, so the MPI's own are as many as the wait is long). Start and end are left out: it is the
difference of a long and a short run. Time: pairs of runs, native and with the library, in turns that begin with another variant
each; the median of the ratios with an interval that holds it at 95 %, whatever the ratios' distribution (order statistics)."""
import collections
import glob
import math
import os
import re
import resource
import statistics
import sys
import time

from bench import turns
from bench.turns import ENVIRONMENT
from harness import mpi as jobs, workloads

# The most that a mode may add, per cent.
AIMS = collections.OrderedDict((("watch", 0.3), ("lazy", 1.0), ("record", 1.0), ("verify", 2.0)))
PROGRAMS = {"lammps": workloads.lammps, "espresso": workloads.espresso, "cg": workloads.cg, "fft": workloads.fft,
            "multigrid": workloads.multigrid, "wave": workloads.wave}
OF_OPENMPI = ("lammps", "espresso", "wave")  # Debian's packages are built with it
MPI_OBJECT = re.compile(r"/(libmpi|libopen-|libmca_|mca_|libuc[pmst]|libpmi|libprrte|libevent|libfabric|libpsm|libhwloc|libibverbs|librdmacm)[^/]*$")
NOT_THE_PROGRAM = ("ld-linux", "[vdso]", "vgpreload")
FEWEST = 6  # values that an interval at 95 % needs


class Runner:
    """Runs a workload in one variant. A recording is made once for each workload, and verified again and again."""

    def __init__(self, mpi):
        self.mpi, self.kept = mpi, {}

    def settings(self, variant, key):
        """The ranks' environment; None: no library."""
        if variant not in ("record", "verify"):
            return ENVIRONMENT[variant]
        recording = self.kept.get(key) if variant == "verify" else os.path.join(jobs.scratch(), "recording")
        if variant == "record":
            self.kept[key] = recording
        # LAMMPS sums what a clock said, after its loop: a difference between any two runs.
        return {"RESIL_MODE": variant, "RESIL_RECORD": recording, "RESIL_ON_MISMATCH": "log"}

    def run(self, work, variant, before=(), timeout=3600):
        """The Result; the benchmark ends when the job fails."""
        key = (work.name, work.ranks, tuple(work.command), bool(before))
        if variant == "verify" and key not in self.kept:
            self.run(work, "record", before, timeout)
        settings = self.settings(variant, key)
        env = {} if settings is None else {**settings, "RESIL_LOG": "quiet"}
        pin = ["--bind-to", "core"] if self.mpi == "openmpi" else ["-bind-to", "core"]
        command = work.command
        if before:  # the tool is not preloaded, only what it runs
            given = jobs.rank_environment(True, os.path.join(jobs.scratch(), "report"), env)
            command, env = ["env", *(f"{name}={value}" for name, value in given.items()), *before, *work.command], {}
        result = jobs.run(self.mpi, work.ranks, command, env=env, preload=settings is not None and not before, timeout=timeout,
                          options=pin if work.ranks <= os.cpu_count() else [], cwd=work.directory)
        if result.returncode != 0:
            sys.exit(f"bench: {work.title} failed as {variant}\n{result.text()}")
        return result


def by_object(path):
    """{object: instructions} of one of callgrind's dumps."""
    names, counts, number, inclusive = {}, collections.Counter(), None, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("ob=", "cob=")):
                key, _, text = line.partition("=")[2].strip().partition(" ")
                names[key] = text or names.get(key, "")
                number = key if line.startswith("ob=") else number
            elif line.startswith("calls="):
                inclusive = True  # the next line is what the callee took, which has lines of its own
            elif re.match(r"[+\-*\d]", line):
                if not inclusive and number is not None:
                    counts[number] += int(line.split()[1])
                inclusive = False
    total = collections.Counter()
    for key, count in counts.items():
        total[names[key]] += count
    return total


def counted(runner, work, variant):
    """(instructions of the library, of the program outside the MPI) of all ranks' main threads."""
    folder = jobs.scratch()
    for old in glob.glob(f"{folder}/whole.*"):
        os.unlink(old)
    tool = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "-q", f"--callgrind-out-file={folder}/whole.%p"]
    runner.run(work, variant, before=tool)
    own, program, library = 0, 0, os.path.realpath(jobs.library())
    for path in glob.glob(f"{folder}/whole.*-01"):
        for name, count in by_object(path).items():
            if os.path.realpath(name) == library:
                own += count
            elif not MPI_OBJECT.search(name) and not any(word in name for word in NOT_THE_PROGRAM):
                program += count
    if own == 0:
        sys.exit(f"bench: {library} is in none of callgrind's dumps")
    return own, program


def instruction_share(runner, make, ranks, variant, seconds):
    """Per cent of the program's own instructions that the library takes beside them, start and end apart."""
    short, long = (counted(runner, make(runner.mpi, ranks, size), variant) for size in (seconds, 2 * seconds))
    return 100 * (long[0] - short[0]) / (long[1] - short[1])


def interval(values):
    """(median, least, greatest) of an interval that holds the median of their distribution with 95 % or more; the whole range,
    which holds it more rarely, of fewer than FEWEST."""
    ordered, count = sorted(values), len(values)
    tail, below = 0.0, 0
    while below < count // 2:
        tail += math.comb(count, below) / 2**count
        if 2 * tail > 0.05:
            break
        below += 1
    below = max(below, 1)
    return statistics.median(ordered), ordered[below - 1], ordered[count - below]


def paired(runner, work, variants, pairs):
    """{variant: [per cent more processor time, per cent longer]} of each turn against native in the same turn."""
    found = {variant: [] for variant in variants}
    everything = ["native", *variants]
    for turn in range(pairs + 1):
        took = {}
        first = turn % len(everything)
        for variant in everything[first:] + everything[:first]:
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            runner.run(work, variant)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took[variant] = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began)
        if turn:  # the first one warms up
            for variant in variants:
                found[variant].append([100 * (one / base - 1) for one, base in zip(took[variant], took["native"])])
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def verdict(low, high, aim):
    return "reached" if high <= aim else "NOT reached" if low > aim else "not decided"


def applications(options):
    runner = Runner(options.mpi)
    variants = options.mode or list(AIMS)
    lines = [f"{options.mpi}, {options.pairs} pairs of {options.seconds} s; {turns.machine()}", "",
             "| program | ranks | mode | instructions, % | processor time, %: median [95 %] | longer, %: median [95 %] | at most, % | by instructions | by time |",
             "|---|---:|---|---:|---:|---:|---:|---|---|"]
    for name in options.only or PROGRAMS:
        if options.mpi != "openmpi" and name in OF_OPENMPI:
            continue
        for ranks in options.ranks or [2]:
            work = PROGRAMS[name](options.mpi, ranks, options.seconds)
            if not workloads.runnable(work):
                lines.append(f"{work.name}: not installed")
                continue
            taken = paired(runner, work, variants, options.pairs) if options.pairs else {}
            for variant in variants:
                share = None
                if not options.no_instructions:
                    share = instruction_share(runner, PROGRAMS[name], ranks, variant, options.counted)
                cells = [work.name, str(ranks), variant, "–" if share is None else f"{share:.3f}"]
                by_time = "–"
                for which in (0, 1):
                    if variant in taken:
                        middle, low, high = interval([one[which] for one in taken[variant]])
                        cells.append(f"{middle:+.2f} [{low:+.2f} .. {high:+.2f}]")
                        by_time = verdict(low, high, AIMS[variant]) if which == 0 and options.pairs >= FEWEST else by_time
                    else:
                        cells.append("–")
                lines.append("| " + " | ".join(cells + [f"{AIMS[variant]}", "–" if share is None else verdict(share, share, AIMS[variant]),
                                                        by_time]) + " |")
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def add(commands):
    command = commands.add_parser("applications")
    command.set_defaults(function=applications)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--only", action="append", choices=PROGRAMS, help="only this program; may be repeated")
    command.add_argument("--mode", action="append", choices=AIMS, help="only this mode; may be repeated")
    command.add_argument("--ranks", action="append", type=int, help="so many; may be repeated (default 2)")
    command.add_argument("--pairs", type=int, default=20, help="turns that count; 0: no times (default 20)")
    command.add_argument("--seconds", type=float, default=4, help="about how long a run takes on two idle cores (default 4)")
    command.add_argument("--counted", type=float, default=0.1, help="of the shorter run whose instructions are counted (default 0.1)")
    command.add_argument("--no-instructions", action="store_true", help="times only")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
