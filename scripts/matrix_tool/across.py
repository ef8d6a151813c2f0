# SPDX-License-Identifier: Apache-2.0
"""One recording for all cells, and the bits of reductions on all of them.

The first cell records tests/mpi/replay.c, whose result is another one in each run; every cell verifies that recording and
must print what the recorded run printed. Every cell runs tests/mpi/reductions.cpp, which prints a digest for each type and
operation; all of them must have the digests of the first one."""
import hashlib
import os
import re
import shutil
import subprocess

from .cells import Impossible

PROGRAM = ("recv", "200")
RANKS = (2, 3)


def launch(cell, ranks, environment):
    """The launcher's words up to the program."""
    line = [f"mpirun.{cell.mpi}"]
    if cell.mpi == "openmpi":
        line += ["--oversubscribe"]
        line += [word for name, value in environment.items() for word in ("-x", f"{name}={value}")]
    else:
        line += [word for name, value in environment.items() for word in ("-genv", name, value)]
    return line + ["-n", str(ranks)]


def job(cell, system, ranks, command, **settings):
    """(standard output, standard error) of a job that must end well."""
    environment = {"LD_PRELOAD": f"{system.build}/libresil.so", "RESIL_DIR": f"{system.build}/across/report", **settings}
    options = {"env": {"LD_LIBRARY_PATH": system.environment["RESIL_TEST_MPI_LIBRARY"]}} if cell.abi == "standard" else {}
    shutil.rmtree(system.built("across", "report"), ignore_errors=True)
    done = system.run("timeout", "600", *launch(cell, ranks, environment), *command, check=False, text=True, errors="replace",
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options)
    if done.returncode:
        raise Impossible(f"{cell.name}: {' '.join(command)}: status {done.returncode}\n{done.stdout[-600:]}{done.stderr[-1500:]}")
    return done.stdout, done.stderr


def digests_of(cell, system, ranks, mode):
    """{what: digest}"""
    out, _ = job(cell, system, ranks, [f"{system.build}/tests/mpi/reductions.{cell.mpi}", mode], RESIL_REDUCE=mode)
    return dict(re.findall(r"(?m)^(.+) ([0-9a-f]{16})$", out))


def together(digests, names):
    return hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(names)).encode()).hexdigest()


def record(cell, system, folder):
    """The recording and what its run printed, kept in the folder."""
    place = f"{system.build}/across"
    shutil.rmtree(system.outside(place), ignore_errors=True)
    os.makedirs(system.outside(place))
    out, _ = job(cell, system, 2, [f"{system.build}/tests/mpi/replay.{cell.mpi}", *PROGRAM], RESIL_MODE="record",
                 RESIL_RECORD=f"{place}/recording")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(system.outside(f"{place}/recording"), os.path.join(folder, "recording"))
    with open(os.path.join(folder, "printed"), "w", encoding="utf-8") as file:
        file.write(out)
    with open(os.path.join(folder, "made-on"), "w", encoding="utf-8") as file:
        file.write(cell.name)


def verify(cell, system, folder):
    """Words for what came of it; Impossible when it does not verify."""
    place = f"{system.build}/across"
    shutil.rmtree(system.outside(place), ignore_errors=True)
    shutil.copytree(os.path.join(folder, "recording"), system.outside(f"{place}/recording"))
    out, error = job(cell, system, 2, [f"{system.build}/tests/mpi/replay.{cell.mpi}", *PROGRAM], RESIL_MODE="verify",
                     RESIL_RECORD=f"{place}/recording")
    with open(os.path.join(folder, "printed"), encoding="utf-8") as file:
        printed = file.read()
    if out != printed:
        raise Impossible(f"{cell.name}: printed\n{out}instead of\n{printed}")
    report = system.run("python3", f"{system.source}/scripts/resil", "report", f"{place}/report", check=False, text=True,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if report.returncode:
        raise Impossible(f"{cell.name}: the report of verify is not clean\n{report.stdout[-1500:]}{error[-800:]}")
    values = re.search(r"([\d,]+) values", report.stdout)
    with open(os.path.join(folder, "made-on"), encoding="utf-8") as file:
        return f"clean{f', {values[1]} values' if values else ''} (made on {file.read()})"


def compare(first, found, name):
    """Impossible when a bit differs. first: {what: digest} of the cells before, to which this one's are added."""
    for what, digest in found.items():
        if first.setdefault(what, digest) != digest:
            raise Impossible(f"{name}: {what}: {digest}, elsewhere {first[what]}")
