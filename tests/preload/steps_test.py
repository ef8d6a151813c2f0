#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil.h in C, C++ and Fortran: the records are in the flight recorder, bit for bit; without the library the same
programs run alike and need nothing of it.

Usage: steps_test.py BUILD openmpi|mpich      (BUILD holds steps_PROGRAM.MPI)
"""
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, transparent  # noqa: E402
from harness.main import run_checks  # noqa: E402

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import layout  # noqa: E402

BUILD = MPI = ""
STEP, NORM, CHECKSUM, COUNT = 2, 3, 4, 5


def user_records(path):
    """(kind, name, 64-bit value, step number) of the records that the program made itself."""
    with open(path, "rb") as file:
        data = file.read()
    at = layout.HEADER.offsets["sections"]
    sections = {}
    for i in range(struct.unpack_from("<I", data, layout.HEADER.offsets["section_count"])[0]):
        name, offset, _, entry, entries = struct.unpack_from("<16sQQII", data, at + 40 * i)
        sections[name.rstrip(b"\0").decode()] = (offset, entry, entries)
    names, entry, _ = sections["names"]
    lane = sections["lanes"][0]
    head = struct.unpack_from("<Q", data, lane + layout.LANE.offsets["head"])[0]
    found = []
    for i in range(head):
        record = lane + layout.LANE.offsets["records"] + layout.RECORD.size * i
        state = data[record + layout.RECORD.offsets["state"]]
        if state < STEP:
            continue
        comm = struct.unpack_from("<I", data, record + layout.RECORD.offsets["comm"])[0]
        sequence, aux = struct.unpack_from("<QQ", data, record + layout.RECORD.offsets["sequence"])
        text = data[names + entry * comm:names + entry * (comm + 1)].split(b"\0")[0].decode()
        found.append((state, text, None if state == STEP else aux, sequence if state == STEP else None))
    return found


def bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def expected():
    records = []
    for i in range(2):
        records += [(STEP, "pressure solve", None, 2 * i + 1), (NORM, "energy", bits(1.5 / 3), None),
                    (STEP, "velocity update", None, 2 * i + 2), (NORM, "energy", bits(-0.0), None),
                    (CHECKSUM, "state", 0xdeadbeefcafef00d, None), (COUNT, "iterations", 2**64 - 7 + i, None)]
    return records


def check(program):
    command = [os.path.join(BUILD, f"{program}.{MPI}")]
    needed = subprocess.run(["readelf", "-d", command[0]], capture_output=True, text=True, check=True).stdout
    assert "libresil" not in needed, needed
    plain = jobs.run(MPI, 2, command, preload=False, timeout=30)
    preloaded = jobs.run(MPI, 2, command, timeout=30)
    transparent.same_end(plain, preloaded, keep=lambda text: b"".join(sorted(text.splitlines(True))))
    records = user_records(os.path.join(preloaded.directory, "rank-00000.ring"))
    assert records == expected(), f"{records}\n{expected()}"


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    return run_checks([(f"{p} ({MPI})", lambda p=p: check(p)) for p in ("steps", "steps_no_pie", "steps_cxx", "steps_fortran")])


sys.exit(main())
