#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/resil smoke on a real MPI: right packets are good, wrong ones stop; host memory, and the stand-in's devices.

Usage: smoke_test.py openmpi|mpich
"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu, mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

MPI = ""


def smoke(*words, status=0, **env):
    folder = jobs.scratch()
    launcher = " ".join(jobs.launcher(MPI, 4, {})[:-1] + ["{ranks}"])
    line = [sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "smoke", "--mpicc", f"mpicc.{MPI}",
            "--launcher", launcher, "--library", jobs.library(), "--directory", folder, "--ranks", "2", "--volume", "1",
            "--timeout", "3000", *words]  # the limit is the job's below, of a free machine
    job = jobs.start(line, env=env, timeout=60)
    assert job.returncode == status, job.text()
    assert os.listdir(folder) == [], os.listdir(folder)
    return job


def parsed(*words, status=0, **env):
    return json.loads(smoke("--json", *words, status=status, **env).stdout)


def check_host():
    said = parsed("--memory", "host", "--sizes", "4K,64K,1M", "--peak", "0.0001")
    assert said["verdict"] == "good" and [row["bytes"] for row in said["runs"]] == [4096, 65536, 1 << 20], said
    for row in said["runs"]:
        assert row["bad_packets"] == 0 and row["packets"] >= 96 and row["worst_node_gbs"] > 0 and row["nodes"] == 1, row
    said = parsed("--memory", "host", "--sizes", "4K", "--peak", "100000", status=2)
    assert said["verdict"] == "stop" and "GB/s" in said["reason"], said


def check_wrong_bytes():
    """Each flipped packet is counted, whatever the bandwidth."""
    said = parsed("--memory", "host", "--sizes", "4K,64K", "--with-resil", status=2, RESIL_FAULT="flip,nth=40,min=4000")
    bad = [bad for row in said["runs"] for bad in row["bad"]]
    assert said["verdict"] == "stop" and bad and bad[0]["words"] == 1, said
    text = smoke("--memory", "host", "--sizes", "4K", "--with-resil", status=2, RESIL_FAULT="flip,nth=40,min=4000")
    assert b"WRONG" in text.stdout and b"stop: " in text.stdout, text.text()


def check_device():
    """Through pinned memory: the stand-in's device memory faults when the MPI touches it. Then with wrong copies."""
    said = parsed("--memory", "device", "--sizes", "4K,64K", **gpu.environment("down=4,up=4"))
    assert said["verdict"] == "good" and [row["memory"] for row in said["runs"]] == ["device"] * 2, said
    said = parsed("--memory", "device", "--sizes", "64K", status=2,
                  **gpu.environment("down=4,up=4,fault=corrupt-down:10"))
    assert sum(row["bad_packets"] for row in said["runs"]) > 0, said


def check_no_device():
    said = parsed("--sizes", "4K", **gpu.environment("devices=0"))
    assert said["verdict"] == "good" and "device" in said["skipped"] and len(said["runs"]) == 1, said
    said = parsed("--memory", "device", "--sizes", "4K", status=2, **gpu.environment("devices=0"))
    assert said["problems"] and "no" in said["problems"][0]["problem"], said


def check_early_events():
    """Events that are complete too early would send what the pinned memory held before; fence words keep them in check."""
    said = parsed("--memory", "device", "--sizes", "64K",
                  **gpu.environment("down=0.5,up=0.5,fault=early-event:3", {"RESIL_GPU": "check"}))
    assert said["verdict"] == "good", said


def main():
    global MPI  # pylint: disable=global-statement
    MPI = sys.argv[1]
    jobs.require(f"mpirun.{MPI}", f"mpicc.{MPI}")
    return run_checks([("host memory", check_host), ("wrong bytes", check_wrong_bytes), ("device memory", check_device),
                       ("no device", check_no_device)]
                      + ([("early events", check_early_events)] if MPI == "openmpi" else []), side_by_side=2)


sys.exit(main())
