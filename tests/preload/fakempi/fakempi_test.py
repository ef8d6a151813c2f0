#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The standard ABI of MPI 5.0, on a stand-in library: the right backend is chosen, and the program behaves alike.

Usage: fakempi_test.py BUILD      (BUILD holds fakempi_program and libmpi_abi.so.1)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import run_checks  # noqa: E402

EXPECTED = {"MPI_Init": 1, "MPI_Irecv": 9, "MPI_Recv": 2, "MPI_Waitall": 1, "MPI_Comm_dup": 100, "MPI_Comm_free": 100,
            "MPI_Allreduce": 100, "MPI_Iprobe": 1, "MPI_Get_count": 8, "MPI_Finalize": 1, "MPI_Barrier": 1}


def run(build, preload, **env):
    directory = os.path.join(jobs.scratch(), "report")
    env["LD_LIBRARY_PATH"] = build
    if preload:
        env.update(LD_PRELOAD=jobs.library(), RESIL_DIR=directory)
    return jobs.start([os.path.join(build, "fakempi_program")], directory, env=env, timeout=30)


def check(build, mode):
    plain, preloaded = run(build, False), run(build, True, RESIL_MODE=mode)
    transparent.same_end(plain, preloaded)
    assert plain.returncode == 0, plain.text()
    if mode == "off":
        return
    report = transparent.clean_report(preloaded, 1)[0]
    assert report["mpi"]["abi"] == "standard", report["mpi"]
    assert "fakempi" in report["mpi"]["library"], report["mpi"]
    counts = reports.counts(report)
    wrong = {name: counts.get(name) for name, number in EXPECTED.items() if counts.get(name) != number}
    assert not wrong, f"{wrong}, made {EXPECTED}"
    peer = {entry["rank"]: entry for entry in report["peers"]}[0]
    # 8 of 4 bytes, 1 of 36, and 2 integers through a name that the library lacks; not the one that was refused
    assert peer["sent_bytes"] >= 8 * 4 + 36, peer


if __name__ == "__main__":
    sys.exit(run_checks([(f"standard ABI, {mode}", lambda mode=mode: check(sys.argv[1], mode))
                         for mode in ("watch", "off")]))
