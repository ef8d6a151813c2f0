#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Call sites of calls that go through a Fortran binding: mpif.h, use mpi and mpi_f08, from a program and from several shared
libraries, loaded and unloaded, also where another one lay before. Asserted in divergences of verify, in hang findings and in
findings of checksums; and that RESIL_VERIFY_IGNORE takes no place inside a binding.

Usage: sites_test.py BUILD openmpi|mpich
"""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

RANKS = 2
INTERFACES = ("mpif", "mpi", "f08")


class Setting:
    def __init__(self, build, mpi):
        self.mpi = mpi
        self.programs = {"C": os.path.join(build, f"sites.{mpi}"), "Fortran": os.path.join(build, f"sites_fortran.{mpi}")}
        self.libraries = {name: os.path.join(build, f"sites_{name}.{mpi}.so") for name in INTERFACES}
        self.twin = os.path.join(jobs.scratch(), "twin.so")  # the same code under another name
        shutil.copy(self.libraries["f08"], self.twin)

    def run(self, main, steps, env):
        words = [word for library, what in steps for word in (library, str(what))]
        return jobs.run(self.mpi, RANKS, [self.programs[main], *words], env=env, timeout=120)


def functions_of(path, names):
    """[(first, past the last)] addresses of functions."""
    listing = subprocess.run(["nm", "-S", path], capture_output=True, text=True, check=True).stdout
    ranges = []
    for line in listing.splitlines():
        words = line.split()
        if len(words) == 4 and words[3] in names:
            start = int(words[0], 16)
            ranges.append((start, start + int(words[1], 16)))
    assert ranges, (path, names)
    return ranges


def is_site(s, main, library, site):
    """Whether `site` is in the function of that library, or of the program, that makes the calls."""
    path = s.programs[main] if library == "main" else library.lstrip("+")
    names = ("own_step", "__loader_MOD_own_step", "main") if library == "main" else ("step_",)
    place = re.fullmatch(r"(.+)\+0x([0-9a-f]+)", site)
    return (place is not None and place[1] == os.path.basename(path) and
            any(start < int(place[2], 16) <= end for start, end in functions_of(path, names)))


def steps_of(s, what):
    libraries = s.libraries
    return [(library, what) for library in (libraries["mpif"], "main", libraries["f08"], libraries["mpi"], libraries["mpif"])]


def reloaded(s, what):
    """f08 is unloaded, its twin comes to lie in its place and is unloaded, too; f08 again."""
    f08 = s.libraries["f08"]
    return [("+" + f08, what), ("+" + s.twin, what), ("main", what), (f08, what), (s.libraries["mpif"], what)]


def only(result, kind):
    found = [f for report in result.ranks().values() for f in report["findings"] if f["kind"] == kind]
    assert len(found) >= 1, result.text()
    return found


def record(s, main, steps):
    recording = os.path.join(jobs.scratch(), "recording")
    result = s.run(main, steps, {"RESIL_MODE": "record", "RESIL_RECORD": recording})
    assert result.returncode == 0, result.text()
    return recording, result


def divergences(s, main, steps):
    recording, _ = record(s, main, steps)
    for at, (library, _) in enumerate(steps):
        result = s.run(main, steps, {"RESIL_MODE": "verify", "RESIL_RECORD": recording, "DIFFERS_AT": str(at)})
        finding = only(result, "divergence")[0]
        call = finding["evidence"]["call"]
        assert is_site(s, main, library, call.split(" at ")[1]), f"step {at}, {library}: {call}\n{result.text()}"
        if at:
            before = re.search(r" at ([^ )]+)\)", finding["evidence"]["after"])[1]
            assert is_site(s, main, steps[at - 1][0], before), f"step {at}: {finding}"


def reloads_at_one_place(s):
    """The case is there at all: else the loader has changed, and the test needs another way."""
    _, result = record(s, "C", reloaded(s, 1))
    at = re.findall(rb"^\S+ at (\w+)$", result.stdout, re.M)
    if jobs.emulated(s.programs["C"]) and len(at) == len(set(at)) == 4:
        raise LeftOut("the emulator gives no address a second time that was unmapped")
    assert len(at) == 4 and at[0] == at[1] == at[2], result.text()


def hangs(s, main, library):
    result = s.run(main, [(s.libraries["mpif"], 1), (s.libraries["mpi"], 1), (library, 3)], {"RESIL_HANG": "abort"})
    with open(os.path.join(result.directory, "hang-0.json"), encoding="utf-8") as file:
        said = json.dumps(json.load(file))
    sites = set(re.findall(r"at (\S+\+0x[0-9a-f]+)", said))
    assert len(sites) == 1 and is_site(s, main, library, sites.pop()), f"{said}\n{result.text()}"


def corruptions(s, main, library):
    result = s.run(main, [(s.libraries["mpif"], 2), (s.libraries["f08"], 2), (library, 2)],
                   {"RESIL_MODE": "checksum", "RESIL_FAULT": "flip,rank=0,nth=3"})
    evidence = only(result, "message_corrupted")[0]["evidence"]
    for name in ("sender_site", "receiver_site"):
        assert is_site(s, main, library, evidence[name]), f"{evidence}\n{result.text()}"


def bindings_are_not_ignored(s):
    """As the advice of former versions was: then a real divergence was hidden, and the run called clean."""
    library = s.libraries["f08"]
    recording, _ = record(s, "Fortran", [(library, 1)])
    env = {"RESIL_MODE": "verify", "RESIL_RECORD": recording, "DIFFERS_AT": "0"}
    finding = only(s.run("Fortran", [(library, 1)], env), "divergence")[0]
    binding = finding["evidence"]["backtrace_0"].split(" ")[0].rstrip(",")
    assert "libmpi" in binding, finding
    own = finding["evidence"]["if_it_may_differ"].split("=")[1].split(",")[0]
    for entry in (binding, "mpi_allreduce_", "MPI_Allreduce", "libmpi_of_a_plugin.so+0x1"):
        result = s.run("Fortran", [(library, 1)], {**env, "RESIL_VERIFY_IGNORE": entry})
        assert result.returncode == 91, result.text()
        assert f"RESIL_VERIFY_IGNORE: {entry} is in an MPI library".encode() in result.stderr, result.text()
        only(result, "divergence")
    assert is_site(s, "Fortran", library, own), own
    result = s.run("Fortran", [(library, 1)], {**env, "RESIL_VERIFY_IGNORE": own})
    assert result.returncode == 0 and b"VERIFY_IGNORE" not in result.stderr, result.text()


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    s = Setting(build, mpi)
    checks = [(f"two libraries lie at one place, one after the other ({mpi})", lambda: reloads_at_one_place(s)),
              (f"no place in a binding is ignored ({mpi})", lambda: bindings_are_not_ignored(s))]
    for name in s.programs:
        checks += [(f"divergences, main program in {name} ({mpi})", lambda name=name: divergences(s, name, steps_of(s, 1))),
                   (f"divergences in what was loaded again, {name} ({mpi})", lambda name=name: divergences(s, name, reloaded(s, 1)))]
        for library in (s.libraries["f08"], s.libraries["mpif"], "main"):
            where = os.path.basename(library)
            checks += [(f"a hang in {where}, main program in {name}", lambda n=name, l=library: hangs(s, n, l)),
                       (f"a corrupted message in {where}, main program in {name}", lambda n=name, l=library: corruptions(s, n, l))]
    return run_checks(shared(checks, mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
