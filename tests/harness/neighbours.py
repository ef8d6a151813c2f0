# SPDX-License-Identifier: Apache-2.0
"""Many jobs on one node: starts programs of tests/mpi/neighbours.c and holds each one's reports against what only it can
have done. Touches the directory that it is given and what mpi.py touches."""
import glob
import os
import time

from . import mpi as jobs, patience, report as reports

CALLS = ("MPI_Allreduce", "MPI_Bcast", "MPI_Barrier")


class Neighbour:
    """One job. `number` decides what it calls; `ranks` of them. `line` starts it, {} stands for number, ready and go."""

    def __init__(self, number, ranks, folder, go, directory=None):
        self.number, self.ranks, self.go = number, ranks, go
        self.directory = directory or os.path.join(folder, f"report-{number}")
        self.ready = os.path.join(folder, f"ready-{number}")
        self.job = self.result = None

    def arguments(self, program):
        return [program, str(self.number), self.ready, self.go]

    def start(self, line, env=None, cwd=None):
        self.job = jobs.Running(line, self.directory, env, cwd)

    def waits(self):
        return os.path.exists(self.ready)

    def story(self):
        return f"job {self.number}, {self.ranks} ranks: " + (self.result.text() if self.result else " ".join(self.job.line))

    def check_reports(self, found=None):
        """Its own ranks, with its own calls, and nothing else. The launch key."""
        found = found or reports.load(self.directory)
        assert sorted(found) == list(range(self.ranks)), (sorted(found), self.story())
        keys = {report["launch"] for report in found.values()}
        assert len(keys) == 1 and all(report["launch_agreed"] for report in found.values()), (keys, self.story())
        for rank, report in found.items():
            assert report["world_size"] == self.ranks and report["outcome"] == "finished", (rank, report["outcome"], self.story())
            assert report["host"] == os.uname().nodename and report["findings"] == [], (report["findings"], self.story())
            assert report["all_ranks_preloaded"], (report["notes"], self.story())
            counts = reports.counts(report)
            assert {name: counts.get(name, 0) for name in CALLS} == {
                name: 11 + self.number if i == self.number % 3 else 0 for i, name in enumerate(CALLS)}, (counts, self.story())
        hangs = glob.glob(os.path.join(glob.escape(self.directory), "**", "hang-*"), recursive=True)
        assert not hangs, (hangs, self.story())
        return keys.pop()

    def check_output(self):
        result = self.result
        assert result.returncode == 0, self.story()
        assert f"job {self.number}: {self.ranks} of them".encode() in result.stdout, self.story()
        for wrong in (b"hang [", b"mismatch", b"disagree", b"without resil", b"finding"):
            assert wrong not in result.stderr, self.story()


def wait_until(condition, what, seconds=300):
    left = patience.Patience(seconds)
    while not condition():
        assert left.left() > 0, what()
        time.sleep(0.05)


def all_wait(all_jobs):
    """Until every job waits in its call, or one has ended."""
    wait_until(lambda: all(job.waits() or job.job.poll() is not None for job in all_jobs),
               lambda: "never came to its call: " + ", ".join(str(job.number) for job in all_jobs if not job.waits()))


def release(go):
    with open(go, "w", encoding="ascii"):
        pass


def end(all_jobs):
    wait_until(lambda: all(job.job.poll() is not None for job in all_jobs),
               lambda: "did not end: " + ", ".join(str(job.number) for job in all_jobs if job.job.poll() is None))
    for job in all_jobs:
        job.result = job.job.end()
