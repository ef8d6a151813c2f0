#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One-sided checks in mode checksum: everything accounted for, damage found, windows that lie elsewhere found.

Usage: rma_checks_test.py BUILD openmpi|mpich      (BUILD holds rma.MPI, rma_checks.MPI, rma_threads.MPI, window_base.MPI)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402


class Checks:
    def __init__(self, build, mpi):
        self.build, self.mpi = build, mpi

    def run(self, program, preload=True, options=None, **env):
        """Debian's MPICH loses messages now and then, without the library too: a run that hangs is tried again."""
        if options is None:  # Open MPI 4.1: osc/rdma crashes in MPI_Compare_and_swap, osc/ucx loses data now and then
            options = ["--mca", "osc", "pt2pt,sm"] if self.mpi == "openmpi" else []
        env = {"RESIL_" + name.upper(): value for name, value in env.items()}
        if preload:
            env.setdefault("RESIL_MODE", "checksum")
        for _ in range(3):
            result = jobs.run(self.mpi, 2, [os.path.join(self.build, f"{program}.{self.mpi}")], env=env, preload=preload,
                              options=options, timeout=60)
            if not result.timed_out or self.mpi != "mpich":
                break
        return result

    @staticmethod
    def one_sided(result):
        """Sum over ranks of the report's `one_sided`, with `uncovered` by reason."""
        total = {"uncovered": {}}
        for report in result.ranks().values():
            for name, value in report["checksum"]["one_sided"].items():
                if name == "uncovered":
                    for reason, count in value.items():
                        total["uncovered"][reason] = total["uncovered"].get(reason, 0) + count
                else:
                    total[name] = total.get(name, 0) + value
        return total

    def accounted(self, program, expected, **env):
        def check():
            result = self.run(program, **env)
            assert result.returncode == 0, result.text()
            assert not any(report["findings"] for report in result.ranks().values()), result.text()
            found = self.one_sided(result)
            assert found["mismatches"] == 0 and found["windows_given_up"] == 0, found
            shared = found["uncovered"].pop("shared_window", 0)  # one a rank; they are no operations
            assert shared == expected.get("shared_windows", 2), found
            assert found["operations"] == found["checked"] + sum(found["uncovered"].values()), found
            says = re.search(rb"rma_\w+: (\d+) operations can be checked", result.stdout)
            checked = 2 * int(says[1]) if says else expected["checked"]
            assert found["checked"] == checked, found
            for reason, count in expected["uncovered"].items():
                assert found["uncovered"].get(reason) == count, (reason, found)
        return check

    def damage(self, fault, pattern):
        def check():
            result = self.run("rma_checks", fault=fault)
            assert result.returncode == 90, result.text()
            messages = [f["message"] for report in result.ranks().values() for f in report["findings"]
                        if f["kind"] == "one_sided_corrupted"]
            assert len(messages) == 1 and re.search(pattern, messages[0]), result.text()
        return check

    def placement(self):
        """An MPI that has the wrong address of a window's memory, if this one has: found; else nothing is said."""
        plain = self.run("window_base", preload=False, options=[])
        elsewhere = int(re.search(rb"window_base: (\d+) of 4", plain.stdout)[1])
        result = self.run("window_base", options=[], on_mismatch="log")
        assert result.returncode == 0 and result.stdout == plain.stdout, result.text()
        assert self.one_sided(result)["windows_misplaced"] >= elsewhere, result.text()
        kinds = [(f["kind"], f["confidence"]) for report in result.ranks().values() for f in report["findings"]]
        stopped = self.run("window_base", options=[])
        if elsewhere:
            assert kinds and set(kinds) == {("one_sided_corrupted", "proved")}, result.text()
            assert stopped.returncode == 90, stopped.text()
        else:
            assert not kinds and stopped.returncode == 0, result.text()
        return f"{elsewhere} of 4 windows lie elsewhere"


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    checks = Checks(build, mpi)
    program = {"uncovered": {"overlapped": 8, "accumulate": 6, "passive_target": 6}}
    both = [
        ("every kind of epoch", checks.accounted("rma_checks", program)),
        ("every kind of epoch (strict, full)", checks.accounted("rma_checks", program, checksum="strict", blame="full")),
        ("the program of the other tests", checks.accounted("rma", {"checked": 8, "uncovered": {"accumulate": 212}})),
        ("put between fences", checks.damage("flip,rank=0,call=MPI_Put,nth=2",
                                             r"^MPI_Put from rank 0 .* to rank 1 .* at rma_checks\.\w+\+0x[0-9a-f]+: 128 bytes "
                                             r"at displacement 1001 of rank 1's window are not")),
        ("put in an exposure epoch", checks.damage("zero,rank=1,call=MPI_Put,nth=4007", r"from rank 1 .* to rank 0 .* 64 bytes at")),
        ("put under an exclusive lock", checks.damage("swap,rank=0,call=MPI_Rput,nth=1", r"^MPI_Rput from rank 0 .* displacement 448 ")),
        ("where windows lie", checks.placement),
    ]
    threads = [("threads", checks.accounted("rma_threads", {"shared_windows": 0, "uncovered": {}}))]
    return run_checks(shared(both, mpi) + (threads if mpi == "mpich" else []))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
