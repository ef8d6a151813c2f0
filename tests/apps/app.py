# SPDX-License-Identifier: Apache-2.0
"""What the application tests share: plain against preloaded, the application's own numbers, and that calls were seen.

Import first: it makes the harness importable.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402,F401
from harness.main import Long, run_checks  # noqa: E402,F401


def dropping(*patterns):
    """A filter that removes lines which match any of the patterns: times and dates, which differ in every run."""
    drop = re.compile("|".join(patterns).encode())

    def keep(text):
        return b"\n".join(line for line in text.split(b"\n") if not drop.search(line))
    return keep


def finding(pattern):
    """A reader of the application's own result: all matches."""
    return lambda text: [match.decode() for match in re.findall(pattern.encode(), text)]


def expect_calls(ranks, **least):
    """Asserts that all ranks together counted at least so many calls of each function (MPI_ prefix added)."""
    total = {}
    for report in ranks.values():
        for name, count in reports.counts(report).items():
            total[name] = total.get(name, 0) + count
    for name, number in least.items():
        assert total.get("MPI_" + name, 0) >= number, f"MPI_{name}: {total.get('MPI_' + name, 0)}, not {number}"
    return f"{sum(total.values())} calls"


def main(checks):
    """checks: [(name, callable)]; ends the test."""
    sys.exit(run_checks(checks))
