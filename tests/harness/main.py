# SPDX-License-Identifier: Apache-2.0
"""A test script's main function: runs its checks in order, goes on after a failure, names what failed."""
import concurrent.futures
import sys
import time
import traceback


class LeftOut(Exception):
    """What a check raises that cannot be made here; counted apart."""


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
    failed = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        for text, passed in pool.map(lambda item: _run(*item), checks):
            failed += passed is False
            left_out += passed is None
            print(text, flush=True)
    print(f"{len(checks) - failed - left_out} passed, {failed} failed" + (f", {left_out} left out" if left_out else ""))
    return 1 if failed else 0
