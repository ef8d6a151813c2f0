#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile programs, natively and preloaded.

Usage: hostile_test.py BUILD openmpi|mpich PROGRAM… [--modes MODE…] [--cases CASE…] [--fast] [--single]
       (BUILD holds PROGRAM.MPI)

What is left out where, and why, stands in harness/hostile.py.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import hostile, mpi as jobs  # noqa: E402
from harness.main import half_here, run_checks  # noqa: E402


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("mpi", choices=jobs.MPIS)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--modes", nargs="+", choices=hostile.MODES, default=list(hostile.MODES))
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--fast", action="store_true", help="only cases that no other test has")
    parser.add_argument("--share", action="store_true", help="each mode on one of the MPIs; on the other one it is long")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of a free machine for a job")
    parser.add_argument("--single", action="store_true", help="each case in a job of its own")
    options = parser.parse_args()
    jobs.require(f"mpirun.{options.mpi}")
    if options.share:
        options.modes = half_here(options.modes, options.mpi)
        os.environ["RESIL_TEST_LONG"] = "all"  # of this half
    checks = []
    for name in options.programs:
        checks += hostile.checks_of(os.path.join(os.path.abspath(options.build), f"{name}.{options.mpi}"), name, options)
    if not checks:
        jobs.skip("this MPI lacks what the program is about")
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main())
