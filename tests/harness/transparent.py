# SPDX-License-Identifier: Apache-2.0
"""The transparency check: the same job with and without the library must end alike and print the same bytes."""
import os
import re

from . import mpi as jobs
from . import report as reports


def describe(difference, plain, preloaded):
    return f"{difference}\n===== plain: {plain.text()}\n===== preloaded: {preloaded.text()}"


def own_lines(stderr):
    """The library's lines on standard error."""
    return [line for line in stderr.decode(errors="replace").splitlines() if line.startswith("resil:")]


def without_noise(stderr):
    """Standard error less the library's lines and what differs between any two runs: numbers, blank lines."""
    lines = [re.sub(r"0x[0-9a-f]+|\d+", "N", line) for line in stderr.decode(errors="replace").splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("resil:")]


def same_end(plain, preloaded, keep=None, numbers=None):
    """Asserts equal status and standard output.

    keep(bytes) -> bytes: drops what differs between two plain runs too (times, dates);
    numbers(bytes) -> any: the program's own result, which must be there in both.
    """
    assert not plain.timed_out, f"the plain run does not end: no fault of the library\n{plain.text()}"
    assert not preloaded.timed_out, describe("hangs when preloaded", plain, preloaded)
    assert plain.returncode == preloaded.returncode, describe("the exit status differs", plain, preloaded)
    left, right = (keep(run.stdout) if keep else run.stdout for run in (plain, preloaded))
    if left != right:
        pairs = list(zip(left.splitlines(), right.splitlines()))
        first = next((f"plain:     {a!r}\npreloaded: {b!r}" for a, b in pairs if a != b), "one output is longer")
        raise AssertionError(describe(f"standard output differs\n{first}", plain, preloaded))
    if numbers:
        one, two = numbers(plain.stdout), numbers(preloaded.stdout)
        assert one, f"no result in the output\n{plain.text()}"
        assert one == two, f"results differ: {one} and {two}"
    assert not preloaded.leftovers, f"processes are left: {preloaded.leftovers}\n{preloaded.text()}"


def clean_report(result, ranks, outcome="finished"):
    """Asserts what every good run leaves: all ranks' reports, no finding, no ring in memory, one closing line."""
    found = result.ranks()
    assert sorted(found) == list(range(ranks)), f"reports of ranks {sorted(found)}, not of {ranks}\n{result.text()}"
    for rank, report in found.items():
        assert report["outcome"] == outcome, f"rank {rank} is {report['outcome']}, not {outcome}"
        assert report["findings"] == [], f"rank {rank} has findings: {report['findings']}"
        assert report["calls"], f"rank {rank} counted no call"
    if outcome == "finished":
        left = jobs.live_rings(result.directory)
        assert not left, f"rings are left in memory: {left}"
        for rank in found:
            path = os.path.join(result.directory, f"rank-{rank:05d}.ring")
            assert os.path.exists(path), f"{path} is missing"
        lines = own_lines(result.stderr)
        assert len(lines) == len(reports.worlds(result.directory)), f"not one closing line of each world: {lines}"
    return found


def run_both(mpi, ranks, command, env=None, keep=None, numbers=None, timeout=60, modes=("watch",), **more):
    """Runs plain, then once in each mode; asserts the same end and clean reports. The last mode's rank reports."""
    plain = jobs.run(mpi, ranks, command, env=env, preload=False, timeout=timeout, **more)
    found = {}
    for mode in modes:
        preloaded = jobs.run(mpi, ranks, command, env={**(env or {}), "RESIL_MODE": mode}, timeout=timeout, **more)
        try:
            same_end(plain, preloaded, keep, numbers)
            if mode == "off":
                assert not reports.load(preloaded.directory), "RESIL_MODE=off writes reports"
            elif plain.returncode == 0:
                found = clean_report(preloaded, ranks)
        finally:
            jobs.remove_rings(preloaded.directory)
    return plain, preloaded, found
