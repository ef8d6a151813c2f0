# SPDX-License-Identifier: Apache-2.0
"""Which cells there are, which tests they run, and which part of the library a test is about."""
import collections
import re


class Impossible(Exception):
    """What cannot be done here, and why."""


Cell = collections.namedtuple("Cell", "name release mpi abi machine", defaults=("x86_64",))

RELEASES = ("bookworm", "trixie", "forky", "bullseye")
DEBIAN = {"bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "testing"}
MPIS = ("openmpi", "mpich")
STANDARD = ("forky",)  # releases that have libmpi_abi.so.1 of both MPIs
CELLS = {}
for _release in RELEASES:
    for _abi in ("own", "standard") if _release in STANDARD else ("own",):
        for _mpi in MPIS:
            _name = "-".join([_release, *(["abi"] if _abi == "standard" else []), _mpi])
            CELLS[_name] = Cell(_name, _release, _mpi, _abi)
for _mpi in MPIS:
    CELLS[f"arm64-{_mpi}"] = Cell(f"arm64-{_mpi}", "bookworm", _mpi, "own", "aarch64")


def named(word):
    """A cell by its name, or by the number of its Debian: debian12-openmpi."""
    for release, number in DEBIAN.items():
        word = re.sub(rf"^debian-?{number}-", f"{release}-", word)
    return CELLS.get(word)


PACKAGES = ("ca-certificates", "g++", "gcc", "gdb", "gfortran", "lammps", "lammps-examples", "libmpich-dev", "libopenmpi-dev",
            "libxxhash-dev", "meson", "mpich", "netpipe-mpich2", "netpipe-openmpi", "ninja-build",
            "openmpi-bin", "pkgconf", "procps", "python3", "python3-mpi4py", "strace")
MORE_PACKAGES = {"bullseye": ("python3-distutils",),  # for Meson
                 "forky": ("hpcc",),
                 "trixie": ("hpcc", "iproute2", "libslurm-dev", "munge", "openssh-client", "openssh-server", "slurm-client", "slurmctld", "slurmd")}  # launchers

# Tests of meson.build, less the name of the MPI, by what they are about. Each is built from this tree with the cell's own
# compilers. What the last one names needs the library's own objects, so it is compiled there: not a part of a usual run. Any test
# with a library that was built there (run --build-there) is THERE + its name.
TESTS = {
    "watch": ("programs", "jobs", "coverage", "launches", "steps", "ends", "dumps", "api", "abi"),
    "hangs": ("hangs", "mismatch", "orders", "hang-injector"),
    "checksum": ("checksum-jobs", "collective-checks", "rma-checks", "pending", "handles", "early", "small-stacks", "faults"),
    "record, verify": ("replay", "sources", "double-run"),
    "reductions": ("reductions",),
    "staging": ("staging", "staging-checks", "staging-collectives", "devices", "gpu-runtime"),
    "hostile": ("hostile-requests", "hostile-types", "hostile-arguments", "hostile-process", "hostile-churn", "hostile-files",
                "hostile-ends", "hostile-loads", "hostile-spawn", "hostile-mpi4", "hostile-mpi41", "hostile-ulfm"),
    "smoke, demo": ("smoke", "modes", "demo"),
    "apps": ("lammps", "mpi4py", "hpcc", "netpipe"),
    "built there": ("type-digest", "hang-states", "digest", "dump", "record", "identity"),
}
BUILT_THERE = TESTS["built there"]
BY_NAME = ("spr",)  # not in the page's tables: docs/SPR.md, where a rank's death needs an MPI that lets the others go on
APPS = TESTS["apps"]
# Debian's programs are linked with the system's own MPI, most of them with Open MPI alone.
APPS_OF = {"openmpi": APPS, "mpich": ("netpipe",)}
USUAL = tuple(test for mode, tests in TESTS.items() if mode != "built there" for test in tests)
MODE_OF = {test: mode for mode, tests in TESTS.items() for test in tests}
THERE = "there:"
# Emulated, a job takes ten times as long. What needs this machine's compilers or debuggers in the root is not among them.
EMULATED = ("digest", "identity", "programs", "jobs", "dumps", "ends", "hangs", "mismatch", "replay", "sources", "checksum-jobs", "pending",
            "reductions", "modes")


def tests_of_cell(cell, asked=None):
    """What to run where nothing else is asked."""
    if asked:
        return tuple(asked)
    if cell.machine != "x86_64":
        return EMULATED
    apps = APPS_OF[cell.mpi] if cell.abi == "own" else ()
    return tuple(test for test in USUAL if test not in APPS or test in apps)
