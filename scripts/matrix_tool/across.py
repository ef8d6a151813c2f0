# SPDX-License-Identifier: Apache-2.0
"""One recording for all cells, and the bits of reductions on all of them.

The cell of the oldest release of each ABI (Open MPI's, MPICH's, the standard one) builds tests/mpi/replay.c, whose result is another
one in each run, and records it; all other cells of that ABI verify that recording with that program, and must print what the recorded
run printed. (A recording is of one build of a program: what was compiled for one ABI does not run on another.)
Every cell runs tests/mpi/reductions.cpp, which prints a digest for each type and
operation; all of them must have the digests of the first one, long double apart on aarch64, where it is another type."""
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
    for _ in range(3):
        shutil.rmtree(system.built("across", "report"), ignore_errors=True)
        done = system.run("timeout", "600", *launch(cell, ranks, environment), *command, check=False, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options)
        if done.returncode != 213 or done.stdout or os.path.exists(system.built("across", "report")):
            break  # else prterun of Open MPI 5 ended before any rank ran: docs/PLATFORMS.md, "Known"
    if done.returncode:
        raise Impossible(f"{cell.name}: {' '.join(command)}: status {done.returncode}\n{done.stdout[-600:]}{done.stderr[-1500:]}")
    return done.stdout, done.stderr


def digests_of(cell, system, ranks, mode):
    """{what: digest}"""
    out, _ = job(cell, system, ranks, [f"{system.build}/tests/mpi/reductions.{cell.mpi}", mode], RESIL_REDUCE=mode)
    return dict(re.findall(r"(?m)^(.+) ([0-9a-f]{16})$", out))


def together(digests, names):
    return hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(names)).encode()).hexdigest()


def family(cell, folder):
    """Where the recording of this cell's ABI is kept."""
    machine = "" if cell.machine == "x86_64" else f"-{cell.machine}"
    return os.path.join(folder, ("standard" if cell.abi == "standard" else cell.mpi) + machine)


def place_of(cell, system):
    """An empty folder for the recording and the program; its path there."""
    place = f"{system.build}/across"
    shutil.rmtree(system.outside(place), ignore_errors=True)
    os.makedirs(system.outside(place))
    return place


def record(cell, system, folder):
    """The recording, the program and what its run printed, kept in the folder."""
    place, kept = place_of(cell, system), family(cell, folder)
    system.compile(f"mpicc.{cell.mpi}", "-std=gnu11", "-w", "-O1", "-g", "-o", f"{place}/replay", f"{system.source}/tests/mpi/replay.c")
    out, _ = job(cell, system, 2, [f"{place}/replay", *PROGRAM], RESIL_MODE="record", RESIL_RECORD=f"{place}/recording")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(system.outside(f"{place}/recording"), os.path.join(kept, "recording"))
    shutil.copy2(system.outside(f"{place}/replay"), kept)
    for name, text in (("printed", out), ("made-on", cell.name)):
        with open(os.path.join(kept, name), "w", encoding="utf-8") as file:
            file.write(text)


def verify(cell, system, folder):
    """Words for what came of it; Impossible when it does not verify."""
    place, kept = place_of(cell, system), family(cell, folder)
    shutil.copytree(os.path.join(kept, "recording"), system.outside(f"{place}/recording"))
    shutil.copy2(os.path.join(kept, "replay"), system.outside(place))
    out, error = job(cell, system, 2, [f"{place}/replay", *PROGRAM], RESIL_MODE="verify", RESIL_RECORD=f"{place}/recording")
    with open(os.path.join(kept, "printed"), encoding="utf-8") as file:
        printed = file.read()
    if out != printed:
        raise Impossible(f"{cell.name}: printed\n{out}instead of\n{printed}")
    report = system.run("python3", f"{system.source}/scripts/resil", "report", f"{place}/report", check=False, text=True,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    values = re.search(r"contents of ([\d,]+) values", report.stdout)
    if report.returncode or not values or "agree with" not in report.stdout:
        raise Impossible(f"{cell.name}: the report of verify is not clean\n{report.stdout[:1500]}{error[-800:]}")
    with open(os.path.join(kept, "made-on"), encoding="utf-8") as file:
        return f"clean, {values[1]} values (made on {file.read()})"


def comparable(cell, digests):
    """Those that all machines must have alike: long double is another type on each."""
    return {name: digest for name, digest in digests.items() if cell.machine == "x86_64" or "long double" not in name}


def compare(first, found, name):
    """Impossible when a bit differs. first: {what: digest} of the cells before, to which this one's are added."""
    for what, digest in found.items():
        if first.setdefault(what, digest) != digest:
            raise Impossible(f"{name}: {what}: {digest}, elsewhere {first[what]}")
