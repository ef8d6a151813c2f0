# SPDX-License-Identifier: Apache-2.0
"""scripts/campaign quiet: programs without a hang, side by side, some stopped and continued. Every finding is false.

The processes that are stopped are those that a Running job names as its ranks.
"""
import os
import random
import signal
import threading
import time

from . import mpi as jobs, workloads
from .findings import HangLog

# Several programs that wait long, write, or compute unevenly. `size` as in workloads.
PROGRAMS = {
    "lammps": lambda mpi, size: workloads.lammps(mpi, 4, size),
    "lammps-io": lambda mpi, size: workloads.lammps(mpi, 4, size, io=True),
    "hpcc": lambda mpi, size: workloads.hpcc(mpi, 4, size),
    "stencil": lambda mpi, size: workloads.stencil(mpi, 2 if mpi == "mpich" else 8, size),
    "cg": lambda mpi, size: workloads.cg(mpi, 2 if mpi == "mpich" else 4, size),
    "espresso": lambda mpi, size: workloads.espresso(mpi, 2, size),
    "wave": lambda mpi, size: workloads.wave(mpi, 3, size),
    "netpipe": lambda mpi, size: workloads.netpipe(mpi, 2, size),
    "quiet": lambda mpi, size: workloads.rounds(mpi, 2 if mpi == "mpich" else 4, size, kind="quiet"),
    "io": lambda mpi, size: workloads.rounds(mpi, 2 if mpi == "mpich" else 4, size, kind="io"),
    "crowd": lambda mpi, size: workloads.rounds(mpi, 2 if mpi == "mpich" else 16, size, milliseconds=2),
}
MPICH = ("stencil", "cg", "netpipe", "quiet", "io", "crowd")


class Disturber:
    """Stops one rank, or all, for 1 to 8 s at random instants, and continues them."""

    def __init__(self, job, seed):
        self.job, self.random, self.stops, self.over = job, random.Random(seed), [], threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self):
        while not self.over.wait(self.random.uniform(5, 40)):
            ranks = self.job.ranks()
            every = self.random.random() < 0.3
            chosen = sorted(ranks) if every else self.random.sample(sorted(ranks), min(1, len(ranks)))
            began, stopped = time.time_ns(), []
            for rank in chosen:
                try:
                    os.kill(ranks[rank], signal.SIGSTOP)
                    stopped.append(rank)
                except ProcessLookupError:
                    pass
            self.over.wait(self.random.uniform(1, 8))
            for rank in stopped:
                try:
                    os.kill(ranks[rank], signal.SIGCONT)
                except ProcessLookupError:
                    pass
            self.stops.append((began, time.time_ns(), stopped))

    def end(self):
        self.over.set()
        self.thread.join()

    def explains(self, finding):
        """Whether the finding says that a rank is stopped that is: true, and no accusation of a hang."""
        return finding["class"] == "rank_stopped" and any(
            began <= finding["time_ns"] <= ended + 10**9 and set(finding["culprit_ranks"]) <= set(ranks)
            for began, ended, ranks in self.stops)


class Row:
    """One program's line."""

    def __init__(self, title):
        self.title, self.runs, self.unfinished, self.seconds, self.stops = title, 0, 0, 0.0, 0
        self.suspicions = self.withdrawn = self.alarms = self.true_stops = self.other_results = 0

    def cells(self):
        return (self.title, f"{self.runs} ({self.runs - self.unfinished})", f"{self.seconds / 3600:.2f}", self.stops,
                self.suspicions, self.withdrawn, self.true_stops, self.alarms, self.other_results)


HEADER = ("program", "runs (to the end)", "hours", "ranks stopped and continued", "suspicions", "withdrawn",
          "stopped, rightly", "false alarms", "other result or status than plain")


def reference(maker, mpi, size):
    """What the program prints and how it ends without the library."""
    workload = maker(mpi, size)
    result = jobs.run(mpi, workload.ranks, workload.command, preload=False, timeout=3600, cwd=workload.directory)
    seen = (result.returncode, workload.result(result), result.seconds)
    jobs.discard(workload.directory)
    return workload, seen


def one(workload, expected, disturbed, nodes, until, seed, row, lock, options):
    """One run until it ends, or until the campaign does."""
    directory = os.path.join(jobs.scratch(), "report")
    env = {"RESIL_HANG": options.action, "RESIL_LOG": "quiet", **({"RESIL_NODE_RANKS": str(nodes)} if nodes else {})}
    line = jobs.launcher(workload.mpi, workload.ranks, jobs.rank_environment(True, directory, env)) + workload.command
    job, said = jobs.Running(line, directory, cwd=workload.directory), HangLog(directory)
    disturber = Disturber(job, seed) if disturbed else None
    try:
        while job.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        if disturber:
            disturber.end()
        said.look()
        finished = job.poll() is not None
        result = job.end()
        jobs.remove_rings(directory)
    true = [each for each in said.findings if disturber and disturber.explains(each)]
    false = [each for each in said.findings if each not in true]
    status, lines = result.returncode, workload.result(result)
    if false or (finished and (status, lines) != expected[:2]):
        said.keep(options.keep, f"quiet-{seed}")
    jobs.discard(workload.directory, os.path.dirname(directory))
    with lock:
        row.runs += 1
        row.unfinished += not finished
        row.seconds += result.seconds
        row.stops += sum(len(ranks) for _, _, ranks in disturber.stops) if disturber else 0
        row.suspicions += said.count("suspected")
        row.withdrawn += said.count("withdrawn")
        row.true_stops += len(true)
        row.alarms += len(false)
        for finding in false:
            print(f"FALSE ALARM {workload.title}: {finding['confidence']} {finding['class']}: {finding.get('message')}",
                  flush=True)
        if finished and (status, lines) != expected[:2]:
            row.other_results += 1
            print(f"OTHER RESULT {workload.title}: {status} {lines[-3:]} instead of {expected[0]} {expected[1][-3:]}\n"
                  f"{result.stderr.decode(errors='replace')[-1500:]}", flush=True)


def side_by_side(work, count):
    workers = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def campaign(options):
    """Rows of all programs after options.minutes of options.parallel jobs side by side."""
    names = [name for name in options.programs or PROGRAMS if options.mpi == "openmpi" or name in MPICH]
    names = sorted(name for name in names if workloads.runnable(PROGRAMS[name](options.mpi, 1)))
    expected, rows, lock, counter = {}, {}, threading.Lock(), [0]

    def plain():
        while True:
            with lock:
                if counter[0] == len(names):
                    return
                name = names[counter[0]]
                counter[0] += 1
            workload, expected[name] = reference(PROGRAMS[name], options.mpi, options.size)
            rows[name] = Row(workload.title)
            status, lines, seconds = expected[name]
            print(f"{workload.title}, plain: {seconds:.0f} s, status {status}, {len(lines)} lines of result", flush=True)

    side_by_side(plain, options.parallel)
    counter[0], until = 0, time.monotonic() + 60 * options.minutes

    def work():
        while time.monotonic() < until:
            with lock:
                number = counter[0]
                counter[0] += 1
                name = names[number % len(names)]
                workload = PROGRAMS[name](options.mpi, options.size)
            seed = options.seed * 1000 + number
            choice = random.Random(seed)
            disturbed = not options.undisturbed and choice.random() < 0.5
            nodes = choice.choice((0, -(-workload.ranks // 2)))
            one(workload, expected[name], disturbed, nodes, until, seed, rows[name], lock, options)

    side_by_side(work, options.parallel)
    return [rows[name] for name in names]
