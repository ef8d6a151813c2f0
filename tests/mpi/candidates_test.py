#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Receives from MPI_ANY_SOURCE for which several messages could have come are counted; where the order is the program's, none is.

Usage: candidates_test.py BUILD openmpi|mpich      (BUILD holds candidates.MPI)
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

TOOL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts", "resil")
# kind: receives from MPI_ANY_SOURCE, of them with several candidates. Of `gather` that depends on what comes first.
SEVERAL = {"gather": (3, (1, 2)), "gather-irecv": (2, (1,)), "any-tag": (2, (1,)), "probe": (2, (1,))}
ONE = {"one-sender": 4, "ordered": 2, "barrier": 2, "tags": 2, "comms": 2, "reply": 2, "request-status": 2, "later-post": 2}
UNKNOWN = {"synchronous": "synchronous sends", "window": "windows", "cancel": "MPI_Cancel"}


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")

    def run(kind, mode):
        result = jobs.run(mpi, 2, [os.path.join(build, f"candidates.{mpi}"), kind],
                          env={"RESIL_LOG": "quiet", "RESIL_MODE": "checksum", "RESIL_CHECKSUM": mode})
        assert result.returncode == 0 and b"resil" not in result.stdout + result.stderr, result.text()
        said = [subprocess.run([sys.executable, TOOL, "report", *how, result.directory], capture_output=True, text=True,
                               timeout=60, check=False) for how in ([], ["--json"])]
        assert all(one.returncode == 0 for one in said), said
        merged = json.loads(said[1].stdout)
        assert merged["verdict"] == "CLEAN" and not merged["findings"], merged["reason"]
        return merged["any_source"], " ".join(said[0].stdout.split())

    def several(kind, mode):
        found, text = run(kind, mode)
        receives, counts = SEVERAL[kind]
        assert found["followed"] == receives and found["several_candidates"] in counts and found["ranks"] == "0", found
        assert f"{found['several_candidates']} of {receives} receives from MPI_ANY_SOURCE had more than one candidate" in text, text
        return f"{found['several_candidates']} of {receives}"

    def one(kind, mode):
        found, text = run(kind, mode)
        assert found["followed"] == ONE[kind] and found["several_candidates"] == 0 and found["unknown"] == "", found
        assert "more than one candidate" not in text, text

    def unknown(kind, mode):
        found, text = run(kind, mode)
        assert found["several_candidates"] is None and found["unknown"] == UNKNOWN[kind], found
        assert "more than one candidate" not in text, text

    def threads(mode):
        found, text = run("threads", mode)
        assert found is None and "more than one candidate" not in text, (found, text)

    checks = []
    for mode in ("lazy", "strict"):
        for kinds, check in ((SEVERAL, several), (ONE, one), (UNKNOWN, unknown)):
            checks += [(f"{kind}, {mode}", lambda kind=kind, mode=mode, check=check: check(kind, mode)) for kind in kinds]
    return run_checks(shared(checks + [("two threads", lambda: threads("lazy"))], mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
