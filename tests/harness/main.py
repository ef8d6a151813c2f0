# SPDX-License-Identifier: Apache-2.0
"""A test script's main function: runs its checks in order, goes on after a failure, names what failed."""
import sys
import time
import traceback


def run_checks(checks):
    """checks: [(name, callable)]. Prints one line each and ends with the line that runners read; status 0 or 1."""
    failed = 0
    for name, check in checks:
        began = time.monotonic()
        try:
            note = check() or ""
            print(f"ok      {name} ({time.monotonic() - began:.1f} s) {note}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED  {name} ({time.monotonic() - began:.1f} s)", flush=True)
            traceback.print_exc(file=sys.stdout)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0
