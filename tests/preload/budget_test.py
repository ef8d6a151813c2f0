# SPDX-License-Identifier: Apache-2.0
"""docs/BUDGET.md: no kind of calls takes more instructions of the library's own code than the page says. Counts are by
callgrind on one rank, so that other work on the machine changes nothing."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench import budget  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402


def within(mpi, mode):
    def check():
        if not shutil.which("valgrind") or not shutil.which("objdump"):
            raise LeftOut("valgrind or objdump is not installed")
        compiler = subprocess.run(["c++", "-dumpversion"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        if compiler.split(".")[0] != budget.COMPILER:
            raise LeftOut(f"the counts are of g++ {budget.COMPILER}, not {compiler}")
        allowed, found = budget.committed()[(mode, mpi)], budget.costs(mpi, mode)
        assert found.keys() == allowed.keys() == budget.ROUND.keys(), (list(found), list(allowed))
        over = {kind: (allowed[kind][0], cost.instructions) for kind, cost in found.items()
                if budget.grown(kind, allowed[kind], cost)}
        assert not over, f"more instructions of the library's own than docs/BUDGET.md allows (allowed, counted): {over}"
        # What is compared is the library's own code, and a little more of it would be seen.
        least = min(found, key=lambda kind: found[kind].instructions)
        cost = found[least]
        assert budget.grown(least, [cost.instructions / 1.1, cost.branches, cost.clock], cost._replace(clock=0)), cost
        return f"{len(found)} kinds, {least} {found[least].instructions:.0f} instructions"
    return check


if __name__ == "__main__":
    mpi_name = sys.argv[1]
    sys.exit(run_checks(shared([(mode, within(mpi_name, mode)) for mode in budget.MODES], mpi_name)))
