#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo and scripts/demo repro show, on each MPI of scripts/matrix, in every mode that has to do with host memory: a job
that is asked in its middle what it does goes on, and its report is clean; a flipped bit stops it; the same without it; the same
bits whichever way the library adds; a recorded run is verified. On Debian's LAMMPS where the MPI is its own (package lammps), and
on conjugate gradients in Fortran.

Usage: demo_test.py openmpi|mpich
"""
import os
import subprocess
import sys

from app import jobs, run_checks
from harness import flips, patience
from harness.main import LeftOut

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
LIMIT = 240
# Two ways to add, as two allocations would have.
WAYS = {"openmpi": [("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", number) for number in "13"],
        "mpich": [("-genv", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", name) for name in ("recursive_doubling", "reduce_scatter_allgather")]}


def tool(verb, directory, status=0):
    done = patience.run([sys.executable, TOOL, verb, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == status, f"{verb}: status {done.returncode}\n{text}"
    return text


class Story:
    """One program's scenes. make(work): the program (flips.Program) with so many times its usual work."""

    def __init__(self, mpi, make):
        self.mpi, self.make = mpi, make
        self.ranks = 4 if mpi == "openmpi" else 2 if jobs.loses_messages(mpi) else 3
        # MPICH 3.4.1 ends a job that forces the second one, at the first sum of fewer elements than ranks.
        self.ways = [WAYS[mpi][0], ()] if jobs.before_mpi4(mpi) else WAYS[mpi]
        self._program = None

    def program(self):
        self._program = self._program or self.make(1)
        return self._program

    def run(self, env=None, status=0, way=0, **more):
        program = self.program()
        result = jobs.run(self.mpi, self.ranks, program.command, env=env, options=self.ways[way], cwd=program.directory,
                          timeout=LIMIT, **more)
        assert result.returncode == status, result.text()
        if status == 0:
            assert len(program.result(result)) > 3, result.text()
        return result

    def same(self, one, other):
        """The same numbers, to the last bit."""
        first, second = self.program().result(one), self.program().result(other)
        assert first == second, f"{one.text()}\n{other.text()}"

    def watch(self):
        """A job that was over before it could be asked is made longer."""
        for work in (4, 16, 64):
            program, reports = self.make(work), os.path.join(jobs.scratch(), "report")
            line = jobs.launcher(self.mpi, self.ranks, jobs.rank_environment(True, reports)) + program.command
            job = jobs.Running(line, reports, cwd=program.directory)
            try:
                patience.wait_for(lambda: len(jobs.live_rings(reports)) == self.ranks or job.poll() is not None,
                                  "every rank is in MPI", LIMIT, pause=0.05)
                done = patience.run([sys.executable, TOOL, "dump", reports], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    timeout=LIMIT)
                asked = job.poll() is None
                patience.wait_for(lambda: job.poll() is not None, "the job goes on to its end", LIMIT, pause=0.05)
            finally:
                result = job.end()
            assert result.returncode == 0 and len(program.result(result)) > 3, result.text()
            if not asked:
                continue
            text = done.stdout.decode(errors="replace")
            assert done.returncode == 0, f"{text}\n{result.text()}"
            assert f"{self.ranks} of {self.ranks} answered" in text, text
            return tool("report", reports).splitlines()[0]
        raise AssertionError("each job was over before it could be asked")

    def flipped(self):
        result = self.run({"RESIL_MODE": "checksum", "RESIL_FAULT": "flip,rank=1,min=100,nth=20", "RESIL_BLAME": "full"}, status=90)
        assert b"message_corrupted" in result.stderr, result.text()
        return tool("report", result.directory, status=1).splitlines()[0]

    def checked(self):
        result = self.run({"RESIL_MODE": "checksum"})
        self.same(self.run(preload=False), result)
        text = tool("report", result.directory)
        assert text.startswith("CLEAN: "), text
        return text.splitlines()[0]

    def reduced(self, how):
        runs = [self.run({"RESIL_REDUCE": how}, way=way) for way in (0, 1)]
        self.same(*runs)
        text = tool("report", runs[1].directory)
        assert "reductions" in text, text

    def verified(self):
        place = os.path.join(jobs.scratch(), "recording")
        recorded = self.run({"RESIL_MODE": "record", "RESIL_RECORD": place})
        again = self.run({"RESIL_MODE": "verify", "RESIL_RECORD": place}, way=1)
        self.same(recorded, again)
        text = tool("report", again.directory)
        assert "agree with the recording" in text, text

    def scenes(self, name):
        return [(f"{name}: {what}", scene) for what, scene in (
            ("watch, asked in its middle", self.watch), ("checksum", self.checked), ("checksum, a flipped bit", self.flipped),
            ("reductions in order", lambda: self.reduced("order")), ("exact reductions", lambda: self.reduced("exact")),
            ("record, verify", self.verified))]


def gradients(mpi, work):
    directory = jobs.scratch()
    wrapper = f"mpif90.{mpi}"
    if jobs.standard_abi(mpi):
        raise LeftOut("Fortran here is of the MPI's own ABI; the demo's story on a C program is in `modes`")
    if not jobs.installed(wrapper):
        raise LeftOut(f"{wrapper} is not installed")
    program = os.path.join(directory, "cg")
    subprocess.run([wrapper, "-O2", "-g", "-o", program, os.path.join(jobs.ROOT, "tests", "apps", "cg.f90")], check=True, cwd=directory)
    return flips.Program("cg", [program, "160", str(200 * work)], r"residual|solution", 200, directory)


def main(mpi):
    jobs.require(f"mpirun.{mpi}")
    scenes = Story(mpi, lambda work: gradients(mpi, work)).scenes("conjugate gradients")
    if mpi == "openmpi" and not jobs.standard_abi(mpi) and jobs.installed("lmp"):
        scenes = Story(mpi, lambda work: flips.lammps(100 * work)).scenes("LAMMPS") + scenes
    return run_checks(scenes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
