#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How programs begin and end: forks, MPI_Abort, _exit, kill -9, no MPI_Finalize, no MPI_Init. The status is the
program's own, and after any death the reports are valid and the flight recorder can be read.

Usage: ends_test.py BUILD openmpi|mpich      (BUILD holds ends.MPI)
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

BUILD = MPI = ""
TOOL = os.path.join(jobs.ROOT, "scripts", "resil")

# way: outcomes that rank 0 and rank 1 may have. A rank that its launcher kills, or that leaves, stays "running".
GOOD = {"fork-before", "fork", "null-arguments", "exit7"}
DEATHS = {
    "abort": ({"running", "aborted"}, {"aborted"}),
    "_exit": ({"running"}, {"running"}),
    "no-finalize": ({"running"}, {"running"}),
    "libc-abort": ({"running"}, {"running"}),
    "segv": ({"running"}, {"running"}),
    "kill": ({"running"}, {"running"}),
}
UNTOUCHED = {"no-init", "no-mpi"}


def pair(way):
    command = [os.path.join(BUILD, f"ends.{MPI}"), way]

    def natively():
        return jobs.run(MPI, 2, command, preload=False, timeout=30)

    plain, preloaded = natively(), jobs.run(MPI, 2, command, timeout=30)
    if way in DEATHS:
        # Whether a launcher still forwards the last line of a dying job is chance, with and without the library;
        # MPICH's adds an obituary with process ids.
        transparent.same_end(plain, preloaded, keep=lambda text: b"", again=natively)
        printed = preloaded.stdout.split(b"\n\n====")[0].strip()
        assert printed in (b"", f"before the end: {way}".encode()), preloaded.text()
    elif way == "exit7":
        # mpirun ends the other rank when it hears of the status, before or after that rank's last line.
        transparent.same_end(plain, preloaded, keep=lambda text: text.replace(b"after MPI_Finalize\n", b""), again=natively)
    else:
        transparent.same_end(plain, preloaded)
    return preloaded


def check_good(way):
    preloaded = pair(way)
    if preloaded.returncode == 0 or MPI == "mpich":
        transparent.clean_report(preloaded, 2)
    assert preloaded.returncode == (7 if way == "exit7" else 0), preloaded.text()
    counts = reports.counts(preloaded.ranks()[0])
    assert counts["MPI_Allreduce"] == 10 and counts["MPI_Init"] == 1, counts


def check_death(way):
    preloaded = pair(way)
    try:
        ranks = preloaded.ranks()  # raises when a report is not valid JSON
        assert sorted(ranks) == [0, 1], preloaded.text()
        for rank, outcomes in enumerate(DEATHS[way]):
            assert ranks[rank]["outcome"] in outcomes, f"rank {rank}: {ranks[rank]['outcome']}"
        # The tool takes the calls from the rings, wherever they are now.
        rings = {path: os.path.exists(path) for path in reports.rings(preloaded.directory)}
        tool = subprocess.run([sys.executable, TOOL, "report", "--json", preloaded.directory], capture_output=True,
                              timeout=600, check=False)
        summary = json.loads(tool.stdout)
        counted = {call["name"]: call["count"] for call in summary["calls"]}
        assert counted.get("MPI_Allreduce") == 20 and counted["MPI_Init"] == 2, counted
        assert tool.returncode != 0, "the tool calls a dead job clean"
    finally:
        jobs.remove_rings(preloaded.directory)


def check_untouched(way):
    preloaded = pair(way)
    assert not os.path.exists(preloaded.directory), "a program that never starts MPI gets files"
    assert transparent.own_lines(preloaded.stderr) == [], preloaded.text()


def main(build, mpi):
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = build, mpi
    jobs.require(f"mpirun.{mpi}")
    checks = [(check_good, way) for way in sorted(GOOD)] + [(check_death, way) for way in sorted(DEATHS)]
    checks += [(check_untouched, way) for way in sorted(UNTOUCHED)]
    return run_checks(shared([(f"{way} ({mpi})", lambda c=check, w=way: c(w)) for check, way in checks], mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
