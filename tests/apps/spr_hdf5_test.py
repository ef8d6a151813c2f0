#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Particle replication that goes back to checkpoints of Debian's parallel HDF5: two flips on two ranks, each found before the
next checkpoint is written; every rank restores the last one, and the result is that of a run without flips and without resil.
"""
from app import jobs, main, reports
import os
import re
import subprocess
import tempfile

SOURCES = os.path.join(jobs.ROOT, "tests", "mpi")
RETRY = "2"


def compiled(mpi):
    program = os.path.join(jobs.scratch(), f"spr.{mpi}")
    subprocess.run([f"h5pcc.{mpi}", "-std=gnu11", "-O1", "-g", "-w", "-DWITH_HDF5", "-I" + SOURCES,
                    "-I" + os.path.join(jobs.ROOT, "shim", "include"), "-o", program, os.path.join(SOURCES, "spr.c"), "-ldl"],
                   cwd=os.path.dirname(program), check=True)
    return program


def run(mpi, program, scene, flip="", preload=True):
    folder = tempfile.mkdtemp(dir=jobs.scratch())
    result = jobs.run(mpi, 2, [program, scene, RETRY, "6"], preload=preload, timeout=120,
                      env={"RESIL_SPR": "cover", "CHECKPOINTS": folder, "FLIP": flip or "9:0:none:0:0"})
    return result, sorted(os.listdir(folder))


def sums(result):
    return sorted(line for line in result.stdout.decode().splitlines() if line.startswith("rank"))


def check(mpi):
    program = compiled(mpi)
    plain, files = run(mpi, program, "rollback", preload=False)
    assert plain.returncode == 0 and files == ["checkpoint-0.h5", "checkpoint-1.h5"] and len(sums(plain)) == 2, plain.text()
    result, files = run(mpi, program, "rollback", "1:2:input:77:51,0:4:input:3:40")
    assert result.returncode == 0 and sums(result) == sums(plain) and len(files) == 2, result.text()
    assert len(re.findall(r"found 0 rollbacks 2", result.stderr.decode())) == 2, result.text()
    culprits = [finding["culprit_ranks"] for report in reports.load(result.directory).values() for finding in report["findings"]
                if finding["kind"] == "particle_changed"]
    assert sorted(culprits) == [[0], [1]], culprits
    result, _ = run(mpi, program, "clean", "1:2:input:77:51")  # there is no checkpoint: the job ends
    assert result.returncode == 90, result.text()


if __name__ == "__main__":
    found = [mpi for mpi in ("openmpi", "mpich") if jobs.installed(f"h5pcc.{mpi}") and jobs.installed(f"mpirun.{mpi}")]
    if not found:
        jobs.skip("no parallel HDF5")
    main([(f"checkpoints of HDF5 ({mpi})", lambda mpi=mpi: check(mpi)) for mpi in found])
