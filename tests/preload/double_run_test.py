#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil_run_twice: clean steps agree and cost nothing but a second run; a bit flipped in one run of one rank is found,
with array, place and both values, and each policy does what it says. Without the library a step is run once.

Usage: double_run_test.py BUILD openmpi|mpich      (BUILD holds double_run.MPI)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports  # noqa: E402
from harness.main import run_checks  # noqa: E402

BUILD = MPI = ""
ABORT, RETRY, CONTINUE, LOCAL = 1, 2, 3, 16
STEPS = 4
FLIP = "1:4:1234:51"  # rank 1, the second run of the second step


def run(policy, flip=None, ranks=2, preload=True, **variables):
    env = {"RESIL_REDUCE": "order", **variables}
    if flip:
        env["FLIP"] = flip
    return jobs.run(MPI, ranks, [os.path.join(BUILD, f"double_run.{MPI}"), str(policy), str(STEPS)], env=env,
                    preload=preload, timeout=60)


def totals(result):
    return sorted(line for line in result.stdout.decode().splitlines() if line.startswith("rank"))


def counts(result, rank):
    """(runs of the step, ranks that differed, mismatches) as the program saw it."""
    found = re.search(rf"rank {rank}: runs (\d+) found (\d+) mismatches (\d+)", result.stderr.decode())
    assert found, result.text()
    return tuple(int(group) for group in found.groups())


def of_rank(result, rank):
    report = reports.load(result.directory)[rank]
    return report["double_runs"], [f for f in report["findings"] if f["kind"] == "double_run"]


def check_clean():
    plain, twice = run(ABORT, preload=False), run(ABORT)
    assert plain.returncode == twice.returncode == 0, twice.text()
    assert totals(plain) == totals(twice) and len(totals(plain)) == 2, (plain.text(), twice.text())
    for rank in range(2):
        assert counts(plain, rank) == (STEPS, 0, 0) and counts(twice, rank) == (2 * STEPS, 0, 0), twice.text()
        summary, findings = of_rank(twice, rank)
        assert not findings
        assert (summary["steps"], summary["mismatches"], summary["unchecked"]) == (STEPS, 0, 0), summary
        assert summary["protected_arrays"] == 2, summary


def check_retry():
    plain, result = run(RETRY, preload=False), run(RETRY, FLIP)
    assert result.returncode == 0 and totals(result) == totals(plain), result.text()
    for rank in range(2):
        assert counts(result, rank) == (2 * STEPS + 1, 2, 1), result.text()  # total differs on both ranks
    summary, findings = of_rank(result, 1)
    assert summary["mismatches"] == summary["runs_again"] == 1 and len(findings) == 1, findings
    evidence = findings[0]["evidence"]
    assert evidence["array"].startswith('"u"') and evidence["arrays_different"] == "2 of 2", evidence
    low, high = (int(word) for word in re.findall(r"\d+", evidence["first_bytes"]))
    assert low <= 1234 * 8 <= high and high - low < 4096, evidence
    assert evidence["fingerprint_1"] != evidence["fingerprint_2"], evidence


def check_full_evidence():
    result = run(RETRY | LOCAL, FLIP, RESIL_BLAME="full")
    assert result.returncode == 0 and totals(result) == totals(run(RETRY | LOCAL, preload=False)), result.text()
    assert counts(result, 0) == (2 * STEPS, 0, 0) and counts(result, 1) == (2 * STEPS + 1, 1, 1), result.text()
    _, findings = of_rank(result, 1)
    evidence, = (finding["evidence"] for finding in findings)
    assert findings[0]["culprit_ranks"] == [1] and findings[0]["confidence"] == "verified", findings
    words = [int(evidence[name].split()[0], 16) for name in ("first_run", "second_run")]
    assert words[0] ^ words[1] == 1 << 51 and evidence["bits"] == "1 of 64 differ", evidence
    assert int(evidence["first_byte"]) == 1234 * 8 + 51 // 8, evidence
    assert not of_rank(result, 0)[1]


def check_continue():
    plain, result = run(CONTINUE, preload=False), run(CONTINUE, FLIP)
    assert result.returncode == 0 and totals(result) != totals(plain), result.text()  # goes on with the damaged one
    assert counts(result, 0) == counts(result, 1) == (2 * STEPS, 2, 1), result.text()


def check_abort():
    for policy, variables in ((ABORT, {}), (0, {}), (0, {"RESIL_ON_MISMATCH": "abort"})):
        result = run(policy, FLIP, **variables)
        assert result.returncode == 90 and not totals(result), (policy, variables, result.text())
        assert b'resil: double_run' in result.stderr and b'step "heat"' in result.stderr, result.text()
    assert run(0, FLIP, RESIL_ON_MISMATCH="log").returncode == 0
    assert run(0, FLIP, RESIL_ON_MISMATCH="retry").returncode == 0


def check_modes():
    for mode in ("checksum",):
        for flip, again in ((None, 0), (FLIP, 1)):
            result = run(RETRY, flip, RESIL_MODE=mode)
            assert result.returncode == 0 and counts(result, 0)[0] == 2 * STEPS + again, result.text()


def check_many_ranks():
    for ranks in (1, 3, 5):
        result = run(RETRY, f"{ranks - 1}:4:77:3", ranks=ranks)
        assert result.returncode == 0, result.text()
        clean = run(RETRY, ranks=ranks)  # not without the library: sums of three ranks and more are in resil's order
        assert totals(result) == totals(clean) and clean.returncode == 0, result.text()
        assert counts(result, 0)[0] == 2 * STEPS + 1, result.text()


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    checks = [("clean", check_clean), ("retry", check_retry), ("full evidence", check_full_evidence),
              ("continue", check_continue), ("abort", check_abort), ("with checksums", check_modes)]
    if MPI == "openmpi":
        checks.append(("1, 3 and 5 ranks", check_many_ranks))
    return run_checks([(f"{name} ({MPI})", check) for name, check in checks])


sys.exit(main())
