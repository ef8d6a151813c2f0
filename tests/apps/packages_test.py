#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's parallel HDF5, NetCDF and PnetCDF with their tools, and mpi4py's own programs: the same output, status and
files, byte by byte, natively and in every mode, and no finding.

Usage: packages_test.py [--modes MODE…]
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import hostile, mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's mpi4py
NETCDF = "/usr/lib/x86_64-linux-gnu/netcdf/mpi/include"

FUTURES = """
from mpi4py.futures import MPIPoolExecutor
def square(x):
    return x * x
if __name__ == '__main__':
    with MPIPoolExecutor(max_workers=1) as pool:
        print(sum(pool.map(square, range(200))))
        print(sorted(f.result() for f in [pool.submit(square, k) for k in range(5)]))
"""


def without_times(text):
    return re.sub(rb"\d+\.\d+(e[-+]\d+)?", b"T", text)


def sorted_lines(text):
    return b"\n".join(sorted(text.splitlines()))


def compiled(folder, source, *command):
    program = os.path.join(folder, "program")
    subprocess.run([*command[:1], "-O1", "-w", "-o", program, os.path.join(HERE, source), *command[1:]], cwd=folder, check=True)
    return program


def with_filters(mpi, command, modes):
    """Parallel HDF5 gathers its lists of filtered chunks as bytes, with pointers in them, other ones in every run: in verify
    there are no filters."""
    hostile.same(hostile.Job(mpi, command), [mode for mode in modes if mode not in hostile.RECORDED])
    return hostile.same(hostile.Job(mpi, [*command, "plain"]), [mode for mode in modes if mode in hostile.RECORDED])


def hdf5(mpi, modes):
    program = compiled(jobs.scratch(), "hdf5.c", f"h5pcc.{mpi}")
    return with_filters(mpi, [program] + (["short"] if mpi == "mpich" else []), modes)


def netcdf_program():
    return compiled(jobs.scratch(), "netcdf.c", "mpicc.openmpi", "-I" + NETCDF, "-lnetcdf_mpi", "-lpnetcdf")


def netcdf(modes):
    return with_filters("openmpi", [netcdf_program()], modes)


def netcdf_tools(modes):
    folder = jobs.scratch()
    result = jobs.run("openmpi", 2, [netcdf_program()], preload=False, cwd=folder)
    assert result.returncode == 0, result.text()
    file, large = os.path.join(folder, "classic.nc"), os.path.join(folder, "large.nc")
    for command, ranks in ((["ncmpidiff", file, large], 2), (["ncmpidiff", file, file], 2), (["ncmpidump", file], 1),
                           (["ncvalidator", file], 1), (["ncoffsets", file], 1)):
        hostile.same(hostile.Job("openmpi", command, ranks=ranks), modes, None)
    return f"{len(modes)} modes"


def bench(name, modes, keep):
    job = hostile.Job("openmpi", [PYTHON, "-m", "mpi4py.bench", name], keep=keep, env={"PYTHONDONTWRITEBYTECODE": "1"})
    return hostile.same(job, modes)


def futures(modes, spawn):
    script = os.path.join(jobs.scratch(), "futures.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(FUTURES)
    command = [PYTHON, script] if spawn else [PYTHON, "-m", "mpi4py.futures", script]
    return hostile.same(hostile.Job("openmpi", command, ranks=1 if spawn else 2, options=["--oversubscribe"],
                                    env={"PYTHONDONTWRITEBYTECODE": "1"}), modes)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--modes", nargs="+", choices=hostile.MODES, default=list(hostile.MODES))
    modes = parser.parse_args().modes
    # mpi4py.futures decides by time which worker gets what and how often it looks: no recording can give that back.
    by_time = [mode for mode in modes if mode not in hostile.RECORDED]
    checks = []
    for mpi in jobs.MPIS:
        if jobs.installed(f"mpirun.{mpi}") and jobs.installed(f"h5pcc.{mpi}"):
            checks.append((f"HDF5 ({mpi})", lambda mpi=mpi: hdf5(mpi, modes)))
    if jobs.installed("mpirun.openmpi"):
        if glob.glob(NETCDF + "/netcdf_par.h") and glob.glob("/usr/include/pnetcdf.h"):
            checks.append(("NetCDF", lambda: netcdf(modes)))
            if shutil.which("ncmpidiff"):
                checks.append(("NetCDF's tools", lambda: netcdf_tools(modes)))
        if subprocess.run([PYTHON, "-c", "import mpi4py"], check=False, capture_output=True).returncode == 0:
            checks += [("mpi4py.bench helloworld", lambda: bench("helloworld", modes, sorted_lines)),
                       ("mpi4py.bench ringtest", lambda: bench("ringtest", modes, without_times)),
                       ("mpi4py.futures", lambda: futures(by_time, False)),
                       ("mpi4py.futures, spawned", lambda: futures(by_time, True))]
    if not checks:
        jobs.skip("none of the packages is installed")
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main())
