#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""More receives pending than the ring's request table holds: in mode checksum all are checked, in order.

Usage: pending_test.py BUILD openmpi|mpich      (BUILD holds pending.MPI)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

COUNT = 20000


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")

    def run(mode):
        result = jobs.run(mpi, 2, [os.path.join(build, f"pending.{mpi}"), str(COUNT)], env={"RESIL_MODE": mode}, timeout=120)
        assert result.returncode == 0, result.text()
        return result.ranks()[1]

    def checked():
        report = run("checksum")
        assert not report["findings"], report["findings"]
        found = report["checksum"]
        assert found["messages_checked"] == found["messages_total"] == COUNT, found
        assert not found["messages_uncovered"] and found["untracked_receives"] == 0, found
        assert report["uncovered"]["untracked_requests"] >= COUNT - 8192, report["uncovered"]

    def watched():
        report = run("watch")
        assert report["uncovered"]["untracked_requests"] >= COUNT - 8192, report["uncovered"]

    return run_checks([("all are checked", checked), ("watched only: counted as not shown", watched)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
