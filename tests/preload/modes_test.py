#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A first look at a system: each mode once on a program that checks its own results, and what scripts/demo shows, on a small
program: a job asked what it does goes on, its report is clean, a flipped bit stops it. For each cell of scripts/matrix.

Usage: modes_test.py BUILD openmpi|mpich     (BUILD holds wildcards, collectives, replay, neighbours, staging_p2p)
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu, patience  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

BUILD = MPI = ""
TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
TRAFFIC = ("wildcards", "5", "300")
LIMIT = 120


def run(words, env=None, status=0, **more):
    """Two ranks, and the status that they must end with."""
    result = jobs.run(MPI, 2, [os.path.join(BUILD, f"{words[0]}.{MPI}"), *words[1:]], env=env, timeout=LIMIT, **more)
    assert result.returncode == status, result.text()
    return result


def tool(verb, directory, status=0):
    done = patience.run([sys.executable, TOOL, verb, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == status, f"{verb}: status {done.returncode}\n{text}"
    return text


def ranks(result, **wanted):
    """Both ranks' reports, which have no finding; wanted: a section of each, and where in it a number is that is not 0."""
    reports = result.ranks()
    assert len(reports) == 2, result.text()
    for report in reports.values():
        assert report["findings"] == [], f"{report['findings']}\n{result.text()}"
        for section, path in wanted.items():
            value = report[section]
            for name in path:
                value = value[name]
            assert value > 0, f"{section}: {report[section]}\n{result.text()}"
    return reports


def watch():
    result = run(TRAFFIC)
    ranks(result)
    return tool("report", result.directory).splitlines()[0]


def checksum(strict):
    result = run(TRAFFIC, {"RESIL_MODE": "checksum", **({"RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full"} if strict else {})})
    ranks(result, checksum=("messages_checked",))
    return tool("report", result.directory).splitlines()[0]


def record_and_verify():
    """A program whose result differs from run to run repeats its recorded run."""
    place = os.path.join(jobs.scratch(), "recording")
    recorded = run(("replay", "recv", "60"), {"RESIL_MODE": "record", "RESIL_RECORD": place})
    again = run(("replay", "recv", "60"), {"RESIL_MODE": "verify", "RESIL_RECORD": place})
    assert recorded.stdout == again.stdout, f"{recorded.text()}\n{again.text()}"
    text = tool("report", again.directory)
    assert "agree with the recording" in text, text
    return text.splitlines()[0]


def reductions(how):
    plain = run(("collectives",), preload=False)
    result = run(("collectives",), {"RESIL_REDUCE": how})
    assert plain.stdout == result.stdout, f"{plain.text()}\n{result.text()}"
    text = tool("report", result.directory)
    assert "reductions" in text, text


def staging():
    result = run(("staging_p2p", "modes"), gpu.environment("", {"RESIL_STAGE": "on"}))
    ranks(result, staging=("messages", "calls"))


def demo():
    folder = jobs.scratch()
    ready, go, reports = (os.path.join(folder, name) for name in ("ready", "go", "report"))
    line = jobs.launcher(MPI, 2, jobs.rank_environment(True, reports)) + [os.path.join(BUILD, f"neighbours.{MPI}"), "1", ready, go]
    job = jobs.Running(line, reports)
    try:
        patience.wait_for(lambda: os.path.exists(ready) or job.poll() is not None, "the job is well under way", LIMIT, pause=0.05)
        text = tool("dump", reports)
        assert "  rank 0 of 2" in text and "  rank 1 of 2" in text, text
        with open(go, "w", encoding="ascii"):
            pass
        patience.wait_for(lambda: job.poll() is not None, "the job goes on to its end", LIMIT, pause=0.05)
    finally:
        result = job.end()
    assert result.returncode == 0, result.text()
    ranks(result)
    tool("report", reports)


def flipped_bit():
    """In a program that does not check what it receives."""
    result = run(("replay", "recv", "60"), {"RESIL_MODE": "checksum", "RESIL_FAULT": "flip,rank=1,nth=20"}, status=90)
    assert b"message_corrupted" in result.stderr, result.text()
    text = tool("report", result.directory, status=1)
    assert "message_corrupted" in text, text
    return text.splitlines()[0]


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    return run_checks([("watch", watch), ("checksum", lambda: checksum(False)), ("checksum, strict, full blame", lambda: checksum(True)),
                       ("record, verify", record_and_verify), ("reductions in order", lambda: reductions("order")),
                       ("exact reductions", lambda: reductions("exact")), ("staging", staging), ("the demo's story", demo),
                       ("the demo's flipped bit", flipped_bit)])


if __name__ == "__main__":
    sys.exit(main())
