#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No call of resil's own reaches the program's error handler: wrong arguments, with and without it, in every mode.

Usage: handles_test.py BUILD openmpi|mpich      (BUILD holds handles.MPI)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

MODES = {
    "watch": {},
    "checksum": {"RESIL_MODE": "checksum"},
    "strict, full blame": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full"},
    "record": {"RESIL_MODE": "record"},
    "order": {"RESIL_REDUCE": "order"},
    "exact": {"RESIL_REDUCE": "exact", "RESIL_REDUCE_P2P": "1"},
}


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"handles.{mpi}")

    def output(how, settings=None):
        told = os.path.join(jobs.scratch(), "told")
        result = jobs.run(mpi, 2, [program, how, told], timeout=240, preload=settings is not None,
                          env={"RESIL_LOG": "quiet", "RESIL_RECORD": os.path.join(jobs.scratch(), "recording"), **settings}
                          if settings is not None else None)
        assert result.returncode == 0, result.text()
        with open(told, encoding="utf-8") as file:
            return sorted(file.read().splitlines())

    native = {}

    def same(how, settings):
        if jobs.before_mpi4(mpi):
            raise LeftOut("MPICH 3.4.1 ends the job natively, in an assertion about memory ranges that overlap")
        if how not in native:
            native[how] = output(how)
        told = output(how, settings)
        assert len(native[how]) > 40, native[how]
        different = [f"native {a}; here {b}" for a, b in zip(native[how], told) if a != b]
        assert told == native[how], different

    return run_checks([(f"{how}, {mode}", lambda how=how, settings=settings: same(how, settings))
                       for how in ("counts", "returns") for mode, settings in MODES.items()])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
