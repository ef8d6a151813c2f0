#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs, recorded and verified: nothing is found, and everything was compared. LAMMPS without its timers, which
it sums up over the ranks; programs in Python and Fortran."""
import os
import subprocess

from app import jobs, main

MELT = "/usr/share/lammps/examples/melt/in.melt"
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's mpi4py


def clean_pair(command, ranks, least, env=None, cwd=None):
    recording = os.path.join(jobs.scratch(), "recording")
    for mode in ("record", "verify"):
        result = jobs.run("openmpi", ranks, command, cwd=cwd, timeout=120,
                          env={"RESIL_MODE": mode, "RESIL_RECORD": recording, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        assert result.returncode == 0, result.text()
    seen = [report["verify"] for report in result.ranks().values()]
    assert len(seen) == ranks, result.text()
    for rank, report in result.ranks().items():
        assert report["findings"] == [] and report["verify"]["divergences"] == 0, f"rank {rank}: {report}"
        assert report["verify"]["unmatched"] == 0, report["verify"]
    calls = sum(one["calls"] for one in seen)
    assert calls >= least, seen
    return f"{calls} calls, {sum(one['values'] for one in seen)} values"


def lammps():
    jobs.require("lmp")
    directory = jobs.scratch()
    with open(MELT, encoding="ascii") as file:
        text = file.read()
    lines = [line if not line.startswith("run") else "run 100" for line in text.splitlines()]
    path = os.path.join(directory, "in.melt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(["timer off"] + lines) + "\n")
    return clean_pair(["lmp", "-in", path, "-log", "none"], 2, 2000, cwd=directory)


def fortran():
    jobs.require("mpif90.openmpi")
    program = os.path.join(jobs.scratch(), "cg")
    source = os.path.join(jobs.ROOT, "tests", "apps", "cg.f90")
    subprocess.run(["mpif90.openmpi", "-O1", "-o", program, source], check=True, cwd=os.path.dirname(program))
    return clean_pair([program, "64", "60"], 4, 1000)


def python(name):
    return clean_pair([PYTHON, os.path.join(jobs.ROOT, "tests", "mpi4py", name + ".py")], 2, 30)


if __name__ == "__main__":
    jobs.require("mpirun.openmpi", PYTHON)
    main([("lammps", lammps), ("conjugate gradients in Fortran", fortran)] +
         [("mpi4py, " + name, lambda name=name: python(name)) for name in ("p2p", "collectives", "threads")])
