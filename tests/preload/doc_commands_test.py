#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command in a block of README and of the pages for users (docs/using) runs as printed and ends as the page says
(tests/harness/launch_lines.py: blocks; those that need Slurm: slurm_test.py).

Usage: doc_commands_test.py [PAGE...]
Touches scratch directories, and the jobs that it starts.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402


class Place:
    """Where the commands of one page run, one after the other, as a reader would."""

    def __init__(self):
        self.path = launch_lines.place("openmpi")
        self.mpi = "openmpi"
        launch_lines.add_command(self.path)

    def use(self, mpi):
        """mpirun and mpicc are this MPI's."""
        for name in ("mpirun", "mpicc") if mpi != self.mpi else ():
            with open(os.path.join(self.path, "bin", name), "w", encoding="ascii") as file:
                file.write(f'#!/bin/sh\nexec {name}.{mpi} "$@"\n')
        self.mpi = mpi

    def newest(self):
        """What a page calls DIR: the newest reports."""
        found = [os.path.join(self.path, name) for name in os.listdir(self.path) if name.startswith("resil-")
                 and name != "resil-record" and os.path.isdir(os.path.join(self.path, name))]
        return max(found, key=os.path.getmtime, default="DIR")

    def run(self, line, expected):
        line = " ".join(self.newest() if word == "DIR" else word for word in line.split(" "))
        for left in (1, 0):
            done = jobs.start(["sh", "-c", line], env=launch_lines.environment(self.path), cwd=self.path, timeout=90)
            if not (left and done.timed_out and self.mpi == "mpich"):  # MPICH 4.0.2 by itself
                break
        assert done.returncode == expected, f"expected {expected}: {done.text()}"

    def beside(self):
        """A job that goes on until end()."""
        job = jobs.Running([os.path.join(self.path, "bin", "resil"), "run", "mpirun", "-np", "2", "./app"], env=launch_lines.environment(self.path), cwd=self.path)
        patience.wait_for(lambda: job.poll() is not None or self.runs(), "the job beside", 60)
        return job

    def runs(self):
        done = jobs.start([os.path.join(self.path, "bin", "resil"), "status", "--json", self.newest()], cwd=self.path)
        return done.returncode == 0 and b'"calls": []' not in done.stdout

    def end(self, job):
        with open(os.path.join(self.path, "stop"), "wb"):
            pass
        patience.wait_for(lambda: job.poll() is not None, "the end of the job beside", 60)
        os.unlink(os.path.join(self.path, "stop"))
        done = job.end()
        assert done.returncode == 0, done.text()


def page_runs(page):
    def check():
        place, said = Place(), 0
        for block in launch_lines.blocks(page):
            if block.flags & {"slurm", "ci"}:
                continue
            if not jobs.installed("mpirun." + block.mpi):
                raise LeftOut(f"mpirun.{block.mpi} is not installed")
            place.use(block.mpi)
            launch_lines.compile_app(place.path, block.app)
            job = place.beside() if "beside" in block.flags else None
            for line, expected in block.commands:
                place.run(line, expected)
                said += 1
            if job:
                place.end(job)
        return f"{said} commands"
    return check


def ci_runs_them():
    """What is left to .ci/run is in what it runs."""
    script = ""
    for name in (".ci/run", "scripts/demo", "scripts/test"):
        with open(os.path.join(jobs.ROOT, name), encoding="utf-8") as file:
            script += file.read()
    lines = [line for page in launch_lines.pages() for block in launch_lines.blocks(page) if "ci" in block.flags for line in block.lines]
    words = {word for line in lines for word in re.findall(r"scripts/\w[\w-]*|(?<![/\w])(?:meson|ninja) \S+", line)}
    missing = [word for word in words if word.split("/")[-1] not in script]
    assert len(words) >= 3 and not missing, (words, missing)


def main(*names):
    jobs.require("mpirun.openmpi", "mpicc.openmpi")
    pages = [page for page in launch_lines.pages() if any(block.lines for block in launch_lines.blocks(page))
             and (not names or os.path.basename(page) in names)]
    assert names or len(pages) > 8, pages
    return run_checks([(os.path.basename(page), page_runs(page)) for page in pages] + [("left to .ci/run", ci_runs_them)], side_by_side=2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
