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
from harness import mpi as jobs, patience  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

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


ISOLATED = ["unshare", "--uts", "--mount"]


def two_nodes_permitted():
    return patience.run([*ISOLATED, "sh", "-c", "mount -t tmpfs none /dev/shm && hostname nodeb"], capture_output=True, timeout=60,
                        check=False).returncode == 0


def two_nodes(further):
    """Options for mpirun: two ranks here, two on a node of another name with a /dev/shm of its own."""
    shell = os.path.join(jobs.scratch(), "shell")
    with open(shell, "w", encoding="ascii") as script:
        script.write('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nshift\n'
                     f'exec {" ".join(ISOLATED)} bash -c "hostname nodeb && mount -t tmpfs none /dev/shm && {further}$*"\n')
    os.chmod(shell, 0o755)
    return ["--mca", "plm_rsh_agent", shell, "--host", os.uname().nodename + ":2,nodeb:2", "--map-by", "ppr:2:node"]


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"orders.{mpi}")
    ranks = 4 if mpi == "openmpi" else 2
    every = list(KINDS)
    if mpi == "openmpi" and jobs.openmpi_version() >= (6,):
        print("left out threads: 6.0.0rc2 hangs natively in some runs: docs/PLATFORMS.md", flush=True)
        every.remove("threads")
    own = [] if jobs.before_mpi4(mpi) else OWN[mpi]

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
        kinds = [kind for kind in every + own if kind not in ("cancelled", "ports")]
        run(kinds, {"RESIL_MODE": "record", **settings})
        run(kinds, {"RESIL_MODE": "verify", **settings})

    def poor():
        """A rank that has no memory to learn of the others takes no part in hang detection, and nobody waits for it."""
        result = jobs.run(mpi, ranks, [program, "between"], timeout=LIMIT, env={"SHORT_RANK": "1"},
                          tools_before=[os.path.join(build, "short_of_memory.so")])
        assert result.returncode == 0, result.text()
        notes = {rank: " ".join(report["notes"]) for rank, report in result.ranks().items()}
        assert [rank for rank in notes if "no memory to learn about the other ranks" in notes[rank]] == [1], notes

    def late():
        """MPI_Init that does not return for 30 s: one line says who is in it. The last rank comes when that was said. On one
        node, and on two (namespaces of host name and /dev/shm) that share the report directory or do not."""
        jobs_of = {"one": []}
        if mpi == "openmpi" and two_nodes_permitted():
            jobs_of.update(shared=two_nodes(""), apart=two_nodes('mount -t tmpfs none "$(dirname "$REPORTS")" && '))
        running = {}
        for name, options in jobs_of.items():
            place = jobs.scratch()
            release, directory = os.path.join(jobs.scratch(), "release"), os.path.join(place, "report")
            waits = f'if [ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = {ranks - 1} ]; then while [ ! -e "$0" ]; do sleep 0.2; done; fi; exec "$@"'
            line = jobs.launcher(mpi, ranks, jobs.rank_environment(True, directory), options) + ["sh", "-c", waits, release, program, "between"]
            running[name] = (jobs.Running(line, directory, env={"REPORTS": directory}), release)
        limit = patience.Patience(LIMIT)
        for name, (job, release) in running.items():
            told = ""
            while told.count("MPI_Init has not returned") < 1 + (name != "one") and job.poll() is None and not limit.over():
                time.sleep(0.3)
                with open(job.output[1], encoding="utf-8", errors="replace") as file:
                    told = file.read()
            with open(release, "w", encoding="utf-8"):
                pass
        results = {}
        for name, (job, _) in running.items():
            while job.poll() is None and not limit.over():
                time.sleep(0.1)
            results[name] = job.end()
            jobs.remove_rings(job.directory)
        last = ranks - 1
        there = {"one": "rank 0;" if ranks == 2 else f"ranks 0-{last - 1};", "shared": "ranks 0,1; on other nodes: rank 2;",
                 "apart": "ranks 0,1, all of this node; 2 ranks of other nodes cannot be seen from here"}
        for name, result in results.items():
            lines = [line for line in result.stderr.decode().splitlines() if "MPI_Init has not returned" in line]
            assert result.returncode == 0 and lines, f"{name}: {result.text()}"
            mine = [line for line in lines if f"on {os.uname().nodename}. In it: {there[name]}" in line]
            assert len(mine) == 1 and (name == "apart" or f"rank {last} is not there, or without resil" in mine[0]), (name, lines)
            others = [line for line in lines if line not in mine]  # the other node says which of its own is missing
            assert len(others) == (name != "one") and all("on nodeb. In it: rank 2;" in line for line in others), (name, lines)
        return ", ".join(results)

    slow = [kind for kind in SLOW[mpi] if not (kind == "starts+" and jobs.before_mpi4(mpi))]
    checks = [("who is not in MPI_Init", late)]  # first: it waits for half a minute, beside all others
    checks += shared([(f"all orders, {mode}", lambda settings=settings: run(every + own, settings)) for mode, settings in MODES.items()]
                     + [("all orders, record and verify", recorded)], mpi)
    if mpi == "openmpi":  # UCX in MPICH takes mmap for itself
        checks += [("a rank without memory harms nobody", poor)]
    checks += [(f"long enough for a proof: {kind}", lambda kind=kind: run([kind], {})) for kind in slow]
    return run_checks(checks, side_by_side=2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
