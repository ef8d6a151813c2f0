#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every call is seen, once: all counters of all ranks equal those of an independent counter in the same run, for the
test programs in all languages and for real programs.

Usage: coverage_test.py BUILD openmpi|mpich
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402
from oracle import oracle  # noqa: E402

PROGRAMS = ["p2p", "collectives", "communicators", "datatypes", "callbacks", "errors", "rma", "files", "threads", "cxx",
            "plugin_host", "fortran_mpif", "fortran_use_mpi", "fortran_f08"]
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack"
MELT = "/usr/share/lammps/examples/melt/in.melt"
MPI4PY = os.path.join(jobs.ROOT, "tests", "mpi4py")


def real_programs(mpi):
    """[(name, command, directory, standard input)] of those installed."""
    found = []
    if os.path.exists(f"{SCALAPACK}/{mpi}-tests/xdqr"):
        found.append(("scalapack xdqr", ["./xdqr"], f"{SCALAPACK}/{mpi}-tests", b""))
    if mpi == "openmpi" and jobs.installed("lmp") and jobs.installed(MELT):
        found.append(("lammps", ["lmp", "-in", MELT, "-log", "none"], None, b""))
    if mpi == "openmpi" and jobs.installed("/usr/lib/mumps/dsimpletest"):
        with open("/usr/lib/mumps/input_simpletest_real", "rb") as file:
            found.append(("mumps", ["/usr/lib/mumps/dsimpletest"], None, file.read()))
    if mpi == "openmpi" and jobs.installed("/usr/lib/python3/dist-packages/mpi4py"):
        for name in ("p2p", "collectives", "threads"):
            found.append((f"mpi4py {name}", ["/usr/bin/python3", f"{MPI4PY}/{name}.py"], None, b""))
    return found


def leave_out(mpi, name):
    """Of programs that this MPI cannot run, or whose calls cannot be counted apart from its own."""
    if mpi == "openmpi" and name.endswith("threads") and jobs.openmpi_version() >= (6,):
        raise LeftOut("Open MPI 6.0.0rc2 hangs in it natively in many runs: docs/PLATFORMS.md")
    if name == "files" and jobs.standard_abi("mpich"):
        raise LeftOut("the library's own MPI-IO calls its own functions by the names that programs use")


def check(mpi, counter, command, cwd=None, stdin=b"", options=(), name=""):
    leave_out(mpi, name)
    counts = jobs.scratch()
    result = jobs.run(mpi, 2, command, env={"ORACLE": counts}, tools_before=[counter], stdin=stdin, options=options,
                      cwd=cwd or jobs.scratch())
    assert result.returncode == 0, result.text()
    expected, ranks, wrong, total = oracle.counted(counts), result.ranks(), [], 0
    assert sorted(expected) == sorted(report["pid"] for report in ranks.values()), "other processes than ranks"
    for rank, report in ranks.items():
        ours, theirs = reports.counts(report), expected[report["pid"]]
        wrong += [f"rank {rank}, {name}: {ours.get(name, 0)} counted, {theirs.get(name, 0)} made"
                  for name in sorted({*ours, *theirs}) if ours.get(name, 0) != theirs.get(name, 0)]
        total += sum(theirs.values())
    assert not wrong, "\n".join(wrong)
    return f"{total} calls"


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}", "nm", "cc")
    if os.uname().machine != "x86_64":
        jobs.skip("the independent counter is written for x86-64")
    counter = oracle.build(jobs.library(), jobs.scratch())
    checks = []
    for name in PROGRAMS:
        command = [os.path.join(build, f"{name}.{mpi}")]
        if name == "files":
            command.append(os.path.join(jobs.scratch(), "file"))
        if name == "plugin_host":
            command.append(os.path.join(build, f"plugin.{mpi}.so"))
        options = ["--mca", "osc", "^rdma"] if name == "rma" and mpi == "openmpi" else []
        checks.append((f"{name} ({mpi})", lambda c=command, o=options, n=name: check(mpi, counter, c, options=o, name=n)))
    checks = shared(checks, mpi)
    for name, command, cwd, stdin in real_programs(mpi):
        checks.append((f"{name} ({mpi})", lambda c=command, d=cwd, i=stdin, n=name: check(mpi, counter, c, d, i, name=n)))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
