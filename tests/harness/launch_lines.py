# SPDX-License-Identifier: Apache-2.0
"""README's table of launch lines, and a directory in which they run as printed: build/libresil.so, ./app, mpirun."""
import os
import re
import subprocess

from harness import mpi as jobs, report as reports

APP = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) printf("%d ranks\\n", size);
  return MPI_Finalize();
}
"""


def readme():
    with open(os.path.join(jobs.ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


def lines():
    """{launcher, as the table names it: line}"""
    table = readme().split("| launcher | line |", 1)[1].split("\n\n", 1)[0]
    return {name.strip(): line for name, line in re.findall(r"^\| ([^|]+) \| `([^`]+)` \|$", table, re.M)}


def line_for(word):
    """The one line of the launcher whose name begins so."""
    found = [line for name, line in lines().items() if name.startswith(word)]
    assert len(found) == 1 and "$PWD/build/libresil.so" in found[0], (word, lines())
    return found[0]


def place(mpi):
    path = jobs.scratch()
    for name in ("build", "bin"):
        os.mkdir(os.path.join(path, name))
    os.symlink(jobs.library(), os.path.join(path, "build", "libresil.so"))
    for name in ("mpirun", "mpicc"):
        script = os.path.join(path, "bin", name)
        with open(script, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {name}.{mpi} "$@"\n')
        os.chmod(script, 0o755)
    with open(os.path.join(path, "app.c"), "w", encoding="ascii") as file:
        file.write(APP)
    subprocess.run([os.path.join(path, "bin", "mpicc"), "-o", "app", "app.c"], cwd=path, check=True)
    return path


def environment(path):
    """A launcher that is called mpirun, and as many ranks as the line says on however many cores."""
    return {"PATH": os.path.join(path, "bin") + os.pathsep + os.environ["PATH"], "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1"}


def check(path, ranks, stdout):
    """Every rank was watched, and by one job; in the directory that it gets when none is named."""
    assert stdout.decode().splitlines() == [f"{ranks} ranks"], stdout
    found = [name for name in os.listdir(path) if name.startswith("resil-app-")]
    assert len(found) == 1, os.listdir(path)
    report = reports.load(os.path.join(path, found[0]))
    assert sorted(report) == list(range(ranks)), sorted(report)
    assert {(one["outcome"], one["world_size"], one["launch"]) for one in report.values()} == {
        ("finished", ranks, report[0]["launch"])}, report
