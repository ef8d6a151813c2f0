#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""message_checks under RESIL_MODE=checksum: nothing is found of what is right, all that a tool below has damaged is, and the
books are the same whether messages go the fast path or the general way.

Usage: message_checks_test.py BUILD openmpi|mpich
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

TURNS = "72"
NO_FAULT = {"RESIL_FAULT": "flip,rank=77"}  # with it no message goes the fast path
ALLOWED = {"error"}  # receives that were too short

# A tool below resil that sends a copy with one flipped bit, in one call of one rank. DAMAGE: function, call, rank.
TOOL = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const void* damaged(const char* name, const void* buffer, int count, MPI_Datatype type, int* calls) {
  char function[32] = "";
  int call = 0, victim = 0, rank, bytes;
  sscanf(getenv("DAMAGE"), "%31s %d %d", function, &call, &victim);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (strcmp(name, function) != 0 || ++*calls != call || rank != victim) return buffer;
  PMPI_Type_size(type, &bytes);
  char* copy = malloc(bytes * count);
  memcpy(copy, buffer, bytes * count);
  copy[bytes * count / 2] ^= 4;
  fprintf(stderr, "damaged: %s\\n", name);
  return copy;
}
#define DEFINE(name, parameters, arguments)                            \\
  int MPI_##name(const void* out, int n, MPI_Datatype type, int to, int tag, parameters) { \\
    static int calls;                                                  \\
    out = damaged(#name, out, n, type, &calls);                        \\
    return PMPI_##name(out, n, type, to, tag, arguments);              \\
  }
#define WITH(...) __VA_ARGS__
DEFINE(Send, MPI_Comm comm, comm)
DEFINE(Ssend, MPI_Comm comm, comm)
DEFINE(Isend, WITH(MPI_Comm comm, MPI_Request* request), WITH(comm, request))
DEFINE(Sendrecv, WITH(void* in, int m, MPI_Datatype other, int from, int wanted, MPI_Comm comm, MPI_Status* status),
       WITH(in, m, other, from, wanted, comm, status))
"""
# In turns that repeat the one before.
DAMAGES = ("Send 10 0", "Send 30 1", "Ssend 30 0", "Sendrecv 77 0", "Sendrecv 77 1", "Isend 200 0", "Isend 205 1", "Isend 230 0")


def books(mpi, program, env):
    """What the report says of checks, by rank: of a run where nothing may be found."""
    result = jobs.run(mpi, 2, [program, TURNS], env={"RESIL_MODE": "checksum", **env}, timeout=120)
    assert result.returncode == 0, result.text()
    found = {}
    for rank, report in result.ranks().items():
        assert report.get("findings", []) == [], result.text()
        checksum = report["checksum"]
        where = f"rank {rank}: {checksum}\n{result.text()}"
        assert checksum["unverified"] == 0 and checksum["mismatches"] == 0, where
        assert set(checksum["messages_uncovered"]) <= ALLOWED, where
        uncovered = sum(checksum["messages_uncovered"].values())
        assert checksum["messages_total"] == checksum["messages_checked"] + uncovered, where
        found[rank] = {name: checksum[name] for name in ("messages_total", "messages_checked", "messages_uncovered", "bytes_checked")}
    assert sorted(found) == [0, 1], result.text()
    jobs.remove_rings(result.directory)
    return found


def same_both_ways(mpi, program):
    fast, general = books(mpi, program, {}), books(mpi, program, NO_FAULT)
    assert fast == general, f"fast path {fast}\ngeneral {general}"
    for env in ({"RESIL_NODE_RANKS": "1"}, {"RESIL_HANG": "off"}, {"RESIL_CHECKSUM": "strict"}, {"RESIL_BLAME": "full"}):
        assert books(mpi, program, env) == general, f"{env} {general}"


def damages(mpi, program):
    if shutil.which("gcc") is None:  # what mpicc calls; small roots have none
        raise LeftOut("no compiler")
    tool = os.path.join(jobs.scratch(), "damage.so")
    subprocess.run([f"mpicc.{mpi}", "-O1", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", tool], input=TOOL.encode(), check=True)
    for damage in DAMAGES:
        for way in ({}, NO_FAULT) if damage in DAMAGES[::4] else ({},):
            env = {"RESIL_MODE": "checksum", "RESIL_ON_MISMATCH": "log", "DAMAGE": damage, **way}
            result = jobs.run(mpi, 2, [program, TURNS, "blind"], env=env, timeout=120, tools_after=[tool])
            assert f"damaged: {damage.split()[0]}" in result.stderr.decode(), result.text()
            found = [finding for report in result.ranks().values() for finding in report.get("findings", [])]
            assert [finding["kind"] for finding in found] == ["message_corrupted"], f"{damage} {way}: {found}\n{result.text()}"
            jobs.remove_rings(result.directory)


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"message_checks.{mpi}")
    return run_checks([(f"the same both ways ({mpi})", lambda: same_both_ways(mpi, program)),
                       (f"damage is found ({mpi})", lambda: damages(mpi, program))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
