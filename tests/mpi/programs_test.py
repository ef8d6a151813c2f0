#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs test programs with and without the library and compares; checks the calls counted by rank 0.

Usage: programs_test.py BUILD openmpi|mpich PROGRAM…      (BUILD holds PROGRAM.MPI; the sources lie beside this file)

A program's first comment says how it is run:
  ranks: N                     calls: MPI_Send=3 …   what rank 0 must have counted (0: not at all)
  needs: mpich                 only there              arguments: text; FILE is a scratch file, other upper-case words
  exit(mpich): 15              status of the program   are the libraries that plugin_host.c loads
  launch(openmpi): options     of the launcher
"""
import glob
import hashlib
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import LeftOut, Long, half, run_checks  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def directives(name, mpi):
    """{directive: text} of the program's source for this MPI; several `calls` lines are joined."""
    path = next(p for p in sorted(glob.glob(os.path.join(HERE, name + ".*"))) if not p.endswith(".py"))
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"(?://|!)\s*(\w+)(?:\((\w+)\))?: (.*)", line)
            if match and match[2] in (None, mpi):
                found[match[1]] = (found.get(match[1], "") + " " + match[3]).strip()
            elif not re.match(r"//|!", line):
                break
    return found


def expected_calls(text):
    return {name: int(count) for name, count in re.findall(r"(MPI_\w+)=(\d+)", text)}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Program:
    def __init__(self, build, mpi, name, options=()):
        self.mpi, self.name, self.build = mpi, name, build
        self.rules = directives(name, mpi)
        self.ranks = int(self.rules["ranks"])
        self.options = self.rules.get("launch", "").split() + list(options)

    def command(self, file):
        words = {"FILE": file, "PLUGIN": os.path.join(self.build, f"plugin.{self.mpi}.so")}
        arguments = [words[word] for word in self.rules.get("arguments", "").split() if word in words]
        return [os.path.join(self.build, f"{self.name}.{self.mpi}"), *arguments]

    def run(self, preload, mode="watch"):
        """Runs it; the result and the digest of the file it wrote, if any."""
        file = os.path.join(jobs.scratch(), "file")
        result = jobs.run(self.mpi, self.ranks, self.command(file), preload=preload, options=self.options,
                          env={"RESIL_MODE": mode} if preload else None)
        return result, digest(file) if os.path.exists(file) else None

    def check(self, modes=("watch", "off")):
        """Plain, watched and switched off: the same end; rank 0's counters as the source says."""
        status = int(self.rules.get("exit", 0))
        newest = self.mpi == "mpich" and jobs.mpich_version() >= (5,)
        if self.name == "spawn" and (newest or jobs.before_mpi4(self.mpi)):  # Debian's packages of 4.0 and 4.2 refuse
            status = 0
        if self.mpi == "openmpi" and self.name in ("threads", "stress_threads") and jobs.openmpi_version() >= (6,):
            raise LeftOut("Open MPI 6.0.0rc2 hangs in it natively in many runs: docs/PLATFORMS.md")
        if self.name == "rma_threads" and jobs.before_mpi4(self.mpi):
            raise LeftOut("MPICH 3.4.1 hangs in it natively in many runs: docs/PLATFORMS.md")
        plain, wrote = self.run(False)
        for _ in range(transparent.NATIVE_RUNS if status else 0):
            if plain.returncode == status:
                break
            plain, wrote = self.run(False)
        assert plain.returncode == status, f"the plain run ends with {plain.returncode}\n{plain.text()}"
        for mode in modes:
            watched, also_wrote = self.run(True, mode)
            try:
                transparent.same_end(plain, watched, again=(lambda: self.run(False)[0]) if status else None)
                assert wrote == also_wrote, "the file written differs"
                if mode == "off":
                    assert not os.path.exists(watched.directory), "RESIL_MODE=off writes reports"
                    assert transparent.own_lines(watched.stderr) == [], watched.text()
                elif status == 0:
                    self.counted(transparent.clean_report(watched, self.ranks)[0])
                    assert transparent.without_noise(watched.stderr) == transparent.without_noise(plain.stderr), \
                        transparent.describe("standard error differs", plain, watched)
            finally:
                jobs.remove_rings(watched.directory)

    def counted(self, report):
        counts = reports.counts(report)
        fortran = self.name.startswith("fortran") and self.mpi == "mpich" and jobs.mpich_version() >= (5,)
        if fortran:  # its Fortran makes operators by MPIX_Op_create_x
            counts["MPI_Op_create"] = counts.get("MPIX_Op_create_x", 0)
        wrong = [f"{name}: {counts.get(name, 0)} counted, {count} made"
                 for name, count in expected_calls(self.rules.get("calls", "")).items() if counts.get(name, 0) != count]
        assert not wrong, "\n".join(["rank 0 counted other calls than it made"] + wrong)


def main(build, mpi, *names):
    jobs.require(f"mpirun.{mpi}")
    jobs.as_delivered()
    checks = []
    off_here = half(names, mpi)[0]  # switched off: on one of the MPIs
    for name in names:
        program = Program(build, mpi, name)
        if program.rules.get("needs", mpi) != mpi:
            continue
        if name in off_here or program.rules.get("needs"):
            checks.append((f"{name} ({mpi})", program.check))
        else:
            checks += [(f"{name} ({mpi})", lambda program=program: program.check(["watch"])),
                       (f"{name}, switched off ({mpi})", Long(lambda program=program: program.check(["off"])))]
        if name == "files" and mpi == "openmpi" and jobs.openmpi_has("io", "romio"):
            romio = Program(build, mpi, name, ["--mca", "io", "^ompio"])
            checks.append((f"{name} (openmpi, ROMIO)", romio.check))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
