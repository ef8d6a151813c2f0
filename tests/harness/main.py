# SPDX-License-Identifier: Apache-2.0
"""A test script's main function: runs its checks in order, goes on after a failure, names what failed.

RESIL_TEST_LONG   only: the checks that are Long, which are the suite `long`; all: these and the usual ones
RESIL_TEST_SHARE  other: see shared()
"""
import concurrent.futures
import os
import sys
import time
import traceback


class LeftOut(Exception):
    """What a check raises that cannot be made here; counted apart."""


class Long:
    """A check of the suite `long`: what the usual ones have seen in another combination (of MPI, mode, way)."""

    def __init__(self, check):
        self.check = check

    def __call__(self):
        return self.check()


def chosen(checks):
    """Those of [(name, callable)] that RESIL_TEST_LONG asks for."""
    which = os.environ.get("RESIL_TEST_LONG", "")
    return [item for item in checks if which == "all" or isinstance(item[1], Long) == (which == "only")]


def _turn(mpi):
    """Which of two scenes is this MPI's: 0 or 1."""
    return (mpi == "mpich") != (os.environ.get("RESIL_TEST_SHARE") == "other")


def shared(checks, mpi):
    """Scenes that are about the library, not about one of the MPIs: each runs on one MPI, in turn, and is Long on the other
    one. Of a list that is the same for both. RESIL_TEST_SHARE=other: the other way round (scripts/matrix ci)."""
    return [(name, check if at % 2 == _turn(mpi) else Long(check)) for at, (name, check) in enumerate(checks)]


def half(items, mpi):
    """(this MPI's half of what one check does one after the other, the other half)"""
    items, turn = list(items), _turn(mpi)
    return items[turn::2], items[1 - turn::2]


def half_here(items, mpi):
    """Of what one check does one after the other: this MPI's half, the other one, or all, as RESIL_TEST_LONG asks for."""
    here, other = half(items, mpi)
    return {"only": other, "all": list(items)}.get(os.environ.get("RESIL_TEST_LONG", ""), here)


def _run(name, check):
    """(text to print, whether it passed; None: left out)"""
    began = time.monotonic()
    try:
        note = check() or ""
        return f"ok      {name} ({time.monotonic() - began:.1f} s) {note}", True
    except LeftOut as why:
        return f"left out {name}: {why}", None
    except Exception:  # pylint: disable=broad-except
        return f"FAILED  {name} ({time.monotonic() - began:.1f} s)\n{traceback.format_exc()}", False


def run_checks(checks, side_by_side=1):
    """checks: [(name, callable)]. Prints one line each and ends with the line that runners read; status 0 or 1. Those
    that mostly wait may run side by side."""
    checks = chosen(checks)
    failed = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        for text, passed in pool.map(lambda item: _run(*item), checks):
            failed += passed is False
            left_out += passed is None
            print(text, flush=True)
    print(f"{len(checks) - failed - left_out} passed, {failed} failed" + (f", {left_out} left out" if left_out else ""))
    return 1 if failed else 0
