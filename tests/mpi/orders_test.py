#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever order MPI leaves free is no finding: correct programs in every mode, with RESIL_HANG=abort.

Usage: orders_test.py BUILD openmpi|mpich      (BUILD holds orders.MPI)
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

LIMIT = 240
KINDS = ["completed", "between", "startall", "windows", "duplicates", "groups", "leaders", "files", "callbacks", "threads",
         "cancelled", "neighbours", "nothing"]
OWN = {"openmpi": ["ports"], "mpich": ["starts", "partitioned", "sessions"]}  # MPICH here has no ports, Open MPI no MPI 4
SLOW = {"openmpi": ["nothing+", "leaves+"], "mpich": ["starts+", "leaves+"]}
MODES = {
    "watch": {},
    "checksum": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full"},
    "exact": {"RESIL_REDUCE": "exact", "RESIL_REDUCE_P2P": "1"},
}


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"orders.{mpi}")
    ranks = 4 if mpi == "openmpi" else 2

    def run(kinds, settings):
        data = jobs.scratch()
        result = jobs.run(mpi, ranks, [program, *kinds], timeout=LIMIT,
                          env={"RESIL_HANG": "abort", "RESIL_LOG": "quiet", "ORDERS_DIR": data, **settings})
        assert result.returncode == 0 and not result.stderr, result.text()
        assert result.stdout.decode().splitlines() == [f"{kind} ok" for kind in kinds], result.text()
        log = os.path.join(result.directory, "hang.log")
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                told = [line for line in file if any(word in line for word in (" proved ", " verified ", "mismatch", "unequal"))]
            assert not told, told

    def recorded():
        settings = {"RESIL_RECORD": os.path.join(jobs.scratch(), "recording")}
        kinds = [kind for kind in KINDS + OWN[mpi] if kind not in ("cancelled", "ports")]
        run(kinds, {"RESIL_MODE": "record", **settings})
        run(kinds, {"RESIL_MODE": "verify", **settings})

    def poor():
        """A rank that has no memory to learn of the others takes no part in hang detection, and nobody waits for it."""
        result = jobs.run(mpi, ranks, [program, "between"], timeout=LIMIT, env={"SHORT_RANK": "1"},
                          tools_before=[os.path.join(build, "short_of_memory.so")])
        assert result.returncode == 0, result.text()
        notes = {rank: " ".join(report["notes"]) for rank, report in result.ranks().items()}
        assert [rank for rank in notes if "no memory to learn of the other ranks" in notes[rank]] == [1], notes

    def late():
        """MPI_Init that does not return for 30 s: one line says who is in it. The last rank comes when that was said."""
        release = os.path.join(jobs.scratch(), "release")
        directory = os.path.join(jobs.scratch(), "report")
        waits = f'if [ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = {ranks - 1} ]; then while [ ! -e "$0" ]; do sleep 0.2; done; fi; exec "$@"'
        job = jobs.Running(jobs.launcher(mpi, ranks, jobs.rank_environment(True, directory)) +
                           ["sh", "-c", waits, release, program, "between"], directory)
        told, limit = "", time.monotonic() + LIMIT
        while "MPI_Init has not returned" not in told and job.poll() is None and time.monotonic() < limit:
            time.sleep(0.3)
            with open(job.output[1], encoding="utf-8", errors="replace") as file:
                told = file.read()
        with open(release, "w", encoding="utf-8"):
            pass
        while job.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        result = job.end()
        jobs.remove_rings(directory)
        lines = [line for line in result.stderr.decode().splitlines() if "MPI_Init has not returned" in line]
        there = "rank 0;" if ranks == 2 else f"ranks 0-{ranks - 2};"
        assert result.returncode == 0 and len(lines) == 1, result.text()
        assert f"In it: {there} rank {ranks - 1} is not there, or without resil" in lines[0], lines

    checks = [(f"all orders, {mode}", lambda settings=settings: run(KINDS + OWN[mpi], settings)) for mode, settings in MODES.items()]
    checks += [("all orders, record and verify", recorded)]
    if mpi == "openmpi":  # UCX in MPICH takes mmap for itself
        checks += [("a rank without memory harms nobody", poor)]
    checks += [("who is not in MPI_Init", late)]
    checks += [(f"long enough for a proof: {kind}", lambda kind=kind: run([kind], {})) for kind in SLOW[mpi]]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
