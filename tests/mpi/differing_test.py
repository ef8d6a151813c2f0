#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that belong together and differ in function, root, operator, amount or basic types: found under checksums as
call_mismatch, never as corruption; the corrected twins, and what MPI allows, raise nothing.

Usage: differing_test.py BUILD openmpi|mpich      (BUILD holds differing.MPI)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

# kind: what the finding says it differs in. Messages: four of each, the bytes arrive, the job goes on.
MESSAGES = {
    "int_float": ("4-byte floating-point numbers", "4-byte signed integers"),
    "long_two_ints": ("4-byte signed integers", "8-byte signed integers"),
    "double_struct": ("a mixture of basic types", "8-byte floating-point numbers"),
    "structs": ("a mixture of basic types", "a mixture of basic types"),
    "short_structs": ("a mixture of basic types", "a mixture of basic types"),
    "signedness": ("4-byte unsigned integers", "4-byte signed integers"),
    "contiguous": ("8-byte floating-point numbers", "4-byte signed integers"),
    "complex": ("8-byte floating-point numbers", "16-byte complex numbers"),
}
TYPES = {
    "bcast_type": ("4-byte signed integers", "8-byte floating-point numbers"),
    "gather_type": ("4-byte signed integers", "4-byte floating-point numbers"),
    "ibcast_type": ("4-byte signed integers", "4-byte unsigned integers"),
    "allgather_type": ("4-byte signed integers", "4-byte floating-point numbers"),
    "alltoallv_type": ("4-byte signed integers", "4-byte floating-point numbers"),
}
INTEGERS_AND_FLOATS = ("4-byte signed integers", "4-byte floating-point numbers")
WATCHED = {
    "reduce_type": INTEGERS_AND_FLOATS,
    "allreduce_type": INTEGERS_AND_FLOATS,
    "allgather_type": INTEGERS_AND_FLOATS,
    "gather_type": INTEGERS_AND_FLOATS,
    "bcast_type": ("4-byte signed integers", "8-byte floating-point numbers"),
}
# The results differ because the calls do: status 92. MPICH may give both ranks the same: then it is told only.
RESULTS = {
    "operator": ("MPI_SUM", "MPI_MAX"),
    "iallreduce_operator": ("MPI_SUM", "MPI_MIN"),
}
# Found by the watch on the calls (collective_mismatch); under checksums it must not become corruption.
CALLS = ("bcast_root", "reduce_operator", "scan_operator", "bcast_scatter", "scatter_alltoall", "allreduce_reduce")
RIGHT = ("same_signature", "bytes", "equal_integers", "nothing")
DATA = {"message_corrupted", "collective_mismatch", "send_buffer_modified", "systemic"}


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"differing.{mpi}")

    def run(*arguments, **settings):
        return jobs.run(mpi, 2, [program, *arguments], env={"RESIL_MODE": "checksum", **settings}, timeout=60)

    def findings(result):
        return [finding for report in result.ranks().values() for finding in report["findings"]]

    def told(kind, words, status, blame):
        result = run(kind, RESIL_HANG="off", RESIL_BLAME=blame)
        found = findings(result)
        assert found and all(finding["kind"] == "call_mismatch" for finding in found), result.text()
        assert any(all(word in finding["message"] for word in words) for finding in found), found
        assert all(finding["confidence"] == "proved" for finding in found), found
        assert result.returncode == status or (mpi == "mpich" and result.returncode == 0), result.text()
        for report in result.ranks().values():
            assert report["checksum"].get("mismatches", 0) == 0, report["checksum"]

    def watched(kind, words):
        """Without checksums: the watch compares the types of collectives, in a line of its log."""
        result = jobs.run(mpi, 2, [program, kind], env={}, timeout=60)
        assert result.returncode == 0, result.text()
        with open(os.path.join(result.directory, "hang.log"), encoding="utf-8") as file:
            lines = [line for line in file if " suspected collective_mismatch: " in line]
        assert len(lines) == 1 and "name different basic types" in lines[0], lines
        assert all(word in lines[0] for word in words), lines

    def silent_when_watched(kind):
        result = jobs.run(mpi, 2, [program, kind], env={"RESIL_HANG": "abort"}, timeout=60)
        assert result.returncode == 0, result.text()
        log = os.path.join(result.directory, "hang.log")
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                assert "mismatch" not in file.read(), result.text()

    def never_corruption(kind):
        result = run(kind, RESIL_HANG="abort")
        # Status 92 as a rule; the library may end the job first (MPI_ERR_TRUNCATE), the program may crash in it, or end
        # before the watch has had its last look.
        assert result.returncode != 90, result.text()
        assert not DATA & {finding["kind"] for finding in findings(result)}, result.text()

    def silent(kind, *twin):
        for settings in ({}, {"RESIL_BLAME": "full"}, {"RESIL_CHECKSUM": "strict"}):
            result = run(kind, *twin, RESIL_HANG="abort", **settings)
            assert result.returncode == 0 and not findings(result), (settings, result.text())
            assert not any(word in result.stderr for word in (b"proved]", b"verified]", b"suspected]")), result.text()
            for report in result.ranks().values():
                assert report["checksum"]["unverified"] == 0, report["checksum"]

    checks = [(f"right: {kind}", lambda kind=kind: silent(kind)) for kind in RIGHT]
    checks += [(f"corrected: {kind}", lambda kind=kind: silent(kind, "right"))
               for kind in ("structs", "operator", "reduce_type", "scatter_alltoall", "alltoallv_type")]
    for table, status in ((MESSAGES, 0), (TYPES, 0), (RESULTS, 92)):
        checks += [(f"told: {kind}", lambda kind=kind, words=words, status=status: told(kind, words, status, "cheap"))
                   for kind, words in table.items()]
    checks += [(f"told with full blame: {kind}", lambda kind=kind: told(kind, {**MESSAGES, **TYPES}[kind], 0, "full"))
               for kind in ("structs", "gather_type")]
    checks += [(f"watched: {kind}", lambda kind=kind, words=words: watched(kind, words)) for kind, words in WATCHED.items()]
    checks += [(f"watched, right: {kind}", lambda kind=kind: silent_when_watched(kind)) for kind in RIGHT]
    checks += [(f"no corruption: {kind}", lambda kind=kind: never_corruption(kind)) for kind in CALLS]
    return run_checks(shared(checks, mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
