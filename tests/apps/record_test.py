#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs, recorded and verified: nothing is found, and everything was compared. LAMMPS without its timers, which
it sums up over the ranks; programs in Python and in Fortran, by each of its three bindings, which know how good their result is."""
import os
import re
import subprocess

from app import jobs, main

MELT = "/usr/share/lammps/examples/melt/in.melt"
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's mpi4py


def clean_pair(command, ranks, least, env=None, cwd=None, check=lambda text: None):
    """Both runs end well and alike; check(standard output) asserts what is known of the result."""
    recording = os.path.join(jobs.scratch(), "recording")
    for mode in ("record", "verify"):
        result = jobs.run("openmpi", ranks, command, cwd=cwd, timeout=120,
                          env={"RESIL_MODE": mode, "RESIL_RECORD": recording, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        assert result.returncode == 0, result.text()
        check(result.stdout.decode(errors="replace"))
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


def fortran(name, arguments, ranks, least, check=lambda text: None):
    jobs.require("mpif90.openmpi")
    program = os.path.join(jobs.scratch(), name)
    source = os.path.join(jobs.ROOT, "tests", "apps", name + ".f90")
    subprocess.run(["mpif90.openmpi", "-O1", "-o", program, source], check=True, cwd=os.path.dirname(program))
    return clean_pair([program, *arguments], ranks, least, check=check)


def number_after(words, least, most):
    """A check that the number after the words is in a range."""
    def check(text):
        found = re.search(rf"{words} +(\S+)", text)
        assert found and least <= float(found[1]) <= most, text
    return check


def python(name):
    return clean_pair([PYTHON, os.path.join(jobs.ROOT, "tests", "mpi4py", name + ".py")], 2, 30)


if __name__ == "__main__":
    jobs.require("mpirun.openmpi", PYTHON)
    main([("lammps", lammps), ("conjugate gradients in Fortran", lambda: fortran("cg", ["64", "60"], 4, 1000)),
          # A transform and its inverse, to rounding; the error of the discretisation with 32 cells, 0.0032.
          ("Fourier transforms in Fortran", lambda: fortran("fft", ["32", "20"], 4, 150, number_after("identities hold to", 0, 1e-13))),
          ("multigrid in Fortran", lambda: fortran("multigrid", ["32", "12"], 4, 4000, number_after("distance", 0.0025, 0.0035)))] +
         [("mpi4py, " + name, lambda name=name: python(name)) for name in ("p2p", "collectives", "threads")])
