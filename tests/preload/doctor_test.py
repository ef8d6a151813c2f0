#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil doctor on this machine: the flipped bit and the hang that it makes are found; and it does not say OK where the library
does not reach the ranks. (What else it must not believe: tests/tools/test_doctor.py.)

Usage: doctor_test.py MPI OTHER_MPI...
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")


def doctor(place, *words, library=None):
    environment = {**launch_lines.environment(place), "RESIL_TOOL_LIBRARY": library or jobs.library()}
    result = jobs.start([sys.executable, TOOL, "doctor", "--json", *words], env=environment, cwd=place, timeout=120)
    found = json.loads(result.stdout)
    return result, found, {check["name"]: check["state"] for check in found["checks"]}


def finds_both(mpi, place):
    result, found, states = doctor(place, "mpirun", "-np", "4", "./app")
    assert result.returncode == 0 and found["verdict"] == "ok", result.text()
    assert {states[name] for name in ("library", "loader", "program", "reach", "signal", "flip", "hang")} == {"ok"}, result.text()
    assert states["Fortran"] == ("ok" if jobs.installed("mpif90." + mpi) else "left out"), result.text()
    assert not result.leftovers and os.listdir(place).count("app.c") == 1, os.listdir(place)
    assert not [name for name in os.listdir(place) if name.startswith("resil-")], os.listdir(place)
    return "in %.1f s" % found["seconds"]


def a_library_that_does_nothing(place):
    """A file of that name that is no resil: nothing is said to be well."""
    empty = os.path.join(jobs.scratch(), "libresil.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", empty], check=True)
    result, found, states = doctor(place, "mpirun", "-np", "4", "./app", library=empty)
    assert result.returncode == 1 and found["verdict"] == "failed", result.text()
    assert states["library"] == states["reach"] == "failed" and "flip" not in states, result.text()


def another_mpi(place, other):
    if not other:
        raise LeftOut("one MPI only")
    result, _, states = doctor(place, "--no-self-test", "mpirun." + other[0], "-np", "4", "./app")
    assert result.returncode == 1 and states["program"] == "failed", result.text()


def main(mpi, *others):
    place = launch_lines.place(mpi)
    return run_checks([("finds a flipped bit and a hang", lambda: finds_both(mpi, place)),
                       ("a library that does nothing", lambda: a_library_that_does_nothing(place)),
                       ("a launcher of another MPI", lambda: another_mpi(place, others))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
