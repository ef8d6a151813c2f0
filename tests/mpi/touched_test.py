#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RESIL_BLAME=full on programs that touch buffers of pending operations: what is found and what is not is the table in
docs/CHECKSUM.md, "Buffers touched while pending". Their corrected twins, and correct programs that look like it, stay silent.

Usage: touched_test.py BUILD openmpi|mpich
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import Long, half, run_checks, shared  # noqa: E402

TOUCHED, MODIFIED = "receive_buffer_touched", "receive_buffer_modified"
RECEIVES = {  # found always
    "receive-lost": TOUCHED, "receive-lost-large": TOUCHED, "receive-lost-last": TOUCHED, "receive-landed": MODIFIED,
    "receive-landed-polled": MODIFIED, "receive-landed-wildcard": MODIFIED, "receive-landed-large": MODIFIED,
    "receive-behind": TOUCHED, "receive-behind-large": TOUCHED, "receive-persistent": TOUCHED,
    "receive-persistent-landed": MODIFIED, "receive-matched": MODIFIED, "receive-wildcard": TOUCHED,
    "receive-strided": TOUCHED, "receive-strided-landed": MODIFIED, "receive-polled": TOUCHED}
SENDS = ("send-large", "send-huge", "send-synchronous", "send-synchronous-large", "send-persistent", "send-persistent-large")
BY_MPI = ("send", "send-buffered")  # MPICH has taken the data when the call returns: its request is complete then
NEVER = ("receive-same-value", "receive-huge-behind", "receive-read")
COLLECTIVES = ("iallreduce-given", "iallreduce-result", "ibcast-root", "ibcast-receiver", "igather-given", "ialltoall-given",
               "ialltoall-received", "iscatter-received")  # where wrong data arrives
CORRECT = ("gap", "told-by-get-status")
FORTRAN = {"receive-lost": TOUCHED, "receive-lost-large": TOUCHED, "receive-landed": MODIFIED, "send": "send_buffer_touched",
           "send-large": "send_buffer_touched"}


def run(program, mpi, name, which):
    result = jobs.run(mpi, 2, [program, name, which], env={"RESIL_MODE": "checksum", "RESIL_BLAME": "full"}, timeout=120)
    kinds = [f["kind"] for report in result.ranks().values() for f in report["findings"]]
    return result, kinds


def silent(program, mpi, name, which="right"):
    result, kinds = run(program, mpi, name, which)
    assert result.returncode == 0 and kinds == [], f"{kinds}\n{result.text()}"


def found(program, mpi, name, kind):
    result, kinds = run(program, mpi, name, "wrong")
    # Where wrong data arrives, the receiver may end the job before the sender has told what it saw.
    assert kind in kinds or (kind == "send_buffer_touched" and "send_buffer_modified" in kinds), f"{kinds}\n{result.text()}"
    assert "message_corrupted" not in kinds, f"{kinds}\n{result.text()}"
    assert result.returncode == (90 if kind == MODIFIED or "send_buffer_modified" in kinds else 0), result.text()
    for report in result.ranks().values():
        for finding in report["findings"]:
            assert finding["confidence"] == "proved" and finding["culprit_ranks"] == [0 if "send" in kind else 1], finding


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program, fortran = os.path.join(build, f"touched.{mpi}"), os.path.join(build, f"touched_fortran.{mpi}")
    always = {**RECEIVES, **{name: "send_buffer_touched" for name in SENDS}}
    every = (*always, *BY_MPI, *NEVER, *COLLECTIVES, *CORRECT)

    def twins(names):
        for one, name in names:
            silent(one, mpi, name)

    def not_found():
        for name in NEVER:
            silent(program, mpi, name, "wrong")

    here, there = half([(program, name) for name in every] + [(fortran, name) for name in FORTRAN], mpi)
    first = [(f"corrected twins are silent ({mpi})", lambda: twins(here)),
             (f"the other corrected twins are silent ({mpi})", Long(lambda: twins(there)))]
    checks = [(f"what cannot be proved is not told ({mpi})", not_found)]
    checks += [(f"{name} ({mpi})", lambda name=name, kind=kind: found(program, mpi, name, kind)) for name, kind in always.items()]
    checks += [(f"{name} in Fortran ({mpi})", lambda name=name, kind=kind: found(fortran, mpi, name, kind))
               for name, kind in FORTRAN.items()]
    return run_checks(first + shared(checks, mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
