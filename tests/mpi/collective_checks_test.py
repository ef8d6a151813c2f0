#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collective_checks under RESIL_MODE=checksum: nothing is found, nothing stays open, every collective is accounted for.

Usage: collective_checks_test.py BUILD openmpi|mpich
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

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


# A tool below resil that flips a bit of what a function has brought, in one call of one rank. DAMAGE: function, call, rank.
TOOL = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void damage(const char* name, void* buffer, int bytes, int* calls) {
  char function[32] = "";
  int call = 0, victim = 0, rank;
  sscanf(getenv("DAMAGE"), "%31s %d %d", function, &call, &victim);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (strcmp(name, function) == 0 && ++*calls == call && rank == victim) ((char*)buffer)[bytes / 2] ^= 4;
}
#define DEFINE(name, buffer, bytes, parameters, arguments) \\
  int MPI_##name parameters {                              \\
    static int calls;                                      \\
    const int result = PMPI_##name arguments;              \\
    damage(#name, buffer, bytes, &calls);                  \\
    return result;                                         \\
  }
#define BLOCKS const void *in, int n, MPI_Datatype type, void *out, int m, MPI_Datatype other
DEFINE(Bcast, out, 4 * n, (void* out, int n, MPI_Datatype type, int root, MPI_Comm comm), (out, n, type, root, comm))
DEFINE(Allgather, out, 4 * n, (BLOCKS, MPI_Comm comm), (in, n, type, out, m, other, comm))
DEFINE(Alltoall, out, 4 * n, (BLOCKS, MPI_Comm comm), (in, n, type, out, m, other, comm))
DEFINE(Gather, out, 4 * n, (BLOCKS, int root, MPI_Comm comm), (in, n, type, out, m, other, root, comm))
DEFINE(Scatter, out, 4 * n, (BLOCKS, int root, MPI_Comm comm), (in, n, type, out, m, other, root, comm))
DEFINE(Allreduce, out, 8 * n, (const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (in, out, n, type, op, comm))
"""
# In turn 19, on MPI_COMM_WORLD, root 1; of Allreduce the first call, and the second, which is in place. Of blocks another rank's and the own one.
DAMAGES = {"Bcast 81 0": "collective_mismatch", "Bcast 81 1": "collective_mismatch", "Allgather 81 0": "collective_mismatch",
           "Allgather 81 1": "collective_mismatch", "Alltoall 81 0": "message_corrupted", "Alltoall 81 1": "message_corrupted",
           "Gather 81 1": "message_corrupted", "Scatter 81 0": "message_corrupted", "Allreduce 241 0": "collective_mismatch",
           "Allreduce 242 1": "collective_mismatch"}
NO_FAULT = {"RESIL_FAULT": "flip,rank=77"}  # with it no call goes the fast path


def books(mpi, program, ranks, env):
    """What the report says of checks, by rank: of a run where nothing may be found."""
    result = jobs.run(mpi, ranks, [program, "again", "64"], env={"RESIL_MODE": "checksum", **env}, timeout=120)
    assert result.returncode == 0, result.text()
    found = {}
    for rank, report in result.ranks().items():
        assert report["findings"] == [], result.text()
        checksum = report["checksum"]
        assert checksum["unverified"] == 0 and checksum["mismatches"] == 0, checksum
        found[rank] = {name: checksum[name] for name in ("messages_total", "messages_checked", "messages_uncovered", "bytes_checked", "collectives")}
    assert sorted(found) == list(range(ranks)), result.text()
    return found


def same_both_ways(mpi, program, ranks):
    fast, general = books(mpi, program, ranks, {}), books(mpi, program, ranks, NO_FAULT)
    assert fast == general, f"fast path {fast}\ngeneral {general}"
    apart = books(mpi, program, ranks, {"RESIL_NODE_RANKS": "1"})  # records by messages
    assert apart == general, f"over nodes {apart}\ngeneral {general}"


def damaged(mpi, program, tool, damage, kind, env):
    env = {"RESIL_MODE": "checksum", "RESIL_ON_MISMATCH": "log", "DAMAGE": damage, **env}
    result = jobs.run(mpi, 2, [program, "again", "24"], env=env, timeout=120, tools_after=[tool])
    found = [finding for report in result.ranks().values() for finding in report.get("findings", [])]
    assert [finding["kind"] for finding in found] and all(finding["kind"] == kind for finding in found), f"{damage}: {found}\n{result.text()}"
    jobs.remove_rings(result.directory)


def damages(mpi, program, build):
    if shutil.which("gcc") is None:  # what mpicc calls; small roots have none
        raise LeftOut("no compiler")
    tool = os.path.join(jobs.scratch(), "damage.so")
    subprocess.run([f"mpicc.{mpi}", "-O1", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", tool], input=TOOL.encode(), check=True)
    for damage, kind in DAMAGES.items():
        damaged(mpi, program, tool, damage, kind, NO_FAULT if damage.startswith("Alltoall") else {})
        if damage.startswith("Alltoall"):
            damaged(mpi, program, tool, damage, kind, {})


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"collective_checks.{mpi}")
    checks = []
    for ranks in RANKS[:2] if jobs.loses_messages(mpi) else RANKS:
        for mode in ("lazy", "strict") if ranks < 4 or mpi == "openmpi" else ("lazy",):
            checks.append((f"{ranks} ranks, {mode} ({mpi})",
                           lambda ranks=ranks, mode=mode: accounted(mpi, program, ranks, {"RESIL_CHECKSUM": mode})))
    checks.append((f"the same both ways ({mpi})", lambda: same_both_ways(mpi, program, 2)))
    checks.append((f"damage is found both ways ({mpi})", lambda: damages(mpi, program, build)))
    checks.append((f"full blame ({mpi})", lambda: accounted(mpi, program, 2, {"RESIL_BLAME": "full"})))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
