#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments that a program frees as early as the libraries permit, and receives from MPI_PROC_NULL: the same output and
no finding in every mode. And ranks that wait in a reduction by messages answer those that wait for them.

Usage: early_test.py BUILD openmpi|mpich
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

STRICT = {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict"}
MODES = {
    "watch": {},
    "checksums": {"RESIL_MODE": "checksum"},
    "checksums, strict, blame full": {**STRICT, "RESIL_BLAME": "full"},
    "reductions in order": {"RESIL_REDUCE": "order"},
    "exact reductions by messages": {"RESIL_REDUCE": "exact", "RESIL_REDUCE_P2P": "1"},
    "injected faults without effect": {"RESIL_MODE": "checksum", "RESIL_FAULT": "flip,rank=0,nth=1000000000"},
}


class Setting:
    def __init__(self, build, mpi):
        self.mpi, self.program = mpi, os.path.join(build, f"early.{mpi}")
        plain = self.run({}, preload=False)
        self.broken = plain.returncode != 0  # one-sided calls of Open MPI 4.1 do not work on every machine
        self.output = plain.stdout

    def run(self, env, preload=True, what=(), timeout=120):
        env = {"EARLY_FILE": os.path.join(jobs.scratch(), "data"), **({"RESIL_LOG": "quiet", **env} if preload else {})}
        return jobs.run(self.mpi, 2, [self.program, *what], env=env, preload=preload, timeout=timeout)


def same(s, env):
    if s.broken:
        raise LeftOut("the program does not run without resil here")
    result = s.run(env)
    assert result.returncode == 0 and result.stdout == s.output, f"{s.output}\n{result.text()}"
    for rank, report in result.ranks().items():
        assert report["findings"] == [], f"rank {rank}: {report['findings']}"
    windows = [report["checksum"]["one_sided"] for report in result.ranks().values() if report.get("checksum")]
    total = sum(one["operations"] for one in windows)
    assert total == sum(one["checked"] + sum(one["uncovered"].values()) for one in windows), windows
    # MPICH 4.0 and 4.2 complete MPI_Rget of derived types before the data is there: said, and no finding.
    for report in result.ranks().values():
        early = "early" in report.get("checksum", {}).get("one_sided", {}).get("uncovered", {})
        assert early == any("completes such requests before" in note for note in report["notes"]), report["notes"]
        assert not early or s.mpi == "mpich", report
    return result


def repeats(s, mode, again):
    """Recorded and verified; a wait that never ends would be a finding after 30 s."""
    recording = {"RESIL_RECORD": os.path.join(jobs.scratch(), "recording"), "RESIL_VERIFY_SECONDS": "30"}
    same(s, {"RESIL_MODE": mode, **recording})
    for report in same(s, {"RESIL_MODE": again, **recording}).ranks().values():
        assert report["verify"]["divergences"] == 0 and report["verify"]["unmatched"] == 0, report["verify"]
        # Given and got, by MPI_Allgather and a message: the addresses differ from run to run, and are not compared.
        assert report["verify"]["addresses"] >= 4 and report["verify"]["complete"], report["verify"]


def answered(s):
    """The message to rank 1 is damaged, and rank 0 is in a reduction by messages when it is asked: it must answer, or the
    verdict would not be known."""
    result = s.run({**STRICT, "RESIL_BLAME": "full", "RESIL_REDUCE": "order", "RESIL_REDUCE_P2P": "1",
                    "RESIL_ON_MISMATCH": "abort", "RESIL_FAULT": "flip,rank=0,call=MPI_Send,nth=5",
                    "RESIL_DRAIN_SECONDS": "20"}, what=["answers"])
    assert result.returncode not in (0, None), result.text()
    kinds = [finding for report in result.ranks().values() for finding in report["findings"]]
    assert kinds and all(finding["confidence"] == "proved" and "undetermined" not in str(finding) for finding in kinds), (
        f"{kinds}\n{result.text()}")
    assert result.seconds < 15, result.text()  # less than RESIL_DRAIN_SECONDS: it did not wait for them


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    s = Setting(build, mpi)
    checks = [(f"{name} ({mpi})", lambda env=env: same(s, env) and None) for name, env in MODES.items()]
    checks += [(f"record, verify ({mpi})", lambda: repeats(s, "record", "verify")),
               (f"the same beside checksums ({mpi})", lambda: repeats(s, "checksum,record", "checksum,verify")),
               (f"answers from a reduction by messages ({mpi})", lambda: answered(s))]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
