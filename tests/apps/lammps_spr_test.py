#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Particle replication in an unmodified LAMMPS, by a fix of ours that its input script loads: replicas agree to the last bit
through rebuilt neighbour lists and atoms that change ranks, the thermodynamics are those of the plain run, and flipped bits
are found.

Usage: lammps_spr_test.py OBJECT      (lammps_spr.so)
"""
from app import jobs, main, reports
import os
import re
import sys

INPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lammps_spr.in")
OBJECT = os.path.abspath(sys.argv[1])


def run(replicas, flip=None, preload=True, **variables):
    env = {"RESIL_SPR": "cover", "RESIL_ON_MISMATCH": "log", **variables}
    if flip:
        env["SPR_FLIP"] = flip
    result = jobs.run("openmpi", 2, ["lmp", "-in", INPUT, "-log", "none", "-var", "object", OBJECT, "-var", "replicas",
                                     str(replicas), "-var", "side", "6"], env=env, preload=preload, timeout=120, cwd=jobs.scratch())
    assert result.returncode == 0, result.text()
    return result, re.findall(r"^ +\d+ +[-\d.]+ .*$", result.stdout.decode(), re.MULTILINE)


def spr(result, rank):
    report = reports.load(result.directory)[rank]
    return report["spr"][0], report["findings"]


def check_clean():
    _, plain = run(0, preload=False)
    result, replicated = run(1)
    assert plain == replicated and len(plain) == 6, (plain, replicated)
    compared = 0
    for rank in range(2):
        summary, findings = spr(result, rank)
        assert not findings and not summary["uncovered"] and summary["selections"] >= 10, summary
        assert summary["phases"] == 51 and summary["compared"] >= 51 * 10, summary
        compared += summary["compared"]
    assert plain == run(1, preload=False)[1]  # inert without the library
    return f"{compared} replicas compared"


def check_flips():
    for what, atom, kind in (("x", 100, "replica_mismatch"), ("x", 700, "particle_changed"), ("v", 55, "particle_changed")):
        result, _ = run(1, f"1:17:{what}:{atom}:45")
        kinds = [finding["kind"] for finding in spr(result, 1)[1]]
        assert kind in kinds and not spr(result, 0)[1], (what, atom, kinds)
    seen = 0
    for atom in (0, 1, 30):
        result, _ = run(1, f"0:23:f:{3 * atom}:40", RESIL_SPR="greedy")
        seen += len(spr(result, 0)[1])
    assert 1 <= seen <= 3, seen  # the first atom in order always has a replica; not every one has


if __name__ == "__main__":
    jobs.require("lmp", "mpirun.openmpi", OBJECT)
    main([("lammps with replicas", check_clean), ("flips in lammps", check_flips)])
