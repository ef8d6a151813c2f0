#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collective_checks under RESIL_MODE=checksum: nothing is found, nothing stays open, every collective is accounted for.

Usage: collective_checks_test.py BUILD openmpi|mpich
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

RANKS = (1, 2, 4)
# Reductions without a check of their arithmetic, and by a user's operator; nothing else may stay out.
ALLOWED = {"reduction", "user_operator"}


def accounted(mpi, program, ranks, env):
    result = jobs.run(mpi, ranks, [program], env={"RESIL_MODE": "checksum", **env}, timeout=120)
    assert result.returncode == 0, result.text()
    made = int(re.search(rb"collective_checks (\d+)", result.stdout)[1])
    reports = result.ranks()
    assert sorted(reports) == list(range(ranks)), result.text()
    for rank, report in reports.items():
        checksum = report["checksum"]
        seen = checksum["collectives"]
        where = f"rank {rank}: {checksum}\n{result.text()}"
        assert report.get("findings", []) == [], where
        assert checksum["unverified"] == 0 and checksum["mismatches"] == 0, where
        assert seen["sums_pending"] == 0 and seen["sums_lost"] == 0 and seen["calls_failed"] == 0, where
        assert set(seen["calls_uncovered"]) <= ALLOWED and set(checksum["messages_uncovered"]) <= ALLOWED, where
        total = sum(seen[name] for name in ("calls_checked", "calls_agreement_only", "calls_without_data"))
        assert total + sum(seen["calls_uncovered"].values()) == made, f"{made} collectives were made\n{where}"
        assert seen["calls_checked"] > made // 3, where
        uncovered = sum(checksum["messages_uncovered"].values())
        assert checksum["messages_total"] == checksum["messages_checked"] + uncovered, where
    jobs.remove_rings(result.directory)


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"collective_checks.{mpi}")
    checks = []
    for ranks in RANKS[:2] if jobs.loses_messages(mpi) else RANKS:
        for mode in ("lazy", "strict") if ranks < 4 or mpi == "openmpi" else ("lazy",):
            checks.append((f"{ranks} ranks, {mode} ({mpi})",
                           lambda ranks=ranks, mode=mode: accounted(mpi, program, ranks, {"RESIL_CHECKSUM": mode})))
    checks.append((f"full blame ({mpi})", lambda: accounted(mpi, program, 2, {"RESIL_BLAME": "full"})))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
