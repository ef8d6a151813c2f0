# SPDX-License-Identifier: Apache-2.0
"""The transparency check: the same job with and without the library must end alike and print the same bytes; and where
message contents are checked, no false alarm, nothing left open, and what was not checked has a reason."""
import os
import re
import subprocess
import sys

from . import mpi as jobs
from . import report as reports


# What the ranks get beyond what the test says. A difference that is found stops the job, so that no false alarm passes.
MODES = {
    "off": {"RESIL_MODE": "off"},
    "watch": {"RESIL_MODE": "watch"},
    "checksum": {"RESIL_MODE": "checksum"},
    "full": {"RESIL_MODE": "checksum", "RESIL_BLAME": "full"},
    "strict": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict"},
}
CHECKING = ("checksum", "full", "strict")


def describe(difference, plain, preloaded):
    return f"{difference}\n===== plain: {plain.text()}\n===== preloaded: {preloaded.text()}"


def own_lines(stderr):
    """The library's lines on standard error."""
    return [line for line in stderr.decode(errors="replace").splitlines() if line.startswith("resil:")]


def without_noise(stderr):
    """Standard error less the library's lines and what differs between any two runs: numbers, blank lines."""
    lines = [re.sub(r"0x[0-9a-f]+|\d+", "N", line) for line in stderr.decode(errors="replace").splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("resil:")]


# How often a job runs natively before a status counts as one that it never has by itself: launchers join the statuses of all
# ranks, and which rank they end first is chance. Some statuses come in a twentieth of the native runs.
NATIVE_RUNS = 20


def of_same_status(plain, preloaded, again):
    """A native run that ended with the preloaded one's status: `plain`, or one of some more, again() -> Result. The last one
    when there is none."""
    for _ in range(NATIVE_RUNS):
        if plain.returncode == preloaded.returncode or plain.timed_out or preloaded.timed_out:
            break
        plain = again()
    return plain


def same_end(plain, preloaded, keep=None, numbers=None, again=None):
    """Asserts equal status and standard output.

    again() -> Result: one more native run, for jobs whose launcher does not give one status always;
    keep(bytes) -> bytes: drops what differs between two plain runs too (times, dates);
    numbers(bytes) -> any: the program's own result, which must be there in both.
    """
    assert not plain.timed_out, f"the plain run does not end: no fault of the library\n{plain.text()}"
    assert not preloaded.timed_out, describe("hangs when preloaded", plain, preloaded)
    if again:
        plain = of_same_status(plain, preloaded, again)
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


def covered(result, ranks, least=100.0, reasons=()):
    """Asserts on the reports of a checking run that something was checked, at least `least` per cent of the messages,
    that nothing is open, that only these reasons were given for what was not checked, that the books balance, and
    that the tool says so (least 0: nothing may be checked, and then it is not clean). `ranks`: from clean_report().
    Returns words for the test's line."""
    total = checked = 0
    for rank, report in ranks.items():
        section = report.get("checksum")
        assert section, f"rank {rank} has no checksum section"
        story = f"rank {rank}: {section}"
        assert section["connected"], f"no channel between the ranks; {story}"
        assert section["mismatches"] == 0 and section["unverified"] == 0, story
        unknown = set(section["messages_uncovered"]) - set(reasons)
        assert not unknown, f"not checked for reasons that are not expected: {unknown}; {story}"
        books = section["messages_checked"] + sum(section["messages_uncovered"].values())
        assert section["messages_total"] == books, f"{books} messages accounted for; {story}"
        total += section["messages_total"]
        checked += section["messages_checked"]
    assert total > 0, "there was no message"
    assert (checked > 0 or least == 0) and 100 * checked >= least * total, \
        f"{checked} of {total} messages checked: {[report['checksum'] for report in ranks.values()]}"
    tool = subprocess.run([sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "report", result.directory],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                          check=False)
    text = tool.stdout.decode(errors="replace")
    said = re.match(r"CLEAN: .* no findings in (all|\d+\.\d\d % of) [\d,]+ message", text)
    if checked:
        assert tool.returncode == 0 and said, text
    else:
        assert tool.returncode == 3 and text.startswith("INCOMPLETE: not one of "), text
    return f"{checked} of {total} messages checked"


def run_both(mpi, ranks, command, env=None, keep=None, numbers=None, timeout=60, modes=("watch",), coverage=None,
             **more):
    """Runs plain, then once in each mode; asserts the same end and clean reports. The last mode's rank reports.
    coverage: what covered() gets in modes that check."""
    plain = jobs.run(mpi, ranks, command, env=env, preload=False, timeout=timeout, **more)
    found = {}
    for mode in modes:
        preloaded = jobs.run(mpi, ranks, command, env={**(env or {}), **MODES[mode]}, timeout=timeout, **more)
        try:
            same_end(plain, preloaded, keep, numbers, plain.returncode and (
                lambda: jobs.run(mpi, ranks, command, env=env, preload=False, timeout=timeout, **more)))
            if mode == "off":
                assert not reports.load(preloaded.directory), "RESIL_MODE=off writes reports"
            elif plain.returncode == 0:
                found = clean_report(preloaded, ranks)
                if mode in CHECKING:
                    print(f"        {mode}: {covered(preloaded, found, **(coverage or {}))}")
        finally:
            jobs.remove_rings(preloaded.directory)
    return plain, preloaded, found
