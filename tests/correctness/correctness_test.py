#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The generated programs of tests/correctness are what they say, and some of them run: the wrong ones found with class and
line, their corrected twins without a word. All of them: scripts/campaign correctness.

Usage: correctness_test.py openmpi|mpich
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from correctness import language, mistakes  # noqa: E402
from harness import correctness, mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

LEAST = 2000  # programs, the corrected ones counted
# (calls, mistake) of those that run here: one of each kind of mistake that is proved on any MPI.
SAMPLE = (("Send and Recv", "tag"), ("Ssend and Irecv", "ring of sends"), ("Send and Probe", "communicator freed by the sender"),
          ("Ssend_init and Recv_init", "no receive"), ("Allreduce, blocking", "skipped"), ("Reduce, blocking", "another root"),
          ("Barrier, nonblocking", "order of two communicators"), ("Comm_idup", "after a receive"))


def complete():
    """Enough of them, each with a name of its own, wrong in one place at least, and with lines that count."""
    programs = mistakes.programs()
    assert 2 * len(programs) >= LEAST and len({program.name for program in programs}) == len(programs)
    for program in programs:
        texts = {}
        for side in ("bad", "good"):
            text, marks = language.source(program.binding, [("it", getattr(program, side))])
            texts[side] = text.split("\n")
            assert bool(marks["it"]) == (side == "bad"), f"{program.name}_{side}: lines that count: {marks}"
        assert texts["bad"] != texts["good"], program.name
    return f"{2 * len(programs)} programs"


def sample(mpi):
    newest = mpi == "mpich" or jobs.openmpi_version() >= (5,)
    lost = jobs.loses_messages(mpi)
    chosen = [program for program in mistakes.programs(newest) if (program.family, program.mistake) in SAMPLE
              and not (lost and program.ranks > 2)]
    assert len(chosen) >= (6 if lost else 2 * len(SAMPLE)), [program.name for program in chosen]
    options = argparse.Namespace(mpi=mpi, native=False)
    built = correctness.build(mpi, chosen, jobs.scratch("correctness-build-"), 2)
    assert not built.failed, built.failed

    def one(program, side):
        row = correctness.run_one(built, program, side, options, "watch")
        if side == "bad":
            assert row["found"] and row["right"] and row["line"], row
            return f"{row['classes']}, {row['after']} s after the last rank"
        assert not row["alarm"], row.get("text", row)
        return ""

    return [(f"{program.name} {side}, {program.family}: {program.mistake} ({mpi})", lambda program=program, side=side: one(program, side))
            for program in chosen for side in ("bad", "good")]


def main(mpi):
    jobs.require(f"mpirun.{mpi}", f"mpicc.{mpi}", f"mpifort.{mpi}", "addr2line")
    return run_checks([("the programs", complete)] + sample(mpi), side_by_side=4)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
